"""The flags that are modelled, as vLLM 0.32 names them."""

import argparse
import json
from typing import Any, NoReturn

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.quantization import QUANTISED
from windtunnel.traces.errors import UsageError

AUTO = -1
"""`--max-model-len auto`: the longest that fits."""
_STATES = ("auto", "float32", "float16", "bfloat16")
_CACHES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")


class Parser(argparse.ArgumentParser):
    """Errors are raised, and the flags can be listed."""

    @property
    def flags(self) -> frozenset[str]:
        """Every spelling of every flag."""
        return frozenset(self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"windtunnel engine: {message}; see windtunnel engine --help.")


def parser() -> Parser:
    """Our own flags, and those of vLLM."""
    boolean = argparse.BooleanOptionalAction
    p = Parser(prog="windtunnel engine", allow_abbrev=False, description="vLLM's V1 engine, emulated. No GPU needed.")
    p.add_argument("model_tag", nargs="?", metavar="MODEL", help="same as --model")
    p.add_argument("--gpu", help=f"GPU to emulate (B200), or a file: {', '.join(facts.gpus())}")
    p.add_argument("--model", help=f"model to emulate (gpt-oss-120b), or a folder: {', '.join(facts.models())}")
    p.add_argument("--profile", metavar="FILE", help="constants that `windtunnel calibrate` fitted")
    p.add_argument("--tool-calls", type=float, default=0.0, metavar="SHARE", help="answers that call a tool, 0 to 1")
    p.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started this one dies")

    serving = p.add_argument_group("vLLM: serving")
    serving.add_argument("--served-model-name", nargs="+", metavar="NAME")
    serving.add_argument("--host", default="127.0.0.1")
    serving.add_argument("--port", type=int, default=8000, help="0 picks a free one and prints it")
    serving.add_argument("--enable-prompt-tokens-details", action=boolean, default=True, help="on here, off in vLLM")
    serving.add_argument("--enable-per-request-metrics", action=boolean, default=True, help="on here, off in vLLM")
    serving.add_argument("--enable-auto-tool-choice", action=boolean, default=False)
    serving.add_argument("--tool-call-parser")
    serving.add_argument("--tokenizer", metavar="FOLDER", help="count with this tokenizer.json and chat template")
    serving.add_argument("--enable-server-load-tracking", action=boolean, default=False)
    serving.add_argument("--seed", type=int, default=0)

    memory = p.add_argument_group("vLLM: memory and KV cache")
    memory.add_argument("--quantization", "-q", type=str.lower, help=", ".join(QUANTISED))
    memory.add_argument("--gpu-memory-utilization", "--device-memory-utilization", type=float, default=0.92)
    memory.add_argument("--kv-cache-memory-bytes", type=length)
    memory.add_argument("--num-gpu-blocks-override", type=int)
    memory.add_argument("--block-size", type=int)
    memory.add_argument("--kv-cache-dtype", default="auto", choices=_CACHES)
    memory.add_argument("--enable-prefix-caching", action=boolean, default=True)
    memory.add_argument("--prefix-cache-retention-interval", type=_interval, default=0)
    memory.add_argument("--disable-sliding-window", action=boolean, default=False)
    memory.add_argument("--disable-hybrid-kv-cache-manager", action=boolean, default=None)
    memory.add_argument("--kv-offloading-size", type=float, metavar="GIB")
    memory.add_argument("--kv-offloading-backend", choices=("native", "lmcache"), default="native")

    state = p.add_argument_group("vLLM: recurrent state")
    state.add_argument("--mamba-cache-mode", choices=("none", "align"), default="none")
    state.add_argument("--mamba-block-size", type=int)
    state.add_argument("--mamba-cache-dtype", choices=_STATES, default="auto")
    state.add_argument("--mamba-ssm-cache-dtype", choices=_STATES, default="auto")
    state.add_argument("--mamba-backend", type=str.lower, choices=("triton", "flashinfer"), default="triton")
    state.add_argument("--enable-mamba-cache-stochastic-rounding", action=boolean, default=False)
    state.add_argument("--mamba-cache-philox-rounds", type=int, default=0)

    batch = p.add_argument_group("vLLM: batch and scheduling")
    batch.add_argument("--max-model-len", type=length_or_auto)
    batch.add_argument("--max-num-seqs", type=length)
    batch.add_argument("--max-num-batched-tokens", type=length)
    batch.add_argument("--long-prefill-token-threshold", type=int, default=0)
    batch.add_argument("--enable-chunked-prefill", action=boolean, default=True)
    batch.add_argument("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs")
    batch.add_argument("--scheduler-reserve-full-isl", action=boolean, default=True)
    batch.add_argument("--watermark", type=float, default=0.0)
    batch.add_argument("--async-scheduling", action=boolean, default=None)

    running = p.add_argument_group("vLLM: running the model")
    running.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    running.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    running.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    running.add_argument("--speculative-config", "-sc", type=_object, metavar="JSON")
    running.add_argument("--spec-method")
    running.add_argument("--spec-model")
    running.add_argument("--spec-tokens", type=int)
    running.add_argument("--enforce-eager", action=boolean, default=False)
    running.add_argument("--compilation-config", "-cc", type=_compilation, metavar="JSON", default={})
    running.add_argument("--cudagraph-capture-sizes", type=int, nargs="+")
    running.add_argument("--max-cudagraph-capture-size", type=int)
    return p


def length(text: str) -> int:
    """Read a number as vLLM does: 32k and 25.6k are decimal, 32K is 32,768."""
    text = text.strip()
    decimal = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    binary = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    unit = text[-1:]
    try:
        if unit in decimal:
            return int(float(text[:-1]) * decimal[unit])
        return int(text[:-1]) * binary[unit] if unit in binary else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens such as 32768, 32k or 32K") from None


def length_or_auto(text: str) -> int:
    return AUTO if text.strip().lower() in ("auto", "-1") else length(text)


def _interval(text: str) -> int | None:
    return None if text.strip().lower() == "none" else length(text)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to a JSON object")
    return value


def _compilation(text: str) -> dict[str, Any]:
    """An object, or the number of a mode alone."""
    return {"mode": int(text)} if text.strip().isdigit() else _object(text)
