"""How many tokens the stock of regenerated text costs in a given tokenizer.

A sample of ~50 kB per kind holds every piece of the stock in the context it is used in. Tokenised once by the engine,
with token strings, it tells the cost of every piece, of every place a piece may be cut, and of single words; a token
counts to where it starts. Without strings only the number of tokens is known: pieces then cost what a rough tokenizer
gives them, scaled to that number.
"""

import re
from collections import Counter
from functools import cached_property, lru_cache
from itertools import chain
from operator import add
from typing import Literal

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from windtunnel.traces.align import align
from windtunnel.traces.inventory import FILL, pieces
from windtunnel.traces.model import KINDS, TextKind
from windtunnel.traces.seeded import Stream

Stock = Literal["code", "prose", "json", "log", "inline"]
"""A kind, or prose set in one line (`inline`), as inside a JSON string."""

POOL = 4096
"""Most token ids kept for replays by token ids."""
STORED_RATIO: dict[TextKind, float] = {"code": 3.9, "prose": 4.35, "json": 2.92, "log": 2.89}
"""Characters per token of the stock in a 100k vocabulary (cl100k) with text split as the Qwen family splits it:
measured once, for engines that cannot tokenise."""


class Costs(Struct, frozen=True):
    """Tokens of a stock's pieces and words, means where the context makes a difference."""

    pieces: tuple[float, ...]
    cuts: tuple[tuple[float, ...], ...]
    """For each piece: tokens before each of its `cut_places`."""
    newline: float
    """A newline after a word."""
    words: tuple[float, ...]
    """Each word of `inventory.FILL` after a space."""
    starts: tuple[float, ...]
    """Each word of `inventory.FILL` at the start of a line."""


class Table(Struct, frozen=True):
    """A stock with its costs, ready for composing."""

    pieces: tuple[str, ...]
    costs: NDArray[np.float64]
    places: tuple[tuple[int, ...], ...]
    cuts: tuple[tuple[float, ...], ...]
    newline: float
    words: tuple[str, ...]
    word: float
    """Tokens of each of `words` after a space."""
    starts: tuple[str, ...]
    start: float
    mean: float
    escaped: tuple[bytes, ...]
    """The pieces as they stand inside a JSON string."""
    cost_list: tuple[float, ...]


class Calibration(Struct, frozen=True, dict=True):
    """What a tokenizer makes of the stock."""

    name: str
    ratio: dict[TextKind, float]
    """Characters per token."""
    costs: dict[Stock, Costs]
    ids: tuple[int, ...] = ()
    """Ordinary token ids, ascending."""
    measured: bool = False
    """The ratios come from the engine's own tokenizer."""
    exact: bool = False
    """And so do the costs of single pieces."""

    @cached_property
    def tables(self) -> dict[Stock, Table]:
        return {stock: _table(stock, costs) for stock, costs in self.costs.items()}

    @cached_property
    def pool(self) -> NDArray[np.int64]:
        return np.array(self.ids or range(300, 2300), dtype=np.int64)

    @cached_property
    def drawn(self) -> NDArray[np.int64]:
        """Which of the pool each number of 16 bits draws."""
        return self.pool.take((np.arange(1 << 16) * len(self.pool)) >> 16)


class _Span(Struct, frozen=True):
    what: Literal["piece", "inline", "word", "start", "newline"]
    index: int
    begin: int
    end: int


@lru_cache(maxsize=8)
def _layout(kind: TextKind) -> tuple[str, tuple[_Span, ...]]:
    """The sample of a kind and where in it everything stands that is to be measured."""
    draw = Stream("sample", kind)
    text: list[str] = []
    spans: list[_Span] = []
    at = 0

    def put(piece: str, what: Literal["piece", "inline", "word", "start", "newline"], index: int) -> None:
        nonlocal at
        text.append(piece)
        spans.append(_Span(what, index, at, at + len(piece)))
        at += len(piece)

    stock = pieces(kind)
    put(stock[0], "piece", 0)
    for first in (*range(len(FILL)), *range(len(FILL))):
        put(FILL[first], "start", first)
        for i in draw.shuffled(range(len(FILL)))[:3]:
            put(" " + FILL[i], "word", i)
        put("\n", "newline", 0)
    for i in draw.shuffled(range(len(stock))):
        put(stock[i], "piece", i)
    if kind == "prose":
        put("the", "start", 0)
    for i in draw.shuffled(range(len(stock))):
        if kind == "prose":
            put(" " + stock[i][:-1], "inline", i)
        else:
            put(stock[i], "piece", i)
    return "".join(text), tuple(spans)


def sample(kind: TextKind) -> str:
    """The ~50 kB of text to tokenise once per kind."""
    return _layout(kind)[0]


@lru_cache(maxsize=1)
def stored() -> Calibration:
    """The calibration for engines without a way to tokenise: stored ratios."""
    return _scaled("stored", STORED_RATIO, (), measured=False)


def calibrate(name: str, tokenised: dict[TextKind, tuple[list[int], list[str] | None]]) -> Calibration:
    """What the token ids, and token strings where there are any, of each kind's `sample` say about a tokenizer.

    Strings may be the vocabulary's own (byte-level, SentencePiece, WordPiece) or plain text; special tokens at either
    end are left out. Kinds that are missing keep the stored ratio.
    """
    ratio = dict(STORED_RATIO)
    costs: dict[Stock, Costs] = {}
    ids: set[int] = set()
    for kind, (tokens, strings) in tokenised.items():
        text = sample(kind)
        starts = align(text, strings) if strings is not None and len(strings) == len(tokens) else None
        if starts is None:
            ratio[kind] = len(text) / max(1, len(tokens))
            ids.update(tokens[1:-1])
            continue
        ordinary = [i for i, start in zip(tokens, starts, strict=True) if start is not None]
        ids.update(ordinary)
        ratio[kind] = len(text) / max(1, len(ordinary))
        costs.update(_costs(kind, np.array([s for s in starts if s is not None], dtype=np.int64), 1.0))
    pool = tuple(sorted(ids)[:POOL])
    if len(costs) == len(KINDS) + 1:
        return Calibration(name, ratio, costs, pool, measured=True, exact=True)
    rough = _scaled(name, ratio, pool, measured=bool(tokenised))
    return Calibration(name, ratio, rough.costs | costs, pool, measured=bool(tokenised))


def _scaled(name: str, ratio: dict[TextKind, float], ids: tuple[int, ...], *, measured: bool) -> Calibration:
    costs: dict[Stock, Costs] = {}
    for kind in KINDS:
        text = sample(kind)
        starts, weights = rough_tokens(text)
        costs.update(_costs(kind, starts, weights * (len(text) / ratio[kind] / weights.sum())))
    return Calibration(name, ratio, costs, ids, measured=measured)


_ROUGH = re.compile(r" ?[A-Za-z]+|\d{1,3}|\n+ *|[^\sA-Za-z\d]{1,3}|\s+|[^\x00-\x7f]")


def rough_tokens(text: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Start and weight of each token of a rough tokenizer; only the proportions are meant to be right."""
    starts: list[int] = []
    weights: list[float] = []
    for m in _ROUGH.finditer(text):
        length = m.end() - m.start()
        starts.append(m.start())
        weights.append(1.0 if length <= 7 else 1.0 + (length - 7) / 6)
    return np.array(starts, dtype=np.int64), np.array(weights, dtype=np.float64)


@lru_cache(maxsize=2048)
def cut_places(piece: str) -> tuple[int, ...]:
    """Where a piece may be cut: after a word, so that a newline or another word can follow at a known cost."""
    return tuple(m.start() for m in re.finditer(r"(?<=[A-Za-z0-9])[ \n\",:;)\]}]", piece))


def _places(kind: TextKind, span: _Span) -> tuple[int, ...]:
    """Where a span of a kind's sample begins, may be cut, and ends."""
    if span.what not in {"piece", "inline"}:
        return span.begin, span.end
    shift = span.begin + (span.what == "inline")
    return (span.begin, *[shift + place for place in cut_places(pieces(kind)[span.index])], span.end)


def _costs(kind: TextKind, starts: NDArray[np.int64], weights: NDArray[np.float64] | float) -> dict[Stock, Costs]:
    """Costs by a tokenised sample: tokens that start at `starts`, each of a weight."""
    total = np.concatenate(([0.0], np.cumsum(np.broadcast_to(weights, starts.shape))))
    spans = _layout(kind)[1]
    places = [_places(kind, span) for span in spans]
    counts: list[float] = total[np.searchsorted(starts, [*chain.from_iterable(places)], side="left")].tolist()
    sums: dict[tuple[str, int], list[float]] = {}
    often: Counter[tuple[str, int]] = Counter()
    at = 0
    for span, here in zip(spans, places, strict=True):
        key = span.what, span.index
        begun, *then = counts[at : at + len(here)]
        since = [count - begun for count in then]
        sums[key] = list(map(add, sums[key], since)) if key in sums else since
        often[key] += 1
        at += len(here)
    means = {key: tuple([one / often[key] for one in found]) for key, found in sums.items()}
    stock = range(len(pieces(kind)))
    words = tuple(means["word", i][0] if ("word", i) in means else 9.0 for i in range(len(FILL)))
    first = tuple(means["start", i][0] for i in range(len(FILL)))

    def of(what: Literal["piece", "inline"], newline: float) -> Costs:
        return Costs(
            pieces=tuple(means[what, i][-1] for i in stock),
            cuts=tuple(means[what, i][:-1] for i in stock),
            newline=newline,
            words=words,
            starts=first,
        )

    found: dict[Stock, Costs] = {kind: of("piece", means["newline", 0][0])}
    if kind == "prose":
        found["inline"] = of("inline", 0.0)
    return found


def _table(stock: Stock, costs: Costs) -> Table:
    kind: TextKind = "prose" if stock == "inline" else stock
    own = pieces(kind)
    word, start = (min(found, key=lambda c: abs(c - 1)) for found in (costs.words, costs.starts))
    return Table(
        pieces=tuple(p[:-1] for p in own) if stock == "inline" else own,
        costs=np.array(costs.pieces),
        places=tuple(cut_places(p) for p in own),
        cuts=costs.cuts,
        newline=costs.newline,
        words=tuple(w for w, c in zip(FILL, costs.words, strict=True) if abs(c - word) < 0.05),
        word=max(word, 0.1),
        starts=tuple(w for w, c in zip(FILL, costs.starts, strict=True) if abs(c - start) < 0.05),
        start=max(start, 0.1),
        mean=max(1.0, sum(costs.pieces) / len(costs.pieces)),
        escaped=tuple(msgspec.json.encode(p)[1:-1] for p in own),
        cost_list=costs.pieces,
    )
