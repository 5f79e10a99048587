"""SGLang: routes, metric names and resolved settings, from the sources of SGLang 0.5.23 (srt/entrypoints/http_server.py
and srt/observability/metrics_collector.py).
"""

from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from windtunnel.simulator.engines import pages, probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, fetch, list_models, metrics_page, root_of
from windtunnel.simulator.engines.settings import count, dotted, flag

METRICS: Mapping[str, str] = {
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:token_usage": "kv_usage",
    "sglang:num_retracted_requests": "preemptions",
    "sglang:cached_tokens": "prefix_hits",
    "sglang:prompt_tokens": "prompt_tokens prefix_queries",
    "sglang:generation_tokens": "generation_tokens",
    "sglang:num_requests": "requests_finished",
    "sglang:cache_hit_rate": "cache_hit_rate",
    "sglang:spec_accept_length": "spec_accept_length",
}
"""Tokens are counted when a request ends. Of speculation there are gauges only, no counters."""
FLUSH = "/flush_cache"
CLEAR_STORAGE = "/hicache/storage-backend/clear"
DIFFERS = (
    *(
        "port",
        "host",
        "addr",
        "rank",
        "seed",
        "time",
        "key",
        "ssl",
        "cert",
        "token_dir",
        "log",
        "url",
        "launch_command",
    ),
    *(
        "internal_states",
        "version",
        "frontend",
        "status",
        "kv_event",
        "object_layout",
        "max_total_num",
        "max_req_input",
    ),
    *("memory", "node", "dir", "crash", "watchdog", "served_model_name", "handler"),
)
"""Parts of names of settings that differ between starts of one configuration, are nobody's business or cost no time."""


class Sglang:
    name = "sglang"
    metric_names = METRICS
    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ("sglang:",)

    def recognises(self, seen: Seen) -> bool:
        return seen.has(*self.prefixes) or "sglang" in seen.owners

    async def probe(
        self, session: aiohttp.ClientSession, base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        info = await _info(session, root)
        page = await metrics_page(session, root + self.metrics_path)
        seen = await probe.capabilities(session, root, entry["id"], known=True, quiet=quiet)
        size = count(info.get("page_size")) or pages.whole(pages.gauge(page.body, "sglang:page_size"))
        tokens = count(info.get("max_total_num_tokens"))
        tokens = tokens or pages.whole(pages.gauge(page.body, "sglang:max_total_num_tokens"))
        off = flag(info.get("disable_radix_cache"))
        method, drafted = _speculation(info)
        return Resolved(
            name=self.name,
            version=info["version"] if isinstance(info.get("version"), str) else None,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=count(entry.get("max_model_len")),
            block_size=size,
            kv_tokens=tokens,
            num_blocks=tokens // size if tokens and size else None,
            prefix_caching=None if off is None else not off,
            speculation=method,
            speculative_tokens=drafted,
            flags=dotted("server_args", info, DIFFERS),
            capabilities=msgspec.structs.replace(
                seen,
                reset=True,
                metrics=page.status == 200 and b"sglang:" in page.body,
                server_info=bool(info),
            ),
        )

    async def reset(self, session: aiohttp.ClientSession, base_url: str) -> tuple[bool, str]:
        root = root_of(base_url)
        answer = await fetch(session, root + FLUSH, method="POST")
        if answer.status in (401, 403):
            return False, f"{root} wants its --admin-api-key for {FLUSH}; pass it as --api-key"
        if answer.status != 200 or b"Cache flushed" not in answer.body:
            return False, f"{root} did not flush its cache ({answer.complaint()}); requests are still in it"
        if not (await _info(session, root)).get("hicache_storage_backend"):
            return True, "radix cache flushed, host tier included"
        cleared = await fetch(session, root + CLEAR_STORAGE, method="POST")
        if cleared.status != 200:
            return False, f"{root} flushed its cache and kept what is in its storage backend ({cleared.complaint()})"
        return True, "radix cache flushed, host tier and storage backend included"


async def _info(session: aiohttp.ClientSession, root: str) -> dict[str, Any]:
    """Its resolved settings, those of nested groups beside the others; older versions have them at another route."""
    for route in ("/server_info", "/get_server_info"):
        if info := (await fetch(session, root + route)).record():
            nested = [value for value in info.values() if isinstance(value, dict)]
            return {key: value for part in (*nested, info) for key, value in part.items()}
    return {}


def _speculation(info: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Algorithm, and tokens drafted in a step: its steps in a chain, else the nodes of its tree without the root."""
    method = info.get("speculative_algorithm")
    if not isinstance(method, str):
        return None, None
    nodes, steps = count(info.get("speculative_num_draft_tokens")), count(info.get("speculative_num_steps"))
    chain = (count(info.get("speculative_eagle_topk")) or 1) == 1
    return method.lower(), steps if chain and steps else (nodes - 1 if nodes else None)
