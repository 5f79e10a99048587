"""Plays scenarios through the scheduler of an installed vLLM and writes down what it did. Run by vLLM's interpreter.

    python scheduler_oracle.py MODEL_FOLDER SCENARIOS.json OUT.json

No model runs: sampled tokens come from the scenario. A scenario's clock counts steps.
"""

import json
import sys
from pathlib import Path

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager


def scheduler_of(config, model):
    size, length = config["block_size"], config["max_model_len"]
    settings = VllmConfig(
        model_config=ModelConfig(model=model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=length),
        scheduler_config=SchedulerConfig(
            max_model_len=length,
            max_num_seqs=config["max_num_seqs"],
            max_num_batched_tokens=config["max_num_batched_tokens"],
            long_prefill_token_threshold=config["threshold"],
            policy=config["policy"],
            async_scheduling=config["asynchronous"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=size, enable_prefix_caching=config["caching"]),
        device_config=DeviceConfig("cpu"),
    )
    settings.cache_config.num_gpu_blocks = config["blocks"]
    spec = FullAttentionSpec(block_size=size, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
    cache = KVCacheConfig(config["blocks"], [], [KVCacheGroupSpec(["layer"], spec)])
    return (AsyncScheduler if config["asynchronous"] else Scheduler)(
        vllm_config=settings,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(settings),
        block_size=size,
        hash_block_size=size,
        log_stats=True,
    )


class Play:
    def __init__(self, scenario, model):
        self.asks = scenario["requests"]
        self.asynchronous = scenario["config"]["asynchronous"]
        self.scheduler = scheduler_of(scenario["config"], model)
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(scenario["config"]["block_size"], sha256)
        self.stop = scenario["stop"]
        self.given = {}
        self.script = {ask["key"]: ask["script"] for ask in self.asks}
        self.log, self.finished, self.cached = [], [], {}
        self.queries = self.hits = self.step = 0

    def add(self, place, ask):
        params = SamplingParams(max_tokens=ask["max_tokens"])
        params.update_from_generation_config({}, self.stop)
        request = Request(
            request_id=ask["key"],
            prompt_token_ids=ask["prompt"],
            sampling_params=params,
            pooling_params=None,
            arrival_time=ask["at"] * 1000 + place,
            block_hasher=self.hasher,
            cache_salt=ask["salt"],
            priority=ask["priority"],
        )
        self.given[ask["key"]] = 0
        self.scheduler.add_request(request)

    def schedule(self):
        out = self.scheduler.schedule()
        out.samples = {key: not self.scheduler.requests[key].is_prefill_chunk for key in out.num_scheduled_tokens}
        manager = self.scheduler.kv_cache_manager
        stats = manager.make_prefix_cache_stats()
        self.queries += stats.queries
        self.hits += stats.hits
        queue = manager.block_pool.free_block_queue.get_all_free_blocks()
        self.log.append(
            [
                [[key, count] for key, count in out.num_scheduled_tokens.items()],
                [request.request_id for request in self.scheduler.running],
                [request.request_id for request in self.scheduler.waiting],
                self.queries,
                self.hits,
                [block.block_id for block in queue],
            ]
        )
        return out if out.total_num_scheduled_tokens else None

    def complete(self, out):
        keys = list(out.num_scheduled_tokens)
        sampled = []
        for key in keys:
            known = key in self.scheduler.requests and out.samples[key]
            sampled.append([self.script[key][self.given[key]]] if known else [])
            self.given[key] += known
        result = ModelRunnerOutput(
            req_ids=keys,
            req_id_to_index={key: i for i, key in enumerate(keys)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        for outputs in self.scheduler.update_from_output(out, result).values():
            for output in outputs.outputs:
                if output.finish_reason is not None:
                    self.finished.append([self.step, output.request_id, str(output.finish_reason)])
                if output.prefill_stats is not None:
                    stats = output.prefill_stats
                    self.cached[output.request_id] = [stats.num_cached_tokens, stats.num_cache_creation_tokens]

    def run(self):
        waiting = list(enumerate(self.asks))
        pending = None
        while True:
            while waiting and waiting[0][1]["at"] <= self.step:
                self.add(*waiting.pop(0))
            for ask in self.asks:
                if ask["abort"] == self.step and ask["key"] in self.scheduler.requests:
                    self.scheduler.finish_requests(ask["key"], RequestStatus.FINISHED_ABORTED)
            self.step += 1
            out = self.schedule()
            if not self.asynchronous:
                pending, out = out, None
            if pending is not None:
                self.complete(pending)
            pending = out
            if not waiting and not self.scheduler.requests and pending is None:
                return {"log": self.log, "finished": self.finished, "cached": self.cached}


if __name__ == "__main__":
    model, source, target = sys.argv[1:]
    results = [Play(scenario, model).run() for scenario in json.loads(Path(source).read_text())]
    Path(target).write_text(json.dumps(results))
