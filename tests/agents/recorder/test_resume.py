"""A recording that is taken up again: sessions that come back go on in their traces, as if it had never stopped."""

from typing import Any

from test_apis import CLAUDE, CLAUDE_HEADERS, claude, text, use, wrote
from test_recorder import CHAT, assistant, call, chat, result, stream, user, waits


def test_a_session_goes_on_after_the_recorder_was_killed(told: Any) -> None:
    first = assistant("Look.", call("t1", command="ls"))
    n = told.ask(CHAT, chat(user("fix the parser")), at=0)
    told.answer(n, 100, *stream(first, prompt=400, completion=30, cached=0))
    told.ask(CHAT, chat(user("fix the parser"), first, result("t1", "a.py")), at=200)  # lost with the recorder
    path = told.folder / "rec-1.jsonl"
    with path.open("a") as file:
        file.write('{"type":"block","id":7,"dig')  # which was killed while it wrote
    again = told.again()
    n = again.ask(CHAT, chat(user("fix the parser"), first, result("t1", "a.py")), at=5000)
    again.answer(n, 5100, *stream(assistant("Done."), prompt=450, completion=10, cached=384))
    n = again.ask(
        CHAT, chat(user("fix the parser"), first, result("t1", "a.py"), assistant("Done."), user("more")), at=9100
    )
    again.answer(n, 9200, *stream(assistant("Yes."), prompt=480))
    (trace,) = again.finish()
    assert trace.header.id == "rec-1"
    assert [(c.base, c.keep, c.append) for c in trace.calls] == [(None, 0, (0, 1)), (0, 2, (2, 3)), (1, 4, (4, 5))]
    assert [c.start_s for c in trace.calls] == [0.0, 5.0, 9.1]
    assert waits(trace, 1) == [("tool", 4.9)]
    assert waits(trace, 2) == [("human", 4.0)]
    assert again.recorder.calls == 2
    assert again.recorder.sessions == 1
    assert len([e for e in again.sink.events if type(e).__name__ == "SessionStart"]) == 1


def test_an_uninterrupted_recording_and_one_in_two_parts_are_the_same(tmp_path: Any, told: Any) -> None:
    """Sub-agents known by ids on the wire included, one of which is at work when the recorder stops."""
    first = {"role": "user", "content": "count things"}
    task = {"role": "user", "content": [text("Count the lines of hello.py, thank you.")]}
    spawn = {
        "role": "assistant",
        "content": [use("t1", "Agent", description="lines", prompt=task["content"][0]["text"])],
    }
    look = {"role": "assistant", "content": [use("c1", command="wc -l")]}
    found = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "2"}]}
    report = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "two lines"}]}
    kid = {**CLAUDE_HEADERS, "x_claude_code_agent_id": "agent-9"}

    def before(recorder: Any) -> None:
        n = recorder.ask(CLAUDE, claude(first), at=0, **CLAUDE_HEADERS)
        recorder.answer(n, 100, *wrote(*spawn["content"], fresh=900))
        n = recorder.ask(CLAUDE, claude(task), at=120, **kid)
        recorder.answer(n, 200, *wrote(*look["content"], fresh=500))

    def after(recorder: Any) -> None:
        n = recorder.ask(CLAUDE, claude(task, look, found), at=400, **kid)
        recorder.answer(n, 500, *wrote(text("two lines"), fresh=20, read=520))
        n = recorder.ask(CLAUDE, claude(first, spawn, report), at=530, **CLAUDE_HEADERS)
        recorder.answer(n, 600, *wrote(text("Two."), fresh=30, read=920))

    before(told)
    again = told.again()
    after(again)
    folder = tmp_path / "whole"
    folder.mkdir()
    whole = type(told)(folder)
    before(whole)
    after(whole)
    assert again.finish() == whole.finish()
    assert len(again.traces()[0].threads) == 2


def test_a_tagged_session_is_found_by_its_tag(told: Any) -> None:
    n = told.ask(CHAT, chat(user("hello to you")), at=0, tag="nightly")
    told.answer(n, 10, *stream(assistant("Hi.")))
    again = told.again()
    n = again.ask(CHAT, chat(user("hello to you"), assistant("Hi."), user("more")), at=1000, tag="nightly")
    again.answer(n, 1010, *stream(assistant("Yes."), prompt=130))
    (trace,) = again.finish()
    assert trace.header.id == "nightly"
    assert len(trace.calls) == 2
