"""vLLM's own command line for all that is modelled, so that an experiment moves between the two by changing one word.

A flag of `vllm serve` that is not modelled is accepted and named in one warning; anything else is an error.
"""

import argparse
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import NoReturn

from msgspec import Struct

from windtunnel.simulator.emulator import facts, memory
from windtunnel.simulator.emulator.facts import GIB, Gpu, Reached
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.scheduler import Limits
from windtunnel.traces.errors import EngineError, UsageError

VLLM_VERSION = "0.32.0"
"""The vLLM whose rules are emulated."""


class Settings(Struct, frozen=True):
    """The resolved command line."""

    gpu: Gpu
    model: Model
    served: tuple[str, ...]
    """Names that requests may use."""
    limits: Limits
    kv_dtype: str
    utilization: float
    tensor_parallel: int
    quantization: str | None
    eager: bool
    asynchronous: bool
    seed: int
    host: str
    port: int
    prompt_details: bool
    auto_tools: bool
    load_tracking: bool
    exit_with_parent: bool
    ignored: tuple[str, ...]
    """Real vLLM flags that were given and are not modelled."""
    tokenizer: str | None = None
    """Folder with a tokenizer and its chat template; None for the built-in ones."""
    tool_calls: float = 0.0
    """Share of the answers that call a tool where a client offers a harmless one."""

    @property
    def mode(self) -> Mode:
        """What the time of a step depends on beside GPU and model."""
        return Mode(
            kv_dtype=self.kv_dtype,
            tensor_parallel=self.tensor_parallel,
            eager=self.eager,
            asynchronous=self.asynchronous,
        )

    @property
    def reached(self) -> Reached:
        return self.gpu.reached

    @property
    def kv_tokens(self) -> int:
        return self.limits.num_gpu_blocks * self.limits.block_size

    @property
    def unverified(self) -> tuple[str, ...]:
        """Figures without a source that the step times rest on."""
        rows = {"gpu": self.gpu.source, "model": self.model.source, "calibration": self.gpu.reached.fit}
        return tuple(name for name, source in rows.items() if facts.UNVERIFIED in source)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"windtunnel engine: {message}; see windtunnel engine --help.")


def parser() -> argparse.ArgumentParser:
    """The flags that are modelled."""
    boolean = argparse.BooleanOptionalAction
    p = _Parser(prog="windtunnel engine", allow_abbrev=False, description="vLLM's V1 engine, emulated. No GPU needed.")
    p.add_argument("model_tag", nargs="?", metavar="MODEL", help="same as --model")
    p.add_argument("--gpu", default="B200", help="GPU to emulate: " + ", ".join(facts.gpus()))
    p.add_argument("--model", help="model to emulate (gpt-oss-120b): " + ", ".join(facts.models()))
    p.add_argument("--served-model-name", nargs="+", metavar="NAME")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000, help="0 picks a free one and prints it")
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--num-gpu-blocks-override", type=int)
    p.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    p.add_argument("--kv-cache-dtype", default="auto")
    p.add_argument("--quantization", "-q")
    p.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    p.add_argument("--max-model-len", type=_length)
    p.add_argument("--max-num-seqs", type=_length)
    p.add_argument("--max-num-batched-tokens", type=_length)
    p.add_argument("--long-prefill-token-threshold", type=int, default=0)
    p.add_argument("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs")
    p.add_argument("--scheduler-reserve-full-isl", action=boolean, default=True)
    p.add_argument("--watermark", type=float, default=0.0)
    p.add_argument("--enable-prefix-caching", action=boolean, default=True)
    p.add_argument("--async-scheduling", action=boolean, default=True)
    p.add_argument("--enforce-eager", action=boolean, default=False)
    p.add_argument("--enable-prompt-tokens-details", action=boolean, default=True, help="on here, off in vLLM")
    p.add_argument("--enable-auto-tool-choice", action=boolean, default=False)
    p.add_argument("--tool-call-parser")
    p.add_argument("--tokenizer", metavar="FOLDER", help="count with this tokenizer.json and chat template")
    p.add_argument("--tool-calls", type=float, default=0.0, metavar="SHARE", help="answers that call a tool, 0 to 1")
    p.add_argument("--enable-server-load-tracking", action=boolean, default=False)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started this one dies")
    return p


def parse(argv: Sequence[str]) -> Settings:
    """Settings from a command line; UsageError for a wrong one, EngineError for one that cannot be served."""
    modelled, ignored = _split(argv)
    known = parser().parse_args(modelled)
    name = known.model or known.model_tag or "gpt-oss-120b"
    gpu = facts.gpu(known.gpu)
    model = facts.model(name).quantised(known.quantization)
    _check(known)
    tokens, seqs = memory.batch_defaults(gpu)
    seqs = known.max_num_seqs or seqs
    tokens = known.max_num_batched_tokens or tokens
    blocks = known.num_gpu_blocks_override or memory.kv_blocks(
        gpu,
        model,
        block_size=known.block_size,
        kv_dtype=known.kv_cache_dtype,
        utilization=known.gpu_memory_utilization,
        tensor_parallel=known.tensor_parallel_size,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
    )
    longest = _longest(known.max_model_len, model, blocks, known.block_size, known.kv_cache_dtype)
    return Settings(
        gpu=gpu,
        model=model,
        served=tuple(known.served_model_name or (name,)),
        limits=Limits(
            num_gpu_blocks=blocks,
            block_size=known.block_size,
            max_model_len=longest,
            max_num_seqs=seqs,
            max_num_batched_tokens=tokens,
            long_prefill_token_threshold=known.long_prefill_token_threshold,
            enable_prefix_caching=known.enable_prefix_caching,
            scheduler_reserve_full_isl=known.scheduler_reserve_full_isl,
            watermark=known.watermark,
            priority=known.scheduling_policy == "priority",
            window=model.window,
        ),
        kv_dtype=known.kv_cache_dtype,
        utilization=known.gpu_memory_utilization,
        tensor_parallel=known.tensor_parallel_size,
        quantization=known.quantization,
        eager=known.enforce_eager,
        asynchronous=known.async_scheduling,
        seed=known.seed,
        host=known.host,
        port=known.port,
        prompt_details=known.enable_prompt_tokens_details,
        auto_tools=known.enable_auto_tool_choice and known.tool_call_parser is not None,
        load_tracking=known.enable_server_load_tracking,
        exit_with_parent=known.exit_with_parent,
        ignored=tuple(ignored),
        tokenizer=known.tokenizer,
        tool_calls=known.tool_calls,
    )


def _longest(wanted: int | None, model: Model, blocks: int, block_size: int, kv_dtype: str) -> int:
    """The model length to serve; one request of that length must fit into the pool beside the null block."""
    room = (blocks - 1) * block_size
    if wanted == -1:
        return min(model.max_model_len, room)
    longest = wanted or model.max_model_len
    if longest > model.max_model_len:
        raise UsageError(
            f"User-specified max_model_len ({longest}) is greater than the derived max_model_len "
            f"({model.max_model_len} of {model.name}): lower --max-model-len."
        )
    if longest > room:
        unit = model.kv_bytes * model.kv_share(kv_dtype) / GIB
        raise EngineError(
            f"To serve at least one request with the model's max seq len ({longest}), ({longest * unit:.2f} GiB KV "
            f"cache is needed, which is larger than the available KV cache memory ({room * unit:.2f} GiB). Based on "
            f"the available memory, the estimated maximum model length is {room}. Try increasing "
            f"`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    return longest


AUTO = -1
"""`--max-model-len auto`: the longest that fits."""


def _check(known: argparse.Namespace) -> None:
    least = {
        "block_size": 1,
        "tensor_parallel_size": 1,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 1,
        "num_gpu_blocks_override": 2,
        "port": 0,
        "long_prefill_token_threshold": 0,
    }
    for name, low in least.items():
        value = getattr(known, name)
        if value is not None and value < low:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {low}, not {value}.")
    if known.max_model_len is not None and known.max_model_len < 1 and known.max_model_len != AUTO:
        raise UsageError(f"--max-model-len must be at least 1, not {known.max_model_len}.")
    if known.port > 65535:
        raise UsageError(f"--port must be at most 65535, not {known.port}.")
    if not 0 <= known.tool_calls <= 1:
        raise UsageError(f"--tool-calls must be in [0, 1], not {known.tool_calls}.")
    if not 0 < known.gpu_memory_utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization must be in (0, 1], not {known.gpu_memory_utilization}.")


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that concern the emulator, and the names of real vLLM flags that do not; their values are left out."""
    text = (files("windtunnel.simulator.emulator") / "vllm_flags.toml").read_text()
    names = set(tomllib.loads(text)["names"].split())
    modelled: list[str] = []
    ignored: list[str] = []
    skipping = False
    for word in map(_dashed, argv):
        if word.startswith("-") and not word[1:2].isdigit():
            flag = word.split("=")[0].split(".")[0]
            skipping = flag in names or flag.replace("--no-", "--", 1) in names
            if skipping:
                ignored.append(flag)
        if not skipping:
            modelled.append(word)
    return modelled, list(dict.fromkeys(ignored))


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _length(text: str) -> int:
    """A human-readable number as vLLM reads it: 32k is 32,000, 32K is 32,768, auto is -1."""
    if text in ("auto", "-1"):
        return AUTO
    units = {"k": 1000, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:], 1)
    try:
        return int(float(text[:-1]) * unit) if unit > 1 else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens") from None
