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
from windtunnel.traces.model import Trace, Wait

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
    history: History = "recorded"
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


def replayed_wait(
    policy: Policy, wait: Wait, usual: UsualTimes, tool_seconds: dict[str, float] | None = None
) -> Replayed:
    """One wait under the dials; a join (`subagent`) has no seconds of its own and gets 0.

    `tool_seconds`, where known, is the recorded time of each tool of the wait: with a dial for one of several parallel
    tools the wait ends with the slowest of them.
    """
    if wait.cause == "subagent":
        return Replayed(0.0)
    filled = wait.seconds is None
    seconds = usual.of(wait) if wait.seconds is None else max(0.0, wait.seconds)
    pace = Dial("cap", PACE_CAPS[policy.pace])
    dial = policy.cause_dial(wait.cause)
    named = [name for name in dict.fromkeys(wait.tools) if name in policy.per_tool] if wait.cause == "tool" else []
    if not named:
        return Replayed((dial or pace).apply(seconds), filled, paced=dial is None)
    lengths = [
        policy.per_tool.get(name, dial or pace).apply(min(seconds, (tool_seconds or {}).get(name, seconds)))
        for name in dict.fromkeys(wait.tools)
    ]
    return Replayed(max(lengths), filled)


def replayed_gap(
    policy: Policy, waits: Sequence[Wait], usual: UsualTimes, tool_seconds: dict[str, float] | None = None
) -> list[Replayed]:
    """The waits before one call, in order. What the pace decides about shares one cap: it is a cap on the idle gap."""
    left = PACE_CAPS[policy.pace]
    out = []
    for wait in waits:
        replayed = replayed_wait(policy, wait, usual, tool_seconds)
        if replayed.paced:
            replayed = Replayed(min(replayed.seconds, left), replayed.filled, paced=True)
            left -= replayed.seconds
        out.append(replayed)
    return out
