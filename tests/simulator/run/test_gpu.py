"""GPU samples with a stand-in for NVML, and without any GPU."""

import sys
from types import SimpleNamespace

from windtunnel.simulator.run.gpu import Gpus


class Nvml:
    NVML_CLOCK_SM = 1
    NVMLError = RuntimeError

    nvmlInit = nvmlShutdown = staticmethod(lambda: None)
    nvmlDeviceGetCount = staticmethod(lambda: 1)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
    nvmlSystemGetDriverVersion = staticmethod(lambda: "570.1")
    nvmlDeviceGetName = staticmethod(lambda _: b"NVIDIA H200")
    nvmlDeviceGetUtilizationRates = staticmethod(lambda _: SimpleNamespace(gpu=87))
    nvmlDeviceGetMemoryInfo = staticmethod(lambda _: SimpleNamespace(used=5, total=10))
    nvmlDeviceGetClockInfo = staticmethod(lambda _handle, _kind: 1980)
    nvmlDeviceGetCurrentClocksThrottleReasons = staticmethod(lambda _: 0x4 | 0x40 | 0x1)
    nvmlDeviceGetComputeRunningProcesses = staticmethod(lambda _: [SimpleNamespace(pid=1), SimpleNamespace(pid=2)])

    @staticmethod
    def nvmlDeviceGetPowerUsage(_):
        raise RuntimeError("not supported")


def test_a_sample(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    gpus = Gpus.open()
    (card,) = gpus.describe()
    assert (card.name, card.memory_total, card.driver) == ("NVIDIA H200", 10, "570.1")
    (sample,) = gpus.sample(7, own={1})
    assert (sample.t, sample.utilisation, sample.memory_used, sample.sm_clock_mhz) == (7, 0.87, 5, 1980)
    assert sample.power_w is None
    assert sample.throttle == ("software power cap", "hardware thermal")
    assert sample.other_processes == 1
    gpus.close()


def test_no_gpu_is_no_error(monkeypatch):
    def missing():
        raise RuntimeError("driver not loaded")

    monkeypatch.setattr(Nvml, "nvmlInit", staticmethod(missing))
    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    assert Gpus.open() is None
