"""From traces to ready prompts against a small server: route, room, isolation, and proof that the largest call fits."""

import msgspec
import pytest

from windtunnel.agents.isolation import as_text, make_salt
from windtunnel.agents.prompt import Conversation
from windtunnel.simulator.engines.base import Capabilities, Resolved, detect
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.link import Link
from windtunnel.simulator.run.prepare import choose_route, isolate, prepare_run, room, tagged
from windtunnel.traces.errors import EngineError, UsageError

from .conftest import Sketch, chain

RUN_ID = "abcd1234"


def server(**fields):
    limit = fields.pop("max_model_len", 4096)
    return Resolved(name="vllm", model="tiny", max_model_len=limit, capabilities=Capabilities(**fields))


@pytest.fixture
async def linked(fake_engine):
    async def link(**fields):
        session, url, engine = await fake_engine(**fields)
        adapter = await detect(url, session)
        return Link(session, url, adapter, await adapter.probe(session, url)), engine

    return link


async def prepared(link, *traces, talk=lambda _: None, **dials):
    return await prepare_run(RunConfig(**dials), traces, link, run_id=RUN_ID, talk=talk)


def readable(name="r"):
    trace = chain(name)
    return msgspec.structs.replace(trace, header=msgspec.structs.replace(trace.header, shape_only=False))


def first_body(got, copy=0):
    one = got.prepared[0]
    options = tagged(got.options, RUN_ID, one.trace.header.id, copy)
    return msgspec.json.decode(b"".join(Conversation(one, options).body(0).parts))


# -- route and room


def test_token_ids_where_nothing_readable_is_lost_and_the_engine_takes_them():
    takes = server(token_prompts=True, tokenize=True)
    assert choose_route(RunConfig(), [chain("a"), chain("b")], takes) == "tokens"
    assert choose_route(RunConfig(), [chain("a"), readable()], takes) == "chat"
    assert choose_route(RunConfig(api="chat"), [chain("a")], takes) == "chat"
    assert choose_route(RunConfig(api="tokens"), [readable()], takes) == "tokens"
    for lacks in (server(token_prompts=True), server(tokenize=True)):
        assert choose_route(RunConfig(), [chain("a")], lacks) == "chat"
        with pytest.raises(UsageError, match=r"--api tokens: .*use --api chat"):
            choose_route(RunConfig(api="tokens"), [chain("a")], lacks)


def test_room_is_what_is_served_unless_less_is_asked_for():
    assert room(RunConfig(), server()) == 4096
    assert room(RunConfig(max_context=1024), server()) == 1024
    assert room(RunConfig(max_context=1024), server(max_model_len=None)) == 1024
    assert room(RunConfig(), server(max_model_len=None)) is None
    with pytest.raises(UsageError, match="--max-context 8192: the server takes at most 4096 tokens"):
        room(RunConfig(max_context=8192), server())


# -- isolation


async def test_a_reset_that_the_server_confirms_is_enough(linked):
    link, _ = await linked()
    got = await isolate(RunConfig(), link, RUN_ID)
    assert (got.mode, got.reset, got.salt) == ("reset", True, None)


@pytest.mark.parametrize(
    ("server", "told"), [({"reset_success": False}, "did not reset"), ({"dev_mode": False}, "VLLM_SERVER_DEV_MODE=1")]
)
async def test_a_reset_that_was_not_confirmed_does_not_count(linked, server, told):
    """A 200 whose body says no is a no: the prompts are salted, and who insists on a reset is told why."""
    link, _ = await linked(**server)
    got = await isolate(RunConfig(), link, RUN_ID)
    assert (got.mode, got.reset, got.salt) == ("cache_salt", False, make_salt(RUN_ID))
    assert told in got.note
    with pytest.raises(EngineError, match=r"^--isolate reset: .*" + told):
        await isolate(RunConfig(isolate="reset"), link, RUN_ID)


async def test_a_salt_or_nothing_can_be_insisted_on(linked):
    link, _ = await linked()
    assert (await isolate(RunConfig(isolate="salt"), link, RUN_ID)).mode == "cache_salt"
    assert (await isolate(RunConfig(isolate="none"), link, RUN_ID)).mode == "none"


async def test_a_server_of_unknown_kind_gets_its_salt_in_the_text(linked):
    link, _ = await linked(version=None, metrics=False, dev_mode=False, completions=False)
    assert link.resolved.name == "openai"
    assert (await isolate(RunConfig(), link, RUN_ID)).mode == "text_salt"


async def test_one_cache_salt_for_the_whole_run(linked):
    link, _ = await linked(dev_mode=False)
    got = await prepared(link, chain("a"), chain("b"), api="chat")
    assert got.describe()["isolation"]["salt"] == got.options.salt == make_salt(RUN_ID)
    assert first_body(got)["cache_salt"] == first_body(got, copy=1)["cache_salt"] == make_salt(RUN_ID)
    assert make_salt(RUN_ID) not in str(first_body(got)["messages"])


async def test_a_salt_in_the_text_stands_in_front_and_is_planned_for(linked):
    """In front of the system prompt, the same for all agents; a tag tells copies apart behind the shared front."""
    link, _ = await linked(version=None, metrics=False, dev_mode=False, completions=False)
    got = await prepared(link, chain("a"), api="chat")
    salt = as_text(make_salt(RUN_ID))
    assert got.describe()["isolation"] == {
        "mode": "text_salt",
        "reset": False,
        "salt": make_salt(RUN_ID),
        "note": got.isolation.note,
    }
    one, other = first_body(got), first_body(got, copy=1)
    assert one["messages"][0]["content"].startswith(salt)
    assert one["messages"][0] == other["messages"][0]
    assert one["messages"][1] != other["messages"][1]
    assert "cache_salt" not in one
    counted = await prove(link, one)
    assert abs(counted - got.prepared[0].prompt_tokens(0)) <= 2
    unsalted = await prepared(link, chain("a"), api="chat", isolate="none")
    assert salt not in str(first_body(unsalted)["messages"])
    # The salt takes the place of as much text.
    assert abs(await prove(link, first_body(unsalted)) - counted) <= 2


async def prove(link, body):
    from windtunnel.simulator.run.calibrate import Tokenizer

    return await Tokenizer(link.session, link.root, "tiny").prove(body["messages"], body.get("tools") or ())


async def test_a_salt_stands_in_front_of_the_first_tool_too(linked):
    """Some templates render tools before everything else."""
    tool = {"type": "function", "function": {"name": "Bash", "description": "runs", "parameters": {"type": "object"}}}
    sketch = Sketch("a")
    sketch.call()
    trace = sketch.trace()
    text = msgspec.json.encode([tool]).decode()
    block = msgspec.structs.replace(
        trace.blocks[0], id=len(trace.blocks), tokens=60, text=text, kind="json", digest="t"
    )
    from windtunnel.traces.model import ToolSet

    trace = msgspec.structs.replace(
        trace,
        blocks=(*trace.blocks, block),
        toolsets=(ToolSet(0, ("Bash",), block.id),),
        calls=tuple(msgspec.structs.replace(call, tools=0) for call in trace.calls),
    )
    link, _ = await linked(version=None, metrics=False, dev_mode=False, completions=False)
    body = first_body(await prepared(link, trace, api="chat"))
    assert body["tools"][0]["function"]["description"] == as_text(make_salt(RUN_ID)) + "runs"


# -- fitting and proof


async def test_what_was_replayed_is_described(linked):
    link, _ = await linked()
    got = await prepared(link, chain("a"), chain("b"), chain("big", 3, system=9000), api="chat")
    told = got.describe()
    assert [t["id"] for t in told["traces"]] == ["a", "b"]
    assert all(len(t["fingerprint"]) == 16 for t in told["traces"])
    assert told["traces"][0]["fingerprint"] != told["traces"][1]["fingerprint"]
    assert told["fit"] == {"kept": 2, "filtered": 1, "scaled": 0, "compacted": 0}
    assert (told["route"], told["max_context"], told["lengths_from"]) == ("chat", 4096, ["m"])
    assert told["calibration"]["measured"] is True
    # The largest call is the last: 200 tokens of prompt and 20 of output, the template's included.
    assert told["traces"][0]["largest_call_tokens"] == pytest.approx(220, abs=4)


async def test_the_token_route_is_exact_without_asking(linked):
    link, engine = await linked()
    got = await prepared(link, chain("a"))
    assert got.route == "tokens"
    assert got.describe()["traces"][0]["largest_call_tokens"] == 220
    assert not any("messages" in body and len(str(body)) > 2000 for body in engine.bodies)


@pytest.mark.parametrize(
    ("mode", "counts"), [("scale", (1, 0, 2, 0)), ("compact", (1, 0, 0, 2)), ("filter", (1, 2, 0, 0))]
)
async def test_sessions_are_counted_by_what_was_done_to_them(linked, mode, counts):
    link, _ = await linked()
    big = [chain(name, 60, out=60, system=400) for name in ("big", "bigger")]
    got = await prepared(link, chain("a"), *big, api="chat", fit=mode)
    assert tuple(got.describe()["fit"].values()) == counts
    assert all(total <= 4096 for total in got.proven.values())


@pytest.mark.parametrize("mode", ["scale", "compact", "filter"])
async def test_a_session_that_turns_out_too_long_is_fitted_again(linked, mode):
    """The template costs more than the probes told: the largest call, counted by the server, is what decides."""
    link, engine = await linked()

    def later(said):
        if said.startswith("preparing"):
            engine.template["user"] += 20

    tight = chain("tight", 40, out=75)  # 3,715 tokens at most: it fits, but not with 800 more for its template
    got = await prepared(link, chain("a"), tight, talk=later, api="chat", fit=mode)
    fitted = {p.trace.header.id: p for p in got.prepared}
    if mode == "filter":
        assert (set(fitted), tuple(got.describe()["fit"].values())) == ({"a"}, (1, 1, 0, 0))
        return
    assert set(fitted) == {"a", "tight"}
    assert tuple(got.describe()["fit"].values()) == ((1, 0, 1, 0) if mode == "scale" else (1, 0, 0, 1))
    assert fitted["tight"].trace is not tight
    assert 3000 < got.proven["tight"] <= 4096
    # What was proven is what is sent.
    largest = max(c.id for c in fitted["tight"].trace.calls) if mode == "scale" else None
    if largest is not None:
        talk = Conversation(fitted["tight"], tagged(got.options, RUN_ID, "tight", 0))
        body = msgspec.json.decode(b"".join(talk.body(largest).parts))
        assert await prove(link, body) + fitted["tight"].pinned[largest] <= 4096


async def test_when_nothing_fits_it_is_said_with_the_way_out(linked):
    link, engine = await linked()
    beyond = "fits a context of 128 tokens: use --fit scale or --fit compact, or a larger --max-context"
    with pytest.raises(UsageError, match=f"^none of the 2 sessions {beyond}$"):
        await prepared(link, chain("a"), chain("b"), max_context=128)

    def later(said):
        if said.startswith("preparing"):
            engine.template["user"] += 5000

    with pytest.raises(
        UsageError, match=r"no session fits a context of 4096 tokens with its template: use --fit scale"
    ):
        await prepared(link, chain("a"), talk=later, api="chat")


@pytest.mark.parametrize(
    ("dials", "ways"),
    [
        ({"fit": "scale", "max_context": 9}, "--fit compact, or a larger --max-context"),
        ({"fit": "compact", "max_context": 9}, "--fit scale, or a larger --max-context"),
        ({"fit": "scale"}, "--fit compact, or a server that takes longer contexts"),
        ({"max_context": 40}, "--fit scale or --fit compact, or a server that takes longer contexts"),
    ],
)
async def test_the_way_out_is_none_that_was_taken(linked, dials, ways):
    link, _ = await linked(models=[{"id": "tiny", "max_model_len": 40 if dials.get("max_context") != 9 else 4096}])
    with pytest.raises(UsageError, match=rf"^the session does not fit a context of \d+ tokens: use {ways}$"):
        await prepared(link, chain("a", 40), **dials)


async def test_what_a_template_leaves_no_room_for_is_not_told_to_be_scaled_again(linked):
    link, engine = await linked()

    def later(said):
        if said.startswith("preparing"):
            engine.template["user"] += 5000

    with pytest.raises(UsageError, match=r"with its template: use a server that takes longer contexts$"):
        await prepared(link, chain("a"), talk=later, api="chat", fit="scale")


async def test_a_template_that_refuses_the_messages_is_heard_before_the_run(linked):
    link, engine = await linked()

    def later(said):
        if said.startswith("preparing"):
            engine.refuses = ("assistant",)

    with pytest.raises(EngineError, match=r"the chat template refuses the messages .*no such role"):
        await prepared(link, chain("a"), talk=later, api="chat")


async def test_a_preparation_that_takes_long_tells_how_far_it_is(linked, monkeypatch):
    link, _ = await linked()
    monkeypatch.setattr("windtunnel.simulator.run.prepare.TELL_S", 0.0)
    texts = chain("r")
    block = msgspec.structs.replace(texts.blocks[0], text="word " * 100, tokens=100)
    texts = msgspec.structs.replace(texts, blocks=(block, *texts.blocks[1:]))
    told = []
    await prepared(link, texts, chain("b"), api="chat", talk=told.append)
    assert told[:2] == ["learning how the server counts tokens", "counted 0.0 of 0.0 MB of recorded text"]
    assert told[-3:] == ["preparing 2 sessions", "prepared 1 of 2 sessions", "prepared 2 of 2 sessions"]
    # In a quick one nothing of that is said.
    monkeypatch.undo()
    told.clear()
    await prepared(link, texts, chain("b"), api="chat", talk=told.append)
    assert told == ["learning how the server counts tokens", "preparing 2 sessions"]


async def test_a_server_that_stops_answering_in_a_preparation_is_named_and_given_up(linked, monkeypatch):
    link, engine = await linked()
    monkeypatch.setattr("windtunnel.simulator.run.prepare.PREPARE_S", 0.3)
    monkeypatch.setattr("windtunnel.simulator.run.prepare.PROOF_S", 0.0)
    monkeypatch.setattr("windtunnel.simulator.engines.patience.QUIET_S", 0.05)
    told = []

    def later(said):
        told.append(said)
        if said.startswith("learning"):
            engine.deaf.clear()

    with pytest.raises(EngineError, match="not all questions before the run were answered"):
        await prepared(link, chain("a"), api="chat", talk=later)
    engine.deaf.set()
    assert f"waiting for {link.root}/tokenize: no answer for 0 s" in told


async def test_without_tokenize_stored_figures_stand_in(linked):
    link, _ = await linked(tokenize=False)
    got = await prepared(link, chain("a"))
    assert (got.route, got.describe()["calibration"]["measured"]) == ("chat", False)
    assert got.proven["a"] == got.prepared[0].prompt_tokens(2) + 20
