"""What is measured and what must come out of it. Limits that depend on the machine are ratios to a client beside us."""

from collections.abc import Callable, Mapping

from compare import Measured, Two
from msgspec import Struct

OURS, RAW, NAIVE, ABENCH = "windtunnel", "raw-c", "naive", "abench"
Results = Mapping[str, Measured]


class Gate(Struct, frozen=True):
    """One figure and its limit."""

    what: str
    value: float
    limit: float
    unit: str = ""
    at_least: bool = False
    always: bool = False
    """Holds on a busy machine, too: it is about what was counted, not about time."""

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Wide(Struct, frozen=True):
    """How much looser a short run on somebody's CI machine is judged."""

    ratio: float = 1.0
    ms: float = 1.0
    """Factor on limits in ms."""


EXACT, LOOSE = Wide(), Wide(ratio=2.0, ms=20.0)


class Scenario(Struct, frozen=True):
    name: str
    what: str
    streams: int
    outputs: tuple[int, ...]
    """Tokens of each call of a session; every stream runs one session."""
    body_bytes: int
    server: dict[str, object]
    gates: Callable[[Results, Wide], list[Gate]]
    clients: tuple[str, ...] = (OURS, RAW, NAIVE)
    with_abench: bool = False
    """Also with agentic-bench, where the bench was given one."""
    short_outputs: tuple[int, ...] | None = None
    """In the short form; None leaves the scenario out of it."""


def _exact(r: Results) -> Gate:
    return Gate(
        "calls with exactly the server's tokens and chunks", float(bool(r[OURS].tokens_exact)), 1, "", True, True
    )


def _cpu(r: Results, wide: Wide) -> list[Gate]:
    ours = r[OURS].cpu_us_per_chunk
    raw = Gate("CPU per chunk, of raw-c's", ours / r[RAW].cpu_us_per_chunk, 2.2 * wide.ratio, "x")
    slow = [name for name in (NAIVE, ABENCH) if name in r]
    return [
        raw,
        *(Gate(f"CPU per chunk, of {n}'s", ours / r[n].cpu_us_per_chunk, 0.5 * wide.ratio, "x") for n in slow),
    ]


def paced(r: Results, wide: Wide) -> list[Gate]:
    chunk_bytes = 16 * r[OURS].chunks / 1e6
    memory = Gate("memory grown, without 16 B a chunk", r[OURS].grown_mb - chunk_bytes, 30, "MB")
    return [*_cpu(r, wide), memory, _exact(r)]


def firehose(r: Results, wide: Wide) -> list[Gate]:
    ours = r[OURS].chunks_per_core_s
    slow = [name for name in (NAIVE, ABENCH) if name in r]
    rates = [
        Gate(f"chunks per core second, of {n}'s", ours / r[n].chunks_per_core_s, 2 / wide.ratio, "x", at_least=True)
        for n in slow
    ]
    return [*rates, _exact(r)]


def staggered(r: Results, wide: Wide) -> list[Gate]:
    first, last = _known(r[OURS].first_lag), _known(r[OURS].last_lag)
    return [
        Gate("first chunk's lag p50", first.p50, 0.1 * wide.ms, "ms"),
        Gate("first chunk's lag p99", first.p99, 1 * wide.ms, "ms"),
        Gate("last chunk's lag p99", last.p99, 2 * wide.ms, "ms"),
        _exact(r),
    ]


def burst(r: Results, wide: Wide) -> list[Gate]:
    ours, raw = _known(r[OURS].ttft_error), _known(r[RAW].ttft_error)
    gap = _known(r[OURS].gap_error)
    return [
        Gate("TTFT p50, reported minus true, over raw-c's", ours.p50 - raw.p50, 5 * wide.ms, "ms"),
        Gate("TTFT p99, reported minus true, over raw-c's", ours.p99 - raw.p99, 10 * wide.ms, "ms"),
        Gate("chunk gap p50, reported minus true", abs(gap.p50), 0.1 * wide.ms, "ms"),
        Gate("chunk gap p99, reported minus true", gap.p99, 1.5 * wide.ms, "ms"),
        _exact(r),
    ]


def several(r: Results, wide: Wide) -> list[Gate]:
    off = abs((r[OURS].tpot_ratio or 0.0) - 1)
    return [Gate("time per output token, off the truth", 100 * off, 1 * wide.ratio, "%"), _exact(r)]


def many(r: Results, wide: Wide) -> list[Gate]:
    return [Gate("CPU", r[OURS].cores, 0.5 * wide.ratio, "cores"), _exact(r)]


def _known(two: Two | None) -> Two:
    return two if two is not None else Two(float("inf"), float("inf"))


SCENARIOS = (
    Scenario(
        "firehose",
        "32 streams, chunks as fast as they are read",
        32,
        (512,) * 8,
        2_000,
        {"ttft_ms": 0, "gap_ms": 0},
        firehose,
        with_abench=True,
        short_outputs=(512,) * 8,
    ),
    Scenario(
        "paced",
        "256 streams, a chunk each 20 ms, all in step as an engine's batch is",
        256,
        (256, 256),
        2_000,
        {"ttft_ms": 200, "gap_ms": 20, "in_step": 1},
        paced,
        with_abench=True,
        short_outputs=(100,),
    ),
    Scenario(
        "staggered",
        "256 streams, a chunk each 20 ms, begun over 1 s so that their chunks are spread",
        256,
        (256,),
        2_000,
        {"ttft_ms": 500, "gap_ms": 20, "stagger_ms": 1000},
        staggered,
        short_outputs=(60,),
    ),
    Scenario(
        "burst",
        "256 prompts of 200 KB at once, a chunk each 20 ms",
        256,
        (128, 128),
        200_000,
        {"ttft_ms": 200, "gap_ms": 20},
        burst,
        with_abench=True,
        short_outputs=(60,),
    ),
    Scenario(
        "several",
        "64 streams, 3 tokens a chunk, a chunk each 30 +- 5 ms",
        64,
        (200, 200),
        2_000,
        {"ttft_ms": 100, "gap_ms": 30, "jitter_ms": 5, "tokens_per_chunk": 3},
        several,
        short_outputs=(100,),
    ),
    Scenario(
        "several-plain",
        "the same, from a server that reports usage only at the end",
        64,
        (200, 200),
        2_000,
        {"ttft_ms": 100, "gap_ms": 30, "jitter_ms": 5, "tokens_per_chunk": 3, "plain": 1},
        several,
        clients=(OURS,),
        short_outputs=(100,),
    ),
    Scenario(
        "many",
        "512 streams, a chunk each 20 ms",
        512,
        (256,),
        2_000,
        {"ttft_ms": 500, "gap_ms": 20, "stagger_ms": 500},
        many,
        clients=(OURS, RAW),
    ),
)
