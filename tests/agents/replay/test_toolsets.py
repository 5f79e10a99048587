"""Two tool sets that begin alike share what they begin with, as they do in an engine's prefix cache."""

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from windtunnel.agents.expected import PrefixIndex, Trail
from windtunnel.agents.isolation import as_text, make_salt
from windtunnel.agents.prompt import PLAIN, Conversation, Options, Output, prepare
from windtunnel.traces.anonymise import anonymise
from windtunnel.traces.model import Block, Message, ToolSet, digest_of
from windtunnel.traces.sources import load

from .conftest import Build
from .test_chat import common, learn_from

LOCAL = Path(__file__).resolve().parents[4] / "shared/traces/claude-code/local-run-2.1.332-async-subagents"
KEY = bytes(range(32))
ROUTES = ("chat", "tokens")
UNIT = 16
PLAINLY = Options("m")


def schema(name, words):
    said = " ".join(f"{name} does the thing number {i}," for i in range(words))
    return {"name": name, "description": said, "input_schema": {"type": "object", "properties": {}}}


def session(served, *sets, joined=False):
    """A call for each list of tools; the longest tool is not the same one in all of them."""
    b = Build("sets")
    schemas = {n: schema(n, 8 * i + 10) for i, n in enumerate(("bash", "edit", "glob", "task", "write", "zip"))}
    system = b.message("system", (served.count("Be careful."), "Be careful."))
    known = {}
    for names in sets:
        texts = [json.dumps([schemas[n] for n in names])] if joined else [json.dumps(schemas[n]) for n in names]
        known |= {t: b.block(served.count(t), "json", t) for t in texts if t not in known}
        blocks = tuple(known[t] for t in texts)
        b.toolsets.append(ToolSet(len(b.toolsets), tuple(names), blocks[0], blocks[1:]))
        b.call([system, b.message("user", 80)], tools=len(b.toolsets) - 1, completion=5)
    return b.trace()


def run(trace, route, rendering, options=PLAINLY):
    """Each call's body and what was expected of it."""
    prepared = prepare(trace, route, rendering)
    talk, index, trails = Conversation(prepared, options), PrefixIndex(UNIT), {}
    for call in trace.calls:
        body = talk.body(call.id)
        trail = trails.setdefault(call.thread, Trail())
        match = index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
        index.generated(trail, talk.ended(call.id, Output(tokens=body.pinned_tokens)))
        yield body, match, json.loads(b"".join(body.parts))


def leading(trace, one, two):
    """Blocks that two tool sets begin with."""
    pairs = zip(trace.toolsets[one].blocks, trace.toolsets[two].blocks, strict=False)
    same = [a for a, b in pairs if a == b]
    return same if trace.toolsets[one].blocks[: len(same)] == tuple(same) else []


@pytest.fixture(scope="module")
def recorded():
    if not LOCAL.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return load([str(LOCAL)]).traces[0]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shared", [False, True])
def test_a_recorded_sub_agent_shares_the_tools_it_begins_with(recorded, served, calibration, route, shared):
    """Claude Code's sub-agents have the main agent's first three tools, then fewer."""
    trace = anonymise(recorded, KEY) if shared else recorded
    assert [n for n, _ in zip(recorded.toolsets[0].names, leading(trace, 0, 1), strict=False)] == [
        "Agent", "Bash", "Edit",
    ]  # fmt: skip
    begins = sum(trace.blocks[b].tokens for b in leading(trace, 0, 1))
    assert begins > 1000
    rendering = learn_from(served, calibration, trace)
    sent = list(run(trace, route, rendering))
    first = next(c.id for c in trace.calls if c.thread == 1)
    sizes = trace.prompt_tokens()
    if route == "tokens":
        assert [body.expected_prompt_tokens for body, _, _ in sent] == list(sizes.values())
        assert begins <= sent[first][1].exact < begins + 64
    else:
        for call, (body, _, _) in enumerate(sent):
            assert body.expected_prompt_tokens == pytest.approx(sizes[call], rel=0.01, abs=8)
        assert sent[first][1].exact >= begins * 0.9
    assert recorded.prompt_tokens() == sizes


@pytest.mark.parametrize("joined", [False, True])
def test_what_is_expected_is_what_the_served_template_makes_of_it(served, calibration, joined):
    """An inserted, a dropped and a changed tool keep what stands before them; one block a set does as well, with text."""
    trace = session(
        served, ("bash", "edit", "glob", "task"), ("bash", "edit", "zip", "glob", "task"), ("bash", "task"),
        ("edit", "bash"), ("bash", "edit", "glob"), joined=joined,
    )  # fmt: skip
    rendering = learn_from(served, calibration, trace)
    prompts = []
    for body, match, said in run(trace, "chat", rendering):
        ids = served.prompt(said["messages"], said["tools"])
        assert body.expected_prompt_tokens == pytest.approx(len(ids), rel=0.01, abs=2)
        really = max((common(ids, before) for before in prompts), default=0)
        assert match.exact <= really + 40, "what the template writes behind the tools is counted in front"
        assert match.exact >= really - UNIT
        prompts.append(ids)
    assert len(prompts) == 5


@pytest.mark.parametrize("salted", [False, True])
def test_behind_another_system_message_no_tool_is_expected_where_the_template_puts_it_first(
    served, calibration, salted
):
    """The served template writes system message, tools, conversation; a system message may come in two parts."""
    trace = session(served, ("bash", "edit", "glob"), ("bash", "edit", "zip"), ("bash", "edit", "glob"))
    words = "You only look, you never write a thing. " * 6
    block = Block(len(trace.blocks), digest_of(words), "prose", served.count(words), len(words), words)
    other = Message(len(trace.messages), "system", (block.id,))
    calls = [replace(c, append=(*([other.id] if c.id == 2 else c.append[:1]), *c.append[1:])) for c in trace.calls]
    calls[1] = replace(calls[1], append=(calls[1].append[0], other.id, *calls[1].append[1:]))
    trace = replace(trace, blocks=(*trace.blocks, block), messages=(*trace.messages, other), calls=tuple(calls))
    salt = make_salt("one")
    tokens = served.count(as_text(salt)) if salted else 0
    rendering = replace(learn_from(served, calibration, trace, salt_tokens=tokens), system_first=True)
    prompts = []
    for body, match, said in run(trace, "chat", rendering, Options("m", PLAIN, text_salt=salt) if salted else PLAINLY):
        ids = served.prompt(said["messages"], said["tools"])
        assert body.expected_prompt_tokens == pytest.approx(len(ids), rel=0.01, abs=4)
        assert body.expected_prompt_tokens == sum(p.tokens for p in body.added_pieces) + rendering.fixed_overhead
        really = max((common(ids, before) for before in prompts), default=0)
        assert really - UNIT <= match.exact <= really + UNIT
        assert really < 100, "the system message differs"
        prompts.append(ids)


def test_sets_without_text_share_the_same_bytes(served, calibration):
    trace = session(served, ("bash", "edit", "glob", "task"), ("bash", "edit", "zip"), ("bash", "edit"))
    shared = anonymise(trace, KEY)
    rendering = learn_from(served, calibration)
    texts = []
    for _, match, said in run(shared, "chat", rendering):
        text = served.template(said["messages"], None)
        really = max((common(served.ids(text), served.ids(before)) for before in texts), default=0)
        assert match.exact <= really + 24
        assert match.exact >= really - UNIT
        if texts:
            assert match.exact >= sum(trace.blocks[b].tokens for b in trace.toolsets[2].blocks) * 0.95
        texts.append(text)


@pytest.mark.parametrize("shared", [False, True])
def test_a_salt_in_the_text_stands_before_everything_that_differs(served, calibration, shared):
    trace = session(served, ("bash", "edit", "glob"), ("bash", "edit", "task"))
    trace = anonymise(trace, KEY) if shared else trace
    salts = [make_salt("one"), make_salt("two")]
    rendering = learn_from(served, calibration, trace, salt_tokens=served.count(as_text(salts[0])))
    runs = [list(run(trace, "chat", rendering, Options("m", PLAIN, text_salt=s))) for s in salts]
    for (body, _, one), (_, _, two) in zip(*runs, strict=True):
        ids = [served.prompt(said["messages"], said.get("tools")) for said in (one, two)]
        assert body.expected_prompt_tokens == pytest.approx(len(ids[0]), rel=0.01, abs=2)
        salted = json.dumps(one.get("tools", one["messages"])).index(json.dumps(as_text(salts[0]))[1:-1])
        assert salted < 120
        assert common(*ids) < 40
    inside = [served.prompt(said["messages"], said.get("tools")) for _, _, said in runs[0]]
    begins = sum(trace.blocks[b].tokens for b in leading(trace, 0, 1))
    assert runs[0][1][1].exact >= begins * 0.9
    assert common(*inside) >= runs[0][1][1].exact - 40


def test_ids_of_leading_tools_are_the_same(served, calibration):
    trace = session(served, ("bash", "edit", "glob"), ("bash", "edit", "task"))
    ids = [np.array(said["prompt"]) for _, _, said in run(trace, "tokens", learn_from(served, calibration))]
    begins = sum(trace.blocks[b].tokens for b in leading(trace, 0, 1))
    assert (ids[0][:begins] == ids[1][:begins]).all()
    assert len(leading(trace, 0, 1)) == 2
