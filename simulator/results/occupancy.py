"""Where the agents were, integrated over the measured window.

Sessions, requests in flight and sleeping agents are three numbers: an agent with any call in flight is in flight; one
without, but with a tool running, is in tool; any other agent that has a session is waiting.
"""

from msgspec import Struct

from windtunnel.simulator.results.calls import NS

Kind = str
"""`live`, `call`, `tool` or `stall`."""


class Occupancy(Struct, frozen=True):
    """Time integrals over the window, in agent-seconds (`call` and `stall`: call-seconds)."""

    live_s: float = 0.0
    in_flight_s: float = 0.0
    in_tool_s: float = 0.0
    calls_s: float = 0.0
    stall_s: float = 0.0
    """Calls that were sent and had no first token yet."""

    @property
    def waiting_s(self) -> float:
        return max(0.0, self.live_s - self.in_flight_s - self.in_tool_s)


class Spans:
    """Collects intervals while events are read; `integrate` clips them to a window."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, int, Kind]] = []

    def add(self, agent: int, kind: Kind, start: int, end: int) -> None:
        if end > start:
            self._spans.append((agent, start, end, kind))

    def copy(self) -> "Spans":
        other = Spans()
        other._spans = self._spans.copy()
        return other

    def integrate(self, start: int, end: int) -> Occupancy:
        edges: dict[int, list[tuple[int, int, Kind]]] = {}
        calls = stall = 0
        for agent, begin, finish, kind in self._spans:
            low, high = max(begin, start), min(finish, end)
            if high <= low:
                continue
            if kind == "stall":
                stall += high - low
                continue
            if kind == "call":
                calls += high - low
            edges.setdefault(agent, []).extend(((low, 1, kind), (high, -1, kind)))
        live = flight = tool = 0
        for agent_edges in edges.values():
            lived, flew, tooled = _one_agent(agent_edges)
            live, flight, tool = live + lived, flight + flew, tool + tooled
        return Occupancy(live / NS, flight / NS, tool / NS, calls / NS, stall / NS)


def _one_agent(edges: list[tuple[int, int, Kind]]) -> tuple[int, int, int]:
    """Ns live, in flight and in tool of one agent."""
    edges.sort()
    held = {"live": 0, "call": 0, "tool": 0}
    live = flight = tool = 0
    last = edges[0][0]
    for t, step, kind in edges:
        passed = t - last
        if passed:
            if held["call"]:
                flight += passed
            elif held["tool"]:
                tool += passed
            if any(held.values()):
                live += passed
            last = t
        held[kind] += step
    return live, flight, tool
