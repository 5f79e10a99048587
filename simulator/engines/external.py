"""Any OpenAI-compatible server of which nothing more is known: no reset, no metrics, whatever the probes show."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from windtunnel.simulator.engines import probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, list_models, root_of
from windtunnel.simulator.engines.settings import count

LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""Names under which servers put a model's length into `/v1/models`."""


class External:
    name = "openai"
    metric_names: Mapping[str, str] = {}
    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ()

    def recognises(self, seen: Seen) -> bool:  # noqa: ARG002 - everything is at least this
        return True

    async def probe(
        self, session: aiohttp.ClientSession, base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        return Resolved(
            name=self.name,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=_length(entry),
            capabilities=await probe.capabilities(session, root, entry["id"], known=False, quiet=quiet),
        )

    async def reset(self, session: aiohttp.ClientSession, base_url: str) -> tuple[bool, str]:  # noqa: ARG002
        return False, f"{root_of(base_url)} has no known way to reset its cache"


def _length(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    found = [entry.get(name) for name in LENGTHS]
    found.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
    return next((value for told in found if (value := count(told)) is not None), None)
