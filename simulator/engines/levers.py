"""What to turn on an engine when something limits it: the flag in that engine's own words.

The text stands after "try": a flag with a value to begin with, or what to do with a flag. A lever that may change what
the model answers is marked lossy: faster is then not yet better.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from windtunnel.simulator.engines import command as cmd
from windtunnel.traces.errors import UsageError

Kind = Literal["prefix_cache", "kv_capacity", "batch", "prefill_budget", "decode", "prefill_compute", "client"]
"""What limits: a prefix cache in which nothing is found, tokens the KV cache holds, requests that run at once, tokens
prefilled in a step, memory bandwidth of decoding, compute of prefilling, the client itself."""
KINDS: tuple[Kind, ...] = get_args(Kind)
HIGHER = "a higher "
"""Begins the text about a value that is to be raised: it can be raised again."""


class Lever(Struct, frozen=True):
    text: str
    lossy: bool = False
    note: str = ""
    """What has to be known of it."""
    most: float | None = None
    """Of a value that is to be raised: from here on too little is left to raise."""
    instead: tuple[str, ...] = ()
    """Other flags that do the same, or that leave it without effect."""

    @property
    def flag(self) -> str | None:
        """Its first one; None where the text names no flag of a command line."""
        word = self.text.removeprefix(HIGHER).split(maxsplit=1)[0]
        return word.replace("_", "-") if word.startswith("--") else None


Levers = dict[Kind, tuple[Lever, ...]]
"""Best first; what takes other hardware last."""

LOSSY = "may change what the model answers"
DRAFTS = "what it brings hangs on how many drafts the text lets through: measure it with natural text"
GPUS = "it takes twice the GPUs"
MOST_MEMORY = 0.95
"""Share of a GPU's memory above which too little is left for what stands beside the cache."""

CLIENT = (Lever("--workers 2 (a flag of windtunnel)"), Lever("a client on another machine"))
"""The same with every engine: the client limits itself."""
RATE = Lever("a higher --rate (a flag of windtunnel)")
"""Where it was told to."""
DRAFTING = ("--spec-method", "--spec-model", "--spec-tokens")
"""vLLM's other flags for it."""

VLLM: Levers = {
    "prefix_cache": (Lever("--enable-prefix-caching"),),
    "kv_capacity": (
        Lever("--kv-cache-dtype fp8", lossy=True),
        Lever("--quantization fp8", lossy=True),  # what the weights leave is the cache's
        Lever(
            "a higher --gpu-memory-utilization",
            most=MOST_MEMORY,
            instead=("--kv-cache-memory-bytes", "--num-gpu-blocks-override"),
        ),
        Lever("--kv-offloading-size 64 --kv-offloading-backend native", instead=("--kv-transfer-config",)),
        Lever("--tensor-parallel-size 2", note=GPUS),
    ),
    "batch": (Lever("a higher --max-num-seqs"),),
    "prefill_budget": (Lever("a higher --max-num-batched-tokens"),),
    "decode": (
        Lever(
            """--speculative-config '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}'""",
            note=DRAFTS,
            instead=DRAFTING,
        ),
        Lever("--quantization fp8", lossy=True),
        Lever("--tensor-parallel-size 2", note=GPUS),  # each reads half of the weights and of the cache
    ),
    "prefill_compute": (Lever("--tensor-parallel-size 2", note=GPUS), Lever("--quantization fp8", lossy=True)),
    "client": CLIENT,
}

SGLANG: Levers = {
    "prefix_cache": (Lever("its command without --disable-radix-cache"),),
    "kv_capacity": (
        Lever("--kv-cache-dtype fp8_e4m3", lossy=True),
        Lever("a higher --mem-fraction-static", most=MOST_MEMORY, instead=("--max-total-tokens",)),
        Lever("--enable-hierarchical-cache --hicache-ratio 2"),
        Lever("--tp-size 2", note=GPUS),
    ),
    "batch": (Lever("a higher --max-running-requests"),),
    "prefill_budget": (Lever("a higher --chunked-prefill-size"),),
    "decode": (
        Lever("--speculative-algorithm NGRAM", note=DRAFTS),
        Lever("--quantization fp8", lossy=True),
        Lever("--tp-size 2", note=GPUS),
    ),
    "prefill_compute": (Lever("--tp-size 2", note=GPUS), Lever("--quantization fp8", lossy=True)),
    "client": CLIENT,
}

TRTLLM: Levers = {
    "prefix_cache": (Lever("kv_cache_config: {enable_block_reuse: true} in its YAML"),),
    "kv_capacity": (
        Lever("--kv_cache_dtype fp8", lossy=True),
        Lever("a higher --kv_cache_free_gpu_memory_fraction", most=MOST_MEMORY),
        Lever("kv_cache_config: {host_cache_size: N} in its YAML"),
        Lever("--tp_size 2", note=GPUS),
    ),
    "batch": (Lever("a higher --max_batch_size"),),
    "prefill_budget": (Lever("a higher --max_num_tokens"),),
    "decode": (
        Lever("speculative_config: {decoding_type: MTP} in its YAML", note=DRAFTS, instead=("--speculative-config",)),
        Lever("--tp_size 2", note=GPUS),
    ),
    "prefill_compute": (Lever("--tp_size 2", note=GPUS),),
    "client": CLIENT,
}

LLAMACPP: Levers = {
    "prefix_cache": (Lever("its command without --no-cache-prompt"),),
    "kv_capacity": (
        Lever("--cache-type-k q8_0 --cache-type-v q8_0", lossy=True),
        Lever("a higher --ctx-size"),
        Lever("a higher --cache-ram"),
    ),
    "batch": (Lever("a higher --parallel"),),
    "prefill_budget": (Lever("a higher --batch-size"),),
    "decode": (
        Lever("--spec-draft-model with a small model of the same vocabulary", note=DRAFTS, instead=("--spec-type",)),
    ),
    "prefill_compute": (Lever("a higher --ubatch-size"),),
    "client": CLIENT,
}

LEVERS: dict[str, Levers] = {
    "vllm": VLLM,
    "windtunnel-emulator": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TRTLLM,
    "llama.cpp": LLAMACPP,
}
"""By `Resolved.name`. The emulator takes vLLM's flags; a frontend or a plain URL does not say what stands behind it."""

OF_VLLM = {"-q": "--quantization", "-tp": "--tensor-parallel-size", "-sc": "--speculative-config"} | {
    "--device-memory-utilization": "--gpu-memory-utilization"
}
SPELLINGS: dict[str, dict[str, str]] = {
    "vllm": OF_VLLM,
    "windtunnel-emulator": OF_VLLM,
    "sglang": {"--tp": "--tp-size", "--tensor-parallel-size": "--tp-size"},
    "tensorrt-llm": {
        "--tensor-parallel-size": "--tp-size",
        "--free-gpu-memory-fraction": "--kv-cache-free-gpu-memory-fraction",
    },
    "llama.cpp": {"-ctk": "--cache-type-k", "-md": "--spec-draft-model", "--model-draft": "--spec-draft-model"},
}
"""Other names of the levers' flags, to the name that is used here."""

RESOLVED = {
    "--kv-cache-dtype": ("cache_config.cache_dtype",),
    "--quantization": ("model_config.quantization",),
    "--gpu-memory-utilization": ("cache_config.gpu_memory_utilization",),
    "--kv-cache-memory-bytes": ("cache_config.kv_cache_memory_bytes",),
    "--num-gpu-blocks-override": ("cache_config.num_gpu_blocks_override",),
    "--kv-offloading-size": ("cache_config.kv_offloading_size", "offload_config.kv_offload_blocks"),
    "--kv-transfer-config": ("kv_transfer_config.kv_connector",),
    "--speculative-config": ("speculative_config.method",),
    "--speculative-algorithm": ("speculative_config.method",),
    "--tensor-parallel-size": ("parallel_config.tensor_parallel_size",),
    "--tp-size": ("parallel_config.tp_size",),
    "--workers": ("windtunnel.workers",),
}
"""Where the resolved settings of vLLM, its emulator and TensorRT-LLM have what a flag sets; SGLang's have its name. Our
own flag has one among them."""
SAME = ("none", "null", "auto", "false", "0", "0.0", "1")
WHOLE = ("bfloat16", "float16", "bf16", "fp16", "f16", "float32", "f32")
UNSET = frozenset((*SAME, *WHOLE))
"""What is given, or told, of a setting that is as it would be without a flag; in small letters."""


SWITCHED_OFF = ("--no-enable-prefix-caching", "--disable-radix-cache", "--no-cache-prompt")
"""Flags without which the engine they belong to has a prefix cache."""
COMPUTING: tuple[Kind, ...] = ("prefill_compute", "prefill_budget")
"""What a cache that is off makes far worse than it need be."""


def caching(given: Mapping[str, str], settings: Mapping[str, Any]) -> bool | None:
    """Whether the prefix cache is on, by the resolved settings or else by the command; None where neither tells."""
    told = settings.get("prefix_caching")
    if isinstance(told, bool) and not (told and SWITCHED_OFF[2] in given):  # llama.cpp does not tell it
        return told
    return False if any(flag in given for flag in SWITCHED_OFF) else None


def levers(engine: str, kind: Kind) -> tuple[Lever, ...]:
    """Of an engine (`engine.name` of run.json) against a limit, best first; empty where none is known."""
    return LEVERS.get(engine, {"client": CLIENT}).get(kind, ())


def left(engine: str, kind: Kind, command: str | None, settings: Mapping[str, Any]) -> list[Lever]:
    """Those that are not pulled yet, best first, by the engine's command and its resolved settings."""
    try:
        _, words = cmd.split(command or "")
    except UsageError:  # it was not started by a command, or by none that can be read
        words = []
    given = cmd.flags_of(words, SPELLINGS.get(engine))
    on = caching(given, settings)
    first = levers(engine, "prefix_cache") if kind in COMPUTING and on is False else ()
    if kind == "prefix_cache":
        return list(levers(engine, kind)) if not on else []
    return [*first, *(lever for lever in levers(engine, kind) if not _pulled(lever, given, settings))]


def _pulled(lever: Lever, given: Mapping[str, str], settings: Mapping[str, Any]) -> bool:
    """Whether what the lever would set is set, or raised as far as it goes."""
    if any(_is_set(value) for flag in lever.instead for value in _values(flag, given, settings)):
        return True
    if lever.flag is None:
        return False
    values = _values(lever.flag, given, settings)
    if lever.text.startswith(HIGHER):
        return lever.most is not None and any(_number(value) >= lever.most for value in values)
    return any(_is_set(value) for value in values)


def _values(flag: str, given: Mapping[str, str], settings: Mapping[str, Any]) -> list[Any]:
    """What is known of it; of a flag of JSON also what is given key by key."""
    told = [value for name, value in given.items() if name == flag or name.startswith(f"{flag}.")]
    names = (*RESOLVED.get(flag, ()), "server_args." + flag.removeprefix("--").replace("-", "_"))
    return told + [settings[name] for name in names if settings.get(name) is not None]


def _is_set(value: Any) -> bool:
    return str(value).lower() not in UNSET


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
