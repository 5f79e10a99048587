"""Hand-made event streams whose every figure can be worked out on paper."""

from typing import Any

import pytest

from windtunnel.agents.events import (
    CallEnd,
    CallStart,
    Chunks,
    ClientSample,
    Event,
    Phase,
    RunEnd,
    RunStart,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results.store import RunWriter

NS = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * NS)


class Stream:
    """Events by seconds; `events()` gives them in order of time."""

    def __init__(self, agents: int = 1) -> None:
        self.made: list[Event] = [RunStart(t=0, agents=agents, wall_clock=1000.0)]
        self.ids = 0

    def add(self, *events: Event) -> "Stream":
        self.made += events
        return self

    def phase(self, t: float, phase: Any) -> "Stream":
        return self.add(Phase(t=ns(t), phase=phase))

    def end(self, t: float, status: Any = "completed", reason: str | None = None) -> "Stream":
        return self.add(RunEnd(t=ns(t), status=status, reason=reason))

    def session(self, start: float, end: float | None, agent: int = 0, status: Any = "completed", **more: Any) -> str:
        name = f"s{len([e for e in self.made if isinstance(e, SessionStart)])}"
        done = {k: more.pop(k) for k in ("reason", "work_done") if k in more}
        fields: dict[str, Any] = {"trace": "tr", "title": "fix", "copy": 0, "calls_total": 2, "turns_total": 2, **more}
        self.add(SessionStart(t=ns(start), agent=agent, session=name, **fields))
        if end is not None:
            self.add(SessionEnd(t=ns(end), agent=agent, session=name, status=status, **done))
        return name

    def wait(self, session: str, start: float, end: float, cause: Any = "tool", agent: int = 0, call: int = 0) -> None:
        base: dict[str, Any] = {"agent": agent, "session": session, "thread": 0, "call": call, "cause": cause}
        self.add(WaitStart(t=ns(start), seconds=end - start, label="Bash", **base), WaitEnd(t=ns(end), **base))

    def call(
        self,
        session: str,
        intended: float,
        end: float,
        *,
        sent: float | None = None,
        chunks: tuple[tuple[float, int], ...] = (),
        agent: int = 0,
        call: int = 0,
        **more: Any,
    ) -> str:
        """`chunks`: (arrival in s, tokens). First and last tokens, and the completion's count, follow from them."""
        self.ids += 1
        name = f"r{self.ids}"
        sent_ns = ns(intended if sent is None else sent)
        arrivals = [ns(t) for t, _ in chunks]
        us = [(t - before) // 1000 for t, before in zip(arrivals, [sent_ns, *arrivals], strict=False)]
        carrying = [t for t, (_, n) in zip(arrivals, chunks, strict=True) if n]
        fields: dict[str, Any] = {
            "t_first": carrying[0] if carrying else None,
            "t_last": carrying[-1] if carrying else None,
            "completion_tokens": sum(n for _, n in chunks) if chunks else None,
            "finish": "length",
            **more,
        }
        base: dict[str, Any] = {"agent": agent, "session": session, "thread": 0, "call": call, "request_id": name}
        expected = fields.setdefault("expected_prompt_tokens", fields.get("prompt_tokens") or 0)
        start: dict[str, Any] = {"turn": call + 1, "turns": 2, "expected_prompt_tokens": expected}
        self.add(
            CallStart(t=sent_ns, t_intended=ns(intended), **base, **start),
            CallEnd(
                t=ns(end),
                t_intended=ns(intended),
                t_sent=sent_ns,
                t_end=ns(end),
                chunks=Chunks(tuple(us), tuple(n for _, n in chunks)),
                **base,
                **fields,
            ),
        )
        return name

    def lag(self, t: float, *us: int, cpu: float | None = 0.1) -> "Stream":
        return self.add(ClientSample(t=ns(t), lag_us=us, cpu=cpu))

    def events(self) -> list[Event]:
        return sorted(self.made, key=lambda event: event.t)


@pytest.fixture
def stream() -> type[Stream]:
    return Stream


@pytest.fixture
def busy(stream: type[Stream]) -> Stream:
    """Two agents, window 10..30 s, one warm-up call, three calls in the window, one of them cut by its end."""
    s = stream(agents=2)
    s.phase(0, "warmup").phase(10, "steady").phase(30, "draining").phase(31, "done").end(31)
    a = s.session(0, 26, agent=0, work_done=1.0)
    s.call(a, 1, 5, chunks=((2, 1), (5, 9)), prompt_tokens=100, cached_tokens=0, expected_cached_tokens=0, warmup=True)
    s.wait(a, 5, 12)
    s.call(
        a,
        12,
        22,
        call=1,
        chunks=((14, 3), (16, 3), (18, 3), (22, 3)),
        prompt_tokens=300,
        cached_tokens=100,
        expected_cached_tokens=128,
        expected_cached_exact=150,
        pinned_tokens=12,
    )
    b = s.session(0, 31, agent=1, status="cut", work_done=0.5, trace="tr2")
    s.wait(b, 0, 11, cause="human", agent=1)
    s.call(
        b,
        11,
        15,
        agent=1,
        sent=11.5,
        throttled_ns=ns(0.5),
        chunks=((12.5, 0), (13.5, 1), (15, 3)),
        prompt_tokens=200,
        cached_tokens=180,
        expected_cached_tokens=180,
        expected_cached_exact=180,
        t_first_visible=ns(15),
    )
    s.wait(b, 15, 19, agent=1, call=1)
    s.call(
        b,
        20,
        31,
        agent=1,
        call=1,
        chunks=((29, 2), (30.5, 1)),
        completion_tokens=None,
        expected_prompt_tokens=50,
        cut=True,
    )
    s.lag(5, 9000).lag(15, 100, 200, cpu=0.2).lag(25, 300, 400, cpu=0.4).lag(30.5, 9000)
    return s


@pytest.fixture
def writer(tmp_path):
    writer = RunWriter.create(tmp_path / "run", "abc", no_text=False)
    yield writer
    writer.close()
