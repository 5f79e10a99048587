"""Whether a run's numbers can be trusted, and if not, why, by name.

The same rules judge a finished run (`facts.of_tally`) and a live one (`fold`): both fill in `Facts`. A fact that is not
known gives no reason; only a missing proof of isolation does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

LAG_LIMIT_S = 0.005
CPU_LIMIT = 0.70
LIVE_LIMIT = 0.95
FAILED_LIMIT = 0.02
FOREIGN_LIMIT = 0.01
FOREIGN_WINDOW_LIMIT = 0.10
"""Inside a window the scrape and the arrivals are some milliseconds apart, and calls may have been cut."""
FOREIGN_FLOOR = 64.0
"""Tokens that are never called foreign: a health check, a probe."""

RECORDING = "recording"
"""`kind` in `run.json`."""
SHORTEST_S = 1.0
"""Of a run's window. Rates over less are those of whatever call happened to be in it."""
LATE_LIMIT = 0.05
"""Of a step."""

PROMPTS_LIMIT = 0.2
"""Stored characters per token, used where a server has no /tokenize, may be 10% off; twice that is another load."""

REASONS: dict[str, str] = {
    "client_lag": "the client was late: its event-loop lag p99 was above 5 ms",
    "client_cpu": "the client was busy: it used more than 70% of a core",
    "agents_missing": "fewer than 95% of the agents were live in the window",
    "foreign_load": "the engine's counters grew more than this run explains: somebody else used it",
    "failures": "more than 2% of the sessions failed, and survivors look fast",
    "no_steady_state": "no steady window of a second or more was measured, or no call was completed in it",
    "isolation_not_verified": "it was not shown that the engine's cache was cold for this run",
    "cold_start": "the engine had just been started and answered its first calls inside the window",
    "compilation": "the engine compiled inside the window",
    "gpu_throttling": "a GPU was throttled inside the window",
    "other_gpu_process": "another process used a GPU inside the window",
    "trend": "throughput or the KV cache in use was still rising or falling in the window",
    "emulator_late": "the emulator could not keep its own pace: tokens came over 5% of a step later than modelled",
    "prompt_lengths": "prompts were not as long as recorded: the server counted over 20% more or fewer tokens",
    "engine_restarted": "the engine's counters began anew: it was restarted, and what it did just before is lost",
    "engine_gone": "the engine went away",
    "worker_gone": "a process that carries streams died",
    "disk_full": "the disk was full: what happened after that was not kept",
    "run_failed": "the run failed",
    "died": "the run was killed before its end",
    "damaged": "lines of its events could not be read: what stood there is missing from the figures",
}
"""Known reasons in words; a note may bring others."""
ONLY_IN_WINDOW = frozenset({"cold_start", "compilation", "gpu_throttling", "other_gpu_process"})
"""Reasons of notes that do no harm outside the window."""
GONE = frozenset({"engine_gone", "worker_gone", "disk_full"})
"""What a failed run may have lost."""

WHOLE = frozenset({*GONE, "run_failed", "died", "damaged"})
"""What can be held against a recording: it takes the traffic as it is, so only what is missing from it counts."""

THROTTLES = ("thermal", "slowdown", "brake")
"""Parts of throttle names that count. A power cap is how a GPU runs at full load, and idling is none."""


class Facts(Struct, frozen=True, kw_only=True):
    """What the rules look at; None where it is not known."""

    steady: bool
    recording: bool = False
    """Real agents were recorded: nothing was set up that a rule about windows and caches could hold for."""
    client_lag_p99_s: float | None = None
    client_cpu: float | None = None
    agents: int = 0
    live_mean: float | None = None
    sessions_started: int = 0
    sessions_failed: int = 0
    isolated: bool = True
    cold_start: bool = False
    foreign: bool = False
    throttled: bool = False
    other_processes: bool = False
    trending: bool = False
    emulator_late: float | None = None
    """By what share of a step the emulator's tokens came later than its model says, mean of the window."""
    prompts_off: float | None = None
    """Share by which the prompts that the server counted differ from the recorded ones, all together."""
    ending: str | None = None
    """`run_failed` or `died`."""
    damaged: bool = False
    """Lines of the events could not be read."""
    restarted: bool = False
    """The engine's counters began anew."""
    gone: str | None = None
    """One of `GONE`, where that ended the run."""
    notes: tuple[str, ...] = ()
    """Reasons that notes brought."""


def judge(facts: Facts) -> tuple[str, ...]:
    """Reasons why the run is not valid, without repetition; empty when it is valid."""
    lag, cpu, live = facts.client_lag_p99_s, facts.client_cpu, facts.live_mean
    held = {
        facts.gone or "engine_gone": facts.gone is not None,
        facts.ending or "run_failed": facts.ending is not None,
        "damaged": facts.damaged,
        "no_steady_state": not facts.steady,
        "client_lag": lag is not None and lag > LAG_LIMIT_S,
        "client_cpu": cpu is not None and cpu > CPU_LIMIT,
        "agents_missing": facts.steady and live is not None and live < LIVE_LIMIT * facts.agents,
        "engine_restarted": facts.restarted,
        "foreign_load": facts.foreign,
        "failures": facts.sessions_failed > FAILED_LIMIT * facts.sessions_started,
        "isolation_not_verified": not facts.isolated,
        "cold_start": facts.cold_start,
        "gpu_throttling": facts.throttled,
        "other_gpu_process": facts.other_processes,
        "trend": facts.trending,
        "emulator_late": facts.emulator_late is not None and facts.emulator_late > LATE_LIMIT,
        "prompt_lengths": facts.prompts_off is not None and facts.prompts_off > PROMPTS_LIMIT,
    }
    reasons = [name for name, holds in held.items() if holds and (not facts.recording or name in WHOLE)]
    return tuple(dict.fromkeys([*reasons, *facts.notes]))


def is_recording(run: Mapping[str, Any]) -> bool:
    """Whether the folder holds real agents' traffic and not a replay."""
    return run.get("kind") == RECORDING


def is_window(seconds: float, run: Mapping[str, Any]) -> bool:
    """Whether a steady stretch is long enough to be measured; a recording's is what there is."""
    return seconds >= SHORTEST_S or (is_recording(run) and seconds > 0)


def in_words(reason: str) -> str:
    return REASONS.get(reason, reason.replace("_", " "))


def harmful_throttles(names: Iterable[str]) -> bool:
    return any(part in name.lower() for name in names for part in THROTTLES)


def more_than(theirs: float | None, ours: float | None, share: float) -> bool:
    """The engine counted more than we explain, beyond `share` and a floor."""
    return theirs is not None and ours is not None and theirs - ours > max(FOREIGN_FLOOR, share * ours)


def trends(parts: Sequence[float], smallest: float) -> bool:
    """Whether equal parts of a window, in order, rise or fall from third to third.

    All three must hold: the thirds' means go one way; last and first third differ by at least `smallest`; and by more
    than four standard errors, taken from the scatter inside the thirds, so that the noise of a short window gives none.
    """
    third = len(parts) // 3
    if third < 4:
        return False
    thirds = [list(parts[:third]), list(parts[third:-third]), list(parts[-third:])]
    first, middle, last = (sum(values) / len(values) for values in thirds)
    if not (first < middle < last or first > middle > last) or abs(last - first) < smallest:
        return False
    scatter = 0.0
    for values, centre in zip(thirds, (first, middle, last), strict=True):
        scatter += sum((value - centre) ** 2 for value in values)
    error = math.sqrt(scatter / (len(parts) - 3) * 2 / third)
    return abs(last - first) > 4.0 * error
