"""The time between two calls by cause, from exchanges made up for the purpose."""

import pytest

from windtunnel.traces.check import contradictions, faults
from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, ThreadDraft, Tool, text_piece
from windtunnel.traces.model import Header, Trace

ZERO = 1_770_000_000.0


def asked(*tools: Tool) -> Draft:
    return Draft("assistant", calls=tuple(Asked(t.id, t.name, text_piece("{}", "json")) for t in tools))


def session(*tools: Tool, after: float, joins: tuple[str, ...] = (), rules: Rules | None = None) -> Trace:
    """An answer at 10 s that asks for tools, and the request with their results at `after`."""
    for tool in tools:
        tool.start = None if tool.start is None else ZERO + tool.start
        tool.end = None if tool.end is None else ZERO + tool.end
    first = Exchange("a", fresh=[Draft("user", (text_piece("go"),))], start=ZERO, end=ZERO + 10, tools=list(tools))
    first.output = asked(*tools)
    results = [Draft("tool", (text_piece("ok"),), tool_call_id=t.id) for t in tools]
    second = Exchange("b", fresh=results, start=ZERO + after, end=ZERO + after + 5, joins=list(joins))
    threads = [ThreadDraft("", [first, second])]
    if joins:
        own = Exchange("c", fresh=[Draft("user", (text_piece("sub"),))], start=ZERO + 10.1, end=ZERO + 19.9)
        threads.append(ThreadDraft("child", [own], parent="", tool_call_id="t1"))
    trace = assemble(Header(id="s", started_at=ZERO), threads, rules or Rules())
    assert faults(trace) == []
    assert contradictions(trace) == []
    return trace


def waits(trace: Trace) -> list[tuple[str, float | None, tuple[str, ...]]]:
    last = max(c.id for c in trace.calls)
    return [
        (w.cause, w.seconds if w.seconds is None else round(w.seconds, 3), w.tools)
        for w in trace.waits
        if w.before == last
    ]


def task() -> Tool:
    return Tool("t1", "Task", start=10, end=20, thread="child", blocking=True)


def test_a_tool_that_stood_behind_a_sub_agent() -> None:
    tools = (task(), Tool("t2", "TodoWrite", start=10, end=20.02), Tool("t3", "Edit", start=10, end=20.5))
    trace = session(*tools, after=20.6, joins=("child",))
    assert waits(trace) == [("subagent", 10, ()), ("tool", 0.5, ("TodoWrite", "Edit")), ("client", 0.1, ())]
    runs = {r.name: (r.start_s, r.end_s, r.mark) for r in trace.tool_runs}
    assert runs["TodoWrite"] == (20, 20.02, "derived")
    assert runs["Edit"] == (20.02, 20.5, "derived")


@pytest.mark.parametrize(
    ("end", "expected"), [(13.0, [("tool", 3), ("subagent", 7)]), (24.0, [("tool", 14), ("subagent", 0)])]
)
def test_a_tool_that_ran_beside_a_sub_agent(end: float, expected: list[tuple[str, float]]) -> None:
    trace = session(task(), Tool("t2", "Bash", start=10, end=end), after=max(20, end), joins=("child",))
    assert [w[:2] for w in waits(trace)] == expected


def test_a_start_that_is_stated_is_believed() -> None:
    tools = (task(), Tool("t2", "bash", start=10, end=20.02))
    trace = session(*tools, after=20.02, joins=("child",), rules=Rules(exact_starts=True))
    assert [w[:2] for w in waits(trace)] == [("tool", 10.02), ("subagent", 0)]


@pytest.mark.parametrize(
    "name",
    [
        "AskUserQuestion",
        "ExitPlanMode",
        "exit_plan_mode",
        "request_user_input",
        "question",
        "ask_user_question",
        "ask_user",
    ],
)
def test_tools_that_ask_a_person(name: str) -> None:
    assert waits(session(Tool("t1", name, start=10, end=310), after=310)) == [("human", 300, ())]
    beside = session(Tool("t1", name, start=10, end=310), Tool("t2", "Read", start=10, end=12), after=310)
    assert waits(beside) == [("tool", 2, ("Read",)), ("human", 298, ())]
    assert waits(session(Tool("t1", name), after=310))[0] == ("human", 0, ())


def test_a_question_that_nobody_saw() -> None:
    assert waits(session(Tool("t1", "question", start=10, end=10.1), after=10.1)) == [("tool", 0.1, ("question",))]


def test_times_in_no_order_become_unknown() -> None:
    exchanges = [
        Exchange("a", fresh=[Draft("user", (text_piece("go"),))], start=ZERO + 3_600, end=ZERO + 5),
        Exchange("b", fresh=[Draft("user", (text_piece("on"),))], human=True, start=ZERO + 9, end=ZERO + 12),
    ]
    trace = assemble(Header(id="s", started_at=ZERO), [ThreadDraft("", exchanges)], Rules())
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(None, None), (9, 12)]
    assert [(w.cause, w.seconds) for w in trace.waits] == [("human", None)]
    assert [n for n in trace.header.notes if "clock went back" in n]


def test_calls_after_a_step_have_lengths_of_waits_and_no_place() -> None:
    def at(key: str, start: float, end: float) -> Exchange:
        fresh = [Draft("user", (text_piece(key),))]
        return Exchange(key, fresh=fresh, start=ZERO + start, end=ZERO + end, human=True, marks={"start": "derived"})

    thread = ThreadDraft(
        "", [at("a", 5_000, 5_010), at("b", 1_400, 1_410), at("c", 1_420, 1_430), at("d", 6_000, 6_010)]
    )
    trace = assemble(Header(id="s", started_at=ZERO), [thread], Rules())
    assert [c.start_s for c in trace.calls] == [5_000, None, None, 6_000]
    assert [w.seconds for w in trace.waits] == [None, 10, 4_570]
    assert contradictions(trace) == []
