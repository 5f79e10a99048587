"""Tool sets with one block for each tool: read, written, mended, counted and shared as far as they begin alike."""

import json

import pytest
from msgspec.structs import replace

from windtunnel.traces.anonymise import anonymise
from windtunnel.traces.breakers import find
from windtunnel.traces.check import faults
from windtunnel.traces.exporters.blocks import BlockIds, prompts
from windtunnel.traces.format import encode_trace, fingerprint, read_trace
from windtunnel.traces.model import Block, Call, Header, Message, Thread, ToolSet, Trace, Usage, digest_of
from windtunnel.traces.reuse import SeenPrefixes
from windtunnel.traces.toolsets import cut

from .planted import HISTORY, RULES, Plant

KEY = bytes(range(32))
SIZES = {"Agent": 700, "Bash": 1500, "Edit": 300, "ListAgents": 90, "Read": 400}


def session(*, prompt=True):
    """A main agent with four tools and a sub-agent that has the first three of them, then another."""
    texts = {n: json.dumps({"name": n, "description": f"What {n} does.", "input_schema": {}}) for n in SIZES}
    blocks = [Block(i, digest_of(texts[n]), "json", SIZES[n], len(texts[n]), texts[n]) for i, n in enumerate(SIZES)]
    said = ["You are the main agent.", "You are a helper."]
    blocks += [Block(5 + i, digest_of(t), "prose", 40, len(t), t) for i, t in enumerate(said)]
    return Trace(
        header=Header("two"),
        blocks=tuple(blocks),
        messages=(Message(0, "user", (5,)), Message(1, "user", (6,))),
        toolsets=(
            ToolSet(0, ("Agent", "Bash", "Edit", "ListAgents"), 0, (1, 2, 3)),
            ToolSet(1, ("Agent", "Bash", "Edit", "Read"), 0, (1, 2, 4)),
        ),
        threads=(Thread(0), Thread(1, 0, 0)),
        calls=(
            Call(0, 0, (0,), tools=0, usage=Usage(2630 if prompt else None, None, 5)),
            Call(1, 1, (1,), tools=1, usage=Usage(2940 if prompt else None, None, 5)),
        ),
    )


@pytest.fixture
def two():
    return session()


def test_the_tokens_of_all_tools_count(two):
    assert faults(two) == []
    assert two.toolset_tokens(0) == 2590
    assert two.toolset_tokens(None) == 0
    assert two.prompt_tokens() == {0: 2630, 1: 2940}


def test_a_file_of_it_reads_as_it_was(two, tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_bytes(encode_trace(two))
    result = read_trace(path)
    assert result.problems == ()
    assert result.traces[0].toolsets == two.toolsets
    assert result.traces[0].prompt_tokens() == two.prompt_tokens()
    seen = set()
    for line in map(json.loads, path.read_bytes().splitlines()):
        if line["type"] == "block":
            seen.add(line["id"])
        if line["type"] == "tools":
            assert {line["block"], *line["more"]} <= seen


def test_a_file_of_one_block_a_set_reads_as_before(tmp_path):
    """Lines as they were written when a tool set was one block, and the fingerprint that such a trace had."""
    path = tmp_path / "old.jsonl"
    path.write_bytes(
        b'{"type":"trace","id":"old","schema":"windtunnel.trace/1"}\n{"type":"thread","id":0}\n'
        b'{"type":"block","id":0,"digest":"aa","kind":"json","tokens":9,"text":"[{\\"name\\":\\"Bash\\"}]"}\n'
        b'{"type":"tools","id":0,"names":["Bash"],"block":0}\n'
        b'{"type":"block","id":1,"digest":"bb","kind":"prose","tokens":3}\n'
        b'{"type":"message","id":0,"role":"user","blocks":[1]}\n'
        b'{"type":"call","id":0,"thread":0,"append":[0],"tools":0,"usage":{"prompt":12}}\n'
    )
    result = read_trace(path)
    assert result.problems == ()
    trace = result.traces[0]
    assert (trace.toolsets[0].blocks, trace.toolset_tokens(0), faults(trace)) == ((0,), 9, [])
    assert b'"block":0}' in encode_trace(trace)
    assert fingerprint(trace) == "a3a781514483091d"


def test_a_lost_tool_is_replaced_by_what_the_sums_say(two, tmp_path):
    path = tmp_path / "two.jsonl"
    lines = encode_trace(two).splitlines()
    at = next(i for i, line in enumerate(lines) if b"What Bash does" in line)
    path.write_bytes(b"\n".join([*lines[:at], lines[at][:20], *lines[at + 1 :]]))
    trace = read_trace(path).traces[0]
    assert faults(trace) == []
    assert len(trace.calls) == 2
    assert trace.prompt_tokens() == two.prompt_tokens()
    assert (trace.blocks[1].tokens, trace.blocks[1].filler, trace.blocks[1].kind) == (1500, True, "json")


def test_a_lost_tool_that_nothing_tells_costs_its_calls_and_the_rest_is_renumbered(tmp_path):
    path = tmp_path / "two.jsonl"
    lines = encode_trace(session(prompt=False)).splitlines()
    at = next(i for i, line in enumerate(lines) if b"What ListAgents does" in line)
    path.write_bytes(b"\n".join([*lines[:at], *lines[at + 1 :]]))
    result = read_trace(path)
    trace = result.traces[0]
    assert faults(trace) == []
    assert any("tool set 0 is dropped: block 3 is lost" in p.reason for p in result.problems)
    assert [trace.blocks[b].tokens for t in trace.toolsets for b in t.blocks] in ([], [700, 1500, 300, 400])


@pytest.mark.parametrize("more", [(1, 2, 9), (1, 2, 3, 4)])
def test_a_set_that_names_no_block_or_too_few_tools_is_a_fault(two, more):
    broken = Trace(two.header, two.blocks, two.messages, (ToolSet(0, two.toolsets[0].names, 0, more),))
    assert len(faults(broken)) == 1
    assert "tool set 0" in faults(broken)[0]


@pytest.mark.parametrize("shared", [False, True])
def test_sets_that_begin_alike_share_what_they_begin_with(two, shared):
    trace = anonymise(two, KEY) if shared else two
    assert SeenPrefixes().add(trace) == [0, 2500]
    first, second = prompts(trace, BlockIds(100))
    assert (first.tokens, second.tokens) == (2630, 2940)
    assert first.ids[:25] == second.ids[:25]
    assert first.ids[25] != second.ids[25]


def test_anonymised_tools_are_keyed_each(two):
    shared = anonymise(two, KEY)
    assert shared.toolsets[0].blocks == (0, 1, 2, 3)
    assert shared.prompt_tokens() == two.prompt_tokens()
    assert {b.digest for b in shared.blocks}.isdisjoint({b.digest for b in two.blocks})
    assert b"What Bash does" not in encode_trace(shared)


def offered(plant, *names, said=""):
    """A tool set of the plant with a block for each tool; `said` stands in every schema."""
    texts = [json.dumps({"name": n, "description": f"What {n} does{said}." * 9, "input_schema": {}}) for n in names]
    blocks = [plant.block(text, "json") for text in texts]
    plant.toolsets.append(ToolSet(len(plant.toolsets), names, blocks[0], tuple(blocks[1:])))
    return len(plant.toolsets) - 1


@pytest.mark.parametrize("shape_only", [False, True])
@pytest.mark.parametrize(
    ("after", "culprit", "detail", "common"),
    [
        (("Bash", "Edit", "Design", "Read"), "tool_inserted", "Design after Edit, place 3 of 4", 2),
        (("Bash", "Read"), "tool_removed", "Edit, place 2 of 3", 1),
        (("Bash", "Read", "Edit"), "tools_reordered", "from place 2 of 3 on", 1),
    ],
)
def test_a_change_of_the_tools_keeps_those_before_it(after, culprit, detail, common, shape_only):
    plant = Plant(shape_only=shape_only)
    start = [plant.say("system", RULES), plant.say("user", HISTORY)]
    first, second = offered(plant, "Bash", "Edit", "Read"), offered(plant, *after)
    plant.call(*start, tools=first)
    plant.call(*start, plant.say("assistant", "Done."), tools=second)
    trace = plant.trace()
    (found,) = find(trace).breaks
    assert (found.culprit, found.detail, found.place) == (culprit, detail, "tool schemas")
    assert found.common_tokens == sum(trace.blocks[b].tokens for b in trace.toolsets[0].blocks[:common])
    assert found.before_tokens == trace.toolset_tokens(0) + plant.tokens(*start)
    assert (found.old.tokens, found.new.tokens) == (trace.toolset_tokens(0), trace.toolset_tokens(1))
    assert found.old.digest != found.new.digest


def test_a_schema_that_changed_is_named():
    plant = Plant()
    start = [plant.say("system", RULES), plant.say("user", HISTORY)]
    first, second = offered(plant, "Bash", "Edit"), offered(plant, "Bash", "Edit", said=" today")
    plant.call(*start, tools=first)
    both = plant.toolsets[first].block, plant.toolsets[second].more
    plant.toolsets[second] = ToolSet(second, ("Bash", "Edit"), *both)
    plant.call(*start, plant.say("assistant", "Done."), tools=second)
    (found,) = find(plant.trace()).breaks
    assert (found.culprit, found.detail) == ("tool_schema", "in Edit")
    assert found.new.what == "schema of Edit"
    assert found.new.text[found.new.at :].startswith(" today")
    assert found.common_tokens > plant.blocks[both[0]].tokens


def test_a_sub_agent_is_held_against_the_tool_set_that_begins_most_like_its_own():
    plant = Plant()
    plant.threads = [Thread(i, 0 if i else None, 0 if i else None) for i in range(3)]
    system, asked = plant.say("system", RULES), plant.say("user", "Go on.")
    plant.call(system, asked, tools=offered(plant, "Agent", "Bash", "Edit", "Read"))
    plant.call(system, asked, tools=offered(plant, "Fetch"), thread=1)
    plant.call(system, asked, tools=offered(plant, "Agent", "Bash", "Read"), thread=2)
    trace = plant.trace()
    starts = find(trace).starts
    begins = sum(trace.blocks[b].tokens for b in trace.toolsets[2].blocks[:2])
    assert [s.common_tokens for s in starts] == [0, begins]


def older(*sets):
    """A session as it was recorded when a tool set was one text; a call for each set."""
    plant = Plant()
    system = plant.say("system", RULES)
    for names in sets:
        plant.call(system, plant.say("user", HISTORY), tools=plant.tools(*names))
    return plant.trace()


def test_an_older_recording_is_cut_into_tools():
    trace = older(("Bash", "Edit", "Read"), ("Bash", "Edit", "Task"), ("Bash", "Edit"), ("Read",))
    made = cut(trace)
    assert faults(made) == []
    assert made.prompt_tokens() == trace.prompt_tokens()
    first, second, third, last = (t.blocks for t in made.toolsets)
    assert (second[:2], third[0]) == (first[:2], first[0])
    assert [json.loads(made.blocks[b].text)["name"] for b in first] == ["Bash", "Edit", "Read"]
    assert json.loads(made.blocks[last[0]].text) == json.loads(trace.blocks[trace.toolsets[3].block].text)
    used = {b for t in made.toolsets for b in t.blocks} | {b for m in made.messages for b in made.message_blocks(m)}
    assert used == set(range(len(made.blocks)))
    assert cut(made) is made


def test_an_older_recording_is_shared_with_its_tools_apart():
    trace = older(("Bash", "Edit", "Read"), ("Bash", "Edit", "Task"))
    shared = anonymise(trace, KEY)
    assert shared.prompt_tokens() == trace.prompt_tokens()
    begins = sum(shared.blocks[b].tokens for b in shared.toolsets[0].blocks[:2])
    assert SeenPrefixes().add(shared) == [0, begins]
    assert begins > 10
    assert cut(shared) is shared


@pytest.mark.parametrize("tokens", [0, 1, 2, 5])
def test_tools_of_next_to_no_tokens_add_up(tokens):
    trace = older(("Bash", "Edit", "Read"), ("Bash", "Edit", "Task"))
    small = trace.toolsets[1].block
    blocks = tuple(replace(b, tokens=tokens) if b.id == small else b for b in trace.blocks)
    made = cut(replace(trace, blocks=blocks))
    assert faults(made) == []
    assert made.toolset_tokens(1) == tokens
