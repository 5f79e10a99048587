"""Answers that were not streamed: nobody knows when their first token came, so no figure may say it."""

import pytest

from windtunnel.agents.events import CallEnd, EngineSample
from windtunnel.simulator.results import slo
from windtunnel.simulator.results.bottleneck import find
from windtunnel.simulator.results.breakdown import WORDS, Part, break_down, until_first
from windtunnel.simulator.results.call_lines import line_of
from windtunnel.simulator.results.calls import in_one_piece
from windtunnel.simulator.results.cautions import cautions
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.text import render_summary

NS = 1_000_000_000
RECORDING = {"kind": "recording"}
SAID = (
    "{} answered in one piece, not streamed: when the first token came is not known, and TTFT, stall and TPOT leave "
    "them out"
)


def whole(stream, name, start, end, call, tokens=600):
    """As a recording has it: all times are the end, and there are no chunks."""
    t = round(end * NS)
    times = {"t_first": t, "t_first_visible": t, "t_last": t}
    stream.call(name, start, end, call=call, completion_tokens=tokens, prompt_tokens=3000, cached_tokens=0, **times)


def made(stream, streamed=1, pieces=2, tokens=600):
    """One agent: calls of 3 s in one piece, then streamed ones of 2 s with their first token after half a second."""
    s = stream(1).phase(0, "steady")
    name = s.session(0, 40)
    for n in range(pieces):
        whole(s, name, 4 * n, 4 * n + 3, n, tokens)
    for n in range(pieces, pieces + streamed):
        s.call(name, 4 * n, 4 * n + 2, call=n, chunks=((4 * n + 0.5, 1), (4 * n + 1, 1), (4 * n + 2, 1)))
    return s.end(40)


def ends(stream):
    return [event for event in stream.events() if isinstance(event, CallEnd)]


def test_only_streamed_calls_have_a_first_token(stream):
    summary = summarise(RECORDING, made(stream).events())
    assert (summary.calls_in_one_piece, summary.ttft_s.n, summary.ttft_s.max) == (2, 1, 0.5)
    assert summary.ttft_visible_s is None
    assert (summary.tpot_s.n, summary.e2e_s.n, summary.e2e_s.max) == (1, 3, 3.0)
    assert summary.stall_s_per_agent == 0.5
    assert SAID.format("2 of the 3 calls were") in cautions(summary)
    assert SAID.format("2 of the 3 calls were") in " ".join(render_summary(summary).split())


def test_where_all_came_in_one_piece_there_is_no_first_token_at_all(stream):
    summary = summarise(RECORDING, made(stream, streamed=0).events())
    assert (summary.ttft_s, summary.tpot_s, summary.stall_s_per_agent) == (None, None, None)
    alone = summarise(RECORDING, made(stream, streamed=0, pieces=1).events())
    assert SAID.format("1 of 1 call was") in cautions(alone)


def test_streamed_calls_are_none_of_them_and_nothing_is_said(stream):
    summary = summarise(RECORDING, made(stream, pieces=0).events())
    assert summary.calls_in_one_piece == 0
    assert not any("one piece" in said for said in cautions(summary))
    (one,) = ends(made(stream, streamed=0, pieces=1, tokens=1))
    assert not in_one_piece(one), "the end of an answer of one token is when its first token came"
    (both,) = ends(made(stream, pieces=0))
    assert not in_one_piece(both)


def test_a_limit_on_the_first_token_does_not_judge_what_has_none(stream):
    calls = ends(made(stream))
    assert slo.outside(slo.parse("ttft_s.p90<0.4"), calls) == calls[2:]
    assert slo.outside(slo.parse("ttft_visible_s.p90<2"), calls) == []


def test_its_time_is_one_part_that_is_not_known_and_names_no_lever(stream):
    s = made(stream)
    samples = [EngineSample(t=t * NS, scrape_ms=1, waiting=0, running=1.0) for t in range(40)]
    times = break_down(ends(s), samples, {})
    assert [time.parts for time in times[:2]] == [(Part("one_piece", 3.0, "unknown"),)] * 2
    assert {part.name: part.seconds for part in times[2].parts} == pytest.approx({"prefill": 0.5, "decode": 1.5})
    assert until_first(times[0]).parts == ()
    found = find(summarise(RECORDING, s.events()), times, samples, working_set=None, settings={})
    assert (found.kind, found.share) == ("unknown", pytest.approx(0.75))
    assert found.parts == pytest.approx({"one_piece": 0.75, "decode": 0.1875, "prefill": 0.0625})
    assert "75% of the calls' time is answers in one piece" in " ".join(found.evidence)


def test_it_is_never_given_to_the_queue_though_others_wait(stream):
    """As time until a first token is, where somebody waits in most scrapes."""
    s = made(stream)
    samples = [EngineSample(t=t * NS, scrape_ms=1, waiting=3, running=4.0) for t in range(40)]
    times = break_down(ends(s), samples, {})
    settings = {"scheduler_config.max_num_seqs": 4}
    found = find(summarise(RECORDING, s.events()), times, samples, working_set=None, settings=settings)
    assert (found.kind, found.share) == ("unknown", pytest.approx(0.75))


def test_an_agents_list_of_turns_keeps_it_as_one_part(stream):
    event, _, streamed = ends(made(stream))
    line = line_of(event, (1, 3), (), None)
    assert (line.ttft_s, line.one_piece) == (None, True)
    (time,) = break_down([line.event(0, "s0")], [], {})
    assert time.parts == (Part("one_piece", 3.0, "unknown"),)
    assert not line_of(streamed, (3, 3), (), None).one_piece


def test_the_name_of_every_part_fits_its_column():
    assert {name: words for name, words in WORDS.items() if len(words) > 50} == {}
