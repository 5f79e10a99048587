"""What calls without an end had come to, told by the progress of a run that was killed or goes on."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from windtunnel.agents.events import AgentProgress, CallStart, EngineSample, Progress
from windtunnel.simulator.cli import cli
from windtunnel.simulator.experiments.runs import Reading
from windtunnel.simulator.results import unended
from windtunnel.simulator.results.cautions import by_progress, cautions
from windtunnel.simulator.results.summary import recompute, summarise
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.view import print_comparison

from .conftest import ns

RUN = {"schema": "windtunnel.run/1", "agents": 2}


def look(t, *agents, exact=True):
    """`agents`: (agent, call, tokens)."""
    seen = tuple(
        AgentProgress(agent, 0, call, "decode" if tokens else "prefill", tokens, "", exact)
        for agent, call, tokens in agents
    )
    return Progress(
        t=ns(t), output_tokens=0, prompt_tokens=0, in_flight=len(seen), in_tool=0, waiting=0, agents=seen, parsed=exact
    )


def sent(t, session, agent=0, call=0, prompt=0):
    return CallStart(
        t=ns(t),
        t_intended=ns(t),
        agent=agent,
        session=session,
        thread=0,
        call=call,
        turn=call + 1,
        turns=9,
        request_id=f"{session}-{call}-open",
        expected_prompt_tokens=prompt,
    )


@pytest.fixture
def killed(stream):
    """Window 10..20 s, then nothing. One call ended in it with 30 tokens; two are under way, and one waits.

    Agent 0's was sent before the window and had 100 tokens at its start: 100 more came inside. Agent 1's had its first
    tokens inside, 60 of them.
    """
    s = stream(agents=3).phase(0, "warmup").phase(10, "steady")
    a, b, c = s.session(0, None), s.session(0, None, agent=1), s.session(0, None, agent=2)
    s.call(b, 11, 14, agent=1, chunks=((12, 10), (14, 20)), prompt_tokens=500, cached_tokens=400)
    s.add(sent(5, a, prompt=1000), sent(15, b, 1, 1, prompt=700), sent(19.5, c, 2, prompt=9000))
    s.add(look(9, (0, 0, 90)), look(10, (0, 0, 100)), look(13, (0, 0, 130), (1, 0, 10)), look(15, (0, 0, 150)))
    s.add(look(16, (0, 0, 160), (1, 1, 0)), look(18, (0, 0, 180), (1, 1, 40)))
    return s.add(look(20, (0, 0, 200), (1, 1, 60), (2, 0, 0)))


def test_tokens_of_calls_under_way_count_inside_the_window(killed):
    summary = summarise(RUN, killed.events())
    assert summary.window_s == 10
    assert summary.output_tokens_per_s == (30 + 100 + 60) / 10
    assert summary.prompt_tokens_per_s == (500 + 700) / 10  # agent 0's came before, agent 2's has no token yet
    assert (summary.output_tokens, summary.prompt_tokens) == (30 + 200 + 60, 500 + 1000 + 700)
    assert (summary.cached_tokens, summary.cache_known_prompt_tokens) == (400, 500)
    assert summary.output_tokens_by_progress == 260
    assert summary.e2e_s is not None
    assert summary.e2e_s.n == 1


def test_tokens_arrive_between_two_looks(killed):
    arrivals = Tally(RUN, killed.events()).arrivals
    assert arrivals.parts([ns(t) for t in (10, 13, 15, 16, 18, 20)]) == [10 + 30, 20 + 20, 10, 20 + 40, 20 + 20]


def test_a_call_that_began_between_two_looks_has_its_tokens_since_then(stream):
    calls = [sent(1.5, "s")]
    found = unended.read(calls, unended.held([look(1), look(2, (0, 0, 2)), look(3, (0, 0, 2))]), ns(9))
    assert found.times.tolist() == [ns(1.625), ns(1.875)]
    assert (found.output, found.prompt, found.last, found.exact) == (2, None, ns(3), True)


def test_a_lost_end_is_none_of_the_next_call_of_its_lane():
    looks = unended.held([look(1, (0, 0, 5)), look(2), look(3, (0, 0, 50))])
    assert unended.read([sent(0, "s")], looks, ns(9)).output == 5
    assert unended.read([sent(2.5, "s")], looks, ns(9)).output == 50


def test_looks_after_the_last_event_are_of_another_time(killed):
    events = killed.events()
    late = [*events, look(21, (0, 0, 900))]
    tally = Tally(RUN, (), unended.held(late))
    tally.more(iter(events))
    assert tally.unended.output == 260
    tally.more(iter(late[len(events) :]))
    assert tally.unended.output == 900 + 60  # agent 1's ended by then, and its line is not there yet


def test_an_ended_run_is_not_looked_at_again(busy):
    def never(since):
        raise AssertionError

    tally = Tally(RUN, busy.events(), never)
    assert tally.unended is unended.NOTHING
    assert b"by_progress" not in msgspec.json.encode(summarise(RUN, busy.events()))


def written(path, events):
    path.mkdir()
    (path / "run.json").write_text(json.dumps(RUN | {"agents": 3, "run_dir": "/elsewhere"}))
    lines = [msgspec.json.encode(event) + b"\n" for event in events]
    (path / "events.jsonl").write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize("block", [300, 1000, 1 << 22])
def test_of_a_file_only_the_end_is_read(killed, tmp_path, monkeypatch, block):
    monkeypatch.setattr(unended, "_BLOCK", block)
    path = written(tmp_path / "run", killed.events())
    wanted = summarise(RUN, killed.events())
    found = recompute(path)
    assert found.output_tokens_per_s == wanted.output_tokens_per_s
    assert found.output_tokens_by_progress == 260
    looks = [event.t for event in unended.stored(path / "events.jsonl", 3)(ns(18))]
    assert looks[-2:] == [ns(18), ns(20)]
    if block < 1000:
        assert looks[0] > ns(9)
    reading = Reading(path)
    assert reading.on().summary.output_tokens_per_s == wanted.output_tokens_per_s
    reading.close()


def test_what_progress_told_is_marked_and_said(killed):
    summary = summarise(RUN, killed.events())
    told = by_progress(summary)
    assert told == (
        "~: 260 output tokens are of calls without an end, as far as the run's progress saw them; their prompts count "
        "as planned, from the first token on"
    )
    assert told in cautions(summary)
    for running in (False, True):
        text = " ".join(render_summary(summary, running=running).split())
        assert "~19 tokens/s out ~120 tokens/s in" in text
        assert "~290 out ~2,200 prompt 400 of 500 cached" in text
        assert told in text
    assert by_progress(msgspec.structs.replace(summary, output_tokens_by_progress=msgspec.UNSET)) == ""


def under_way(stream, growth, *, last=30.0, exact=True):
    """A call that ended, and one under way at 100 tokens a second, of which the engine's counter grew by `growth`."""
    s = stream(agents=1).phase(0, "warmup").phase(10, "steady")
    a = s.session(0, None)
    s.call(a, 10, 12, chunks=((11, 1), (12, 1)))
    s.add(sent(12, a, call=1))
    s.add(*(look(12 + i / 4, (0, 1, 25 * i), exact=exact) for i in range(1, round((last - 12) * 4) + 1)))
    for i in range(19):
        s.add(EngineSample(t=ns(12 + i) + 10, scrape_ms=1, generation_tokens=1000 + growth * i))
    return summarise(RUN | {"isolation": {"reset": True}}, s.events()).invalid_reasons


def test_foreign_load_is_told_from_the_own_calls_under_way(stream):
    assert "foreign_load" not in under_way(stream, 90)
    assert "foreign_load" in under_way(stream, 130)
    assert "foreign_load" not in under_way(stream, 130, exact=False)  # who knows how many came


def test_what_the_engine_did_after_the_last_look_is_nobody_elses(stream):
    assert "foreign_load" not in under_way(stream, 90, last=16.0)
    assert "foreign_load" in under_way(stream, 300, last=28.0)


def test_without_looks_nothing_is_said_of_others(stream):
    assert "foreign_load" not in under_way(stream, 130, last=12.0)


def test_the_price_of_a_killed_run_is_of_all_its_tokens(killed, tmp_path):
    path = written(tmp_path / "run", killed.events())
    text = CliRunner().invoke(cli, ["cost", str(path), "--gpu-hour", "1"]).stdout
    told = " ".join(text.split())
    assert "~0.4 M prompt tokens, 80.0% cached" in told  # 120 a second
    assert "~68,400 output tokens ~: 260 output tokens are of calls without an end" in told  # 19 a second
    assert "$14.62 per million output tokens" in told
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_beside_other_runs_it_is_said_too(killed, tmp_path, capsys):
    paths = [written(tmp_path / name, killed.events()) for name in ("one", "two")]
    print_comparison(paths, as_json=True)
    assert "~260 of its output tokens are of calls without an end" in capsys.readouterr().out
