"""What the GPUs do while a run goes on, by NVML. Without a GPU or driver there is nothing, and no error."""

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from windtunnel.agents.events import GpuSample

REASONS: tuple[tuple[int, str], ...] = (
    (0x0000000000000004, "software power cap"),
    (0x0000000000000008, "hardware slowdown"),
    (0x0000000000000020, "software thermal"),
    (0x0000000000000040, "hardware thermal"),
    (0x0000000000000080, "hardware power brake"),
)
"""Bits of NVML's clock event reasons that mean throttling; idle and user-set clocks do not (nvml.h)."""
THROTTLING = frozenset({"hardware slowdown", "software thermal", "hardware thermal", "hardware power brake"})
"""Reasons that make a result doubtful; a power cap is how a GPU under full load normally runs."""


class Gpu(Struct, frozen=True):
    """One GPU, for run.json."""

    index: int
    name: str
    memory_total: int
    """Bytes."""
    driver: str


class Gpus:
    """All GPUs of this machine. `sample` takes around a millisecond per GPU: call it in a thread."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    @classmethod
    def open(cls) -> "Gpus | None":
        """None when there is no GPU, no driver or no NVML."""
        import pynvml

        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except pynvml.NVMLError:
            return None
        return cls(pynvml, handles) if handles else None

    def describe(self) -> tuple[Gpu, ...]:
        driver = _text(self._get(self._nvml.nvmlSystemGetDriverVersion))
        found = []
        for index, handle in enumerate(self._handles):
            memory = self._get(self._nvml.nvmlDeviceGetMemoryInfo, handle)
            name = _text(self._get(self._nvml.nvmlDeviceGetName, handle))
            found.append(Gpu(index, name, int(memory.total) if memory else 0, driver))
        return tuple(found)

    def sample(self, t: int, own: Collection[int] = ()) -> tuple[GpuSample, ...]:
        """One sample a GPU. `own`: process ids of the engine; other compute processes are counted as foreign."""
        return tuple(self._sample(index, handle, t, own) for index, handle in enumerate(self._handles))

    def _sample(self, index: int, handle: Any, t: int, own: Collection[int]) -> GpuSample:
        nvml = self._nvml
        use = self._get(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._get(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._get(nvml.nvmlDeviceGetPowerUsage, handle)
        clock = self._get(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        bits = self._get(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        users = self._get(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return GpuSample(
            t=t,
            index=index,
            utilisation=use.gpu / 100 if use is not None else None,
            memory_used=int(memory.used) if memory is not None else None,
            memory_total=int(memory.total) if memory is not None else None,
            power_w=power / 1000 if power is not None else None,
            sm_clock_mhz=int(clock) if clock is not None else None,
            throttle=tuple(name for bit, name in REASONS if bits & bit),
            other_processes=sum(p.pid not in own for p in users) if users is not None else None,
        )

    def _get(self, function: Callable[..., Any], *args: Any) -> Any:
        """None for what this GPU does not tell."""
        with contextlib.suppress(self._nvml.NVMLError):
            return function(*args)
        return None

    def close(self) -> None:
        self._get(self._nvml.nvmlShutdown)


def used_memory() -> int | None:
    """Bytes in use on all GPUs together; None without a GPU."""
    gpus = Gpus.open()
    if gpus is None:
        return None
    try:
        used = [sample.memory_used for sample in gpus.sample(0)]
    finally:
        gpus.close()
    return sum(bytes_ for bytes_ in used if bytes_ is not None) if any(b is not None for b in used) else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
