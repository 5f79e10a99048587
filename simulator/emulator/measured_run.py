"""One measured run, request by request: the layout of `requests.csv`, `blocks.jsonl` and `meta.json` in a folder.

`requests.csv` has a row a request, times in seconds; `blocks.jsonl` (may be missing) the ids of each prompt's full
blocks, equal where blocks and everything before them are equal; `meta.json` the engine's arguments and hardware.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from windtunnel.simulator.emulator.identity import gpu_of, model_of
from windtunnel.simulator.emulator.measured import Case, Open
from windtunnel.simulator.emulator.names import gpu_key
from windtunnel.simulator.emulator.replay import NS, Ask, Played
from windtunnel.simulator.emulator.trial import statistics
from windtunnel.traces.errors import UsageError

_FLAGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "kv_cache_dtype",
    "quantization",
    "tensor_parallel_size",
    "block_size",
    "gpu_memory_utilization",
    "long_prefill_token_threshold",
)
_SWITCHES = ("enforce_eager", "async_scheduling", "enable_prefix_caching")
_OTHERWISE = {
    "speculative_config": (None, {}),
    "pipeline_parallel_size": (None, 1),
    "data_parallel_size": (None, 1),
    "enable_chunked_prefill": (None, True),
    "cpu_offload_gb": (None, 0),
}
"""Arguments that change the times and are not taken over, with the values at which they do not."""


def read_run(folder: Path, gpu: str | None = None, model: str | None = None) -> Case:
    """UsageError where the folder lacks what an emulation needs, or says another than `gpu` and `model`."""
    meta = _meta(folder)
    rows = sorted(_rows(folder), key=lambda row: row["arrived"])
    flags, gpu, model = _flags(folder, meta, gpu, model)
    size = int(_dig(meta, "kv_cache", "block_size") or 16)
    blocks = _blocks(folder)
    asks = [_ask(row, blocks.get(row["request"]), size) for row in rows]
    columns = {
        name: np.array([round(row[key] * NS) for row in rows])
        for name, key in (("asked", "arrived"), ("first", "first"), ("last", "last"))
    }
    whole = np.array([ask.output for ask in asks])
    none = np.zeros(len(asks), dtype=np.int64)
    seen = Played(
        **columns,
        scheduled=none,
        output=whole,
        prompt=np.array([len(ask.prompt) for ask in asks]),
        hit=none,
        preemptions=0,
        steps=0,
    )
    return Case(
        id=folder.name or folder.resolve().name,
        flags=flags,
        load=Open(asks),
        measured=statistics(seen),
        gpu=gpu,
        model=model,
        source=str(meta.get("source") or ""),
        client_side="queued_s" not in rows[0],
        seen=seen,
    )


def is_run(path: Path) -> bool:
    return (path / "requests.csv").is_file()


def _meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    try:
        meta = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): it names the engine's arguments and the GPU.") from error
    if not isinstance(meta, dict):
        raise UsageError(f"{path} is no JSON object: it names the engine's arguments and the GPU.")
    return meta


def _rows(folder: Path) -> Iterable[dict[str, float]]:
    path = folder / "requests.csv"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from error
    read: list[dict[str, float]] = []
    for number, row in enumerate(rows):
        try:
            # The engine's own arrival time where there is one: the client's way is not the engine's.
            arrived = row.get("queued_s") or row["arrival_s"]
            server = {"queued_s": 1.0} if row.get("queued_s") else {}
            figures = {
                "request": float(row.get("request") or number),
                "arrived": float(arrived),
                "prompt": float(row["input_tokens"]),
                "output": float(row["output_tokens"]),
                "first": float(row["first_token_s"]),
                "last": float(row["last_token_s"]),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path} line {number + 2} lacks a figure ({error}): it takes queued_s or arrival_s, input_tokens, "
                "output_tokens, first_token_s and last_token_s."
            ) from error
        _check(f"{path} line {number + 2}", figures)
        read.append(server | figures)
    if len({"queued_s" in row for row in read}) > 1:
        raise UsageError(f"{path} has queued_s in some lines only: give it for all, or for none.")
    if not read:
        raise UsageError(f"{path} has no requests: give a run with some.")
    return read


def _check(where: str, row: Mapping[str, float]) -> None:
    if not all(map(math.isfinite, row.values())):
        raise UsageError(f"{where} has a figure that is no number: leave the request out.")
    if row["prompt"] < 1 or row["output"] < 1:
        raise UsageError(f"{where} has no tokens in or out: leave the request out.")
    if not row["arrived"] <= row["first"] <= row["last"]:
        raise UsageError(f"{where}: its arrival, first and last token do not follow each other.")


def _blocks(folder: Path) -> dict[float, list[int]]:
    path = folder / "blocks.jsonl"
    if not path.is_file():
        return {}
    try:
        lines = [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n") if line.strip()]
        # Ids may be hashes of any length; only which are equal counts.
        ids: dict[int, int] = {}
        return {
            float(line["request"]): [ids.setdefault(int(block), len(ids)) for block in line["input_blocks"]]
            for line in lines
        }
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}): a line is an object with request and input_blocks."
        ) from error


def _ask(row: Mapping[str, float], blocks: list[int] | None, size: int) -> Ask:
    """Equal blocks become equal tokens; what follows them differs from every other prompt."""
    length = int(row["prompt"])
    own = 1 << 31 | int(row["request"])
    prompt = np.full(length, own, dtype=np.uint32)
    if blocks:
        shared = np.repeat(np.array(blocks, dtype=np.uint32), size)[:length]
        prompt[: len(shared)] = shared
    return Ask(prompt, max(1, int(row["output"])), at=round(row["arrived"] * NS))


def _flags(
    folder: Path, meta: Mapping[str, Any], gpu: str | None, model: str | None
) -> tuple[tuple[str, ...], str, str]:
    kwargs = meta.get("engine_kwargs")
    given: dict[str, Any] = dict(kwargs) if isinstance(kwargs, dict) else {}
    where = str(folder / "meta.json")
    named = [str(name or "") for name in (meta.get("gpu"), _dig(meta, "hardware", "device_name"))]
    gpu = gpu_of(where, next((name for name in named if gpu_key(name)), named[0] or named[1]), gpu)
    names = [str(name or "") for name in (given.get("model"), meta.get("model"))]
    model, quantization = model_of(where, tuple(names), model)
    cache = meta.get("kv_cache")
    given = (dict(cache) if isinstance(cache, dict) else {}) | given
    if quantization is not None:
        given.setdefault("quantization", quantization)
    for name, plain in _OTHERWISE.items():
        if given.get(name) not in plain:
            raise UsageError(
                f"{folder / 'meta.json'}: {name} is {given[name]}: a recorded run with it is not modelled."
            )
    flags = ["--gpu", gpu, "--model", model]
    for name in _FLAGS:
        if given.get(name) is not None:
            flags += ["--" + name.replace("_", "-"), str(given[name])]
    for name in _SWITCHES:
        if isinstance(given.get(name), bool):
            flags.append(("--" if given[name] else "--no-") + name.replace("_", "-"))
    if given.get("num_gpu_blocks"):
        flags += ["--num-gpu-blocks-override", str(given["num_gpu_blocks"])]
    return tuple(flags), gpu, model


def _dig(meta: Mapping[str, Any], *keys: str) -> Any:
    value: Any = meta
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
