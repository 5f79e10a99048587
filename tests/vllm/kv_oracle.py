"""Plays scenarios through vLLM's scheduler with several KV groups. Run by vLLM's interpreter.

    python kv_oracle.py MODEL_FOLDER SCENARIOS.json OUT.json

As scheduler_oracle.py, with the groups of the scenario in place of the model's; each step's log also has the blocks of
every running request in every group.
"""

import json
import math
import sys
from pathlib import Path

import scheduler_oracle
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.structured_output import StructuredOutputManager


def spec_of(group):
    attention = {"num_kv_heads": 2, "head_size": 32, "dtype": torch.bfloat16}
    size = group["block_size"]
    if group["kind"] == "full":
        return FullAttentionSpec(block_size=size, **attention)
    if group["kind"] == "window":
        return SlidingWindowSpec(block_size=size, sliding_window=group["window"], **attention)
    return MambaSpec(
        block_size=size,
        shapes=((8, 8),),
        dtypes=(torch.float32,),
        mamba_cache_mode=group["mamba_mode"],
        num_speculative_blocks=group["speculative_blocks"],
        num_prefill_checkpoint_blocks=int(group["checkpoints"]),
        prefill_checkpoint_alignment=1 if group["checkpoints"] else None,
    )


def units(config):
    """Block size that hits are multiples of, and tokens for each hash."""
    sizes = [group["block_size"] for group in config["groups"]]
    whole = math.lcm(*sizes)
    return whole, math.gcd(*sizes) if config["caching"] else whole


def scheduler_of(config, model):
    length = config["max_model_len"]
    settings = VllmConfig(
        model_config=ModelConfig(model=model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=length),
        scheduler_config=SchedulerConfig(
            max_model_len=length,
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            long_prefill_token_threshold=config["threshold"],
            policy=config["policy"],
            async_scheduling=config["asynchronous"],
            watermark=config["watermark"],
            scheduler_reserve_full_isl=config["gate"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=config["block_size"], enable_prefix_caching=config["caching"]),
        device_config=DeviceConfig("cpu"),
    )
    settings.cache_config.num_gpu_blocks = config["blocks"]
    # Switched off on the CPU; it says how many steps may be in flight.
    settings.scheduler_config.async_scheduling = config["asynchronous"]
    modes = [group["mamba_mode"] for group in config["groups"] if group["kind"] == "mamba"]
    settings.cache_config.mamba_cache_mode = modes[0] if modes else "none"
    if config["method"]:
        drafter = SpeculativeConfig(method="ngram", num_speculative_tokens=config["drafts"], prompt_lookup_max=2)
        drafter.method = config["method"]
        settings.speculative_config = drafter
    groups = [
        KVCacheGroupSpec([f"layer.{place}"], spec_of(group), is_eagle_group=group["drafts"])
        for place, group in enumerate(config["groups"])
    ]
    whole, unit = units(config)
    return (AsyncScheduler if config["asynchronous"] else Scheduler)(
        vllm_config=settings,
        kv_cache_config=KVCacheConfig(
            config["blocks"], [], groups, prefix_cache_retention_interval=config["retention"]
        ),
        structured_output_manager=StructuredOutputManager(settings),
        block_size=whole,
        hash_block_size=unit,
        log_stats=True,
    )


scheduler_oracle.scheduler_of = scheduler_of


class Play(scheduler_oracle.Play):
    def __init__(self, scenario, model):
        super().__init__(scenario, model)
        self.hasher = get_request_block_hasher(units(scenario["config"])[1], sha256)

    def schedule(self):
        out = super().schedule()
        manager = self.scheduler.kv_cache_manager
        running = [request.request_id for request in self.scheduler.running]
        self.log[-1] += [
            [[key, [list(blocks) for blocks in manager.get_block_ids(key)]] for key in running],
            manager.usage,
        ]
        return out


if __name__ == "__main__":
    model, source, target = sys.argv[1:]
    results = [Play(scenario, model).run() for scenario in json.loads(Path(source).read_text())]
    Path(target).write_text(json.dumps(results))
