"""The dials of a replay: how long an agent waits, where it starts, what history it sends.

The pace caps the idle gap before a call, because the cap on gaps is what decides how many agents are in flight at a
time. A dial set for one cause, or for one tool, overrides the pace there.
"""

import math
import re
from collections.abc import Sequence
from statistics import median
from typing import Literal, Protocol

from msgspec import Struct

from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import ToolRun, Trace, Wait

DialKind = Literal["recorded", "scale", "cap", "none"]
Pace = Literal["busy", "typical", "recorded", "none"]
Start = Literal["fresh", "spread"]
History = Literal["recorded", "live"]

PACE_CAPS: dict[Pace, float] = {"busy": 10.0, "typical": 60.0, "recorded": math.inf, "none": 0.0}
"""Longest idle gap before a call, s."""

USUAL_TOOL_S: dict[str, float] = {
    "bash": 1.0,
    "shell": 1.0,
    "exec_command": 1.0,
    "execute_bash": 1.0,
    "write_stdin": 1.0,
    "read": 0.05,
    "write": 0.05,
    "edit": 0.05,
    "multiedit": 0.05,
    "apply_patch": 0.1,
    "todowrite": 0.02,
    "update_plan": 0.02,
    "glob": 0.1,
    "grep": 0.2,
    "websearch": 4.0,
    "webfetch": 4.0,
}
"""Seconds of a tool whose time no trace tells. Rough figures; a replay marks every wait that was filled with one."""
USUAL_ANY_TOOL_S = 0.3
"""Median tool time over 357k recorded steps (TraceLab)."""
USUAL_HUMAN_S = 84.0
"""Median time of the human, from the same source (1.4 min)."""
TOUCHING = 0.05
"""Share of the shorter of two tool runs: an overlap up to here is the clock's, and they ran one after the other."""

_SCALE = re.compile(r"[x×](\d{1,6}(?:\.\d+)?|\.\d+)")
_CAP = re.compile(r"(?:<=|≤)(\d{1,9}(?:\.\d+)?|\.\d+)s?")


class Dial(Struct, frozen=True):
    """What becomes of one recorded wait."""

    kind: DialKind
    value: float = 0.0
    """Factor of `scale`, seconds of `cap`."""

    def apply(self, seconds: float) -> float:
        if self.kind == "scale":
            return seconds * self.value
        if self.kind == "cap":
            return min(seconds, self.value)
        return seconds if self.kind == "recorded" else 0.0

    def __str__(self) -> str:
        if self.kind == "scale":
            return f"x{self.value:g}"
        return f"<={self.value:g}" if self.kind == "cap" else self.kind


def parse_dial(text: str) -> Dial:
    """`recorded`, `none`, `x2` (twice as long), `<=10` (at most 10 s)."""
    text = text.strip()
    if text == "recorded":
        return Dial("recorded")
    if text == "none":
        return Dial("none")
    if match := _SCALE.fullmatch(text):
        return Dial("scale", float(match[1]))
    if match := _CAP.fullmatch(text):
        return Dial("cap", float(match[1]))
    raise UsageError(
        f"{text[:100]!r} is no time setting: write recorded, none, a factor such as x2, or a cap such as <=10"
    )


class Policy(Struct, frozen=True):
    """Every dial of a replay that a session itself obeys."""

    pace: Pace = "busy"
    tool_time: Dial | None = None
    """None: the pace decides."""
    human_time: Dial | None = None
    per_tool: dict[str, Dial] = {}
    """By tool name, before `tool_time` and the pace."""
    start: Start = "fresh"
    seed: int = 0

    def cause_dial(self, cause: str) -> Dial | None:
        """The explicit dial of a cause; None when the pace decides."""
        if cause == "tool":
            return self.tool_time
        return self.human_time if cause == "human" else None


class Uniform(Protocol):
    """A seeded generator: `random.Random` and numpy's `Generator` both are."""

    def random(self) -> float: ...


class UsualTimes(Struct, frozen=True):
    """Seconds to fill unknown waits with: medians of the given traces, the tables above where they say nothing."""

    tools: dict[str, float] = {}
    human: float = USUAL_HUMAN_S

    def tool(self, name: str) -> float:
        known = self.tools.get(name)
        return USUAL_TOOL_S.get(name.lower(), USUAL_ANY_TOOL_S) if known is None else known

    def of(self, wait: Wait) -> float:
        """Parallel tools take as long as the slowest."""
        if wait.cause == "tool":
            return max((self.tool(name) for name in wait.tools), default=USUAL_ANY_TOOL_S)
        return self.human if wait.cause == "human" else 0.0


def usual_times(traces: Sequence[Trace]) -> UsualTimes:
    """Medians of tool runs and human waits whose length the traces know."""
    tools: dict[str, list[float]] = {}
    human: list[float] = []
    for trace in traces:
        for run in trace.tool_runs:
            if run.thread is None and run.start_s is not None and run.end_s is not None:
                tools.setdefault(run.name, []).append(max(0.0, run.end_s - run.start_s))
        for wait in trace.waits:
            if wait.seconds is not None and wait.cause == "human":
                human.append(wait.seconds)
            elif wait.seconds is not None and wait.cause == "tool" and len(wait.tools) == 1 and not trace.tool_runs:
                tools.setdefault(wait.tools[0], []).append(wait.seconds)
    return UsualTimes(
        tools={name: median(seconds) for name, seconds in tools.items()},
        human=median(human) if human else USUAL_HUMAN_S,
    )


class Replayed(Struct, frozen=True):
    """How long a wait lasts in the replay."""

    seconds: float
    filled: bool = False
    """The recording did not say how long: a usual time was taken."""
    paced: bool = False
    """The pace decides about it: it counts against the cap of the whole gap before the call."""


def replayed_wait(policy: Policy, wait: Wait, usual: UsualTimes, runs: Sequence[ToolRun] = ()) -> Replayed:
    """One wait under the dials; a join (`subagent`) has no seconds of its own and gets 0.

    `runs`: the tool runs before it. With a dial for one of several tools, those that ran side by side still do so, and
    those that followed one another still follow.
    """
    if wait.cause == "subagent":
        return Replayed(0.0)
    filled = wait.seconds is None
    seconds = usual.of(wait) if wait.seconds is None else max(0.0, wait.seconds)
    pace = Dial("cap", PACE_CAPS[policy.pace])
    dial = policy.cause_dial(wait.cause)
    if wait.cause != "tool" or policy.per_tool.keys().isdisjoint(wait.tools):
        return Replayed((dial or pace).apply(seconds), filled, paced=dial is None)
    recorded = _within(wait, seconds, usual, runs)
    replayed = _with_dials(recorded, {**dict.fromkeys(wait.tools, dial or pace), **policy.per_tool})
    same = all(new.seconds == old.seconds for new, old in zip(replayed, recorded, strict=True))
    total = seconds if same else _covered(replayed)
    if dial is None:  # of what no dial decides about the pace caps the sum, too
        own = _covered([run for run in replayed if run.name in policy.per_tool])
        total = min(total, own + pace.value)
    return Replayed(total, filled)


class _Run(Struct, frozen=True):
    """A tool's run, in seconds since the wait began."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def _within(wait: Wait, seconds: float, usual: UsualTimes, runs: Sequence[ToolRun]) -> list[_Run]:
    """The runs of the wait's tools by their start, of which the whole wait is made.

    The wait is the tools' time: what no run covers of it, or covers too much, is shared out among them. A tool whose
    time is not known ran side by side with the others, as long as the wait was.
    """
    if wait.seconds is None:
        return [_Run(name, 0.0, usual.tool(name)) for name in dict.fromkeys(wait.tools)]
    told = [
        _Run(run.name, run.start_s, run.end_s)
        for run in runs
        if run.name in wait.tools and run.start_s is not None and run.end_s is not None and run.end_s >= run.start_s
    ]
    begun = min((run.start for run in told), default=0.0)
    untold = [_Run(name, 0.0, seconds) for name in dict.fromkeys(wait.tools) if name not in {run.name for run in told}]
    covered = _covered(told)
    factor = seconds / covered if covered else 0.0
    if untold:
        factor = min(1.0, factor)
    placed = [_Run(run.name, (run.start - begun) * factor, (run.end - begun) * factor) for run in told]
    return sorted([*untold, *placed], key=lambda run: run.start)


def _with_dials(runs: Sequence[_Run], dials: dict[str, Dial]) -> list[_Run]:
    """The runs as long as the dials make them; each begins as long after those that were over before it as it did."""
    out: list[_Run] = []
    for run in runs:
        over = [at for at, other in enumerate(runs[: len(out)]) if _followed(other, run)]
        start = run.start
        if over:
            start += max(out[at].end for at in over) - max(runs[at].end for at in over)
        out.append(_Run(run.name, start, start + dials[run.name].apply(run.seconds)))
    return out


def _followed(run: _Run, later: _Run) -> bool:
    return run.end - later.start <= TOUCHING * min(run.seconds, later.seconds)


def _covered(runs: Sequence[_Run]) -> float:
    """Seconds in which at least one of them runs."""
    total, until = 0.0, -math.inf
    for run in sorted(runs, key=lambda run: run.start):
        total += max(0.0, run.end - max(run.start, until))
        until = max(until, run.end)
    return total


def replayed_gap(
    policy: Policy, waits: Sequence[Wait], usual: UsualTimes, runs: Sequence[ToolRun] = ()
) -> list[Replayed]:
    """The waits before one call, in order. What the pace decides about shares one cap: it is a cap on the idle gap."""
    left = PACE_CAPS[policy.pace]
    out = []
    for wait in waits:
        replayed = replayed_wait(policy, wait, usual, runs)
        if replayed.paced:
            replayed = Replayed(min(replayed.seconds, left), replayed.filled, paced=True)
            left -= replayed.seconds
        out.append(replayed)
    return out
