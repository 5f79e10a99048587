"""What a recording has to say of the server that it was made with stands in each of its traces, once."""

from typing import Any

from test_recorder import CHAT, assistant, chat, stream, user

NOTE = "EMULATED, nothing of this is measured"


def asked(told: Any, words: str, at: float, **headers: str) -> None:
    n = told.ask(CHAT, chat(user(words)), at=at, **headers)
    told.answer(n, at + 10, *stream(assistant("a")))


def test_a_trace_is_noted_whether_it_was_begun_before_that_was_known_or_after(told: Any) -> None:
    asked(told, "one question", 0)
    told.recorder.note(NOTE)
    asked(told, "another question", 100)
    traces = told.finish()
    assert [t.header.notes for t in traces] == [(NOTE,), (NOTE,)]
    assert [len(t.calls) for t in traces] == [1, 1]


def test_only_what_goes_on_is_noted(told: Any) -> None:
    asked(told, "one question", 0)
    asked(told, "another question", 100)
    told.finish()
    second = told.again()
    second.recorder.note(NOTE)
    n = second.ask(CHAT, chat(user("one question"), assistant("a"), user("and then?")), at=1000)
    second.answer(n, 1010, *stream(assistant("b")))
    assert sorted(t.header.notes for t in second.finish()) == [(), (NOTE,)]


def test_the_tag_stays_beside_it(told: Any) -> None:
    told.recorder.note(NOTE)
    n = told.ask(CHAT, chat(user("hi")), at=0, tag="mine")
    told.answer(n, 10, *stream(assistant("a")))
    (trace,) = told.finish()
    assert trace.header.notes == ("tag mine", NOTE)
