"""A vLLM scheduler that writes down what it decides, and is otherwise vLLM's own. Imported by vLLM's interpreter only.

`--scheduler-cls step_log.Logged` and WINDTUNNEL_STEP_LOG=FILE: one JSON line for each request that comes, step that is
decided, result that returns, request ended from outside and cache reset. A line is in the file before the engine answers
anybody, so that whoever has an answer finds its lines there. On a CPU vLLM schedules synchronously, whatever is asked.
"""

import json
import os
import time
import zlib
from array import array
from pathlib import Path

from vllm.v1.core.sched.scheduler import Scheduler


class Logged(Scheduler):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._lines = Path(os.environ["WINDTUNNEL_STEP_LOG"]).open("w", encoding="utf-8")  # noqa: SIM115
        self._settings()

    def _settings(self):
        speculative = self.vllm_config.speculative_config
        self._say(
            "settings",
            num_gpu_blocks=self.kv_cache_manager.block_pool.num_gpu_blocks,
            block_size=self.block_size,
            max_model_len=self.max_model_len,
            max_num_seqs=self.scheduler_config.max_num_seqs,
            max_num_batched_tokens=self.scheduler_config.max_num_batched_tokens,
            long_prefill_token_threshold=self.scheduler_config.long_prefill_token_threshold,
            enable_prefix_caching=self.cache_config.enable_prefix_caching,
            watermark=self.scheduler_config.watermark,
            speculative_tokens=speculative.num_speculative_tokens if speculative else 0,
            asynchronous=self.scheduler_config.async_scheduling,
        )

    def _say(self, kind, **what):
        line = {"kind": kind, "at": time.monotonic_ns(), **what}
        self._lines.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._lines.flush()

    def _pool(self):
        """Free blocks, a checksum of their order, and how many requests run and wait."""
        queue = self.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
        order = array("I", [block.block_id for block in queue])
        return {
            "free": len(order),
            "order": zlib.crc32(order.tobytes()),
            "running": len(self.running),
            "waiting": len(self.waiting),
        }

    def add_request(self, request):
        super().add_request(request)
        self._say(
            "add",
            key=request.request_id,
            prompt=list(request.prompt_token_ids),
            max_tokens=request.max_tokens,
            priority=request.priority,
            salt=request.cache_salt,
        )

    def finish_requests(self, request_ids, finished_status):
        ended = super().finish_requests(request_ids, finished_status)
        if ended:
            self._say("end", keys=[request.request_id for request in ended], **self._pool())
        return ended

    def reset_prefix_cache(self, *args, **kwargs):
        done = super().reset_prefix_cache(*args, **kwargs)
        self._say("reset", done=done)
        return done

    def schedule(self, *args, **kwargs):
        out = super().schedule(*args, **kwargs)
        rows = [
            [key, count, self.requests[key].num_computed_tokens - count]
            for key, count in out.num_scheduled_tokens.items()
        ]
        self._say("step", rows=rows, preempted=sorted(out.preempted_req_ids or ()), **self._pool())
        return out

    def update_draft_token_ids(self, drafted):
        super().update_draft_token_ids(drafted)
        known = [self.requests[key] for key in drafted.req_ids if key in self.requests]
        self._say("drafts", rows=[[one.request_id, len(one.spec_token_ids)] for one in known])

    def update_from_output(self, out, result):
        # Before what lies behind a stop is cut off.
        sampled = {key: list(result.sampled_token_ids[at]) for key, at in result.req_id_to_index.items()}
        returned = super().update_from_output(out, result)
        rows = [
            [
                one.request_id,
                list(one.new_token_ids),
                sampled[one.request_id],
                None if one.finish_reason is None else str(one.finish_reason),
            ]
            for outputs in returned.values()
            for one in outputs.outputs
        ]
        self._say("result", rows=rows, **self._pool())
        return returned
