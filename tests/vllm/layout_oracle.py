"""Writes down the KV groups that an installed vLLM makes of given layers. Run by vLLM's interpreter.

    python layout_oracle.py MODEL_FOLDER CASES.json OUT.json

A case names its layers in order; no model is needed to group them.
"""

import json
import sys
from pathlib import Path

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec


def spec_of(layer, case):
    size = case["block_size"]
    attention = {"num_kv_heads": 1, "head_size": layer["token_bytes"] // 4, "dtype": torch.bfloat16}
    if layer["kind"] == "full":
        return FullAttentionSpec(block_size=size, **attention)
    if layer["kind"] == "window":
        return SlidingWindowSpec(block_size=size, sliding_window=layer["window"], **attention)
    return MambaSpec(
        block_size=size if case["caching"] else case["max_model_len"],
        shapes=((layer["state_bytes"],),),
        dtypes=(torch.int8,),
        # As the platform does once it has chosen the block size.
        page_size_padded=case["page"],
        mamba_cache_mode="align" if case["caching"] else "none",
        num_speculative_blocks=case["drafts"],
        num_prefill_checkpoint_blocks=int(layer["checkpoints"]),
        prefill_checkpoint_alignment=1 if layer["checkpoints"] else None,
    )


def groups_of(case, model):
    length = case["max_model_len"]
    settings = VllmConfig(
        model_config=ModelConfig(model=model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=length),
        scheduler_config=SchedulerConfig(
            max_model_len=length,
            max_num_seqs=8,
            max_num_batched_tokens=case["batched"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=case["block_size"], enable_prefix_caching=case["caching"]),
        device_config=DeviceConfig("cpu"),
    )
    settings.scheduler_config.async_scheduling = True
    settings.cache_config.kv_cache_layout = "LBHNC"
    settings.cache_config.mamba_cache_mode = "align" if case["caching"] else "none"
    if case["drafts"]:
        drafter = SpeculativeConfig(method="ngram", num_speculative_tokens=case["drafts"], prompt_lookup_max=2)
        drafter.method = "mtp"
        settings.speculative_config = drafter
    specs = {f"layer.{place}": spec_of(layer, case) for place, layer in enumerate(case["layers"])}
    groups = kv_cache_utils.get_kv_cache_groups(settings, specs)
    config = kv_cache_utils.get_kv_cache_config_from_groups(settings, groups, case["memory"])
    tokens, requests = kv_cache_utils.get_kv_cache_capacity(settings, config)
    kinds = {"FullAttentionSpec": "full", "SlidingWindowSpec": "window", "MambaSpec": "mamba"}
    found = []
    for group in groups:
        spec = next(iter(kv_cache_utils.iter_layer_specs(group.kv_cache_spec)))
        found.append([kinds[type(spec).__name__], spec.block_size, group.is_eagle_group])
    return {"groups": found, "blocks": config.num_blocks, "tokens": tokens, "requests": requests}


if __name__ == "__main__":
    model, source, target = sys.argv[1:]
    cases = json.loads(Path(source).read_text())
    Path(target).write_text(json.dumps([groups_of(case, model) for case in cases]))
