"""Measured runs to hold the emulator against: what was run, and the figures that came out.

Each case carries an engine's command line, so that it is emulated through the same flags, defaults and checks as
`windtunnel engine`. Rows of a table that cannot be modelled are kept with the reason.
"""

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.names import gpu_key, model_key, quantization_of
from windtunnel.simulator.emulator.replay import Ask, Played
from windtunnel.traces.errors import UsageError


class Closed(Struct, frozen=True):
    """A client that keeps a fixed number of requests in flight."""

    client: str
    """A key of clients.CLIENTS."""
    concurrency: int
    tokens_in: int
    tokens_out: int


class Open(Struct, frozen=True):
    """Requests that came at times of their own."""

    asks: list[Ask]


class Case(Struct, frozen=True, kw_only=True):
    id: str
    flags: tuple[str, ...]
    """Of `windtunnel engine`."""
    load: Closed | Open
    environ: tuple[tuple[str, str], ...] = ()
    """Of the engine's process."""
    measured: dict[str, float]
    """By metric: times in ms, throughput in output tokens a second."""
    gpu: str
    model: str
    source: str = ""
    client_side: bool = True
    """Times are a client's: they include the way to the engine's queue and back."""
    emulated: bool = False
    """The run says that an emulator did it."""
    seen: Played | None = None
    """The requests one by one, where they were recorded so."""


class Skipped(Struct, frozen=True):
    id: str
    reason: str


Cases = tuple[list[Case], list[Skipped]]

_NEEDED = ("id", "system", "model_path", "isl", "osl", "batch_size")
_METRICS = {"ttft_ms": "silicon_ttft_ms", "tpot_ms": "silicon_tpot_ms"}
_MOST = 2048
"""Requests in flight, twice as many as the rows' max-num-seqs; ten times as many are played."""
_SCENARIO = (1024, 8192)
"""Lengths of InferenceX's scenarios; rows of other lengths came from another client."""
_BUDGET = 8192
"""max-num-batched-tokens in InferenceX's launch scripts; those for MiniMax-M2.5 have twice the prompt."""


def read_table(path: Path) -> Cases:
    """A table of fixed-concurrency runs, one a row, in the layout of AIConfigurator's silicon sample."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table: {error}.") from error
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise UsageError(f"{path} has no column {missing[0]}: give a table with {', '.join(_NEEDED)}.")
    cases: list[Case] = []
    skipped: list[Skipped] = []
    for number, row in enumerate(rows, start=2):
        cells = {name: (value or "").strip() for name, value in row.items() if isinstance(name, str)}
        name = cells["id"] or f"line {number}"
        try:
            cases.append(_case(name, cells))
            skipped += [Skipped(name, why) for why in _measured(cells)[1]]
        except UsageError as error:
            skipped.append(Skipped(name, str(error)))
    if not rows:
        raise UsageError(f"{path} has no rows: give a table with some.")
    return cases, skipped


def _case(name: str, row: Mapping[str, str]) -> Case:
    backend = row.get("backend") or "vllm"
    if backend.lower() != "vllm":
        raise UsageError(f"backend {backend} is not emulated, only vllm.")
    gpu = gpu_key(row["system"])
    if gpu is None:
        raise UsageError(f"GPU {row['system']} is not in the table of GPUs.")
    model, named = model_key(row["model_path"])
    if model is None:
        raise UsageError(f"model {row['model_path']} is not in the table of models.")
    shape = {key: _count(row, key) for key in ("isl", "osl", "batch_size")}
    shards = _count(row, "tp_size") if row.get("tp_size") else 1
    if _count(row, "pp_size") > 1 if row.get("pp_size") else False:
        raise UsageError("pipeline parallelism is not modelled.")
    if shape["batch_size"] > _MOST:
        raise UsageError(f"batch_size is {row['batch_size']}: up to {_MOST:,} requests in flight are modelled.")
    measured, why = _measured(row)
    if not measured:
        columns = " and ".join(_METRICS.values())
        raise UsageError(f"nothing was measured: {' '.join(why) or f'the table has no column {columns}.'}")
    quantization = named or _quantization(model, row)
    scenario = shape["isl"] in _SCENARIO and shape["osl"] in _SCENARIO
    budget = 2 * shape["isl"] if model.startswith("minimax") else _BUDGET
    flags = ["--gpu", gpu, "--model", model, "--max-num-batched-tokens", str(budget), "--max-num-seqs", "1024"]
    flags += ["--max-model-len", str(shape["isl"] + shape["osl"] + 200), "--gpu-memory-utilization", "0.9"]
    flags += ["--tensor-parallel-size", str(shards)] if shards > 1 else []
    flags += ["--quantization", quantization] if quantization else []
    flags += ["--no-enable-prefix-caching"] if scenario else []
    flags += ["--kv-cache-dtype", "fp8"] if scenario and _narrow_cache(gpu, model, quantization) else []
    return Case(
        id=name,
        flags=tuple(flags),
        load=Closed("random" if scenario else "repeated", shape["batch_size"], shape["isl"], shape["osl"]),
        measured=measured,
        gpu=gpu,
        model=model,
    )


def _measured(row: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The figures of a row, and what is wrong with its cells that hold none."""
    figures: dict[str, float] = {}
    wrong: list[str] = []
    for metric, column in _METRICS.items():
        if column in row:
            value = _number(row[column])
            if value is not None:
                figures[metric] = value
            else:
                wrong.append(f"{column} is no positive number: {row[column] or 'empty'}.")
    return figures, wrong


def _quantization(model: str, row: Mapping[str, str]) -> str | None:
    """Of the weights that count most: those of experts, where there are some; None: as they were published."""
    if model.startswith("gpt-oss"):
        return None
    columns = ["gemm_quant_mode", "precision"]
    if facts.models()[model].experts:
        columns.insert(0, "moe_quant_mode")
    return quantization_of(next((row[column] for column in columns if row.get(column)), ""))


def _narrow_cache(gpu: str, model: str, quantization: str | None) -> bool:
    """Whether InferenceX's launch script for that model has `kv-cache-dtype: fp8`.

    Those for quantised Llama have it everywhere, those for gpt-oss and MiniMax-M2.5 on Blackwell.
    """
    if model.startswith(("gpt-oss", "minimax")):
        return gpu in ("b200", "b300", "gb300", "gb300-desk")
    return model.startswith("llama") and quantization is not None


def _count(row: Mapping[str, str], column: str) -> int:
    value = _number(row[column])
    if value is None or value != int(value) or value < 1:
        raise UsageError(f"{column} is no positive number: {row[column] or 'empty'}.")
    return int(value)


def _number(cell: str | None) -> float | None:
    """A finite figure above zero, or None."""
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
