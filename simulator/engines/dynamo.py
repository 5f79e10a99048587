"""Dynamo's frontend: metric names and what it tells of the workers behind it, as seen on ai-dynamo 1.6.1.

It knows requests and tokens and nothing of a scheduler: what runs and what waits in an engine is not told apart, so
`waiting` stays null and `running` counts what the frontend has not finished. For an engine's own figures give the
workers' pages as `--metrics-url`.
"""

from collections.abc import Mapping

import aiohttp
import msgspec

from windtunnel.simulator.engines import pages, probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, list_models, metrics_page, root_of

METRICS: Mapping[str, str] = {
    "dynamo_frontend_inflight_requests": "running",
    "dynamo_frontend_input_sequence_tokens_sum": "prompt_tokens prefix_queries",
    "dynamo_frontend_cached_tokens_sum": "prefix_hits",
    "dynamo_frontend_output_tokens": "generation_tokens",
    "dynamo_frontend_requests": "requests_finished",
}
SETTINGS = (
    *("model_total_kv_blocks", "model_max_num_seqs", "model_max_num_batched_tokens", "model_context_length"),
    *("model_kv_cache_block_size", "model_migration_limit"),
)
"""Gauges of a model's workers, of one worker each."""


class Dynamo:
    name = "dynamo"
    metric_names = METRICS
    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ("dynamo_frontend_",)

    def recognises(self, seen: Seen) -> bool:
        return seen.has(*self.prefixes)

    async def probe(
        self, session: aiohttp.ClientSession, base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        page = (await metrics_page(session, root + self.metrics_path)).body
        told = {name: pages.whole(pages.gauge(page, f"dynamo_frontend_{name}")) for name in SETTINGS}
        blocks, size = told["model_total_kv_blocks"], told["model_kv_cache_block_size"]
        seen = await probe.capabilities(session, root, entry["id"], known=False, quiet=quiet)
        return Resolved(
            name=self.name,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=told["model_context_length"],
            block_size=size,
            kv_tokens=blocks * size if blocks and size else None,
            num_blocks=blocks,
            flags={f"frontend.{name}": value for name, value in sorted(told.items()) if value is not None},
            capabilities=msgspec.structs.replace(seen, metrics=True),
        )

    async def reset(self, session: aiohttp.ClientSession, base_url: str) -> tuple[bool, str]:  # noqa: ARG002
        return False, f"{root_of(base_url)} is a Dynamo frontend, which has no route that empties its workers' caches"
