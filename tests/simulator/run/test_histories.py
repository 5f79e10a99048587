"""Whole runs in virtual time: what goes back into the prompts, and how much of a prompt a cache could have known."""

from itertools import pairwise

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.fake import FIRST_ID, Answer

from .conftest import Sketch, chain


def sessions(count=6, *, front="shared", out=30):
    """Sessions of one client: the same front, sub-agents with that front too, then texts of their own."""
    traces = []
    for number in range(count):
        sketch = Sketch(f"t{number}", system=200, user=40 + number, front=front)
        first = sketch.call(out=out)
        sub = sketch.thread(first)
        sketch.call(thread=sub, out=out)
        sketch.call(("tool", 0.3), thread=sub, out=out + 1)
        sketch.call(("tool", 0.7), out=out + 2)
        sketch.call(("tool", 0.2), joins=(sub,), out=out, add=40)
        traces.append(sketch.trace())
    return traces


def prompts(run, session="s0", thread=0):
    asked = {a.request_id: a for a in run.client.asked}
    return [asked[e.request_id].prompt for e in run.ends if (e.session, e.thread) == (session, thread)]


@pytest.mark.parametrize("unit", [1, 16, 64])
@pytest.mark.parametrize("agents", [1, 4])
def test_expected_cached_tokens_are_those_of_a_cache_that_never_forgets(replay, unit, agents):
    run = replay(*sessions(), agents=agents, sessions=12, unit=unit, ramp_s=1.0)
    assert len(run.ends) == 60
    assert [e.cached_tokens for e in run.ends] == [e.expected_cached_tokens for e in run.ends]
    assert all(e.expected_cached_tokens % unit == 0 for e in run.ends)
    assert all(0 <= e.expected_cached_exact - e.expected_cached_tokens <= unit for e in run.ends)
    assert [e.prompt_tokens for e in run.ends] == [e.expected_prompt_tokens for e in run.ends]
    # The first prompt is cold, later ones share their front, and a next turn nearly all of itself.
    assert run.ends[0].cached_tokens == 0
    assert sum(e.cached_tokens for e in run.ends) > 0.6 * sum(e.prompt_tokens for e in run.ends)
    summary = run.summary
    assert summary.cache_hit_ratio == summary.expected_cache_hit_ratio


def test_copies_of_a_trace_share_their_front_and_nothing_behind_their_tag(replay):
    run = replay(chain(calls=1, system=200, user=50), agents=1, sessions=3)
    assert [e.expected_cached_exact for e in run.ends] == [0, 200, 200]
    one, two, three = (request.prompt for request in run.client.asked)
    assert one[:200] == two[:200] == three[:200]
    assert one[200:208] != two[200:208] != three[200:208]
    assert one[208:] == two[208:] == three[208:]


def test_generated_ids_go_back_into_the_next_prompt(replay):
    run = replay(chain(calls=4, out=25), sessions=1)
    for before, after in pairwise(prompts(run)):
        assert after[: len(before)] == before
        generated = after[len(before) : len(before) + 25]
        assert generated == list(range(generated[0], generated[0] + 25))
        assert generated[0] >= FIRST_ID
    # Generated KV is used again: all but the last generated token, which was never fed back, and the new text.
    assert [e.cached_tokens for e in run.ends[1:]] == [e.prompt_tokens - 16 for e in run.ends[1:]]
    assert [e.reprefilled_tokens for e in run.ends] == [0, 0, 0, 0]


def test_recorded_history_holds_for_token_ids_too(replay):
    generated = replay(chain(calls=4, out=25), sessions=1)
    run = replay(chain(calls=4, out=25), sessions=1, history="recorded")
    assert not any(token >= FIRST_ID for prompt in prompts(run) for token in prompt)
    assert [len(p) for p in prompts(run)] == [len(p) for p in prompts(generated)]
    assert [e.reprefilled_tokens for e in run.ends] == [0, 25, 25, 25]
    # The engine cannot have what it generated for the recorded answers.
    assert all(e.cached_tokens == e.expected_cached_tokens for e in run.ends)
    assert [a.cached_tokens - b.cached_tokens for a, b in zip(generated.ends[1:], run.ends[1:], strict=True)] == [
        24
    ] * 3


def test_recorded_history_is_the_same_bytes_every_time_and_is_prefilled_again(replay):
    def run():
        return replay(chain(calls=3, out=25), sessions=1, route="chat", history="recorded")

    one, two = run(), run()
    sent = [request.body["messages"] for request in one.client.asked]
    assert sent == [request.body["messages"] for request in two.client.asked]
    # No generated text in it, and each prompt begins with the one before.
    assert not any(" w1 " in str(messages) for messages in sent)
    assert [m[: len(n)] == n for n, m in pairwise(sent)] == [True, True]
    # 5 of the message's 25 tokens are the template's.
    assert [e.reprefilled_tokens for e in one.ends] == [0, 20, 20]


def test_live_history_carries_what_was_generated(replay):
    run = replay(
        chain(calls=3, out=25),
        sessions=1,
        route="chat",
        history="live",
        text=False,
        answer=lambda asked: Answer(prompt=sum(len(str(m)) for m in asked.prompt) // 4),
    )
    sent = [request.body["messages"] for request in run.client.asked]
    # As much of it as keeps the prompt at its recorded length: 20 of 25 tokens, 5 are the template's.
    said = "".join(f"w{n} " for n in range(25))
    for messages in sent[1:]:
        (answer, *_) = (m["content"] for m in messages if m["role"] == "assistant")
        assert said.startswith(answer)
        assert len(answer) == round(len(said) * 20 / 25)
    assert [e.reprefilled_tokens for e in run.ends] == [0, 0, 0]
    # It is needed for the prompts although nothing of it is written down.
    assert not (run.path / "text.jsonl").exists()


def test_a_turn_joins_ready_bytes(replay, monkeypatch):
    """Nothing is encoded or counted twice: the parts of a prompt are those of the prompt before, the same objects."""
    from windtunnel.agents.fake import FakeClient

    seen = []
    stream = FakeClient.stream

    async def noting(self, path, parts, **more):
        seen.append(parts)
        return await stream(self, path, parts, **more)

    monkeypatch.setattr(FakeClient, "stream", noting)
    for route in ("chat", "tokens"):
        seen.clear()
        replay(chain(calls=4), sessions=1, route=route)
        for before, after in pairwise(seen):
            assert all(a is b for a, b in zip(before[:-2], after, strict=False))
            assert len(after) == len(before) + 2


def test_pinned_lengths_are_asked_for_and_a_recorded_zero_becomes_one(replay):
    sketch = Sketch()
    sketch.call(out=20)
    sketch.call(out=5, pinned=0)
    sketch.call(out=7, pinned=9)
    run = replay(sketch.trace(), sessions=1)
    assert [request.body["max_tokens"] for request in run.client.asked] == [20, 1, 9]
    assert all(request.body["min_tokens"] == request.body["max_tokens"] for request in run.client.asked)
    assert all(request.body["ignore_eos"] is True for request in run.client.asked)
    assert [(e.pinned_tokens, e.completion_tokens) for e in run.ends] == [(20, 20), (1, 1), (9, 9)]


def test_text_is_written_down_for_every_call(replay):
    from windtunnel.simulator.results.store import RunFolder

    run = replay(*sessions(2), agents=2, sessions=2)
    texts = {line.request_id: line.text for line in RunFolder.open(run.path).texts()}
    assert set(texts) == {e.request_id for e in run.ends}
    assert all(len(texts[e.request_id].split()) == e.completion_tokens for e in run.ends)
    tails = [a.tail for p in run.of(ev.Progress) for a in p.agents]
    assert any(tail.startswith("w0") for tail in tails)
    quiet = replay(*sessions(2), agents=2, sessions=2, text=False)
    assert not any(a.tail for p in quiet.of(ev.Progress) for a in p.agents)
