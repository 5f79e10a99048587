"""Servers that misbehave: each fault has its name in the result, nothing hangs, and the other streams do not suffer."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from adapter import said_in
from compare import Two, two
from machine import serving, watch
from msgspec import Struct
from records import Said, Truth, pairs
from scenarios import EXACT, Gate, Wide
from workload import command, write_workload

EXPECTED: dict[str, str | None] = {
    "none": None,
    "reset": "connection_reset",
    "close": "connection_closed",
    "error_event": "error_event",
    "no_end": "no_end_marker",
    "no_finish": "no_finish_reason",
    "429": "http_429",
    "503": "http_503",
    "stall": None,
    "long_line": None,
    "split": None,
    "crlf": None,
    "comments": None,
    "usage_late": None,
    "usage_absent": None,
    "slow_read": None,
}
"""What our result must call each of the server's faults; None where it is no failure."""
STREAMS, TOKENS = 64, 100
TURNS, ROUNDS = 3, 8
"""Runs of each kind, and how often each fault comes in one of them."""
STALL_MS = 700
FLAGS: dict[str, object] = {"ttft_ms": 100, "gap_ms": 20, "stagger_ms": 100, "stall_ms": STALL_MS}
BESIDE_NS = 500_000_000
"""For so long after its first byte a long line is being written, read, parsed and kept."""
MORE_MS = 2.0
"""Others' chunks may be so much later than in a run without faults, also in this time."""
UNDER_WAY_NS = 500_000_000
"""What was written so shortly before a call was cut may not have been read by then, least of all on a busy machine."""
BODY_BYTES = 64_000
"""More than fits the small receive buffer of a server that is to read slowly."""


class Row(Struct, frozen=True):
    """What became of the requests with one fault."""

    fault: str
    requests: int
    called: dict[str, int]
    right: bool


class Faults(Struct, frozen=True):
    rows: list[Row]
    clean_lag: Two | None
    """Of every chunk in runs without faults. All lags are medians over the turns."""
    lag: Two | None
    """Of the streams without a fault, beside those with one."""
    long_lag: Two | None
    """The same, of what was written while a line of ten megabytes was on its way."""
    more_ms: float
    """p99 with faults over p99 without, median of the turns; and so beside long lines."""
    more_beside_long_ms: float
    cut: int
    """Calls that the end of a run cut."""
    cut_right: bool
    """Each of them counted what the server had written, but for what was still under way."""
    foreign_cores: float

    def gates(self, wide: Wide = EXACT) -> list[Gate]:
        right = float(all(row.right for row in self.rows) and {row.fault for row in self.rows} == set(EXPECTED))
        beside = "other streams' chunk lag p99 beside a line of 10 MB, over a clean run's"
        return [
            Gate("faults with their right name and counts", right, 1, "", True, True),
            Gate("other streams' chunk lag p99, over a clean run's", self.more_ms, MORE_MS * wide.ms, "ms"),
            Gate(beside, self.more_beside_long_ms, MORE_MS * wide.ms, "ms"),
            Gate("cut calls that counted what was written", float(self.cut_right and self.cut > 0), 1, "", True, True),
        ]


class Turn(Struct, frozen=True):
    """A run without faults and one with, one after the other."""

    said: list[Said]
    true: list[Truth]
    clean_lag: Two | None
    lag: Two | None
    long_lag: Two | None
    foreign_cores: float


def order(rounds: int = ROUNDS) -> list[str]:
    """Every second request is well; the long line comes once, because it is ten megabytes."""
    bad = [name for _ in range(rounds) for name in EXPECTED if name not in ("none", "long_line")]
    bad.insert(len(bad) // 2, "long_line")
    return [name for fault in bad for name in ("none", fault)]


def run_faults(binaries: Path, scratch: Path, *, short: bool) -> Faults:
    count, faults = (1, order(1)) if short else (TURNS, order())
    turns = [_turn(binaries, scratch, faults) for _ in range(count)]
    cut, cut_right = _cut(binaries, scratch)
    wanted = Counter(faults)
    return Faults(
        rows=[_row(fault, wanted[fault], turns) for fault in EXPECTED],
        clean_lag=_middle([turn.clean_lag for turn in turns]),
        lag=_middle([turn.lag for turn in turns]),
        long_lag=_middle([turn.long_lag for turn in turns]),
        more_ms=_more([(turn.lag, turn.clean_lag) for turn in turns]),
        more_beside_long_ms=_more([(turn.long_lag, turn.clean_lag) for turn in turns]),
        cut=cut,
        cut_right=cut_right,
        foreign_cores=max(turn.foreign_cores for turn in turns),
    )


def _turn(binaries: Path, scratch: Path, faults: list[str]) -> Turn:
    small = {"faults": "none,slow_read"}  # the small buffers, so that both runs have them; the fault itself is rare
    clean, clean_true, one = _run(binaries, scratch, len(faults), {**FLAGS, **small, "slow_ms": 0.001})
    said, true, other = _run(binaries, scratch, len(faults), {**FLAGS, "faults": ",".join(faults)})
    well = [(s, t) for s, t in pairs(said, true) if t.fault == "none"]
    long = [int(t.times[0]) for t in true if t.fault == "long_line" and len(t.times)]
    return Turn(
        said=said,
        true=true,
        # Of the requests at the places where they are well in both runs.
        clean_lag=two(lag for _, lag in lags((s, t) for s, t in pairs(clean, clean_true) if t.fault == "none")),
        lag=two(lag for _, lag in lags(well)),
        long_lag=two(lag for at, lag in lags(well) if any(0 <= at - begun < BESIDE_NS for begun in long)),
        foreign_cores=max(one, other),
    )


def lags(both: Iterable[tuple[Said, Truth]]) -> Iterator[tuple[int, int]]:
    """When each chunk was written, and how much later it arrived, ns."""
    for said, true in both:
        if len(said.times) == len(true.times):
            yield from zip(true.times.tolist(), (said.times - true.times).tolist(), strict=True)


def _middle(values: Sequence[Two | None]) -> Two | None:
    known = [value for value in values if value is not None]
    return Two(median(v.p50 for v in known), median(v.p99 for v in known)) if known else None


def _more(turns: Sequence[tuple[Two | None, Two | None]]) -> float:
    """Median over the turns: what drifts from run to run is not taken for an effect of the faults."""
    return median(a.p99 - b.p99 if a and b else float("inf") for a, b in turns)


def _run(
    binaries: Path, scratch: Path, sessions: int, flags: dict[str, object], *more: str, tokens: int = TOKENS
) -> tuple[list[Said], list[Truth], float]:
    run_dir = scratch / "faults-run"
    shutil.rmtree(run_dir, ignore_errors=True)
    trace = write_workload(scratch / "faults.jsonl", BODY_BYTES, [tokens])
    with serving(binaries, flags) as server:
        argv = command(trace, server.url, STREAMS, sessions, run_dir, "--max-failures", "100%", *more)
        watched = watch(argv, server.pid, scratch / "faults.log", 120)
        true = server.truth()
    begin, end = min(t.accepted for t in true), max(t.end for t in true)
    return said_in(run_dir), true, watched.foreign_cores(begin, end)


def _row(fault: str, wanted: int, turns: Sequence[Turn]) -> Row:
    """`wanted`: requests that meet it in each turn."""
    both = [(s, t) for turn in turns for s, t in pairs(turn.said, turn.true) if t.fault == fault]
    called = Counter(s.failure or "no failure" for s, _ in both)
    whole = len(both) == wanted * len(turns)
    return Row(fault, len(both), dict(called), whole and all(right(s, t) for s, t in both))


def right(said: Said, true: Truth) -> bool:
    """Whether one request's result says what happened to it."""
    if said.failure != EXPECTED[true.fault]:
        return False
    if true.fault == "429":
        return "retry after 7" in (said.detail or "")
    if true.fault == "usage_absent":
        return said.tokens is None and len(said.times) == len(true.times)
    if said.failure is not None:
        return len(said.times) == len(true.times)
    if true.fault == "stall":
        longest = max((said.times[1:] - said.times[:-1]).tolist(), default=0)
        return said.tokens == true.tokens and longest > 0.9 * STALL_MS * 1e6
    return said.tokens == true.tokens and len(said.times) == len(true.times)


def _cut(binaries: Path, scratch: Path) -> tuple[int, bool]:
    """A run that ends in the middle of its calls: the server knows what it had written by then."""
    flags: dict[str, object] = {"ttft_ms": 50, "gap_ms": 10}
    more = ("--duration", "1.5")
    said, true, _ = _run(binaries, scratch, 0, flags, *more, tokens=5_000)
    both = [(s, t) for s, t in pairs(said, true) if s.cut]
    return len(both), all(cut_right(s, t) for s, t in both)


def cut_right(said: Said, true: Truth) -> bool:
    """Whether a cut call counted what was written before it was cut; the server goes on until it sees the end."""
    if said.failure is not None or true.how != "client_closed" or said.end is None:
        return False
    least, most = np.searchsorted(true.times, [said.end - UNDER_WAY_NS, said.end], side="right")
    counted = len(said.times)
    return bool(least <= counted <= most and (said.times >= true.times[:counted]).all())
