"""llama.cpp's llama-server: routes, metric names and settings, from build 11434 (tools/server/server-task.cpp,
tools/server/server-context.cpp).

Its cache is what each slot has left from its last request, and beside it a cache in memory (`--cache-ram`, on by
default) that takes in what a slot gives up. Slots are erased by a route that is there with `--slot-save-path`; the
cache in memory has no route, so that after a reset requests show whether there is one.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from windtunnel.simulator.engines import probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, fetch, list_models, metrics_page, root_of
from windtunnel.simulator.engines.settings import count, dotted, integer

METRICS: Mapping[str, str] = {
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
    "llamacpp:prompt_tokens": "prompt_tokens prefix_queries",
    "llamacpp:prompt_tokens_cached": "prefix_hits prompt_tokens prefix_queries",
    "llamacpp:tokens_predicted": "generation_tokens",
    "llamacpp:spec_decode_num_drafts": "spec_drafts",
    "llamacpp:spec_decode_num_draft_tokens": "spec_draft_tokens",
    "llamacpp:spec_decode_num_accepted_tokens": "spec_accepted",
}
"""Its count of prompt tokens leaves cached ones out, which have their own. No gauge of the KV cache, no count of
finished requests."""
PROPS = ("default_generation_settings", "total_slots", "model_ftype", "model_path", "modalities")
DIFFERS = ("seed", "params", "is_sleeping")
MOST_SLOTS = 16
"""With more slots the check of a reset takes too many requests."""
WORDS = 48


class LlamaCpp:
    name = "llama.cpp"
    metric_names = METRICS
    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ("llamacpp:",)

    def recognises(self, seen: Seen) -> bool:
        return "llamacpp" in seen.owners or seen.has(*self.prefixes)

    async def probe(
        self, session: aiohttp.ClientSession, base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        props = (await fetch(session, f"{root}/props")).record()
        page = await metrics_page(session, root + self.metrics_path)
        # Some builds take `ignore_eos` and go on to stop: only the output shows.
        seen = await probe.capabilities(session, root, entry["id"], known=False, quiet=quiet)
        slots, context = count(props.get("total_slots")), _context(entry, props)
        build = props.get("build_info")
        return Resolved(
            name=self.name,
            version=build if isinstance(build, str) else None,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=context,
            block_size=1,
            kv_tokens=slots * context if slots and context else None,
            prefix_caching=True,
            flags=dotted("props", {name: props.get(name) for name in PROPS}, DIFFERS),
            capabilities=msgspec.structs.replace(
                seen,
                reset=await self._can_reset(session, root),
                metrics=page.status == 200 and b"llamacpp:" in page.body,
                server_info=bool(props),
            ),
        )

    async def _can_reset(self, session: aiohttp.ClientSession, root: str) -> bool:
        """No slot is touched by an action that does not exist; without the flag no action does."""
        answer = await fetch(session, f"{root}/slots/0?action=none", {})
        return answer.status == 400 and b"Invalid action" in answer.body

    async def reset(self, session: aiohttp.ClientSession, base_url: str) -> tuple[bool, str]:
        root = root_of(base_url)
        slots = count((await fetch(session, f"{root}/props")).record().get("total_slots"))
        if slots is None:
            return False, f"{root} does not say how many slots it has"
        for slot in range(slots):
            answer = await fetch(session, f"{root}/slots/{slot}?action=erase", {})
            if integer(answer.record().get("n_erased")) is None:
                return (
                    False,
                    f"{root} erased no slot ({answer.complaint()}); start llama-server with --slot-save-path DIR",
                )
        if slots > MOST_SLOTS:
            return False, f"{root} erased its slots; whether it has a cache in memory beside them is not known"
        if await self._has_cache_ram(session, root, slots):
            return False, f"{root} erased its slots and kept its cache in memory; start llama-server with --cache-ram 0"
        for slot in range(slots):  # what the check has left
            await fetch(session, f"{root}/slots/{slot}?action=erase", {})
        return True, f"{slots} slots erased; there is no cache in memory beside them"

    async def _has_cache_ram(self, session: aiohttp.ClientSession, root: str, slots: int) -> bool:
        """Whether a prompt is known again after as many others as there are slots came and all slots were erased."""
        first = _prompt()
        for prompt in (first, *(_prompt() for _ in range(slots + 1))):
            await _cached(session, root, prompt)
        for slot in range(slots):
            await fetch(session, f"{root}/slots/{slot}?action=erase", {})
        return await _cached(session, root, first) > WORDS // 2


def _context(entry: Mapping[str, Any], props: Mapping[str, Any]) -> int | None:
    """Tokens of one slot."""
    meta, settings = entry.get("meta"), props.get("default_generation_settings")
    told = count(meta.get("n_ctx")) if isinstance(meta, dict) else None
    return told or (count(settings.get("n_ctx")) if isinstance(settings, dict) else None)


def _prompt() -> str:
    """Words that no other prompt begins with."""
    return " ".join(str(secrets.randbelow(1000)) for _ in range(WORDS))


async def _cached(session: aiohttp.ClientSession, root: str, prompt: str) -> int:
    """Prompt tokens that a request for one token found in the cache."""
    answer = (await fetch(session, f"{root}/completion", {"prompt": prompt, "n_predict": 1})).record()
    timings = answer.get("timings")
    return (integer(timings.get("cache_n")) if isinstance(timings, dict) else None) or 0
