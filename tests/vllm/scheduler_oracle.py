"""Plays scenarios through the scheduler of an installed vLLM and writes down what it did. Run by vLLM's interpreter.

    python scheduler_oracle.py MODEL_FOLDER SCENARIOS.json OUT.json

No model runs: sampled tokens come from the scenario. A scenario's clock counts steps.
"""

import json
import sys
from pathlib import Path

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
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
            watermark=config["watermark"],
            scheduler_reserve_full_isl=config["gate"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=size, enable_prefix_caching=config["caching"]),
        device_config=DeviceConfig("cpu"),
    )
    settings.cache_config.num_gpu_blocks = config["blocks"]
    if config["method"]:
        # The method is set afterwards: a drafter's own model is not needed to decide what is scheduled.
        drafter = SpeculativeConfig(method="ngram", num_speculative_tokens=config["drafts"], prompt_lookup_max=2)
        drafter.method = config["method"]
        settings.speculative_config = drafter
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
        self.blank = set()
        self.queries = self.hits = self.step = 0
        self.config = scenario["config"]
        self.accepts = {ask["key"]: ask["accepts"] for ask in self.asks}
        self.proposes = {ask["key"]: ask["proposes"] for ask in self.asks}
        self.spec = [0, 0, 0, [0] * self.config["drafts"]]

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
        ran = {request.request_id for request in self.scheduler.running}
        out = self.scheduler.schedule()
        requests = self.scheduler.requests
        out.samples = {key: not requests[key].is_prefill_chunk for key in out.num_scheduled_tokens}
        # The drafts of a request that has just been admitted only pad the batch: all are rejected.
        drafts = {key: len(ids) for key, ids in out.scheduled_spec_decode_tokens.items()}
        out.real_drafts = {key: count if key in ran - self.blank else 0 for key, count in drafts.items()}
        out.longest = max((requests[key].num_computed_tokens for key in out.num_scheduled_tokens), default=0)
        manager = self.scheduler.kv_cache_manager
        stats = manager.make_prefix_cache_stats()
        self.queries += stats.queries
        self.hits += stats.hits
        queue = manager.block_pool.free_block_queue.get_all_free_blocks()
        self.log.append(
            [
                [[key, count, drafts.get(key, 0)] for key, count in out.num_scheduled_tokens.items()],
                [request.request_id for request in self.scheduler.running],
                [request.request_id for request in self.scheduler.waiting],
                self.queries,
                self.hits,
                [block.block_id for block in queue],
                [*self.spec[:3], *self.spec[3]],
            ]
        )
        return out if out.total_num_scheduled_tokens else None

    def sample(self, key, out):
        """What the model gives: the accepted drafts and one token more, whatever comes after the end of the script."""
        if key not in self.scheduler.requests or not out.samples[key]:
            return []
        at = self.given[key]
        accepted = min(self.accepts[key][at], out.real_drafts.get(key, 0))
        ids = [*self.script[key], *[7] * 20][at : at + 1 + accepted]
        self.given[key] += len(ids)
        return ids

    def complete(self, out):
        keys = list(out.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=keys,
            req_id_to_index={key: i for i, key in enumerate(keys)},
            sampled_token_ids=[self.sample(key, out) for key in keys],
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
            stats = outputs.scheduler_stats and outputs.scheduler_stats.spec_decoding_stats
            if stats:
                self.spec[0] += stats.num_drafts
                self.spec[1] += stats.num_draft_tokens
                self.spec[2] += stats.num_accepted_tokens
                self.spec[3] = [a + b for a, b in zip(self.spec[3], stats.num_accepted_tokens_per_pos, strict=True)]
        if self.config["method"] and not self.asynchronous:
            self.propose(keys, out)

    def propose(self, keys, out):
        """The drafter runs after the step: n-grams find up to as many drafts as the scenario says, others always all."""
        most, found = self.config["drafts"], []
        plain = self.config["method"] == "ngram"
        far = not plain or out.longest + most <= self.config["max_model_len"]
        # Too close to the model's length for one of the batch: the model runner hands out zeros for all.
        self.blank = set() if far else set(keys)
        for key in keys:
            count = self.proposes[key][min(self.given[key], len(self.proposes[key]) - 1)] if plain and far else most
            found.append([5] * min(count, most))
        self.scheduler.update_draft_token_ids(DraftTokenIds(keys, found))

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
