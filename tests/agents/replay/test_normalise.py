"""Messages that strict templates refuse, and what becomes of them. `served.prompt` runs the strict checks."""

import json
import random

import pytest

from windtunnel.agents import schemas
from windtunnel.agents.prompt import Conversation, Options, Output, Rendering, prepare, text_key
from windtunnel.traces.text import stored

from .conftest import check_strict

PLAIN_RENDERING = Rendering(
    stored(),
    message_overhead=dict.fromkeys(("system", "user", "assistant", "tool"), 0),
    fixed_overhead=0,
    tool_call_overhead=0,
    wrapper_tokens=0,
)
"""A template that costs nothing: texts stay as they are."""


@pytest.fixture
def sent(build, served):
    """The last call's messages, checked, and the changes that were counted."""

    def send(*messages):
        build.call(list(messages))
        prepared = prepare(build.trace(), "chat", PLAIN_RENDERING)
        body = Conversation(prepared, Options("m")).body(len(build.calls) - 1)
        found = json.loads(b"".join(body.parts))["messages"]
        served.prompt(found)
        return found, dict(prepared.changes)

    return send


def roles(messages):
    return [m["role"] for m in messages]


def text(words):
    return (max(1, round(len(words) / 4)), words)


def test_a_system_message_in_the_middle_becomes_user_text(build, sent):
    found, changes = sent(
        build.message("system", text("be good")),
        build.message("user", text("hello")),
        build.message("assistant", text("hi")),
        build.message("system", text("be brief")),
    )
    assert roles(found) == ["system", "user", "assistant", "user"]
    assert found[3]["content"] == "be brief"
    assert changes["system_in_the_middle"] == 1


def test_consecutive_messages_of_a_role_are_one(build, sent):
    found, changes = sent(
        build.message("system", text("one")),
        build.message("system", text("two")),
        build.message("user", text("three")),
        build.message("user", text("four")),
        build.message("assistant", text("five")),
        build.message("assistant", text("six")),
        build.message("user", text("seven")),
    )
    assert [(m["role"], m["content"]) for m in found] == [
        ("system", "one\n\ntwo"),
        ("user", "three\n\nfour"),
        ("assistant", "five\n\nsix"),
        ("user", "seven"),
    ]
    assert changes["merged"] == 3


def test_a_merge_with_a_later_turns_message_changes_no_earlier_byte(build):
    first = build.call([build.message("user", text("three"))])
    build.call([build.message("user", text("four"))], base=first)
    talk = Conversation(prepare(build.trace(), "chat", PLAIN_RENDERING), Options("m"))
    one = b"".join(talk.body(0).parts)
    two = b"".join(talk.body(1).parts)
    end = one.index(b'"}]')
    assert one[:end] == two[:end]
    assert two[end:].startswith(b"\\n\\nfour")


def test_results_answer_calls_and_calls_are_answered(build, sent):
    found, changes = sent(
        build.message("user", text("go")),
        build.message(
            "assistant",
            calls=[("toolu_01", "Bash", text('{"command": "ls"}')), ("toolu_02", "Read", text('{"path": "x"}'))],
        ),
        build.message("tool", text("files"), answers="toolu_02"),
        build.message("tool", text("stray"), answers="toolu_99"),
        build.message("assistant", text("done")),
        build.message("tool", text("late"), answers="toolu_01"),
    )
    assert roles(found) == ["user", "assistant", "tool", "tool", "assistant", "user"]
    ids = [c["id"] for c in found[1]["tool_calls"]]
    assert ids == [schemas.call_id("toolu_01"), schemas.call_id("toolu_02")]
    assert [m["tool_call_id"] for m in found[2:4]] == [ids[1], ids[0]]
    assert found[3]["content"].endswith("stray")
    assert found[5]["content"] == "late"
    assert changes["unanswered_tool_call"] == 1
    assert changes["tool_result_without_call"] == 2
    assert json.loads(found[1]["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}


def test_user_text_right_after_a_result_goes_into_it(build, sent):
    found, changes = sent(
        build.message("user", text("go")),
        build.message("assistant", text("running"), calls=[("a", "Bash", text("{}"))]),
        build.message("tool", text("output"), answers="a"),
        build.message("user", text("reminder")),
    )
    assert roles(found) == ["user", "assistant", "tool"]
    assert found[2]["content"] == "output\n\nreminder"
    assert changes["user_text_into_tool_result"] == 1


def test_an_assistant_speaks_neither_first_nor_last(build, sent):
    found, changes = sent(build.message("system", text("be good")), build.message("assistant", text("hi")))
    assert [(m["role"], m["content"]) for m in found] == [
        ("system", "be good"),
        ("user", "."),
        ("assistant", "hi"),
        ("user", "."),
    ]
    assert changes["inserted_user"] == 2


def test_calls_at_the_end_of_a_prompt_are_answered_for_that_prompt_only(build, served):
    first = build.call([build.message("user", 30), build.message("assistant", 5, calls=[("a", "Bash", 20)])])
    build.call([build.message("tool", 40, answers="a")], base=first)
    prepared = prepare(build.trace(), "chat", PLAIN_RENDERING)
    talk = Conversation(prepared, Options("m"))
    found = [json.loads(b"".join(talk.body(call).parts))["messages"] for call in (0, 1)]
    for messages in found:
        served.prompt(messages)
        assert roles(messages) == ["user", "assistant", "tool"]
    assert found[0][2]["content"] == "."
    assert len(found[1][2]["content"]) > 40


def test_nobody_speaks(sent):
    found, _ = sent()
    assert [(m["role"], m["content"]) for m in found] == [("user", ".")]


def test_empty_content_gets_a_token_and_reasoning_stands_in_the_content(build, sent):
    found, changes = sent(
        build.message("user"),
        build.message("assistant", text("answer"), reasoning=30),
        build.message("user", text("next")),
    )
    assert found[0]["content"] == "."
    assert found[1]["content"].endswith("answer")
    assert len(found[1]["content"]) > 90
    assert changes["empty_content"] == 1
    assert changes["reasoning_as_content"] == 1


@pytest.mark.parametrize(
    ("recorded", "value"),
    [
        ('{"a": 1, "b": [true, null]}', {"a": 1, "b": [True, None]}),
        ('{"a": NaN, "b": "two\nlines"}', {"a": None, "b": "two\nlines"}),
        ('["a", "list"]', {"input": '["a", "list"]'}),
        ("*** Begin Patch", {"input": "*** Begin Patch"}),
        ('{"cut": "in the mid', {"input": '{"cut": "in the mid'}),
        ('"just a string"', {"input": '"just a string"'}),
        ('{"lone": "\\ud800 and more"}', {"lone": "? and more"}),
    ],
)
def test_arguments_are_an_object_whatever_was_recorded(build, sent, recorded, value):
    found, changes = sent(
        build.message("user", text("go")),
        build.message("assistant", calls=[("a", "functions.run it", text(recorded))]),
        build.message("tool", text("ok"), answers="a"),
    )
    function = found[1]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == value
    assert function["name"] == "functions_run_it"
    assert ("arguments_wrapped" in changes) == ("input" in value)
    assert changes["tool_name"] == 1


def test_arguments_are_cut_and_continued_inside_their_longest_string(build, served, calibration):
    long = json.dumps({"path": "a.py", "edits": [{"text": "the value of the state " * 200}], "count": 3})
    for tokens in (100, 2000):
        build.message("assistant", calls=[("a", "Edit", (tokens, long))])
    build.call(
        [
            build.message("user", 30),
            0,
            build.message("tool", 30, answers="a"),
            1,
            build.message("tool", 30, answers="a"),
        ]
    )
    texts = schemas.dumps(json.loads(long))
    rendering = Rendering(
        calibration, tool_call_overhead=0, fixed_overhead=0, measured={text_key(texts): served.count(texts)}
    )
    prepared = prepare(build.trace(), "chat", rendering)
    found = json.loads(b"".join(Conversation(prepared, Options("m")).body(0).parts))["messages"]
    for message, tokens in ((found[1], 100), (found[3], 2000)):
        arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
        assert arguments["path"] == "a.py"
        assert arguments["count"] == 3
        assert served.count(schemas.dumps(arguments)) == pytest.approx(tokens, rel=0.1)
    assert prepared.changes["arguments_cut"] == prepared.changes["arguments_padded"] == 1


def test_any_mixture_of_messages_ends_up_strict(build):
    draw = random.Random(5)
    base = None
    for _ in range(40):
        append = []
        for _ in range(draw.randint(0, 4)):
            role = draw.choice(("system", "user", "assistant", "assistant", "tool", "tool"))
            ids = [str(draw.randint(0, 5)) for _ in range(draw.randint(0, 3))]
            calls = [(i, "Bash", draw.randint(0, 30)) for i in dict.fromkeys(ids)] if role == "assistant" else []
            sizes = [draw.randint(0, 40) for _ in range(draw.randint(0, 2))]
            answers = str(draw.randint(0, 5)) if role == "tool" else None
            append.append(build.message(role, *sizes, calls=calls, answers=answers))
        output = append[-1] if append and build.messages[append[-1]].role == "assistant" else None
        keep = None if base is None or draw.random() < 0.8 else draw.randint(0, build._length(base))
        base = build.call(append, base=base, keep=keep, output=output)
    trace = build.trace()
    for history in ("recorded", "live"):
        talk = Conversation(prepare(trace, "chat", PLAIN_RENDERING), Options("m", history=history))
        for call in trace.calls:
            body = talk.body(call.id)
            raw = b"".join(body.parts)
            assert len(raw) == body.length
            check_strict(json.loads(raw)["messages"])
            talk.ended(call.id, Output('what "was"\nsaid', tokens=5))


BILLING = "x-anthropic-billing-header: cc_version=2.1.332.{}; cc_entrypoint=sdk-cli;"


def test_the_billing_line_of_claude_code_is_left_out_as_vllm_does(build, served):
    rest = build.block(40, text="You are a careful agent. " * 6)
    first = build.message("system", (20, BILLING.format("136")), [rest])
    other = build.message("system", (20, BILLING.format("c2f")), [rest])
    asked = build.message("user", text("please fix the importer"))
    build.call([first, asked])
    build.call([other, asked])
    prepared = prepare(build.trace(), "chat", PLAIN_RENDERING)
    replay = Conversation(prepared, Options("m"))
    sent = [json.loads(b"".join(replay.body(number).parts))["messages"] for number in (0, 1)]
    for found in sent:
        served.prompt(found)
    assert prepared.changes["billing_line_left_out"] == 2
    assert sent[0] == sent[1]
    assert sent[0][0]["content"].startswith("You are a careful agent.")
    assert prepared.leaves[0].tokens == 40 + 20 + len("please fix the importer") // 4 + 1


def test_a_system_prompt_that_only_starts_like_the_billing_line_stays(build, sent):
    words = BILLING.format("136") + "\nYou are a careful agent."
    found, changes = sent(build.message("system", text(words)), build.message("user", text("go")))
    assert found[0]["content"] == words
    assert "billing_line_left_out" not in changes
