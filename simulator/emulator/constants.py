"""The figures of the step time that belong to no GPU and no model, each with its source, and which of them are assumed.

Nothing else in the emulator holds such a figure, so a report can list what a result rests on.
"""

import tomllib
from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.nearest import nearest
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.traces.errors import UsageError


class Figure(Struct, frozen=True, forbid_unknown_fields=True):
    value: float
    unit: str
    source: str
    when: str

    @property
    def assumed(self) -> bool:
        return self.source.startswith("assumed")


class Constants(Struct, frozen=True, forbid_unknown_fields=True):
    """The values alone; names and units as in constants.toml. A calibration may replace any of them."""

    skew: float
    unpacked: float
    unpacked_dense: float
    eager_layer_us: float
    piecewise_layer_us: float
    cpu_step_ms: float
    cpu_sequence_us: float
    threads_factor: float
    exchange_us: float
    exchange_gb_s: float
    pcie_exchange_us: float
    pcie_exchange_share: float
    draft_pass_us: float
    eagle_layer: float
    eagle3_vocabulary: float
    lookup_us: float
    state_triton: float
    state_flashinfer: float
    rounding_factor: float
    offload_gb_s: float
    pcie_4_gb_s: float
    shared_copy_share: float
    runtime_gib: float
    activation_widths: float

    def host_gb_s(self, pcie: int) -> float:
        """GB/s between a GPU in a slot of that generation and host memory."""
        return self.pcie_4_gb_s if pcie <= 4 else self.offload_gb_s


@cache
def figures() -> dict[str, Figure]:
    text = shipped_text("constants.toml")
    return msgspec.convert(tomllib.loads(text), dict[str, Figure])


@cache
def constants() -> Constants:
    """As shipped."""
    return msgspec.convert({name: figure.value for name, figure in figures().items()}, Constants)


def replaced(values: Mapping[str, float]) -> Constants:
    """As shipped but for some; UsageError for a name that there is not."""
    for name in values:
        if name not in figures():
            raise UsageError(f"{name} is no figure of the step time{nearest(name, figures())}: see constants.toml.")
    return msgspec.structs.replace(constants(), **values)
