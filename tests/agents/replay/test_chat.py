"""Chat bodies under a real tokenizer and a strict template."""

import json
from pathlib import Path

import msgspec
import pytest

from windtunnel.agents.isolation import as_text, make_salt, make_tag
from windtunnel.agents.prompt import (
    PLAIN,
    PROBE_TEXTS,
    PROBES,
    VLLM,
    Conversation,
    Options,
    Output,
    learn,
    prepare,
    texts_to_measure,
)
from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Params

from .conftest import agent_session

TAG = make_tag("run", "trace", 0)
TAGGED = Options("m", tag=TAG)
SHARED = Path(__file__).parents[4] / "shared" / "traces"


def learn_from(served, calibration, trace=None, measured=None, **kw):
    prompts = {name: len(served.prompt(list(p.messages), list(p.tools) or None)) for name, p in PROBES.items()}
    texts = {name: served.count(text) for name, text in PROBE_TEXTS.items()}
    if trace is not None:
        measured = {key: served.count(text) for key, text in texts_to_measure([trace]).items()}
    return learn(calibration, prompts, texts, measured, **kw)


@pytest.fixture(scope="session")
def rendering(served, calibration):
    return learn_from(served, calibration, tag_tokens=served.count(as_text(make_tag("r", "t", 0))))


def replay(prepared, options=TAGGED, output=lambda _call, n: Output("word " * n, tokens=n)):
    """Bodies of all calls, decoded, each with what the conversation said about it."""
    if not prepared.rendering.tag_tokens:
        options = msgspec.structs.replace(options, tag=None)
    talk = Conversation(prepared, options)
    for call in prepared.trace.calls:
        body = talk.body(call.id)
        raw = b"".join(body.parts)
        assert len(raw) == body.length
        yield call, body, json.loads(raw)
        talk.ended(call.id, output(call, body.pinned_tokens))


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_the_probes_tell_what_the_template_adds(rendering):
    # <|im_start|> role \n ... <|im_end|> \n; the tool results stand in a user message
    assert 4 <= rendering.message_overhead["user"] <= 6
    assert 4 <= rendering.message_overhead["assistant"] <= 7
    assert 3 <= rendering.fixed_overhead <= 4
    assert rendering.message_overhead["tool"] > rendering.message_overhead["user"]
    assert rendering.tool_call_overhead > 8
    assert rendering.default_system == 0


def test_a_template_with_a_system_text_of_its_own_is_recognised(served, calibration):
    prompts = {name: len(served.prompt(list(p.messages), list(p.tools) or None)) for name, p in PROBES.items()}
    prompts["user"] += 20
    texts = {name: served.count(text) for name, text in PROBE_TEXTS.items()}
    plain = learn(calibration, {**prompts, "user": prompts["user"] - 20}, texts)
    found = learn(calibration, prompts, texts)
    assert found.fixed_overhead == pytest.approx(plain.fixed_overhead, abs=1)
    assert found.default_system == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    "trace",
    [
        agent_session(),
        agent_session(40, 2, result=25, name="small results"),
        agent_session(60, 3, result=900, name="large"),
    ],
    ids=lambda t: t.header.id,
)
def test_prompts_have_the_recorded_number_of_tokens(served, rendering, trace):
    recorded = trace.prompt_tokens()
    prepared = prepare(trace, "chat", rendering)
    options = Options(model="m", tag=make_tag("r", "t", 0))
    for call, body, request in replay(prepared, options):
        if call.id % 9 and call.id > 5:
            continue
        counted = len(served.prompt(request["messages"], request.get("tools")))
        assert counted == pytest.approx(recorded[call.id], rel=0.005)
        assert body.expected_prompt_tokens == pytest.approx(counted, rel=0.005)
        assert prepared.prompt_tokens(call.id) == body.expected_prompt_tokens


def test_library_prompts_have_the_recorded_number_of_tokens(served, rendering):
    if not library.names():
        pytest.skip("the bundled library is not there")
    for name in library.names()[:3]:
        (trace,) = read_trace(Path(library.path(name))).traces
        recorded = trace.prompt_tokens()
        prepared = prepare(trace, "chat", rendering)
        for call in {0, len(trace.calls) // 2, len(trace.calls) - 1}:
            request = json.loads(b"".join(Conversation(prepared, TAGGED).body(call).parts))
            assert len(served.prompt(request["messages"])) == pytest.approx(recorded[call], rel=0.01)


def test_recorded_prompts_have_the_recorded_number_of_tokens(served, calibration):
    if not SHARED.exists():
        pytest.skip("no recorded sessions beside the repository (../shared/traces)")
    from windtunnel.traces.importers import claude_code, codex

    paths = sorted((SHARED / "claude-code").glob("*.jsonl"), key=lambda p: p.stat().st_size)[1:3]
    paths += sorted((SHARED / "codex").glob("**/*.jsonl"), key=lambda p: p.stat().st_size)[3:5]
    checked = 0
    for path in paths:
        read = codex.read if "codex" in path.parts else claude_code.read
        for trace in read(path).traces:
            recorded = trace.prompt_tokens()
            prepared = prepare(trace, "chat", learn_from(served, calibration, trace))
            wanted = {0, len(trace.calls) // 2, len(trace.calls) - 1}
            for call, _, request in replay(prepared):
                if call.id in wanted:
                    counted = len(served.prompt(request["messages"], request.get("tools")))
                    assert counted == pytest.approx(recorded[call.id], rel=0.02)
                    checked += 1
    assert checked >= 10


def test_a_second_preparation_corrects_texts_that_cut_badly(served, calibration, build):
    # the front of this text costs far more tokens per character than the rest
    text = " ".join(f"q{i}z#{i}" for i in range(700)) + " the state of the value" * 900
    build.call([build.message("system", (2000, text)), build.message("user", 2000), build.message("user", 500)])
    trace = build.trace()
    rendering = learn_from(served, calibration, trace)
    prepared = prepare(trace, "chat", rendering)
    (_, _, request) = next(replay(prepared))
    first = len(served.prompt(request["messages"]))
    assert abs(first - 4500) > 200
    counted = rendering.measured | {k: served.count(t) for k, t in prepared.fitted_texts().items()}
    prepared = prepare(trace, "chat", msgspec.structs.replace(rendering, measured=counted))
    (_, _, request) = next(replay(prepared))
    assert len(served.prompt(request["messages"])) == pytest.approx(4500, rel=0.01)


def test_a_next_prompt_begins_with_the_one_before(served, rendering):
    trace = agent_session(25, 7)
    before, header = [], len(served.ids("<|im_start|>assistant\n"))
    for _, _, request in replay(prepare(trace, "chat", rendering), Options("m", tag="a b c")):
        prompt = served.prompt(request["messages"])
        assert common(before, prompt) >= len(before) - header
        before = prompt


def test_copies_share_the_front_and_differ_from_the_tag_on(served, rendering):
    trace = agent_session(3)
    prepared = prepare(trace, "chat", rendering)
    prompts = []
    for copy in range(2):
        options = Options("m", tag=make_tag("r", "t", copy))
        request = next(replay(prepared, options))[2]
        assert as_text(options.tag) in request["messages"][1]["content"]
        prompts.append(served.prompt(request["messages"]))
    system = 2400
    assert system - 10 < common(*prompts) < system + 20
    assert len(prompts[0]) == len(prompts[1])


def test_every_thread_has_the_tag_in_its_first_user_message(build, rendering):
    first = build.call([build.message("system", 50), build.message("user", 50), build.message("user", 30)])
    child = build.thread(spawn_call=first)
    build.call([build.message("system", 60), build.message("user", 50)], thread=child)
    for _, _, request in replay(prepare(build.trace(), "chat", rendering), Options("m", tag="x y z")):
        assert [m["role"] for m in request["messages"]] == ["system", "user"]
        assert request["messages"][1]["content"].startswith("(x y z)\n")
        assert json.dumps(request).count("x y z") == 1


def test_a_salt_in_the_text_stands_in_front_of_system_and_tools(served, calibration, build):
    schema = [{"name": "Bash", "description": "Run it.", "input_schema": {"type": "object", "properties": {}}}]
    salt = make_salt("run")
    tools = build.tools(60, json.dumps(schema))
    build.call([build.message("system", 80), build.message("user", 50)], tools=tools)
    trace = build.trace()
    rendering = learn_from(served, calibration, trace, salt_tokens=served.count(as_text(salt)))
    (_, _, request) = next(replay(prepare(trace, "chat", rendering), Options("m", PLAIN, text_salt=salt)))
    assert request["messages"][0]["content"].startswith(as_text(salt))
    assert request["tools"][0]["function"]["description"] == as_text(salt) + "Run it."
    assert request["tool_choice"] == "none"
    assert len(served.prompt(request["messages"], request["tools"])) == pytest.approx(190, abs=4)
    with pytest.raises(ValueError, match="tokens reserved"):
        Conversation(prepare(trace, "chat", learn_from(served, calibration)), Options("m", text_salt=salt))


def test_recorded_schemas_go_into_tools_whatever_their_shape(served, calibration, build):
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    shapes = [
        {"name": "Read it!", "description": "Reads.", "input_schema": parameters},
        {"type": "function", "name": "shell", "description": "Runs.", "parameters": parameters},
        {"type": "function", "function": {"name": "grep", "parameters": parameters}},
        {"type": "web_search"},
    ]
    text = json.dumps(shapes)
    tools = build.tools(160, text)
    build.call([build.message("user", 200)], tools=tools)
    trace = build.trace()
    prepared = prepare(trace, "chat", learn_from(served, calibration, trace))
    (_, _, request) = next(replay(prepared))
    functions = [tool["function"] for tool in request["tools"]]
    assert [f["name"] for f in functions] == ["Read_it_", "shell", "grep"]
    assert all(f["parameters"] == parameters for f in functions)
    assert "tools_as_system_text" not in prepared.changes
    assert len(served.prompt(request["messages"], request["tools"])) == pytest.approx(360, abs=4)


def test_schemas_without_text_stand_in_front_as_system_text(served, rendering, build):
    tools = build.tools(500)
    build.call([build.message("system", 100), build.message("user", 50)], tools=tools)
    build.call([build.message("user", 50)], tools=tools)
    build.call([build.message("user", 50)])
    trace = build.trace()
    prepared = prepare(trace, "chat", rendering)
    requests = [request for _, _, request in replay(prepared)]
    assert [[m["role"] for m in r["messages"]] for r in requests] == [["system", "user"], ["system", "user"], ["user"]]
    assert not any("tools" in r for r in requests)
    assert common(*(r["messages"][0]["content"] for r in requests[:2])) > 1000
    assert prepared.changes["tools_as_system_text"] == 1
    for request, tokens in zip(requests, (650, 550, 50), strict=True):
        assert len(served.prompt(request["messages"])) == pytest.approx(tokens, abs=5)


def test_the_output_length_is_pinned_and_zero_becomes_one(build, rendering):
    first = build.call([build.message("user", 50)], completion=77, params=Params(temperature=0.7, top_p=0.9, top_k=5))
    build.call([build.message("user", 50)], base=first, completion=0)
    prepared = prepare(build.trace(), "chat", rendering)
    assert prepared.pinned == (77, 1)
    assert prepared.changes["pinned_from_zero"] == 1
    (_, _, one), (_, _, two) = replay(prepared, Options("served", VLLM, salt="s", tag=TAG))
    assert {k: v for k, v in one.items() if k != "messages"} == {
        "model": "served",
        "max_tokens": 77,
        "min_tokens": 77,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "return_token_ids": True,
        "cache_salt": "s",
    }
    assert (two["max_tokens"], two["min_tokens"], two["temperature"]) == (1, 1, 0)
    (_, _, plain) = next(replay(prepared, Options("served", PLAIN, salt="s", tag=TAG)))
    assert set(plain) == {"model", "messages", "max_tokens", "temperature", "top_p", "stream", "stream_options"}


def test_recorded_history_is_prefilled_again(rendering, build):
    output = build.message("assistant", 40)
    first = build.call([build.message("user", 100)], output=output, completion=60)
    build.call([output, build.message("user", 50)], base=first, completion=5)
    bodies = [body for _, body, _ in replay(prepare(build.trace(), "chat", rendering))]
    assert bodies[0].reprefilled_tokens == 0
    assert bodies[1].reprefilled_tokens == pytest.approx(40, abs=8)


def test_live_history_carries_what_was_generated(served, rendering, build):
    output = build.message("assistant", 40, calls=[("c1", "Bash", 30)])
    first = build.call([build.message("user", 100)], output=output, completion=70)
    second = build.call([output, build.message("tool", 50, answers="c1")], base=first, completion=5)
    trace = build.trace()
    prepared = prepare(trace, "chat", rendering)
    generated = served.tokenizer.decode(served.ids(" the value of this result is not the same" * 20)[:70])
    requests = list(
        replay(
            prepared,
            Options("m", history="live", tag=TAG),
            output=lambda _c, n: Output(generated, token_ids=list(range(70))),
        )
    )
    _, body, request = requests[1]
    assert body.reprefilled_tokens == 0
    _, assistant, tool = request["messages"]
    assert generated.startswith(assistant["content"])
    assert assistant["tool_calls"][0]["function"] == {"name": "Bash", "arguments": "{}"}
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"]
    recorded = trace.prompt_tokens()[second]
    assert len(served.prompt(request["messages"])) == pytest.approx(recorded, abs=8)
    assert body.expected_prompt_tokens == pytest.approx(recorded, abs=8)
    reasoned = list(
        replay(
            prepared,
            Options("m", history="live", tag=TAG),
            output=lambda _c, _n: Output("said", reasoning="thought ", tokens=2),
        )
    )
    assert reasoned[1][2]["messages"][1]["content"] == "thought said"
    assert reasoned[1][1].reprefilled_tokens == 2
