"""What to turn on an engine when something limits it: the flag in that engine's own words.

The text stands after "try": a flag with a value to begin with, or what to do with a flag. A lever that may change what
the model answers is marked lossy: faster is then not yet better.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

Kind = Literal["kv_capacity", "batch", "prefill_budget", "decode", "prefill_compute", "client"]
"""What limits: tokens the KV cache holds, requests that run at once, tokens prefilled in a step, memory bandwidth of
decoding, compute of prefilling, the client itself."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class Lever(Struct, frozen=True):
    """One flag, or None where the engine has none for this."""

    text: str
    lossy: bool = False
    note: str = ""
    """What has to be known of it."""
    also: tuple[str, ...] = ()
    """Other flags for the same end, best first."""


LOSSY = "may change what the model answers"
DRAFTS = "what it brings hangs on how many drafts the text lets through: measure it with natural text"

CLIENT = Lever("--workers 2 (a flag of windtunnel)", also=("a client on another machine",))
"""The same with every engine: the client limits itself."""

VLLM: dict[Kind, Lever] = {
    "kv_capacity": Lever(
        "--kv-cache-dtype fp8",
        lossy=True,
        also=(
            "--quantization fp8",  # what the weights leave is the cache's
            "a higher --gpu-memory-utilization",
            "--kv-offloading-size 64 --kv-offloading-backend native",
        ),
    ),
    "batch": Lever("a higher --max-num-seqs"),
    "prefill_budget": Lever("a higher --max-num-batched-tokens"),
    "decode": Lever(
        """--speculative-config '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}'""",
        note=DRAFTS,
        also=("""--speculative-config '{"method":"mtp","num_speculative_tokens":3}'""", "--quantization fp8"),
    ),
    "prefill_compute": Lever("--tensor-parallel-size 2", also=("--quantization fp8",)),
    "client": CLIENT,
}

SGLANG: dict[Kind, Lever] = {
    "kv_capacity": Lever(
        "--kv-cache-dtype fp8_e4m3",
        lossy=True,
        also=("a higher --mem-fraction-static", "--enable-hierarchical-cache --hicache-ratio 2"),
    ),
    "batch": Lever("a higher --max-running-requests"),
    "prefill_budget": Lever("a higher --chunked-prefill-size"),
    "decode": Lever(
        "--speculative-algorithm NGRAM",
        note=DRAFTS,
        also=("--speculative-algorithm EAGLE --speculative-num-steps 3", "--quantization fp8"),
    ),
    "prefill_compute": Lever("--tp-size 2", also=("--quantization fp8",)),
    "client": CLIENT,
}

TRTLLM: dict[Kind, Lever] = {
    "kv_capacity": Lever(
        "--kv_cache_dtype fp8",
        lossy=True,
        also=("a higher --kv_cache_free_gpu_memory_fraction", "kv_cache_config: {host_cache_size: N} in its YAML"),
    ),
    "batch": Lever("a higher --max_batch_size"),
    "prefill_budget": Lever("a higher --max_num_tokens"),
    "decode": Lever("speculative_config: {decoding_type: MTP} in its YAML", note=DRAFTS),
    "prefill_compute": Lever("--tp_size 2"),
    "client": CLIENT,
}

LLAMACPP: dict[Kind, Lever] = {
    "kv_capacity": Lever(
        "--cache-type-k q8_0 --cache-type-v q8_0", lossy=True, also=("a higher --ctx-size", "a higher --cache-ram")
    ),
    "batch": Lever("a higher --parallel"),
    "prefill_budget": Lever("a higher --batch-size"),
    "decode": Lever("--spec-draft-model with a small model of the same vocabulary", note=DRAFTS),
    "prefill_compute": Lever("a higher --ubatch-size"),
    "client": CLIENT,
}

LEVERS: dict[str, dict[Kind, Lever]] = {
    "vllm": VLLM,
    "windtunnel-emulator": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TRTLLM,
    "llama.cpp": LLAMACPP,
}
"""By `Resolved.name`. The emulator takes vLLM's flags; a frontend or a plain URL does not say what stands behind it."""


def find(engine: str, kind: Kind) -> Lever | None:
    """The lever of an engine (`engine.name` of run.json) against a limit; None where none is known."""
    return LEVERS.get(engine, {"client": CLIENT}).get(kind)


RESOLVED = {
    "--kv-cache-dtype": "cache_config.cache_dtype",
    "--quantization": "model_config.quantization",
    "--speculative-config": "speculative_config.method",
    "--tensor-parallel-size": "parallel_config.tensor_parallel_size",
}
"""Where vLLM's resolved settings have what a flag sets."""
UNSET = frozenset(("None", "", "auto", "bfloat16", "float16", "bf16", "fp16", "1"))
"""What such a setting is where nobody has set it, as text."""
LOSSY_FLAGS = ("--kv-cache-dtype", "--kv_cache_dtype", "--quantization", "--cache-type-k")


def left(engine: str, kind: Kind, command: str | None, settings: Mapping[str, Any]) -> Lever | None:
    """The best lever that is not pulled yet, by the engine's command and its resolved settings; None where all are."""
    found = find(engine, kind)
    if found is None:
        return None
    words = _words(command)
    free = [text for text in (found.text, *found.also) if not _pulled(text, words, settings)]
    if not free:
        return None
    text, also = free[0], tuple(free[1:])
    if text == found.text:
        return replace(found, also=also)
    return Lever(text, lossy=text.startswith(LOSSY_FLAGS), note=found.note if kind == "decode" else "", also=also)


def _words(command: str | None) -> set[str]:
    """The flags of a command line, with dashes: engines take both."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        words = (command or "").split()
    return {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}


def _pulled(text: str, words: set[str], settings: Mapping[str, Any]) -> bool:
    """Whether a flag that the text would set is set. A value that is to be raised can be raised again."""
    flag = text.split(maxsplit=1)[0]
    if not flag.startswith("--"):
        return False
    return flag.replace("_", "-") in words or str(settings.get(RESOLVED.get(flag, ""))) not in UNSET


def lever(engine: str, kind: Kind) -> str | None:
    """Its text, as it stands after "try"; None where none is known."""
    found = find(engine, kind)
    return None if found is None else found.text
