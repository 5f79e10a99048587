"""vLLM: routes, metric names and resolved settings, as seen on vLLM 0.32.0."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.simulator.engines import probe
from windtunnel.simulator.engines.base import Resolved, Seen, choose_model, fetch, list_models, metrics_page, root_of
from windtunnel.simulator.engines.settings import count

if TYPE_CHECKING:
    import aiohttp

METRICS: Mapping[str, str] = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:num_preemptions": "preemptions",
    "vllm:prefix_cache_queries": "prefix_queries",
    "vllm:prefix_cache_hits": "prefix_hits",
    "vllm:prompt_tokens": "prompt_tokens",
    "vllm:generation_tokens": "generation_tokens",
    "vllm:spec_decode_num_drafts": "spec_drafts",
    "vllm:spec_decode_num_draft_tokens": "spec_draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "spec_accepted",
    "vllm:request_success": "requests_finished",
}
RESET = "/reset_prefix_cache?reset_external=true"
"""Without `reset_external` a CPU offload tier stays warm."""
WRONG_METHOD = 405
"""Answer to GET on a route that takes POST: it is there. Without development mode it is 404."""
SECTIONS = (
    "model_config",
    "cache_config",
    "scheduler_config",
    "parallel_config",
    "speculative_config",
    "attention_config",
    "mamba_config",
    "compilation_config",
    "kv_transfer_config",
    "offload_config",
    "kernel_config",
    "load_config",
    "quant_config",
)
DIFFERS = ("port", "instance_id", "_data_parallel", "rank", "addr", "_count", "cache_dir", "debug_dump", "time")
"""Parts of names of settings that differ between starts of one configuration, or say nothing about speed."""


class Vllm:
    name = "vllm"
    metric_names = METRICS
    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ("vllm:",)

    def recognises(self, seen: Seen) -> bool:
        return seen.has(*self.prefixes) or (seen.version is not None and "vllm" in seen.owners)

    async def probe(
        self, session: "aiohttp.ClientSession", base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        root = root_of(base_url)
        models = await list_models(session, root)
        entry = choose_model(models, model, root)
        version = (await fetch(session, f"{root}/version")).record().get("version")
        info = (await fetch(session, f"{root}/server_info?config_format=json")).record()
        config = info.get("vllm_config") if isinstance(info.get("vllm_config"), dict) else None
        page = await metrics_page(session, f"{root}/metrics")
        labels = cache_labels(page.body) if page.status == 200 else {}
        told = config.get("cache_config") if config else None
        cache: dict[str, Any] = dict(told) if isinstance(told, dict) else dict(labels)
        found = await probe.capabilities(session, root, entry["id"], known=True, quiet=quiet)
        seen = msgspec.structs.replace(
            found,
            reset=(await fetch(session, root + RESET)).status == WRONG_METHOD,
            metrics=page.status == 200 and b"vllm:" in page.body,
            server_info=config is not None,
        )
        kv_tokens, blocks = count(cache.get("kv_cache_size_tokens")), count(cache.get("num_gpu_blocks"))
        size = count(cache.get("block_size"))
        if kv_tokens is None and blocks and size:
            kv_tokens = blocks * size
        return Resolved(
            name=self.name,
            version=version if isinstance(version, str) else None,
            model=entry["id"],
            models=tuple(m["id"] for m in models),
            max_model_len=count(entry.get("max_model_len")),
            block_size=match_unit(cache),
            kv_tokens=kv_tokens,
            num_blocks=blocks,
            prefix_caching=_bool(cache.get("enable_prefix_caching")),
            speculation=speculation(config)[0],
            speculative_tokens=speculation(config)[1],
            flags=flatten(config) if config is not None else {f"cache_config.{k}": v for k, v in labels.items()},
            capabilities=seen,
        )

    async def reset(self, session: "aiohttp.ClientSession", base_url: str) -> tuple[bool, str]:
        root = root_of(base_url)
        answer = await fetch(session, root + RESET, method="POST")
        if answer.status == 404:
            return False, f"{root} has no /reset_prefix_cache; start vLLM with VLLM_SERVER_DEV_MODE=1"
        if answer.record().get("success") is True:
            return True, "prefix cache reset, external tier included"
        if answer.status == 200:
            return False, f"{root} did not reset its prefix cache: requests still hold blocks"
        return False, f"{root} did not reset its prefix cache ({answer.complaint()})"


def match_unit(cache: Mapping[str, Any]) -> int | None:
    """Tokens a prefix-cache hit is a multiple of: what hybrid models align to, else the block."""
    for name in ("cache_hit_alignment_tokens", "effective_attention_block_size", "block_size"):
        value = count(cache.get(name))
        if value:
            return value
    return None


def speculation(config: Mapping[str, Any] | None) -> tuple[str | None, int | None]:
    """Method and tokens drafted in a step, of vLLM's resolved config; nothing without speculation."""
    told = config.get("speculative_config") if config else None
    if not isinstance(told, dict):
        return None, None
    method, tokens = told.get("method"), count(told.get("num_speculative_tokens"))
    return (method if isinstance(method, str) else None), tokens


def cache_labels(page: bytes) -> dict[str, str]:
    """The labels of `vllm:cache_config_info`, a gauge that carries the cache's settings; `None` values left out."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in page.split(b"\n") if line.startswith(b"vllm:cache_config_info{")]
    if not lines:
        return {}
    try:
        families = list(text_string_to_metric_families(lines[0].decode("utf-8", "replace") + "\n"))
    except (ValueError, IndexError):  # a damaged line says nothing
        return {}
    for family in families:
        for sample in family.samples:
            return {k: v for k, v in sample.labels.items() if v != "None" and k not in ("engine", "model_name")}
    return {}


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, sorted; null ones and those that differ between equal starts are left out."""
    flat: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}" if name else str(key), inner)
        elif value is not None and value not in ([], "") and not _differs(name):
            flat[name] = value

    for section in SECTIONS:
        walk(section, config.get(section))
    return dict(sorted(flat.items()))


def _differs(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return any(part in last for part in DIFFERS)


def _bool(value: Any) -> bool | None:
    return (
        {"True": True, "False": False, True: True, False: False}.get(value) if isinstance(value, str | bool) else None
    )
