"""What stands below the latencies of a run that left out its long calls, or had few."""

import msgspec

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results.cautions import cautions, left_out
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.text import render_summary

from .conftest import NS, Stream

LEFT_OUT = (
    "2 of the {begun} calls begun in the window had not ended when the run did; the tokens that they had got count, "
    "their latencies are left out, and they are mostly the long ones: E2E and the upper percentiles are too low"
)

UNSEEN = "the engine's metrics did not come for {} s of the window's 90 s: what it says of itself is of the rest"


def made(stream, short, **of_run):
    """`short` calls of a second each inside the window 10..100, one cut at its end, and one that was never over."""
    s = stream(2).phase(0, "warmup").phase(10, "steady").phase(100, "done")
    name = s.session(0, 100, status="cut")
    s.call(name, 8, 30, chunks=((9, 1), (30, 1)), warmup=True)  # begun before it
    for i in range(short):
        s.call(name, 11 + i, 12 + i, call=i, chunks=((11.5 + i, 1), (12 + i, 1)))
    s.call(name, 60, 100, call=97, chunks=((70, 1),), completion_tokens=None, cut=True)
    s.call(name, 70, 71, call=98, failure="http_500")
    s.call(name, 9, 99, call=99, cut=True)
    s.call(name, 61, 100, call=100)
    s.made.pop()  # its end
    if not of_run.get("going_on"):
        s.end(100)
    return summarise(of_run.get("run", {}), s.events())


def text_of(summary, **more):
    return " ".join(render_summary(summary, **more).split())


def scraped(*times, run=None, window=(10, 100), end=100):
    s = Stream(1).phase(0, "warmup").phase(window[0], "steady").phase(window[1], "done")
    s.add(*(EngineSample(t=round(t * NS), scrape_ms=1.0, running=1.0) for t in times))
    s.end(end)
    return summarise(run or {}, s.events())


def test_metrics_that_stop_coming_are_said_with_how_long():
    """Scrapes are a second apart. The gaps before the window and up to 10 s are none of its own."""
    whole = scraped(*range(101))
    assert (whole.engine.unseen_s, cautions(whole)) == (0.0, [])
    late = scraped(0, *range(5, 40), *range(50, 101))
    assert (late.engine.unseen_s, cautions(late)) == (11.0, [UNSEEN.format(11)])
    assert "- " + UNSEEN.format(11) in text_of(late)
    gone = scraped(*range(70), 120, end=120)
    assert (gone.engine.unseen_s, cautions(gone)) == (31.0, [UNSEEN.format(31)])
    assert scraped(*range(55), end=95).engine.unseen_s == 41.0
    assert scraped(1, 13, *range(14, 101)).engine.unseen_s == 3.0
    brief = scraped(6, *range(14, 101))
    assert brief.engine.unseen_s == 0.0
    assert cautions(scraped(1, 13, *range(14, 101))) == []


def test_metrics_that_never_came_are_missed_only_where_the_engine_has_them():
    capable = {"engine": {"capabilities": {"metrics": True}}}
    assert scraped().engine.unseen_s is None
    assert cautions(scraped()) == []
    assert cautions(scraped(run=capable)) == [UNSEEN.format(90)]
    without = Stream(1).phase(0, "warmup")
    without.end(100)
    assert summarise(capable, without.events()).engine.unseen_s is None


def test_calls_without_an_end_are_counted_and_said(stream):
    summary = made(stream, 31)
    assert (summary.calls_begun, summary.calls_unended, summary.e2e_s.n) == (34, 2, 31)
    assert left_out(summary) == (2, 34)
    assert cautions(summary) == [LEFT_OUT.format(begun=34) + "; a longer --duration helps"]
    text = render_summary(summary)
    assert text.index("\nE2E ") < text.index("\n  - 2 of the 34 calls begun") < text.index("\nengine   ")
    assert max(map(len, text.splitlines())) <= 80


def test_a_few_of_many_go_unsaid(stream):
    summary = made(stream, 37)
    assert (summary.calls_begun, summary.calls_unended) == (40, 2)
    assert left_out(summary) is None
    assert cautions(summary) == []
    assert "left out" not in text_of(summary)
    assert left_out(msgspec.structs.replace(summary, calls_begun=39)) == (2, 39)


def test_a_run_of_few_calls_says_that_percentiles_are_single_calls(stream):
    assert cautions(made(stream, 30))[1:] == []
    assert cautions(made(stream, 29))[1:] == ["of 29 calls: percentiles are single calls"]
    assert "- of 4 calls: percentiles are single calls" in text_of(made(stream, 4))
    assert cautions(made(stream, 1))[1:] == ["of 1 call: percentiles are single calls"]
    assert cautions(made(stream, 0)) == [LEFT_OUT.format(begun=3) + "; a longer --duration helps"]


def test_nobody_chose_how_long_a_recording_was(stream):
    assert cautions(made(stream, 31, run={"kind": "recording"})) == [LEFT_OUT.format(begun=34)]


def test_of_a_run_that_goes_on_calls_under_way_are_no_concern(stream):
    summary = made(stream, 4, going_on=True)
    assert summary.calls_unended == 2
    assert "left out" not in text_of(summary, running=True)
    assert "single calls" not in text_of(summary, running=True)


def test_summaries_without_a_window_or_from_before_say_nothing(stream):
    s = stream().phase(0, "warmup").end(5, "interrupted")
    s.call(s.session(0, 5, status="cut"), 1, 5, cut=True)
    summary = summarise({}, s.events())
    assert (summary.calls_begun, summary.calls_unended) == (None, None)
    assert cautions(summary) == []
    older = msgspec.structs.replace(made(stream, 31), calls_begun=None, calls_unended=None)
    assert cautions(older) == []
