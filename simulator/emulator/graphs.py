"""CUDA graphs: which batch sizes are captured, and what a step is padded to (vLLM 0.32, config/vllm.py)."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_USUAL = 512
_WIDE = 1024
"""Largest captured size by default; the second one on data-centre Blackwell (compute capability 10)."""


class Graphs(Struct, frozen=True):
    """Captured sizes in tokens, ascending, and what they cover; none of them with eager execution."""

    sizes: tuple[int, ...] = ()
    mode: str = "FULL_AND_PIECEWISE"
    query: int = 1
    """Tokens of a sequence in a decode step: one more than are drafted."""

    def padded(self, sequences: int, tokens: int) -> int:
        """The tokens that a step is computed with."""
        if self.launches(sequences, tokens) == "eager":
            return tokens
        if self.query > 1 and self._decode(sequences, tokens):
            # A whole decode batch is padded to whole sequences.
            size = next((size for size in self._from(tokens) if size % self.query == 0), None)
            return size or tokens
        return self.sizes[bisect_left(self.sizes, tokens)]

    def launches(self, sequences: int, tokens: int) -> str:
        """How a step is launched: "full" graph, "piecewise" graphs, or "eager"."""
        if not self.sizes or tokens > self.sizes[-1] or self.mode == "NONE":
            return "eager"
        if self._decode(sequences, tokens):
            return "piecewise" if self.mode == "PIECEWISE" else "full"
        return {"FULL": "full", "FULL_DECODE_ONLY": "eager"}.get(self.mode, "piecewise")

    def _decode(self, sequences: int, tokens: int) -> bool:
        return tokens == sequences * self.query

    def _from(self, tokens: int) -> Sequence[int]:
        return self.sizes[bisect_left(self.sizes, tokens) :]


def capture(
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    drafts: int = 0,
    blackwell: bool = False,
    mode: str = "FULL_AND_PIECEWISE",
    largest: int | None = None,
    sizes: Iterable[int] | None = None,
) -> Graphs:
    """The sizes vLLM captures: its own choice up to `largest`, or the given ones that a step can have."""
    query = drafts + 1
    if mode == "NONE":
        return Graphs((), mode, query)
    if sizes is not None:
        return Graphs(tuple(sorted({size for size in sizes if size <= max_num_batched_tokens})), mode, query)
    usual = _WIDE if blackwell else _USUAL
    top = min(max_num_seqs * query * 2, usual) if largest is None else largest
    top = min(top, max_num_batched_tokens)
    chosen = _grid(top)
    if max_num_batched_tokens <= top:
        chosen.add(max_num_batched_tokens)
    if largest is None:
        counts = _grid(min(max_num_seqs, usual)) | {min(max_num_seqs, usual)} if query > 1 else {max_num_seqs}
        chosen |= {count * query for count in counts if count * query <= top}
    return Graphs(tuple(sorted(chosen)), mode, query)


def _grid(top: int) -> set[int]:
    return {size for size in (1, 2, 4, *range(8, 256, 8), *range(256, top + 1, 16)) if size <= top}
