"""TensorRT-LLM's trtllm-serve: routes and metric names, from its sources (tensorrt_llm/serve/openai_server.py,
tensorrt_llm/serve/openai_protocol.py and tensorrt_llm/metrics/collector.py).

Its `/metrics` is a list of iterations that is emptied by reading it, so the Prometheus page is read instead; that one
is there with `return_perf_metrics: true` and tells of iterations with `enable_iter_perf_stats: true`.
"""

from collections.abc import Mapping

import aiohttp
import msgspec

from windtunnel.simulator.engines import pages, probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, fetch, list_models, metrics_page, root_of
from windtunnel.simulator.engines.settings import count, flag

METRICS: Mapping[str, str] = {
    "trtllm_num_requests_running": "running",
    "trtllm_num_requests_waiting": "waiting",
    "trtllm_kv_cache_utilization": "kv_usage",
    "trtllm_prompt_tokens": "prompt_tokens prefix_queries",
    "trtllm_prompt_cached_tokens": "prefix_hits",
    "trtllm_generation_tokens": "generation_tokens",
    "trtllm_spec_decode_num_draft_tokens": "spec_draft_tokens",
    "trtllm_spec_decode_num_accepted_tokens": "spec_accepted",
    "trtllm_spec_decode_acceptance_length": "spec_accept_length",
    "trtllm_kv_cache_hit_rate": "cache_hit_rate",
    "trtllm_request_success": "requests_finished",
}
"""No count of preemptions; its counters of reused and missed blocks are blocks and no tokens, and stay out."""
INFO = ("model_config", "parallel_config", "speculative_config", "kv_cache_config")
COMMON_LABELS = ("model_name", "engine_type")


class TrtLlm:
    name = "tensorrt-llm"
    metric_names = METRICS
    metrics_path = "/prometheus/metrics"
    prefixes: tuple[str, ...] = ("trtllm_",)

    def recognises(self, seen: Seen) -> bool:
        return "tensorrt_llm" in seen.owners or seen.has(*self.prefixes)

    async def probe(
        self, session: aiohttp.ClientSession, base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        version = (await fetch(session, f"{root}/version")).record().get("version")
        # Output lengths have to show: the field is taken by every backend and heeded by not every one.
        seen = await probe.capabilities(session, root, entry["id"], known=False, salts=True, quiet=quiet)
        answer = await metrics_page(session, root + self.metrics_path)
        page = answer.body if answer.status == 200 else b""
        told = {name: pages.labels(page, f"trtllm_{name}_info", COMMON_LABELS) for name in INFO}
        cache, drafting = told["kv_cache_config"], told["speculative_config"]
        size = pages.whole(pages.gauge(page, "trtllm_kv_cache_tokens_per_block")) or count(cache.get("page_size"))
        blocks = pages.whole(pages.gauge(page, "trtllm_kv_cache_max_blocks"))
        return Resolved(
            name=self.name,
            version=version if isinstance(version, str) else None,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=count(entry.get("max_model_len")),
            block_size=size,
            kv_tokens=blocks * size if blocks and size else None,
            num_blocks=blocks,
            prefix_caching=flag(cache.get("enable_block_reuse")),
            speculation=drafting.get("method"),
            speculative_tokens=count(drafting.get("num_speculative_tokens")),
            flags=dict(sorted((f"{name}.{k}", v) for name, found in told.items() for k, v in found.items())),
            capabilities=msgspec.structs.replace(seen, reset=False, metrics=b"trtllm_" in page),
        )

    async def reset(self, session: aiohttp.ClientSession, base_url: str) -> tuple[bool, str]:  # noqa: ARG002
        return False, f"{root_of(base_url)} is TensorRT-LLM, which empties its cache only when it is started again"
