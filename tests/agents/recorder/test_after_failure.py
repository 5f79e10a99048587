"""A conversation goes on as the same session when a call of it failed."""

from typing import Any

from test_recorder import CHAT, assistant, call, chat, result, stream, user

from windtunnel.agents.events import CallEnd, CallStart, SessionEnd, SessionStart
from windtunnel.agents.recorder.told import Closed

REFUSED = b'{"error": {"message": "cannot be reached"}}'


def refused(told: Any, body: dict[str, Any], at: float, **headers: str) -> None:
    n = told.ask(CHAT, body, at=at, **headers)
    told.answer(n, at + 5, REFUSED, status=502, kind="application/json")


def test_a_growing_conversation_that_gets_no_answer_is_one_session(told: Any) -> None:
    said = [user(f"hello {i}") for i in range(4)]
    for i in range(4):
        refused(told, chat(*said[: i + 1]), at=3000 * i)
    assert told.finish(15_000) == []
    assert [(e.agent, e.session) for e in told.sink.of(SessionStart)] == [(0, "rec-1")]
    starts = [(e.session, e.thread, e.call, e.turn) for e in told.sink.of(CallStart)]
    assert starts == [("rec-1", 0, 0, 1), ("rec-1", 0, 1, 2), ("rec-1", 0, 2, 3), ("rec-1", 0, 3, 4)]
    assert [e.failure for e in told.sink.of(CallEnd)] == ["http_502"] * 4
    (end,) = told.sink.of(SessionEnd)
    assert (end.status, end.reason, end.calls_done) == ("failed", "http_502", 0)


def test_the_answer_that_comes_at_last_is_that_sessions(told: Any) -> None:
    refused(told, chat(user("one")), at=0)
    refused(told, chat(user("one"), user("two")), at=1000)
    n = told.ask(CHAT, chat(user("one"), user("two"), user("three")), at=2000)
    told.answer(n, 2100, *stream(assistant("Here.")))
    n = told.ask(CHAT, chat(user("one"), user("two"), user("three"), assistant("Here."), user("four")), at=3100)
    told.answer(n, 3200, *stream(assistant("And here."), prompt=130))
    (trace,) = told.finish()
    assert [(c.id, c.start_s, c.end_s) for c in trace.calls] == [(0, 2.0, 2.1), (1, 3.1, 3.2)]
    assert [(w.before, w.cause, w.seconds) for w in trace.waits] == [(1, "human", 1.0)]
    assert {e.session for e in told.sink.of(CallStart)} == {"rec-1"}
    (end,) = told.sink.of(SessionEnd)
    assert (end.status, end.calls_done) == ("completed", 2)


def test_a_retry_in_the_middle_stays_a_retry(told: Any) -> None:
    refused(told, chat(user("one")), at=0)
    for at in (1000, 2000):
        refused(told, chat(user("one"), user("two")), at=at)
    told.finish()
    assert [(e.call, e.turn) for e in told.sink.of(CallStart)] == [(0, 1), (1, 2), (1, 2)]


def test_another_conversation_is_another_session(told: Any) -> None:
    """The same instructions are no failed call's prompt."""
    refused(told, chat(user("one")), at=0)
    refused(told, chat(user("another"), user("two")), at=1000)
    refused(told, chat(user("one"), user("two")), at=2000)
    told.finish()
    assert [e.session for e in told.sink.of(CallStart)] == ["rec-1", "rec-2", "rec-1"]


def test_the_same_words_under_another_tag_are_another_session(told: Any) -> None:
    refused(told, chat(user("one")), at=0, tag="a")
    refused(told, chat(user("one"), user("two")), at=1000, tag="b")
    told.finish()
    assert [e.session for e in told.sink.of(CallStart)] == ["a", "b"]


def test_a_subagents_failed_first_call_goes_on_as_the_subagent(told: Any) -> None:
    task = "Find every place where the version is written down, and list them."
    asks = assistant("I will ask.", call("t1", "task", prompt=task))
    n = told.ask(CHAT, chat(user("release it")), at=0)
    told.answer(n, 100, *stream(asks))
    refused(told, chat(user(task)), at=200)
    n = told.ask(CHAT, chat(user(task), user("Go on.")), at=1200)
    told.answer(n, 1300, *stream(assistant("In two places.")))
    n = told.ask(CHAT, chat(user("release it"), asks, result("t1", "In two places.")), at=1400)
    told.answer(n, 1500, *stream(assistant("Done."), prompt=140))
    (trace,) = told.finish()
    assert [c.thread for c in trace.calls] == [0, 1, 0]
    assert (trace.threads[1].tool_call_id, trace.threads[1].parent) == ("t1", 0)


def test_what_the_proxy_saw_of_the_connection_names_the_failure(told: Any) -> None:
    """Its own answer to the client, a 502, is none of the server's."""
    for how, status, failure in (
        ("upstream_gone", None, "connection_reset"),
        ("upstream_gone", None, "server_disconnected"),
        ("no_upstream", 502, "connect_refused"),
        ("upstream_gone", 503, ""),
    ):
        n = told.ask(CHAT, chat(user("one")), at=0)
        told.recorder.closed(Closed(n, 5_000_000, status, how, "", "why", failure))
    names = [e.failure for e in told.sink.of(CallEnd)]
    assert names == ["connection_reset", "server_disconnected", "connect_refused", "http_503"]


def test_a_session_is_known_to_have_gone_on_until_its_last_call_ended(told: Any) -> None:
    n = told.ask(CHAT, chat(user("go")), at=0)
    told.answer(n, 100, *stream(assistant("Look.", call("t1", command="ls"))))
    refused(told, chat(user("else")), at=200)
    told.finish(15_000)
    assert [(e.t, e.known_t) for e in told.sink.of(SessionEnd)] == [
        (15_000_000_000, 100_000_000),
        (15_000_000_000, 205_000_000),
    ]
