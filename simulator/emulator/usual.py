"""What an engine may be expected to reach on a GPU that nobody measured: the start of every fit."""

from windtunnel.simulator.emulator.facts import Gpu, Reached

SPREAD = {
    "hw": 0.15,
    "hf": 0.5,
    "hk": 0.25,
    "ha": 0.5,
    "step_ms": 0.5,
    "seq_us": 1.0,
    "layer_us": 0.7,
    "he": 0.3,
    "hfe": 0.5,
    "hk8": 0.5,
    "request_ms": 0.7,
}
"""How far a measured engine lies from what is usual, as the standard deviation of a logarithm."""

_SMALL = 150.0
"""BF16 TFLOPS of a GPU whose products reach nine tenths of the peak: an H20."""


def usual(gpu: Gpu) -> Reached:
    """Rounded from fits of an H20, an RTX PRO 6000, an H200 and a B200.

    The larger a GPU, the less of it products reach: 0.9, 0.7, 0.6 and 0.5 of their peaks.
    """
    products = min(0.9, 0.9 * (_SMALL / gpu.bf16) ** 0.2)
    return Reached(
        hw=0.85,
        hf=products,
        hk=0.85,
        ha=min(0.9, 0.9 * (_SMALL / gpu.bf16) ** 0.4),
        step_ms=0.5,
        seq_us=20.0,
        layer_us=50.0,
        he=0.9,
        hfe=0.75 * products,
        hk8=0.65,
        request_ms=15.0,
    )
