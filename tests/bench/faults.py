"""Servers that misbehave: each fault has its name in the result, nothing hangs, and the other streams do not suffer."""

import shutil
from collections import Counter
from pathlib import Path

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
STREAMS, TOKENS, ROUNDS = 64, 100, 10
STALL_MS = 700
FLAGS: dict[str, object] = {"ttft_ms": 100, "gap_ms": 20, "stagger_ms": 100, "stall_ms": STALL_MS}
UNDER_WAY = 10
"""Chunks that a cut call may have missed: 0.1 s of them."""
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
    """Of every chunk, in a run without faults."""
    lag: Two | None
    """Of the streams without a fault, beside those with one."""
    cut: int
    """Calls that the end of a run cut."""
    cut_right: bool
    """Each of them counted what the server had written, but for what was still under way."""
    foreign_cores: float

    def gates(self, wide: Wide = EXACT) -> list[Gate]:
        right = float(all(row.right for row in self.rows) and {row.fault for row in self.rows} == set(EXPECTED))
        more = self.lag.p99 - self.clean_lag.p99 if self.lag and self.clean_lag else float("inf")
        return [
            Gate("faults with their right name", right, 1, "", True, True),
            Gate("other streams' chunk lag p99, over a clean run's", more, 2 * wide.ms, "ms"),
            Gate("cut calls that counted what was written", float(self.cut_right and self.cut > 0), 1, "", True, True),
        ]


def order(rounds: int = ROUNDS) -> str:
    """Every second request is well; the long line comes once, because it is ten megabytes."""
    bad = [name for _ in range(rounds) for name in EXPECTED if name not in ("none", "long_line")]
    bad.insert(len(bad) // 2, "long_line")
    return ",".join(name for fault in bad for name in ("none", fault))


def run_faults(binaries: Path, scratch: Path, *, short: bool) -> Faults:
    rounds = 1 if short else ROUNDS
    faults = order(rounds)
    sessions = len(faults.split(","))
    small = {"faults": "none,slow_read"}  # the small buffers, so that both runs have them; the fault itself is rare
    clean, clean_true, _ = _run(binaries, scratch, sessions, {**FLAGS, **small, "slow_ms": 0.001})
    said, true, foreign = _run(binaries, scratch, sessions, {**FLAGS, "faults": faults})
    well = [(s, t) for s, t in pairs(said, true) if t.fault == "none"]
    cut, cut_right = _cut(binaries, scratch)
    return Faults(
        rows=[_row(fault, said, true) for fault in EXPECTED],
        clean_lag=_lag(pairs(clean, clean_true)),
        lag=_lag(well),
        cut=cut,
        cut_right=cut_right,
        foreign_cores=foreign,
    )


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


def _lag(both: list[tuple[Said, Truth]]) -> Two | None:
    return two(lag for s, t in both if len(s.times) == len(t.times) for lag in (s.times - t.times).tolist())


def _row(fault: str, said: list[Said], true: list[Truth]) -> Row:
    both = [(s, t) for s, t in pairs(said, true) if t.fault == fault]
    called = Counter(s.failure or "no failure" for s, _ in both)
    return Row(fault, len(both), dict(called), bool(both) and all(right(s, t) for s, t in both))


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
    fine = [
        s.failure is None and t.how == "client_closed" and 0 <= len(t.times) - len(s.times) <= UNDER_WAY
        for s, t in both
    ]
    return len(both), all(fine)
