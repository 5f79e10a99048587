"""A client's report against the server's record: reported minus true, and the exact lag of single chunks."""

from collections.abc import Iterable, Sequence

import numpy as np
from machine import Watched
from msgspec import Struct
from records import Said, Truth, pairs

MS = 1_000_000


class Two(Struct, frozen=True):
    """Median and 99th percentile, ms."""

    p50: float
    p99: float

    def __sub__(self, other: "Two") -> "Two":
        return Two(self.p50 - other.p50, self.p99 - other.p99)


def two(values: Iterable[float]) -> Two | None:
    """Of values in ns."""
    data = np.fromiter(values, dtype=np.float64)
    if not len(data):
        return None
    p50, p99 = np.percentile(data, [50, 99]) / MS
    return Two(round(float(p50), 4), round(float(p99), 4))


class Measured(Struct, frozen=True, kw_only=True):
    """One client in one scenario."""

    client: str
    requests: int
    chunks: int
    seconds: float
    """From the first connection to the last end, by the server."""
    cpu_s: float
    """Of the client in this time."""
    foreign_cores: float
    grown_mb: float
    """Resident memory, over that at the first connection."""
    true_ttft: Two | None
    true_gap: Two | None
    ttft_error: Two | None
    """Reported percentile minus true percentile; the client counts from when it meant to send."""
    sent_ttft_error: Two | None
    """The same, counted from when the request had left."""
    gap_error: Two | None
    first_lag: Two | None
    """Arrival minus write of the same chunk."""
    last_lag: Two | None
    chunk_lag: Two | None
    """Of every chunk."""
    tpot_ratio: float | None
    """Mean reported over mean true time per output token."""
    tokens_exact: bool | None
    """Output tokens and chunks of every call are the server's; None where the client does not count tokens."""
    blocked: int
    """Times the server found a socket full: the client read too slowly."""

    @property
    def cpu_us_per_chunk(self) -> float:
        return self.cpu_s * 1e6 / max(1, self.chunks)

    @property
    def chunks_per_core_s(self) -> float:
        return self.chunks / max(1e-9, self.cpu_s)

    @property
    def cores(self) -> float:
        return self.cpu_s / max(1e-9, self.seconds)


def measure(client: str, said: Sequence[Said], true: Sequence[Truth], watched: Watched) -> Measured:
    """What the client's report is worth."""
    both = [(s, t) for s, t in pairs(said, true) if len(s.times) and len(t.times) and t.full]
    begin, end = min(t.accepted for _, t in both), max(t.end for _, t in both)
    whole = [(s, t) for s, t in both if len(s.times) == len(t.times)]
    true_ttft = two(int(t.times[0]) - t.full for _, t in both)
    true_gap = two(np.concatenate([np.diff(t.times) for _, t in both]))
    return Measured(
        client=client,
        requests=len(both),
        chunks=sum(len(t.times) for _, t in both),
        seconds=(end - begin) / 1e9,
        cpu_s=watched.client_cpu_s(begin, end),
        foreign_cores=watched.foreign_cores(begin, end),
        grown_mb=watched.grown_bytes(begin, end) / 1e6,
        true_ttft=true_ttft,
        true_gap=true_gap,
        ttft_error=minus(two(int(s.times[0]) - s.intended for s, _ in both), true_ttft),
        sent_ttft_error=minus(two(int(s.times[0]) - (s.sent or s.intended) for s, _ in both), true_ttft),
        gap_error=minus(two(np.concatenate([np.diff(s.times) for s, _ in both])), true_gap),
        first_lag=two(int(s.times[0] - t.times[0]) for s, t in whole),
        last_lag=two(int(s.times[-1] - t.times[-1]) for s, t in whole),
        chunk_lag=two(np.concatenate([s.times - t.times for s, t in whole])) if whole else None,
        tpot_ratio=tpot_ratio(both),
        tokens_exact=exact(both),
        blocked=sum(t.blocked for _, t in both),
    )


def measure_reported(client: str, true: Sequence[Truth], watched: Watched, ttft: Two, gap: Two) -> Measured:
    """A client that tells its percentiles only, ms."""
    begin, end = min(t.accepted for t in true), max(t.end for t in true)
    true_ttft = two(int(t.times[0]) - t.full for t in true)
    true_gap = two(np.concatenate([np.diff(t.times) for t in true]))
    return Measured(
        client=client,
        requests=len(true),
        chunks=sum(len(t.times) for t in true),
        seconds=(end - begin) / 1e9,
        cpu_s=watched.client_cpu_s(begin, end),
        foreign_cores=watched.foreign_cores(begin, end),
        grown_mb=watched.grown_bytes(begin, end) / 1e6,
        true_ttft=true_ttft,
        true_gap=true_gap,
        ttft_error=minus(ttft, true_ttft),
        sent_ttft_error=None,
        gap_error=minus(gap, true_gap),
        first_lag=None,
        last_lag=None,
        chunk_lag=None,
        tpot_ratio=None,
        tokens_exact=None,
        blocked=sum(t.blocked for t in true),
    )


def minus(reported: Two | None, true: Two | None) -> Two | None:
    return None if reported is None or true is None else reported - true


def tpot_ratio(both: Sequence[tuple[Said, Truth]]) -> float | None:
    """Clients that do not count tokens take a chunk for one, which is the point of comparing."""
    said_ns, true_ns = [], []
    for said, true in both:
        counted = said.tokens if said.tokens is not None else len(said.times)
        first = said.first_tokens if said.tokens is not None else 1
        per_chunk = true.tokens / len(true.times)
        later, true_later = counted - first, true.tokens - round(np.ceil(per_chunk))
        if later > 0 and true_later > 0:
            said_ns.append(float(said.times[-1] - said.times[0]) / later)
            true_ns.append(float(true.times[-1] - true.times[0]) / true_later)
    return float(np.mean(said_ns) / np.mean(true_ns)) if said_ns else None


def exact(both: Sequence[tuple[Said, Truth]]) -> bool | None:
    if all(said.tokens is None for said, _ in both):
        return None
    return all(s.tokens == t.tokens and len(s.times) == len(t.times) for s, t in both if t.how == "done")


def median_of(runs: Sequence[Measured]) -> Measured:
    """Figure by figure; the worst of what may not go wrong at all."""
    if len(runs) == 1:
        return runs[0]

    def mid(name: str) -> float:
        return float(np.median([getattr(run, name) for run in runs]))

    def mid_two(name: str) -> Two | None:
        held: list[Two] = [value for run in runs if (value := getattr(run, name)) is not None]
        if not held:
            return None
        return Two(float(np.median([v.p50 for v in held])), float(np.median([v.p99 for v in held])))

    ratios = [run.tpot_ratio for run in runs if run.tpot_ratio is not None]
    exactness = [run.tokens_exact for run in runs if run.tokens_exact is not None]
    twos = ("true_ttft", "true_gap", "ttft_error", "sent_ttft_error", "gap_error", "first_lag", "last_lag", "chunk_lag")
    return Measured(
        client=runs[0].client,
        requests=runs[0].requests,
        chunks=runs[0].chunks,
        seconds=mid("seconds"),
        cpu_s=mid("cpu_s"),
        foreign_cores=max(run.foreign_cores for run in runs),
        grown_mb=mid("grown_mb"),
        tpot_ratio=float(np.median(ratios)) if ratios else None,
        tokens_exact=all(exactness) if exactness else None,
        blocked=max(run.blocked for run in runs),
        **{name: mid_two(name) for name in twos},
    )
