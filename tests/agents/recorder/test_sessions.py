"""Where requests belong, in the cases that go beyond one session of one agent."""

from typing import Any

from test_recorder import CHAT, assistant, chat, stream, user

from windtunnel.agents.events import CallEnd


def test_a_message_that_stands_twice_in_a_prompt_keeps_both_places(told: Any) -> None:
    """Also when both came with the same call."""
    twice = chat(user("go"), user("reminder: be brief"), user("and now"), user("reminder: be brief"))
    n = told.ask(CHAT, twice, at=0)
    told.answer(n, 10, *stream(assistant("a"), prompt=201))
    n = told.ask(CHAT, {**twice, "messages": [*twice["messages"], assistant("a"), user("more")]}, at=1000)
    told.answer(n, 1010, *stream(assistant("b"), prompt=230))
    (trace,) = told.finish()
    assert (trace.calls[1].base, trace.calls[1].keep) == (0, 5)
    assert len(trace.calls[1].append) == 2


def test_a_compaction_is_marked_and_what_follows_starts_from_its_summary(told: Any) -> None:
    work = [user("go"), assistant("a"), user("b"), assistant("c")]
    for i, length in enumerate((1, 3)):
        n = told.ask(CHAT, chat(*work[:length]), at=1000 * i)
        told.answer(n, 1000 * i + 10, *stream(assistant("ac"[i]), prompt=200 + 50 * i))
    ask = user("Your task is to create a detailed summary of the conversation so far.")
    n = told.ask(CHAT, chat(*work, ask), at=3000)
    told.answer(n, 3100, *stream(assistant("SUMMARY: the user wants a thing done, and it is half done."), prompt=300))
    n = told.ask(
        CHAT, chat(user("This session goes on. SUMMARY: the user wants a thing done, and it is half done.")), at=3200
    )
    told.answer(n, 3300, *stream(assistant("d"), prompt=240))
    (trace, *others) = told.finish()
    assert others == []
    assert [c.kind for c in trace.calls] == ["turn", "turn", "compaction", "turn"]
    assert (trace.calls[3].base, trace.calls[3].keep) == (2, 1)


def test_names_that_are_written_alike_are_two_files(told: Any) -> None:
    for i, name in enumerate(("a/b", "a_b", "../../etc/passwd", "..")):
        n = told.ask(CHAT, chat(user("go")), at=100 * i, x_session_id=name)
        told.answer(n, 100 * i + 10, *stream(assistant("a")))
    assert sorted(t.header.id for t in told.finish()) == ["..", "../../etc/passwd", "a/b", "a_b"]
    names = sorted(p.name for p in told.folder.iterdir())
    assert names == ["_.._etc_passwd.jsonl", "a_b-2.jsonl", "a_b.jsonl", "session.jsonl"]


def test_a_run_can_be_named_by_its_key(told: Any) -> None:
    """For clients whose URL cannot carry a name; two sessions in one run stay apart."""
    key = {"authorization": "Bearer sk-windtunnel-tag-night.run"}
    for i, words in enumerate(("one thing", "quite another")):
        n = told.ask(CHAT, chat(user(words)), at=100 * i, **key)
        told.answer(n, 100 * i + 10, *stream(assistant("a")))
    first, second = told.finish()
    assert {first.header.id, second.header.id} == {"night.run", "night.run-2"}
    assert first.header.notes == ("tag night.run",)


def test_what_could_be_cached_is_what_began_an_earlier_prompt_of_any_session(told: Any) -> None:
    tools = [{"type": "function", "function": {"name": "Read"}}]
    prompts = [
        ("one", 100, chat(user("go"), tools=False)),
        ("one", 160, chat(user("go"), assistant("a"), user("more"), tools=False)),
        ("two", 110, chat(user("another thing"), tools=False)),
        ("two", 190, chat(user("another thing"), tools=False) | {"tools": tools}),
        ("three", 180, {"model": "m", "stream": True, "messages": [user("alone")], "tools": tools}),
        ("four", 50, {"model": "m", "stream": True, "messages": [user("nothing like it")]}),
    ]
    for i, (name, tokens, body) in enumerate(prompts):
        n = told.ask(CHAT, body, at=1000 * i, x_session_id=name)
        told.answer(n, 1000 * i + 10, *stream(assistant("a"), prompt=tokens))
    traces = {t.header.id: t for t in told.finish()}
    two, three = traces["two"], traces["three"]
    system, schemas = two.calls[0].append[0], three.toolsets[0].id
    ends = [e for e in told.sink.events if isinstance(e, CallEnd)]
    assert [e.expected_cached_tokens for e in ends] == [
        0,
        100,
        two.message_tokens(system),
        0,
        three.toolset_tokens(schemas),
        0,
    ]
    assert 0 < two.message_tokens(system) < 110
    assert 0 < three.toolset_tokens(schemas) < 180


def test_a_turn_of_long_ago_is_let_go(told: Any) -> None:
    """The chain of turns, each with the one before it, would keep all of them."""
    said = [user("go")]
    for i in range(30):
        n = told.ask(CHAT, chat(*said), at=1000 * i, x_session_id="s")
        told.answer(n, 1000 * i + 10, *stream(assistant(f"answer {i}"), prompt=100 + 20 * i))
        said += [assistant(f"answer {i}"), user(f"more {i}")]
    (session,) = told.recorder._correlator.sessions.values()
    held = list(session.pool.tips.values())
    assert len(held) == 30
    assert not any(t.before or t.joins for t in held)
    kept = list(session.threads[""].turns)
    assert [t.final for t in held if t not in kept] == [""] * 18
    assert not any(t.messages for t in held if t not in kept)
    assert kept[-1].final == "answer 29"
    assert len(kept[-1].messages) == 60
