"""Time between the calls of recorded sessions, counted when the next call shows that the session went on.

Nobody knows whether a session whose last call ended goes on: a wait that no call has ended counts nowhere.
"""

from msgspec import Struct

from windtunnel.agents.events import CallEnd, CallStart, Event, SessionEnd, WaitEnd, WaitStart
from windtunnel.simulator.results.calls import NS, ended_ns
from windtunnel.simulator.results.series import Series


class Gap(Struct, frozen=True):
    """A stretch without a call in flight, ns; `tool`: a tool ran, else the session waited."""

    start: int
    end: int
    tool: bool


class _Session:
    __slots__ = ("flights", "idle", "since", "tools")

    def __init__(self) -> None:
        self.flights = 0
        self.since: int | None = None
        """When the last call ended, or what is counted of the time since."""
        self.idle: list[tuple[int, int]] = []
        """Counted as waiting while a tool may have been running."""
        self.tools: dict[int, int] = {}
        """Thread to the start of its open tool wait."""


class Gaps:
    """Fed with the events of sessions in order."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._known: list[tuple[Gap, int]] = []
        """With 1, or -1 where it was counted as something else before."""

    def apply(self, event: Event) -> None:
        """Takes in an event; other kinds than sessions, calls and waits change nothing."""
        match event:
            case CallStart():
                self.call_start(event.session, event.t)
            case CallEnd():
                self.call_end(event.session, ended_ns(event))
            case WaitStart() if event.cause == "tool":
                self.tool_start(event.session, event.thread, event.t)
            case WaitEnd() if event.cause == "tool":
                self.tool_end(event.session, event.thread, event.t)
            case SessionEnd():
                self._sessions.pop(event.session, None)
            case _:
                pass

    def call_start(self, session: str, t: int) -> None:
        held = self._sessions.setdefault(session, _Session())
        self._reach(held, t)
        held.flights += 1
        held.since = None

    def call_end(self, session: str, t: int) -> None:
        held = self._sessions.setdefault(session, _Session())
        held.flights = max(0, held.flights - 1)
        if not held.flights:
            held.since = t

    def tool_start(self, session: str, thread: int, t: int) -> None:
        self._sessions.setdefault(session, _Session()).tools[thread] = t

    def tool_end(self, session: str, thread: int, t: int) -> None:
        held = self._sessions.setdefault(session, _Session())
        begun = held.tools.pop(thread, None)
        if begun is None:
            return
        held.tools[thread] = begun
        self._reach(held, t)
        del held.tools[thread]
        left = []
        for start, end in held.idle:
            low, high = max(start, begun), min(end, t)
            if low >= high:
                left.append((start, end))
                continue
            self._known += [(Gap(low, high, tool=False), -1), (Gap(low, high, tool=True), 1)]
            left += [part for part in ((start, low), (high, end)) if part[0] < part[1]]
        held.idle = left if held.tools else []

    def draw(self, series: Series) -> tuple[float, float]:
        """Agent-seconds in tool and waiting that have become known; all of them lie before, and are drawn there."""
        tool = waiting = 0.0
        for gap, sign in self._known:
            amount = sign * (gap.end - gap.start) / NS
            series.add("in_tool" if gap.tool else "waiting", gap.start, gap.end, amount)
            tool, waiting = (tool + amount, waiting) if gap.tool else (tool, waiting + amount)
        self._known = []
        return tool, waiting

    def _reach(self, held: _Session, t: int) -> None:
        """The session goes on at `t`: what passed since its last call is known."""
        if held.flights or held.since is None or t <= held.since:
            return
        self._known.append((Gap(held.since, t, tool=False), 1))
        if held.tools:
            held.idle.append((held.since, t))
        held.since = t
