"""Plays scenarios through vLLM's scheduler with its offloading connector. Run by vLLM's interpreter.

    python offload_oracle.py MODEL_FOLDER SCENARIOS.json OUT.json

As scheduler_oracle.py; the connector's worker is played: transfers take the time that the scenario says, a step is a
thousand units long.
"""

import json
import sys
from pathlib import Path

import scheduler_oracle
import torch
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
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
            async_scheduling=config["asynchronous"],
            watermark=config["watermark"],
            scheduler_reserve_full_isl=config["gate"],
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=size, enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"cpu_bytes_to_use": 1 << 30},
        ),
    )
    settings.cache_config.num_gpu_blocks = config["blocks"]
    settings.scheduler_config.async_scheduling = config["asynchronous"]
    spec = FullAttentionSpec(block_size=size, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
    page, blocks = spec.page_size_bytes, config["blocks"]
    tensor = KVCacheTensor(
        size=page * blocks, layers=["layer"], layer_stride=page * blocks, block_stride=page, offset=0
    )
    scheduler = (AsyncScheduler if config["asynchronous"] else Scheduler)(
        vllm_config=settings,
        kv_cache_config=KVCacheConfig(blocks, [tensor], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=StructuredOutputManager(settings),
        block_size=size,
        hash_block_size=size,
        log_stats=True,
    )
    scheduler.connector.connector_scheduler.manager = CPUOffloadingManager(config["host"])
    return scheduler


scheduler_oracle.scheduler_of = scheduler_of


class Play(scheduler_oracle.Play):
    def __init__(self, scenario, model):
        super().__init__(scenario, model)
        self.external = [0, 0]
        self.later, self.under_way = [], {True: [], False: []}

    def begin(self, jobs, load):
        queue = self.under_way[load]
        for ident, job in jobs:
            begins = max(self.step * 1000, queue[-1][0]) if queue else self.step * 1000
            side = job.dst_spec if load else job.src_spec
            each = self.config["load"] if load else 0
            queue.append((begins + len(side.block_ids) * each, ident, job.req_id))

    def schedule(self):
        scheduler = self.scheduler
        out = scheduler.schedule()
        requests = scheduler.requests
        out.samples = {key: not requests[key].is_prefill_chunk for key in out.num_scheduled_tokens}
        out.real_drafts = {}
        stats = scheduler.kv_cache_manager.make_prefix_cache_stats()
        self.queries += stats.queries
        self.hits += stats.hits
        stats, scheduler.connector_prefix_cache_stats = scheduler.connector_prefix_cache_stats, PrefixCacheStats()
        self.external[0] += stats.queries
        self.external[1] += stats.hits
        meta = out.kv_connector_metadata
        self.begin(self.later, load=False)
        self.begin(meta.load_jobs.items(), load=True)
        self.later = list(meta.store_jobs.items())
        queue = scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
        self.log.append(
            [
                [[key, count] for key, count in out.num_scheduled_tokens.items()],
                [request.request_id for request in scheduler.running],
                [request.request_id for request in scheduler.waiting],
                [request.request_id for request in scheduler.kv_holding_waiting],
                [self.queries, self.hits, *self.external],
                [block.block_id for block in queue],
            ]
        )
        return out

    def complete(self, out):
        over, arrived = OffloadingWorkerMetadata(), set()
        for load, queue in self.under_way.items():
            while queue and queue[0][0] <= (self.step + 1) * 1000:
                _, ident, key = queue.pop(0)
                over.mark_completed(ident)
                if load:
                    arrived.add(key)
        keys = list(out.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=keys,
            req_id_to_index={key: i for i, key in enumerate(keys)},
            sampled_token_ids=[self.sample(key, out) for key in keys],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=KVConnectorOutput(finished_recving=arrived, kv_connector_worker_meta=over),
        )
        for outputs in self.scheduler.update_from_output(out, result).values():
            for output in outputs.outputs:
                if output.finish_reason is not None:
                    self.finished.append([self.step, output.request_id, str(output.finish_reason)])
                if output.prefill_stats is not None:
                    self.cached[output.request_id] = output.prefill_stats.num_cached_tokens

    def run(self):
        waiting, pending = list(enumerate(self.asks)), None
        while waiting or self.scheduler.requests:
            while waiting and waiting[0][1]["at"] <= self.step:
                self.add(*waiting.pop(0))
            self.step += 1
            out = self.schedule()
            if not self.asynchronous:
                pending, out = out, None
            if pending is not None:
                self.complete(pending)
            pending = out
            assert self.step < 20_000, "the scenario does not end"
        return {"log": self.log, "finished": self.finished, "cached": self.cached}


if __name__ == "__main__":
    model, source, target = sys.argv[1:]
    results = [Play(scenario, model).run() for scenario in json.loads(Path(source).read_text())]
    Path(target).write_text(json.dumps(results))
