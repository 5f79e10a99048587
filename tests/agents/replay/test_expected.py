import json
import random

import pytest

from windtunnel.agents.expected import Match, PrefixIndex, Trail
from windtunnel.agents.isolation import make_tag
from windtunnel.agents.prompt import (
    PROBE_TEXTS,
    PROBES,
    Conversation,
    Options,
    Output,
    Piece,
    Rendering,
    learn,
    prepare,
    texts_to_measure,
)
from windtunnel.traces.text import stored

from .conftest import agent_session


def sent(index, *pieces, trail=None, kept=0):
    return index.sent(trail or Trail(), kept, [Piece(*p) for p in pieces])


def test_the_first_prompt_of_a_run_finds_nothing():
    assert sent(PrefixIndex(16), ("front", 100)) == Match(0, 0)


def test_a_repeated_prompt_is_found_but_for_its_last_token():
    index = PrefixIndex(16)
    sent(index, ("front", 96))
    assert sent(index, ("front", 96)) == Match(96, 80)
    assert sent(index, ("front", 96), ("more", 1)) == Match(96, 96)


def test_a_longer_or_shorter_text_of_the_same_digest_is_shared_as_far_as_both_go():
    index = PrefixIndex()
    sent(index, ("front", 50), ("file", 300), ("next", 10))
    assert sent(index, ("front", 50), ("file", 120), ("other", 10)).exact == 170
    assert sent(index, ("front", 50), ("file", 500)).exact == 350
    assert sent(index, ("front", 50), ("file", 500), ("next", 10)).exact == 550
    assert sent(index, ("front", 50), ("else", 9)).exact == 50


def test_a_turn_keeps_its_predecessors_pieces_and_finds_what_was_generated():
    index, trail = PrefixIndex(16), Trail()
    sent(index, ("front", 100), ("tag:a", 8), trail=trail)
    index.generated(trail, [Piece("generated", 49)])
    assert sent(index, ("generated", 40), ("result", 60), trail=trail, kept=2) == Match(148, 144)
    assert sent(index, ("result", 60), trail=trail, kept=3) == Match(208, 192)
    with pytest.raises(ValueError, match="shorter"):
        sent(index, ("x", 1), trail=trail, kept=9)


def test_a_session_that_is_over_leaves_only_what_others_can_match():
    index, trail = PrefixIndex(), Trail()
    sent(index, ("front", 100), ("tag:a", 8), ("text", 50), trail=trail)
    assert sent(index, ("front", 100), ("tag:b", 8), ("text", 50)).exact == 100
    index.drop(trail)
    assert trail.nodes == []
    assert sent(index, ("front", 100), ("tag:a", 8), ("text", 50)).exact == 100


def test_framing_that_makes_up_for_its_text_is_counted_with_it_and_never_alone():
    index = PrefixIndex(16)
    assert sent(index, ("system", -5), ("text", 100), ("user", -5), ("a", 40)) == Match(0, 0)
    assert sent(index, ("system", -5), ("other", 100)) == Match(0, 0)
    assert sent(index, ("system", -5), ("text", 100), ("user", -5), ("b", 40)) == Match(95, 80)
    assert sent(index, ("system", -5), ("text", 100), ("user", -5), ("a", 30)).exact == 120
    assert sent(index, ("system", -5), ("text", 3)) == Match(0, 0)
    assert sent(index, ("system", -5)) == Match(0, 0)


def test_what_was_generated_is_found_behind_framing_of_no_tokens():
    for frame in (0, -3):
        index, trail = PrefixIndex(), Trail()
        sent(index, ("front", 100), trail=trail)
        index.generated(trail, [Piece("assistant", frame), Piece("generated", 49)])
        assert sent(index, ("assistant", frame), ("generated", 40), trail=trail, kept=1).exact == 140 + frame


@pytest.mark.parametrize("seed", range(20))
def test_no_figure_of_a_prompt_is_negative_whatever_the_tokenizer_counts(seed):
    """What is planned and expected has to be written as events that can be read."""
    rng = random.Random(seed)
    counts = {name: rng.randrange(60) for name in (*PROBES, *PROBE_TEXTS)}
    if seed % 4 == 0:  # a text alone costs far more than inside of a message
        counts |= dict.fromkeys(PROBE_TEXTS, 1000)
    trace = agent_session(12, seed)
    measured = {key: rng.randrange(400) for key in texts_to_measure([trace])}
    rendering = learn(stored(), counts, counts, measured, tag_tokens=8)
    index, prepared = PrefixIndex(16), prepare(trace, "chat", rendering)
    for copy in range(2):
        talk, trail = Conversation(prepared, Options("m", tag=make_tag("run", "t", copy), history="live")), Trail()
        for call in trace.calls:
            body = talk.body(call.id)
            match = index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
            assert 0 <= match.rounded <= match.exact <= body.expected_prompt_tokens
            assert body.reprefilled_tokens >= 0
            index.generated(trail, talk.ended(call.id, Output("said", tokens=body.pinned_tokens)))


def test_on_the_chat_route_expected_hits_are_those_of_the_tokens(served, calibration):
    """Recorded history: what was generated is not found again; the template makes a difference of a few tokens."""
    trace = agent_session(10, 4)
    prepared = prepare(trace, "chat", Rendering(calibration, tag_tokens=15))
    index, earlier = PrefixIndex(), []
    for copy in range(2):
        talk, trail = Conversation(prepared, Options("m", tag=make_tag("run", "t", copy))), Trail()
        for call in trace.calls:
            body = talk.body(call.id)
            match = index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
            prompt = served.prompt(json.loads(b"".join(body.parts))["messages"])
            best = 0
            for other in earlier:
                pairs = zip(prompt, other, strict=False)
                best = max(best, next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(other))))
            # a few tokens a message: the typical overheads stand in for the measured ones
            assert match.exact == pytest.approx(best, rel=0.05, abs=12)
            earlier.append(prompt)
            index.generated(trail, talk.ended(call.id, Output("said", tokens=body.pinned_tokens)))


def test_a_rendering_by_typical_figures_needs_no_tokenizer():
    prepared = prepare(agent_session(4), "chat", Rendering(stored()))
    assert prepared.prompt_tokens(3) == agent_session(4).prompt_tokens()[3]
