"""What is known about GPUs and models by name.

The tables are data files beside this one with a source per row. A row without a source says `unverified`, and every
result computed from it carries that word. A GPU may also be a file, a model a folder with a config.json.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.model import Model, Product
from windtunnel.simulator.emulator.model_folder import read as read_folder
from windtunnel.simulator.emulator.nearest import nearest
from windtunnel.simulator.emulator.ranges import GPU, REACHED, wrong
from windtunnel.simulator.emulator.reached import Reached, usual
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.simulator.toml_file import parsed
from windtunnel.traces.errors import UsageError

GIB = 1 << 30
UNVERIFIED = "unverified"
MXFP4 = 4.25
"""Bits of a weight with its scale, one of 8 bit for 32 weights."""


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    memory_gib: float
    tbps: float
    bf16: float
    watts: int
    source: str
    capability: float = 0.0
    """CUDA compute capability; 0 where there is none."""
    fp8: float | None = None
    fp4: float | None = None
    nvlink: bool = True
    """GPUs of this kind in one machine are joined by it, or by a link of its kind; else they exchange over PCIe."""
    pcie: int = 5
    """Generation of the slot's bus to host memory, 16 lanes of it."""
    shared: bool = False
    """Its memory is the CPU's too, and there is no other."""
    reached: Reached = Reached()

    @property
    def data_centre_blackwell(self) -> bool:
        return int(self.capability) == 10

    def tflops(self, weight_bits: float, compute_bits: float, unpacked: float) -> float:
        """What matrix products can be fed at best, dense: the peak of the format they are computed in.

        Weights that are unpacked to 16 bit in each product (vLLM's Marlin kernels) leave `unpacked` of the 16-bit rate.
        """
        if self.unpacks(weight_bits, compute_bits):
            return self.bf16 * unpacked
        return self._peak(compute_bits) or self.bf16

    def unpacks(self, weight_bits: float, compute_bits: float) -> bool:
        """Whether weights of that width are unpacked to 16 bit for each product.

        Beside 16-bit activations they are on every GPU, as tensor cores multiply two of a format (AWQ, GPTQ); beside
        narrow ones where the GPU lacks their format.
        """
        return weight_bits < 16 if compute_bits > 9 else self._peak(compute_bits) is None

    def computed(self, product: Product) -> float:
        """Bits of the format that it is computed in, unless its weights are unpacked.

        vLLM's kernels for MXFP4 narrow the activations themselves: to 8 bit for mixtures on data-centre Blackwell, to 4
        bit for dense layers. Marlin is its choice for mixtures on other Blackwells (fused_moe/oracle/mxfp4.py).
        """
        if product.weight_bits == MXFP4 and product.compute_bits > 8:
            if product.mixture:
                return 8 if self.data_centre_blackwell else product.compute_bits
            return 4 if self.fp4 else product.compute_bits
        return product.compute_bits

    def unpacked(self, products: Iterable[Product]) -> list[Product]:
        """Those whose weights are."""
        return [product for product in products if self.unpacks(product.weight_bits, self.computed(product))]

    def _peak(self, bits: float) -> float | None:
        """Of a format of that many bits; with scales, a little more."""
        return self.fp4 if bits < 5 else self.fp8 if bits <= 9 else self.bf16


@cache
def gpus() -> dict[str, Gpu]:
    """What a row does not say of how far an engine gets is what is usual."""
    return msgspec.convert({key: _complete(row) for key, row in _table("gpus.toml").items()}, dict[str, Gpu])


@cache
def models() -> dict[str, Model]:
    return msgspec.convert(_table("models.toml"), dict[str, Model])


def gpu(name: str) -> Gpu:
    """By its key in the table, or from a TOML or JSON file with the fields of one row."""
    if name.endswith((".toml", ".json")):
        return _gpu_file(Path(name))
    table = gpus()
    key = _key(name)
    if key not in table:
        raise UsageError(
            f"--gpu {name} is not in the table{nearest(key, table)}: use one of {', '.join(table)}, or a TOML or JSON "
            "file with the fields of one."
        )
    return table[key]


def model(name: str) -> Model:
    """By its key in the table, the name it is served under, or a folder with its config.json.

    Case and separators of names do not matter.
    """
    if (Path(name) / "config.json").is_file():
        return read_folder(Path(name))
    if Path(name).is_dir():
        raise UsageError(f"--model {name} is a folder without config.json: give the model's own folder.")
    table = models()
    for key, entry in table.items():
        if _key(name) in (_key(key), _key(entry.name), _key(entry.name.split("/")[-1])):
            return entry
    close = nearest(_key(name).split("/")[-1], table)
    raise UsageError(
        f"--model {name} is not in the table{close}: use one of {', '.join(table)}, or a folder with a config.json."
    )


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(shipped_text(name))


def _complete(row: dict[str, Any]) -> dict[str, Any]:
    known = msgspec.to_builtins(usual(row["bf16"])) if isinstance(row.get("bf16"), int | float) else {}
    given = row.get("reached", {})
    return row | {"reached": known | given if isinstance(given, dict) else given}


def _gpu_file(path: Path) -> Gpu:
    """One row; a file that says no source is unverified."""
    try:
        text = path.read_text(encoding="utf-8")
        row = parsed(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        # The table's own form, with the row's key as its heading.
        if isinstance(row, dict) and len(row) == 1 and isinstance(only := next(iter(row.values())), dict):
            row = only
        if isinstance(row, dict):
            _check(path, row)
            row = _complete({"name": path.stem, "watts": 0, "source": UNVERIFIED} | row)
        return msgspec.convert(row, Gpu)
    except OSError as error:
        raise UsageError(f"--gpu {path} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise UsageError(f"--gpu {path} is no description of a GPU: it is nested too deep.") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"--gpu {path} is no description of a GPU: {error}.") from None


def _check(path: Path, row: dict[str, Any]) -> None:
    """UsageError for a number that no GPU has."""
    reached = row.get("reached")
    said = wrong(row, GPU) or (wrong(reached, REACHED, "reached.") if isinstance(reached, dict) else None)
    if said:
        raise UsageError(f"--gpu {path} is no description of a GPU: {said}.")
