"""Live counts of tokens: exact where the server tells them, marked as estimates where it does not."""

import pytest

from windtunnel.agents import events as ev
from windtunnel.agents.fake import Answer
from windtunnel.agents.http import RawStream
from windtunnel.agents.prompt import PLAIN, VLLM, Options
from windtunnel.agents.reading import Reading
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run.counts import Counts

from .conftest import NS, chain


def running(run):
    """Progress of calls that have tokens: (time in s, tokens, exact)."""
    events = run.of(ev.Progress)
    assert all(e.parsed == all(a.exact for a in e.agents) for e in events)
    return [(e.t / NS, a.tokens, a.exact) for e in events for a in e.agents if a.tokens]


def test_token_ids_are_counted_and_not_estimated(replay):
    run = replay(chain(calls=3, out=100), answer=lambda _: Answer(per_chunk=3), sessions=1)
    seen = running(run)
    assert len(seen) > 9
    assert all(exact for *_, exact in seen)
    # It is what has arrived by then: a chunk of three every 30 ms after half a second.
    assert {(t, n) for t, n, _ in seen if t < 1} == {(0.5, 3), (0.75, 27)}


def test_chunks_are_an_estimate_of_tokens(replay):
    """Three tokens a chunk, and only the last usage says so: the live counts are too low, and marked."""
    run = replay(chain(calls=3, out=100), answer=lambda _: Answer(per_chunk=3, ids=False), sessions=1)
    seen = running(run)
    first = run.end(0).t_end / NS
    # Until a call has ended the server is taken at its word: it was seen to tell ids when it was probed.
    assert {exact for t, _, exact in seen if t <= first} == {True}
    assert {exact for t, _, exact in seen if t > first} == {False}
    assert max(n for *_, n, _ in seen) <= 34
    assert run.of(ev.Progress)[-1].output_tokens == 300
    assert run.of(ev.Progress)[-1].parsed  # nothing is in flight any more


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options("m", dialect=VLLM), True),
        (Options("m", dialect=VLLM, token_ids=False), False),
        (Options("m", dialect=PLAIN), False),
    ],
)
@pytest.mark.parametrize(
    ("counted_by", "then"), [("token_ids", True), ("usage_deltas", True), ("usage_spread", False), ("chunks", False)]
)
def test_what_a_stream_was_counted_by_says_how_the_next_will_be(options, told, counted_by, then):
    counts, reading = Counts(options), Reading(RawStream("r"), keep_text=False)
    assert counts.exact(reading, 0) is told
    counts.ended(Parsed(counted_by=counted_by))
    assert counts.exact(reading, 0) is told  # a stream without tokens says nothing
    counts.ended(Parsed(counted_by=counted_by, chunk_n=[3]))
    assert counts.exact(reading, 0) is then


def test_bytes_that_were_left_for_later_make_a_count_an_estimate():
    counts, raw = Counts(Options("m")), RawStream("r", status=200)
    reading = Reading(raw, keep_text=False)
    raw.pieces.append((1_000, b"data: {}\n\n"))
    assert not counts.exact(reading, 2_000)
    # What arrives during the look is of the next one.
    assert counts.exact(reading, 1_000)
    reading.step()
    assert counts.exact(reading, 2_000)
