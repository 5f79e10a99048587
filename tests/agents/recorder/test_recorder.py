"""From exchanges to traces: sessions, threads, waits, tokens, for clients that say who they are and for those that do not."""

import json
from typing import Any

import pytest

from windtunnel.agents import events as ev
from windtunnel.traces.model import Trace

TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
SYSTEM = {"role": "system", "content": "You are an agent that works in a folder. Be brief."}
DONE = b"data: [DONE]\n\n"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(ident: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def assistant(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def result(ident: str, text: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": text}


def chat(*messages: dict[str, Any], tools: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "stream": True,
        "messages": [SYSTEM, *messages],
        **({"tools": [TOOL]} if tools else {}),
        **more,
    }


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def stream(
    message: dict[str, Any], prompt: int | None = 100, completion: int = 20, cached: int | None = None
) -> list[bytes]:
    """The events of an answer, as a chat server streams them."""
    calls = [{"index": i, **c} for i, c in enumerate(message.get("tool_calls", []))]
    out = [event({"choices": [{"index": 0, "delta": {"content": message["content"]}, "finish_reason": None}]})]
    if calls:
        out.append(event({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}))
    finish = "tool_calls" if calls else "stop"
    out.append(event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    if prompt is not None:
        details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        out.append(
            event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}})
        )
    return [*out, DONE]


CHAT = "/v1/chat/completions"


def waits(trace: Trace, before: int) -> list[tuple[str, float | None]]:
    return [(w.cause, w.seconds) for w in trace.waits if w.before == before]


def test_a_session_of_a_client_that_says_nothing(told: Any) -> None:
    """Tool calls link the requests; the prompt grows, its tokens add up, the gaps go to their causes."""
    first = assistant("Look.", call("t1", command="ls -la"))
    last = assistant("All done.")
    n = told.ask(CHAT, chat(user("fix the parser"), temperature=0.2), at=0)
    told.answer(n, 100, *stream(first, prompt=400, completion=30, cached=0))
    n = told.ask(CHAT, chat(user("fix the parser"), first, result("t1", "a.py b.py")), at=350)
    told.answer(n, 500, *stream(last, prompt=450, completion=10, cached=384))
    n = told.ask(
        CHAT, chat(user("fix the parser"), first, result("t1", "a.py b.py"), last, user("now test it")), at=4500
    )
    told.answer(n, 4600, *stream(assistant("Fine."), prompt=480, completion=5))
    (trace,) = told.finish()
    assert trace.header.id == "rec-1"
    assert trace.header.title == "fix the parser"
    assert trace.header.agent == "tester"
    assert trace.header.started_at == 1_800_000_000.0
    assert [(c.base, c.keep, c.append) for c in trace.calls] == [(None, 0, (0, 1)), (0, 2, (2, 3)), (1, 4, (4, 5))]
    assert [c.output for c in trace.calls] == [2, 4, 6]
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [
        (400, 0, 30),
        (450, 384, 10),
        (480, None, 5),
    ]
    assert [(c.start_s, c.first_s, c.end_s) for c in trace.calls] == [
        (0.0, 0.096, 0.1),
        (0.35, 0.497, 0.5),
        (4.5, 4.597, 4.6),
    ]
    assert [c.stop for c in trace.calls] == ["tool_calls", "stop", "stop"]
    assert trace.calls[0].params.temperature == 0.2
    assert waits(trace, 1) == [("tool", 0.25)]
    assert waits(trace, 2) == [("human", 4.0)]
    (run,) = trace.tool_runs
    assert (run.call, run.name, run.start_s, run.end_s, run.mark) == (0, "bash", 0.1, 0.35, "derived")
    assert trace.toolsets[0].names == ("bash",)
    assert json.loads(trace.blocks[trace.toolsets[0].block].text or "") == [TOOL]


def test_two_sessions_with_the_same_words_stay_apart(told: Any) -> None:
    """Not even the connection tells them apart before their first tool call."""
    a, b = (told.ask(CHAT, chat(user("hello there")), at=t) for t in (0, 1))
    answers = [assistant("Look.", call("x1", command="ls")), assistant("Look.", call("x2", command="ls"))]
    told.answer(b, 20, *stream(answers[1]))
    told.answer(a, 21, *stream(answers[0]))
    a = told.ask(CHAT, chat(user("hello there"), answers[0], result("x1")), at=40)
    b = told.ask(CHAT, chat(user("hello there"), answers[1], result("x2")), at=41)
    told.answer(a, 60, *stream(assistant("A"), prompt=130))
    told.answer(b, 61, *stream(assistant("B"), prompt=130))
    first, second = told.finish()
    said = [t.blocks[t.messages[t.calls[1].output].blocks[0]].text for t in (first, second)]
    assert said == ["A", "B"]
    assert [c.start_s for c in second.calls] == [0.0, 0.04]


def test_ids_of_tool_calls_that_repeat_are_told_apart_by_the_words(told: Any) -> None:
    for start, word in ((0, "one"), (1000, "two")):
        answer = assistant(f"I take {word}.", call("call_1", command=word))
        n = told.ask(CHAT, chat(user("begin")), at=start)
        told.answer(n, start + 10, *stream(answer))
    for start, word in ((2000, "one"), (3000, "two")):
        answer = assistant(f"I take {word}.", call("call_1", command=word))
        n = told.ask(CHAT, chat(user("begin"), answer, result("call_1", word)), at=start)
        told.answer(n, start + 10, *stream(assistant("End."), prompt=130))
    first, second = told.finish()
    assert [c.start_s for c in first.calls] == [0.0, 2.0]
    assert [c.start_s for c in second.calls] == [0.0, 2.0]


def test_a_subagent_without_headers(told: Any) -> None:
    """The spawning call's prompt stands in the child's first words; its last word is the tool's result: a join."""
    task = "Count the lines of hello.py and report the number."
    spawn = assistant("Delegate.", call("t1", "task", description="count", prompt=task), call("t2", command="ls"))
    n = told.ask(CHAT, chat(user("improve hello.py"), tools=True), at=0)
    told.answer(n, 100, *stream(spawn, prompt=400))
    child = told.ask(CHAT, chat(user(f"<system-reminder>be kind</system-reminder>\n{task}")), at=130)
    told.answer(child, 200, *stream(assistant("I count.", call("c1", command="wc -l")), prompt=150))
    child = told.ask(
        CHAT,
        chat(
            user(f"<system-reminder>be kind</system-reminder>\n{task}"),
            assistant("I count.", call("c1", command="wc -l")),
            result("c1", "2"),
        ),
        at=400,
    )
    told.answer(child, 500, *stream(assistant("It has 2 lines."), prompt=170))
    n = told.ask(CHAT, chat(user("improve hello.py"), spawn, result("t1", "It has 2 lines."), result("t2")), at=560)
    told.answer(n, 600, *stream(assistant("Good."), prompt=450))
    (trace,) = told.finish()
    assert [(t.parent, t.spawn_call, t.tool_call_id, t.background) for t in trace.threads[1:]] == [(0, 0, "t1", False)]
    assert trace.threads[1].spawn_delay_s == 0.03
    assert trace.threads[1].name == "count"
    assert [c.thread for c in trace.calls] == [0, 1, 1, 0]
    assert [c.joins for c in trace.calls] == [(), (), (), (1,)]
    assert waits(trace, 2) == [("tool", 0.2)]
    assert waits(trace, 3) == [("tool", 0.06), ("subagent", 0.4)]
    runs = {r.tool_call_id: (r.thread, r.end_s) for r in trace.tool_runs}
    assert runs == {"c1": (None, 0.4), "t1": (1, 0.5), "t2": (None, 0.56)}


def test_a_background_subagent_is_joined_by_a_notice(told: Any) -> None:
    """The parent goes on at once; a user message that quotes the child's last word is no person's."""
    task = "Search the whole repository for dead code, then report."
    spawn = assistant("Go.", call("t1", "agent", prompt=task))
    launched = result("t1", "launched in the background")
    waiting = assistant("I wait.")
    n = told.ask(CHAT, chat(user("clean up")), at=0)
    told.answer(n, 100, *stream(spawn, prompt=300))
    main = told.ask(CHAT, chat(user("clean up"), spawn, launched), at=120)
    child = told.ask(CHAT, chat(user(task)), at=130)
    told.answer(main, 200, *stream(waiting, prompt=330))
    told.answer(child, 900, *stream(assistant("There is dead code in old.py, nothing else."), prompt=120))
    notice = user("<task-notification>finished: There is dead code in old.py, nothing else.</task-notification>")
    main = told.ask(CHAT, chat(user("clean up"), spawn, launched, waiting, notice), at=950)
    told.answer(main, 999, *stream(assistant("Removed."), prompt=390))
    (trace,) = told.finish()
    assert trace.threads[1].background
    assert [c.thread for c in trace.calls] == [0, 0, 1, 0]
    assert trace.calls[3].joins == (1,)
    assert waits(trace, 1) == [("tool", 0.02)]
    assert waits(trace, 3) == [("subagent", 0.7), ("client", 0.05)]


def test_a_refused_attempt_leaves_no_trace_and_no_think_time(told: Any) -> None:
    answer = assistant("Look.", call("t1", command="ls"))
    n = told.ask(CHAT, chat(user("go on")), at=0)
    told.answer(n, 10, b'{"error": {"message": "overloaded"}}', status=503, kind="application/json")
    n = told.ask(CHAT, chat(user("go on")), at=1500)
    told.answer(n, 1600, *stream(answer))
    body = chat(user("go on"), answer, result("t1"))
    for at in (1700, 3000):
        n = told.ask(CHAT, body, at=at)
        told.answer(n, at + 5, b"", status=503, kind="application/json")
    n = told.ask(CHAT, body, at=8000)
    told.answer(n, 8100, *stream(assistant("Fine."), prompt=140))
    (trace,) = told.finish()
    assert [(c.id, c.start_s, c.end_s) for c in trace.calls] == [(0, 1.5, 1.6), (1, 8.0, 8.1)]
    assert waits(trace, 1) == [("tool", 0.1)]
    failures = [e.failure for e in told.sink.of(ev.CallEnd)]
    assert failures == ["http_503", None, "http_503", "http_503", None]


@pytest.mark.parametrize("typed", [True, False])
def test_a_stream_that_broke_off_is_nobodys_time(told: Any, typed: bool) -> None:
    """Sent again as it was, the gap ends with the first attempt; where a person typed anew, only the attempt is out."""
    answer = assistant("Done.")
    n = told.ask(CHAT, chat(user("go on")), at=0)
    told.answer(n, 100, *stream(answer))
    n = told.ask(CHAT, chat(user("go on"), answer, user("half")), at=1100)
    told.answer(n, 1600, *stream(assistant("I begin"))[:1], how="upstream_gone")
    n = told.ask(CHAT, chat(user("go on"), answer, user("fixed" if typed else "half")), at=2100)
    told.answer(n, 2200, *stream(assistant("Fine."), prompt=140))
    (trace,) = told.finish()
    assert [(c.id, c.start_s) for c in trace.calls if c.end_s == 2.2] == [(trace.calls[-1].id, 2.1)]
    assert waits(trace, trace.calls[-1].id) == [("human", 1.5 if typed else 1.0)]


def test_a_changed_request_after_one_that_failed(told: Any) -> None:
    """Without a person the client tried again by itself: the tools were done when it first did."""
    answer = assistant("Look.", call("t1", command="ls"))
    n = told.ask(CHAT, chat(user("go on")), at=0)
    told.answer(n, 100, *stream(answer))
    n = told.ask(CHAT, chat(user("go on"), answer, result("t1", "a b c")), at=400)
    told.answer(n, 900, b"", status=413, kind="application/json")
    n = told.ask(CHAT, chat(user("go on"), answer, result("t1", "a")), at=1900)
    told.answer(n, 2000, *stream(assistant("Fine."), prompt=140))
    (trace,) = told.finish()
    assert waits(trace, trace.calls[-1].id) == [("tool", 0.3)]
    assert [r.end_s for r in trace.tool_runs] == [0.4]


def test_a_person_who_is_asked_is_no_tool(told: Any) -> None:
    answer = assistant("Which?", call("t1", "ask_user_question", question="red or blue"))
    n = told.ask(CHAT, chat(user("go on")), at=0)
    told.answer(n, 100, *stream(answer))
    n = told.ask(CHAT, chat(user("go on"), answer, result("t1", "red")), at=9100)
    told.answer(n, 9200, *stream(assistant("Fine."), prompt=140))
    (trace,) = told.finish()
    assert waits(trace, 1) == [("human", 9.0)]


def test_an_aborted_call_is_kept_with_what_had_come(told: Any) -> None:
    partial = stream(assistant("I was about to say"), prompt=None)[:1]
    n = told.ask(CHAT, chat(user("write a poem")), at=0)
    told.answer(n, 300, *partial, how="client_gone")
    n = told.ask(CHAT, chat(user("write a poem"), user("no, stop: write a test")), at=5000)
    told.answer(n, 5100, *stream(assistant("Fine."), prompt=90))
    (trace,) = told.finish()
    assert [c.aborted for c in trace.calls] == [True, False]
    assert trace.calls[0].marks == {"prompt": "estimated", "completion": "estimated"}
    assert trace.blocks[trace.messages[trace.calls[0].output].blocks[0]].text == "I was about to say"
    assert waits(trace, 1) == [("human", 4.7)]


def test_a_session_that_got_no_answer_has_failed(told: Any) -> None:
    refusal = b'{"error": {"message": "overloaded"}}'
    for i, (status, answers) in enumerate([(500, [refusal]), (503, [refusal, refusal]), (500, [refusal, b""])]):
        for answer in answers:
            n = told.ask(CHAT, chat(user(f"session {i}")), at=i * 1000)
            if answer:
                told.answer(n, i * 1000 + 10, answer, status=status, kind="application/json")
            else:
                told.answer(n, i * 1000 + 10, *stream(assistant("a")))
    n = told.ask(CHAT, chat(user("session 3")), at=9000)
    told.answer(n, 9010, *stream(assistant("I was about"), prompt=None)[:1], how="client_gone")
    told.finish()
    ends = [(e.status, e.reason, e.calls_done) for e in told.sink.of(ev.SessionEnd)]
    assert ends == [
        ("failed", "http_500", 0),
        ("failed", "http_503", 0),
        ("completed", None, 1),
        ("completed", None, 1),
    ]


def test_hanging_up_after_the_end_is_no_abort(told: Any) -> None:
    n = told.ask(CHAT, chat(user("hi")), at=0)
    told.answer(n, 50, *stream(assistant("Hello.")), how="client_gone")
    n = told.ask(CHAT, chat(user("and you, in other words")), at=100)
    told.answer(n, 150, *stream(assistant("Hello."), prompt=None)[:-1], how="client_gone")
    first, second = told.finish()
    assert [t.calls[0].aborted for t in (first, second)] == [False, False]


def test_a_title_asked_for_beside_the_session_is_auxiliary(told: Any) -> None:
    """With a session id on the wire, before the session's first turn."""
    ids = {"x_session_id": "ses_1", "user_agent": "opencode/1.18.33 ai-sdk/x"}
    title = {
        "model": "m",
        "stream": True,
        "messages": [{"role": "system", "content": "You are a title generator."}, user("fix it")],
    }
    n = told.ask(CHAT, title, at=0, **ids)
    told.answer(n, 40, *stream(assistant("Fixing it"), prompt=30))
    n = told.ask(CHAT, chat(user("fix it")), at=60, **ids)
    told.answer(n, 100, *stream(assistant("Done."), prompt=100))
    n = told.ask(CHAT, chat(user("fix it"), assistant("Done."), user("thanks")), at=3100, **ids)
    told.answer(n, 3200, *stream(assistant("Yes."), prompt=120))
    (trace,) = told.finish()
    assert (trace.header.id, trace.header.agent, trace.header.agent_version) == ("ses_1", "opencode", "1.18.33")
    assert [c.kind for c in trace.calls] == ["auxiliary", "turn", "turn"]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(2, "human", 3.0)]


def test_parallel_tools_are_one_wait_and_their_single_times_unknown(told: Any) -> None:
    answer = assistant("Both.", call("a", command="x"), call("b", "read", path="y"))
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 100, *stream(answer))
    n = told.ask(CHAT, chat(user("go"), answer, result("a"), result("b")), at=400)
    told.answer(n, 450, *stream(assistant("ok"), prompt=150))
    (trace,) = told.finish()
    (wait,) = trace.waits
    assert (wait.cause, wait.seconds, wait.tools) == ("tool", 0.3, ("bash", "read"))
    assert [(r.start_s, r.end_s, r.mark) for r in trace.tool_runs] == [(0.1, None, "estimated")] * 2


def test_a_tool_set_that_changes_is_recorded_per_request(told: Any) -> None:
    other = {"type": "function", "function": {"name": "added", "parameters": {}}}
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 10, *stream(assistant("a"), prompt=200))
    n = told.ask(CHAT, {**chat(user("go"), assistant("a"), user("b")), "tools": [other, TOOL]}, at=1000)
    told.answer(n, 1010, *stream(assistant("c"), prompt=260))
    n = told.ask(CHAT, chat(user("go"), assistant("a"), user("b"), assistant("c"), user("d")), at=2000)
    told.answer(n, 2010, *stream(assistant("e"), prompt=230))
    (trace,) = told.finish()
    assert [c.tools for c in trace.calls] == [0, 1, 0]
    assert [t.names for t in trace.toolsets] == [("bash",), ("added", "bash")]


def test_reasoning_that_a_client_drops_costs_its_tokens(told: Any) -> None:
    thought = event({"choices": [{"index": 0, "delta": {"reasoning_content": "Let me think about this. " * 8}}]})
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 10, thought, *stream(assistant("Answer."), prompt=200, completion=80))
    n = told.ask(CHAT, chat(user("go"), assistant("Answer."), user("more")), at=1000)
    told.answer(n, 1010, *stream(assistant("End."), prompt=220))
    (trace,) = told.finish()
    output = trace.messages[trace.calls[0].output]
    sent_back = trace.messages[trace.calls[1].append[0]]
    assert trace.message_tokens(output.id) == 80
    assert output.reasoning
    assert sent_back.reasoning == ()
    assert sent_back.blocks == output.blocks


def test_history_that_was_rewritten_is_told_from_the_point_of_change(told: Any) -> None:
    answer = assistant("Look.", call("t1", command="ls"))
    n = told.ask(CHAT, chat(user("go"), user("a long preamble")), at=0)
    told.answer(n, 10, *stream(answer, prompt=300))
    n = told.ask(CHAT, chat(user("go"), user("another preamble"), answer, result("t1", "x")), at=100)
    told.answer(n, 110, *stream(assistant("End."), prompt=330))
    (trace,) = told.finish()
    assert (trace.calls[1].base, trace.calls[1].keep) == (0, 2)
    assert len(trace.calls[1].append) == 3


def test_usage_that_nobody_reports_is_estimated_and_marked(told: Any) -> None:
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 10, *stream(assistant("An answer of some words, not too short."), prompt=None))
    (trace,) = told.finish()
    (only,) = trace.calls
    assert only.marks == {"prompt": "estimated", "completion": "estimated"}
    assert 20 < (only.usage.prompt or 0) < 200
    assert 5 < (only.usage.completion or 0) < 20


def test_a_killed_recorder_leaves_what_had_ended(told: Any) -> None:
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 10, *stream(assistant("a", call("t", command="ls"))))
    told.ask(CHAT, chat(user("go"), assistant("a", call("t", command="ls")), result("t")), at=30)
    (trace,) = told.traces()  # nothing was closed
    assert len(trace.calls) == 1


def test_a_session_that_comes_back_goes_on_in_its_trace(told: Any) -> None:
    """An hour later, under another connection, with other sessions in between."""
    n = told.ask(CHAT, chat(user("first of all")), at=0)
    told.answer(n, 10, *stream(assistant("a")))
    for i in range(20):
        n = told.ask(CHAT, chat(user(f"another session, number {i}")), at=1000 + i)
        told.answer(n, 1010 + i, *stream(assistant(f"answer {i}")))
    n = told.ask(CHAT, chat(user("first of all"), assistant("a"), user("again")), at=3_600_000)
    told.answer(n, 3_600_100, *stream(assistant("b"), prompt=130))
    traces = told.finish()
    assert len(traces) == 21
    (back,) = (t for t in traces if len(t.calls) == 2)
    assert back.header.id == "rec-1"
    assert waits(back, 1) == [("human", 3599.99)]


def test_what_the_screen_is_told(told: Any) -> None:
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.recorder.progress(5_000_000)
    told.answer(n, 10, *stream(assistant("a", call("t", command="ls")), cached=64))
    told.recorder.progress(20_000_000)
    n = told.ask(CHAT, chat(user("go"), assistant("a", call("t", command="ls")), result("t")), at=30)
    told.answer(n, 40, *stream(assistant("b"), prompt=140))
    told.finish()
    kinds = [type(e).__name__ for e in told.sink.events]
    assert kinds == [
        *("SessionStart", "CallStart", "Progress", "CallEnd", "WaitStart", "Progress", "WaitEnd"),
        *("CallStart", "CallEnd", "WaitStart", "SessionEnd"),
    ]
    (waiting, flying) = (e.in_tool for e in told.sink.of(ev.Progress)), [e.in_flight for e in told.sink.of(ev.Progress)]
    assert (list(waiting), flying) == ([0, 1], [1, 0])
    first = told.sink.of(ev.CallEnd)[0]
    assert (first.t_sent, first.t_first, first.t_end, first.cached_tokens) == (0, 6_000_000, 10_000_000, 64)
    assert told.sink.of(ev.WaitStart)[0].label == "bash"
    assert [w.text for w in told.sink.texts] == ["a", "b"]
