"""The token route: exact counts, generated ids in the history."""

import json
import random
from pathlib import Path

import pytest

from windtunnel.agents.expected import PrefixIndex, Trail
from windtunnel.agents.isolation import make_salt, make_tag
from windtunnel.agents.prompt import PLAIN, Conversation, Options, Output, Rendering, prepare
from windtunnel.traces import library
from windtunnel.traces.errors import UsageError
from windtunnel.traces.format import read_trace
from windtunnel.traces.text import Calibration, stored

from .conftest import agent_session


@pytest.fixture(scope="session")
def ids_known() -> Calibration:
    known = stored()
    return Calibration("ids", known.ratio, known.costs, ids=tuple(range(1000, 3000)))


@pytest.fixture(scope="session")
def rendering(ids_known) -> Rendering:
    return Rendering(ids_known, tag_tokens=8)


def prompts(prepared, options, *, generated=None):
    """Each call's prompt ids, as sent, with the body and what was then generated."""
    talk = Conversation(prepared, options)
    for call in prepared.trace.calls:
        body = talk.body(call.id)
        raw = b"".join(body.parts)
        assert len(raw) == body.length
        request = json.loads(raw)
        out = generated(call, body) if generated else None
        pieces = talk.ended(call.id, Output(token_ids=out, tokens=body.pinned_tokens))
        yield call, body, request, out or [], pieces


def fresh_ids(seed):
    draw = random.Random(seed)
    return lambda _call, body: [draw.randrange(5000, 90000) for _ in range(body.pinned_tokens)]


def branching(build):
    """Compaction, a rewound context, a sub-agent, changed tools."""
    big, small = build.tools(300), build.tools(90)
    one = build.message("assistant", 30, calls=[("a", "Bash", 20)])
    first = build.call([build.message("system", 200), build.message("user", 60)], output=one, completion=55, tools=big)
    two = build.message("assistant", 40)
    second = build.call([one, build.message("tool", 33, answers="a")], base=first, output=two, completion=40, tools=big)
    child = build.thread(spawn_call=first)
    build.call(
        [
            build.message(
                "system",
                200,
            ),
            build.message("user", 12),
        ],
        thread=child,
        completion=9,
        tools=small,
    )
    third = build.call([two, build.message("user", 500)], base=second, completion=12, tools=big)
    build.call([build.message("user", 44)], base=third, keep=3, completion=7, tools=big)
    build.call([build.message("user", 80)], base=third, keep=1, completion=0, tools=small)
    build.call([], completion=3)
    return build.trace()


def test_prompts_have_exactly_the_recorded_tokens(build, rendering):
    for trace in (branching(build), agent_session(20, 4)):
        recorded = trace.prompt_tokens()
        prepared = prepare(trace, "tokens", rendering)
        for generated in (None, fresh_ids(1), lambda _c, _b: [7]):
            for call, body, request, _, _ in prompts(prepared, Options("m", tag="a b"), generated=generated):
                wanted = max(1, recorded[call.id])
                assert len(request["prompt"]) == wanted
                assert body.expected_prompt_tokens == wanted
                assert request["max_tokens"] == request["min_tokens"] == max(1, call.usage.completion)
                assert all(isinstance(i, int) for i in request["prompt"])


def test_library_prompts_have_exactly_the_recorded_tokens(rendering):
    if not library.names():
        pytest.skip("the bundled library is not there")
    for name in library.names()[:8]:
        (trace,) = read_trace(Path(library.path(name))).traces
        prepared = prepare(trace, "tokens", rendering)
        for call in trace.calls:
            assert prepared.prompt_tokens(call.id) == call.usage.prompt
        last = trace.calls[-1]
        body = Conversation(prepared, Options("m", tag="a")).body(last.id)
        assert len(json.loads(b"".join(body.parts))["prompt"]) == last.usage.prompt


def test_the_next_prompt_is_the_last_one_then_what_was_generated(rendering):
    trace = agent_session(12, 3)
    before, made = [], []
    for call, body, request, out, _ in prompts(
        prepare(trace, "tokens", rendering), Options("m", tag="t"), generated=fresh_ids(2)
    ):
        prompt = request["prompt"]
        assert prompt[: len(before)] == before
        if call.id:
            kept = trace.message_tokens(trace.calls[call.id - 1].output)
            assert prompt[len(before) : len(before) + kept] == made[:kept]
            assert body.reprefilled_tokens == 0
        before, made = prompt, out


def test_without_generated_ids_the_history_is_prefilled_again(rendering):
    trace = agent_session(5, 3)
    for call, body, _, _, _ in prompts(prepare(trace, "tokens", rendering), Options("m", tag="t")):
        if call.id:
            assert body.reprefilled_tokens == trace.message_tokens(trace.calls[call.id - 1].output)


def test_a_prompt_that_was_never_run_before_carries_recorded_ids(rendering):
    trace = agent_session(9, 3)
    prepared = prepare(trace, "tokens", rendering)
    talk = Conversation(prepared, Options("m", tag="t"))
    entered = json.loads(b"".join(talk.body(5).parts))["prompt"]
    assert len(entered) == trace.prompt_tokens()[5]
    again = Conversation(prepared, Options("m", tag="t"))
    assert json.loads(b"".join(again.body(5).parts))["prompt"] == entered


def test_tag_and_salt_take_the_place_of_as_many_ids(build, ids_known):
    trace = branching(build)
    recorded = trace.prompt_tokens()
    room = Rendering(ids_known, tag_tokens=8, salt_tokens=16)
    prepared = prepare(trace, "tokens", room)
    salt = make_salt("run")
    one = [
        r["prompt"]
        for _, _, r, _, _ in prompts(prepared, Options("m", PLAIN, text_salt=salt, tag=make_tag("run", "t", 0)))
    ]
    two = [
        r["prompt"]
        for _, _, r, _, _ in prompts(prepared, Options("m", PLAIN, text_salt=salt, tag=make_tag("run", "t", 1)))
    ]
    other = [r["prompt"] for _, _, r, _, _ in prompts(prepared, Options("m", PLAIN, text_salt=make_salt("x"), tag="a"))]
    for call, a, b, c in zip(trace.calls, one, two, other, strict=True):
        assert len(a) == len(b) == len(c) == max(1, recorded[call.id])
    assert one[0][:500] == two[0][:500]
    assert one[0][500:508] != two[0][500:508]
    assert one[0][508:] == two[0][508:]
    assert one[0][:16] != other[0][:16]
    assert one[0][16:500] == other[0][16:500]


def test_without_known_ids_there_is_no_token_route(build):
    build.call([build.message("user", 5)])
    with pytest.raises(UsageError, match="--api chat"):
        prepare(build.trace(), "tokens", Rendering(stored()))


def longest(prompt, earlier):
    best = 0
    for other in earlier:
        same = next(
            (i for i, (x, y) in enumerate(zip(prompt, other, strict=False)) if x != y), min(len(prompt), len(other))
        )
        best = max(best, same)
    return best


@pytest.mark.parametrize("unit", [1, 16, 128])
def test_expected_hits_are_those_of_the_ids_themselves(build, rendering, unit):
    """Three copies of three traces, one after the other, against a search through everything sent."""
    traces = [branching(build), *[agent_session(8, 3, system=90, tools=150, result=60)] * 2]
    ready = [prepare(trace, "tokens", rendering) for trace in traces]
    index = PrefixIndex(unit)
    earlier: list[list[int]] = []
    checked = 0
    for copy in range(3):
        for number, prepared in enumerate(ready):
            options = Options("m", tag=make_tag("run", str(number), copy))
            trails: dict[int, Trail] = {}
            talk = prompts(prepared, options, generated=fresh_ids(copy * 10 + number))
            for call, body, request, out, pieces in talk:
                if not body.added_pieces and not body.kept_pieces:
                    continue
                trail = trails.setdefault(call.thread, Trail())
                match = index.sent(trail, body.kept_pieces, body.added_pieces)
                prompt = request["prompt"]
                assert trail.tokens[-1] == len(prompt)
                assert match.exact == longest(prompt, earlier)
                assert match.rounded == min(match.exact, len(prompt) - 1) // unit * unit
                index.generated(trail, pieces)
                earlier += [prompt, prompt + out[:-1]]
                checked += 1
            for trail in trails.values():
                index.drop(trail)
    assert checked == 3 * (6 + 8 + 8)
