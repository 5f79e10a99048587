"""One planted change each: who did it, where, and what it cost."""

import json

import pytest

from windtunnel.traces.breakers import find
from windtunnel.traces.culprits import CULPRITS
from windtunnel.traces.remedies import remedy

from .planted import HISTORY, RULES, Plant, changed_system, turn

BILLING = "x-anthropic-billing-header: cc_version=2.1.332.{}; cc_entrypoint=cli; cch={};"
ENV = "# Environment\nWorking directory: /home/dev/{}\nPlatform: linux\n"
GIT = "gitStatus: a snapshot\n\nCurrent branch: main\n\nStatus:\n{}\nRecent commits:\nd1fb2a1 Start\n"


def only(trace):
    (found,) = find(trace).breaks
    assert found.culprit in CULPRITS
    return found


@pytest.mark.parametrize(
    ("before", "after", "culprit", "detail"),
    [
        ([BILLING.format("136", "0a1b2"), RULES], [BILLING.format("136", "99fe0"), RULES], "billing_line", "in front"),
        (
            [RULES + "\nToday's date is 2026-11-28.\n" + RULES],
            [RULES + "\nToday's date is 2026-11-29.\n" + RULES],
            "date",
            "2026-11-28 became 2026-11-29",
        ),
        (
            [RULES + "\nToday is Sat Nov 28, 2026.\n"],
            [RULES + "\nToday is Sun Nov 29, 2026.\n"],
            "date",
            "Sat Nov 28, 2026 became Sun Nov 29, 2026",
        ),
        (
            [RULES + "\nCurrent time: 2026-11-29 18:41:07\n"],
            [RULES + "\nCurrent time: 2026-11-29 18:42:11\n"],
            "time",
            "18:41:07 became 18:42:11",
        ),
        ([RULES + GIT.format(" M a.py")], [RULES + GIT.format(" M a.py\n?? b.py")], "git_status", ""),
        ([RULES + ENV.format("one")], [RULES + ENV.format("two")], "environment", ""),
        (
            [RULES + "\nContents of /home/dev/CLAUDE.md:\nuse tabs\n"],
            [RULES + "\nContents of /home/dev/CLAUDE.md:\nuse spaces\n"],
            "instructions",
            "",
        ),
        (
            [RULES + "\nSession 3f2a9c1e-7d44-4a0b-9d51-0c8f2b6a1e77\n" + RULES],
            [RULES + "\nSession 9b7e1d20-7d44-4a0b-9d51-0c8f2b6a1e77\n" + RULES],
            "random_id",
            "3f2a9c1e-7d44-4a0b-9d51-0c8f2b6a1e77 became 9b7e1d20",
        ),
        ([RULES + "Be brief."], [RULES + "Be thorough."], "system_prompt", ""),
    ],
)
def test_a_change_in_the_system_prompt_is_named(before, after, culprit, detail):
    trace = changed_system(before, after)
    found = only(trace)
    assert (found.culprit, found.call, found.against, found.place) == (culprit, 2, 1, "system prompt")
    assert detail in found.detail
    tools = trace.blocks[trace.toolsets[0].block].tokens
    at = found.new.at
    assert found.old.text[: found.old.at] == found.new.text[:at]
    ahead = sum(len(t) for t in after) if culprit != "billing_line" else len(after[0])
    share = len(after[0]) // 4 * at / ahead
    assert found.common_tokens == pytest.approx(tools + share, abs=1)
    assert found.lost_tokens == found.before_tokens - found.common_tokens > len(HISTORY) // 4


def test_billing_line_has_a_setting_with_a_source():
    advice = remedy("billing_line", "claude-code")
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in advice.what
    assert "Claude Code 2.1.332" in advice.source
    assert remedy("billing_line", "codex") is None


def with_tools(before, after, **more):
    plant = Plant()
    system, asked = plant.say("system", RULES), plant.say("user", "Please fix the test.")
    answer, result = turn(plant)
    plant.call(system, asked, tools=plant.tools(*before), output=answer)
    plant.call(system, asked, answer, result, tools=plant.tools(*after, **more))
    return plant.trace()


@pytest.mark.parametrize(
    ("before", "after", "culprit", "detail"),
    [
        (
            ["Bash", "Edit", "Read"],
            ["Bash", "Design", "Edit", "Read"],
            "tool_inserted",
            "Design after Bash, place 2 of 4",
        ),
        (["Bash", "Edit", "Read"], ["Bash", "Read"], "tool_removed", "Edit, place 2 of 3"),
        (["Bash", "Edit", "Read"], ["Bash", "Read", "Edit"], "tools_reordered", "from place 2 of 3 on"),
    ],
)
def test_a_change_of_the_tool_list_is_named(before, after, culprit, detail):
    trace = with_tools(before, after)
    found = only(trace)
    assert (found.culprit, found.detail, found.place) == (culprit, detail, "tool schemas")
    assert found.old.text == ", ".join(before)
    assert found.new.text[found.new.at :].startswith(after[1])
    schemas = [trace.blocks[t.block] for t in trace.toolsets]
    assert 0 < found.common_tokens < schemas[0].tokens, "only the schemas before it still match"
    assert found.lost_tokens == found.before_tokens - found.common_tokens > len(RULES) // 4


def test_a_schema_that_changed_is_named():
    trace = with_tools(["Bash", "Edit"], ["Bash", "Edit"], more=" today")
    found = only(trace)
    assert (found.culprit, found.detail) == ("tool_schema", "in Bash")
    assert found.new.text[found.new.at :].startswith(" today")


def answered(output, sent_back):
    """A call answered by `output`, whose answer comes back as `sent_back`. Both make a message of a Plant."""
    plant = Plant()
    start = [plant.say("system", RULES), plant.say("user", "Go on.")]
    answer = output(plant)
    plant.call(*start, output=answer)
    back = sent_back(plant)
    result = plant.say("tool", HISTORY, answers="t1")
    plant.call(*start, back, result)
    return plant, plant.trace(), plant.tokens(*start), plant.tokens(back)


def test_arguments_in_another_order_are_named():
    old, new = '{"path": "a.py", "text": "' + "x" * 200 + '"}', '{"text": "' + "x" * 200 + '", "path": "a.py"}'
    _, trace, before, back = answered(
        lambda p: p.say("assistant", "Writing.", calls=[("t1", "Write", old)]),
        lambda p: p.say("assistant", "Writing.", calls=[("t1", "Write", new)]),
    )
    found = only(trace)
    assert found.culprit == "reordered_arguments"
    assert found.detail == "of Write: path, text became text, path"
    assert found.place.endswith("call of Write")
    assert found.common_tokens == before + len("Writing.") // 4, "up to the arguments"
    assert found.lost_tokens == before + back - found.common_tokens


def test_arguments_that_the_client_fills_up_are_named():
    _, trace, *_ = answered(
        lambda p: p.say("assistant", calls=[("t1", "Edit", '{"path": "a.py"}')]),
        lambda p: p.say("assistant", calls=[("t1", "Edit", '{"replace_all":false,"path":"a.py"}')]),
    )
    assert (only(trace).culprit, only(trace).detail) == (
        "changed_arguments",
        "of Edit: replace_all added by the client",
    )


def test_reasoning_that_does_not_come_back_is_named():
    _, trace, before, back = answered(
        lambda p: p.say("assistant", "Done.", reasoning="Let me think. " * 30),
        lambda p: p.say("assistant", "Done."),
    )
    found = only(trace)
    assert (found.culprit, found.common_tokens, found.lost_tokens) == ("dropped_reasoning", before, back)


def test_reasoning_dropped_from_the_whole_history_costs_all_behind_it():
    plant = Plant()
    start = [plant.say("system", RULES), plant.say("user", "Go on.")]
    thought = plant.say("assistant", "Reading.", reasoning="Let me think. " * 30, calls=[("t1", "Read", "{}")])
    result = plant.say("tool", HISTORY * 3, answers="t1")
    plant.call(*start, output=thought)
    plant.call(*start, thought, result)
    bare = plant.say("assistant", "Reading.", calls=[("t1", "Read", "{}")])
    plant.call(*start, bare, result, plant.say("user", "And now?"))
    found = only(plant.trace())
    assert (found.culprit, found.call, found.against) == ("dropped_reasoning", 2, 1)
    assert found.common_tokens == plant.tokens(*start)
    end = min(plant.tokens(*start, thought, result), plant.tokens(*start, bare, result, plant.calls[2].append[-1]))
    assert found.lost_tokens == end - plant.tokens(*start)


def long_session(plant, system, turns=6):
    messages = [system, plant.say("user", "Go on.")]
    for number in range(turns):
        plant.call(*messages)
        messages += turn(plant, number)
    return messages


def test_compaction_is_named_with_and_without_its_request():
    for asks in (True, False):
        plant = Plant("pi")
        system = plant.say("system", RULES)
        messages = long_session(plant, system)
        if asks:
            plant.call(*messages, plant.say("user", "Sum up."), kind="compaction")
        else:
            plant.call(*messages)
        summary = plant.say("user", "What was done so far: files were read. " * 10)
        plant.call(system, summary)
        found = only(plant.trace())
        assert found.culprit == "compaction"
        assert found.common_tokens == plant.tokens(system)
        assert found.lost_tokens == plant.tokens(summary)
        assert "messages became 2" in found.detail


def test_a_cleared_tool_result_a_reminder_and_a_picture_are_named():
    plant = Plant()
    system = plant.say("system", RULES)
    messages = long_session(plant, system)
    cleared = [*messages]
    cleared[3] = plant.say("tool", "[Old tool result content cleared]", answers="t0")
    plant.call(*messages)
    plant.call(*cleared, *turn(plant, 9))
    found = only(plant.trace())
    assert (found.culprit, found.place) == ("tool_result_cut", "message 4 of 16 (tool)")

    plant = Plant()
    start = [plant.say("system", RULES), plant.say("user", "Go on.")]
    note = plant.say("user", "<system-reminder>\nThe todo list is empty.\n</system-reminder>")
    plant.call(*start, note, *turn(plant))
    plant.call(*start, *plant.calls[0].append[3:], *turn(plant, 2))
    assert (only(plant.trace()).culprit, only(plant.trace()).detail) == ("reminder", "taken out")

    plant = Plant()
    start = [plant.say("system", RULES)]
    shots = [plant.say("user", plant.block(text, media="image/png")) for text in ("one", "two")]
    plant.call(*start, shots[0], *turn(plant))
    plant.call(*start, shots[1], *plant.calls[0].append[2:], *turn(plant, 2))
    assert (only(plant.trace()).culprit, only(plant.trace()).detail) == ("image", "image/png")


def test_a_person_who_goes_back_is_named():
    plant = Plant()
    system = plant.say("system", RULES)
    messages = long_session(plant, system)
    plant.call(*messages)
    plant.call(*messages[:6], plant.say("user", "No, do it otherwise. " * 20))
    found = only(plant.trace())
    assert found.lost_tokens <= plant.tokens(plant.calls[-1].append[-1])
    assert (found.culprit, found.common_tokens) == ("rewound", plant.tokens(*messages[:6]))


def test_a_session_that_only_extends_has_none():
    plant = Plant()
    tools = plant.tools("Bash", "Edit")
    messages = [plant.say("system", RULES), plant.say("user", "Go on.")]
    for number in range(8):
        answer, result = turn(plant, number)
        plant.call(*messages, tools=tools, output=answer)
        plant.call(plant.say("user", "Name this session."), kind="auxiliary")
        messages += [answer, result]
    report = find(plant.trace())
    assert (report.breaks, report.lost_tokens, report.calls) == ((), 0, 16)


def test_a_sub_agent_starts_afresh_and_breaks_nothing():
    plant = Plant()
    messages = long_session(plant, plant.say("system", RULES), turns=2)
    helper = [plant.say("system", "You are a helper. " * 20), plant.say("user", "Look around.")]
    plant.call(*helper, thread=1)
    plant.call(*messages)
    report = find(plant.trace())
    assert report.breaks == ()
    (start,) = report.starts
    assert (start.thread, start.prompt_tokens, start.culprit) == (1, plant.tokens(*helper), None)
    assert start.common_tokens == len("You are a ") // 4


def test_sub_agents_that_share_all_but_the_billing_line():
    """The mark behind the version is made from the first message, so each sub-agent's is another."""
    plant = Plant()
    messages = long_session(plant, plant.say("system", RULES), turns=2)
    tools = plant.tools("Read")
    for thread, mark in ((1, "c2f"), (2, "ad0")):
        system = plant.say("system", BILLING.format(mark, "00000"), "You are a helper. " * 40)
        plant.call(system, plant.say("user", f"Task {thread}."), thread=thread, tools=tools)
    plant.call(*messages)
    report = find(plant.trace())
    assert [s.culprit for s in report.starts] == [None, "billing_line"]
    schemas = plant.blocks[plant.toolsets[0].block].tokens
    assert 0 < report.starts[1].common_tokens - schemas < len(BILLING) // 4


def test_a_repeated_request_and_two_conversations_taking_turns_break_nothing():
    plant = Plant()
    system = plant.say("system", RULES)
    one, two = [system, plant.say("user", "One.")], [system, plant.say("user", "Two.")]
    plant.call(*one)
    plant.call(*one)
    plant.call(*two)
    for number in range(3):
        one += turn(plant, number)
        two += turn(plant, number + 10)
        plant.call(*one)
        plant.call(*two)
    breaks = find(plant.trace()).breaks
    assert [b.call for b in breaks] == [2], "only the second conversation's start left what was there"


def test_form_alone_breaks_nothing():
    """A content as a list or a string, marks for a provider's cache, blanks in arguments."""
    plant = Plant()
    whole = plant.say("system", RULES + "Be brief.")
    pieces = plant.say("system", RULES, "Be brief.")
    asked = plant.say(
        "user", json.dumps({"type": "document", "id": 1, "cache_control": {"type": "ephemeral"}}), kind="json"
    )
    again = plant.say("user", '{"type":"document","id":1}', kind="json")
    call = plant.say("assistant", calls=[("t1", "Read", '{"path": "a.py"}')])
    tight = plant.say("assistant", calls=[("t1", "Read", '{"path":"a.py"}')])
    plant.call(whole, asked, call, plant.say("tool", HISTORY, answers="t1"))
    plant.call(pieces, again, tight, plant.calls[0].append[3], plant.say("user", "Go on."))
    assert find(plant.trace()).breaks == ()


def test_the_same_words_in_another_role():
    plant = Plant()
    start = [plant.say("system", RULES), plant.say("user", "Go on.")]
    note = "The file a.py was changed by somebody else."
    plant.call(*start, plant.say("system", note), *turn(plant))
    plant.call(*start, plant.say("user", note), *plant.calls[0].append[3:], *turn(plant, 2))
    found = only(plant.trace())
    assert (found.culprit, found.detail) == ("history_changed", "the same words in another role")
    assert found.old is found.new is None


def test_without_texts_the_place_and_the_digests_remain():
    trace = changed_system([RULES, "Today is 2026-11-28."], [RULES, "Today is 2026-11-29."], shape_only=True)
    found = only(trace)
    assert (found.culprit, found.old.text, found.new.text) == ("system_prompt", None, None)
    assert found.old.digest != found.new.digest
    tools = trace.blocks[trace.toolsets[0].block].tokens
    assert found.common_tokens == tools + len(RULES) // 4, "the first block's digest is the same"
