"""What an engine makes of a GPU: shares of its peaks, and fixed times; and what to expect where nobody measured.

A row of gpus.toml has these for one GPU and vLLM, a calibration's profile has them for one GPU and one engine.
"""

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Tokens = TypeVar("_Tokens", float, "NDArray[np.float64]")


class Reached(Struct, frozen=True, forbid_unknown_fields=True):
    """What vLLM makes of the hardware: shares of the peak, and fixed times."""

    hw: float = 0.75
    """Bandwidth when reading weights."""
    hf: float = 0.45
    """FLOPS in matrix products."""
    hk: float = 0.75
    """Bandwidth when reading KV cache."""
    ha: float = 0.40
    """FLOPS in prefill attention."""
    step_ms: float = 2.0
    seq_us: float = 50.0
    layer_us: float = 0.0
    """A layer's kernels wait for each other, however little each has to do."""
    he: float | None = None
    """Bandwidth when reading expert weights, as many as the touch formula counts; None: `hw`. Above 1 where routing is
    more concentrated than the formula says."""
    he_bits: float = 16
    """Width of the expert weights that an `he` above 1 was fitted to; wider ones are read at the peak at most."""
    hfe: float | None = None
    """FLOPS in the products of mixtures; None: `hf`."""
    hk8: float | None = None
    """Bandwidth when reading a KV cache of 8 bit; None: `hk`."""
    request_ms: float = 0.0
    """Of a request outside of the engine's steps: HTTP, tokenizing, the way back of its first token."""
    prompt_us: float = 1.0
    """The same for each token of its prompt: tokenizing and hashing. An H20's host took 69 ms longer over 64k cached
    tokens than over 1k."""
    fit: str = "unverified"

    def experts(self, bits: float) -> float:
        """Share of the bandwidth when reading expert weights of so many bits."""
        share = self.he or self.hw
        return 1.0 if self.held_to_peak(bits) else share

    def held_to_peak(self, bits: float) -> bool:
        """Whether the fit's `he` is above 1 and says nothing of expert weights so wide."""
        return (self.he or self.hw) > 1 and bits > self.he_bits

    @property
    def narrow_is_slower(self) -> bool:
        """The fit says that a token takes longer to read from a cache of 8 bit than from one of 16.

        Halving the bytes cannot do that by itself; a kernel can, or the few rows that it was fitted to.
        """
        return self.hk8 is not None and 2 * self.hk8 < self.hk

    def outside_s(self, prompt_tokens: _Tokens) -> _Tokens:
        """Seconds that a client of measured runs waits for a first token beside the engine's steps."""
        return self.request_ms / 1e3 + prompt_tokens * self.prompt_us / 1e6


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


def usual(bf16: float) -> Reached:
    """For a GPU of that many dense BF16 TFLOPS that nobody measured: the start of every fit.

    Rounded from fits of an H20, an RTX PRO 6000, an H200 and a B200. The larger a GPU, the less of it products reach:
    0.9, 0.7, 0.6 and 0.5 of their peaks.
    """
    products = min(0.9, 0.9 * (_SMALL / bf16) ** 0.2)
    return Reached(
        hw=0.85,
        hf=round(products, 3),
        hk=0.85,
        ha=round(min(0.9, 0.9 * (_SMALL / bf16) ** 0.4), 3),
        step_ms=0.5,
        seq_us=20.0,
        layer_us=50.0,
        he=0.9,
        hfe=round(0.75 * products, 3),
        hk8=0.65,
        request_ms=15.0,
    )
