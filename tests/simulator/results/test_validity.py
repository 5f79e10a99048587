"""Each reason provoked once on purpose, and each not given without cause."""

import random

import pytest

from windtunnel.agents.events import ClientSample, EngineSample, GpuSample, Note
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.validity import REASONS, in_words, trends

NS = 1_000_000_000


@pytest.fixture
def steady(stream):
    """Two agents live over a window of 60 s, one call at a time each, 1 s long, 100 tokens, cold at first."""

    def make(tokens=lambda second: 100, **first):
        s = stream(2).phase(0, "steady").phase(60, "draining").end(60)
        for agent in range(2):
            name = s.session(0, 60, agent=agent)
            for second in range(60):
                told = {"cached_tokens": 0 if second == 0 else 900, "prompt_tokens": 1000}
                if second == 0:
                    told |= first
                s.call(
                    name, second, second + 1, agent=agent, call=second, chunks=((second + 0.5, tokens(second)),), **told
                )
        return s

    return make


def reasons(stream, run=None):
    """Of the summary; the live view says the same, but for a drained run's sums, which only the end of it tells."""
    fold = Fold(run or {})
    fold.apply_all(stream.events())
    judged = summarise(run or {}, stream.events()).invalid_reasons
    assert set(judged) - set(fold.invalid_reasons()) <= {"foreign_load"}
    assert set(fold.invalid_reasons()) <= set(judged)
    return judged


def test_an_undisturbed_run_is_valid(steady):
    summary = summarise({}, steady().events())
    assert (summary.valid, summary.invalid_reasons) == (True, ())


def test_client_lag(steady):
    late = ClientSample(t=30 * NS, lag_us=(*(100,) * 97, 5001, 5200, 9000))
    assert reasons(steady().add(late)) == ("client_lag",)
    once = ClientSample(t=30 * NS, lag_us=(*(100,) * 199, 9000))
    assert reasons(steady().add(once)) == ()


def test_client_cpu(steady):
    assert reasons(steady().lag(10, 1, cpu=0.6).lag(11, 1, cpu=0.9)) == ("client_cpu",)
    assert reasons(steady().lag(10, 1, cpu=0.5).lag(11, 1, cpu=0.9)) == ()


def test_agents_missing(stream):
    s = stream(20).phase(0, "steady").phase(100, "draining").end(100)
    for agent in range(19):
        s.session(0, 100, agent=agent)
    assert reasons(s) == ()
    s = stream(20).phase(0, "steady").phase(100, "draining").end(100)
    for agent in range(20):
        s.session(0, 94, agent=agent)
    assert reasons(s) == ("agents_missing",)
    assert reasons(s, {"config": {"arrivals": "poisson:3"}}) == ()


def test_emulator_late(steady):
    def sampled(behind):
        return steady().add(
            EngineSample(t=0, scrape_ms=1, step_s=100.0, behind_s=7.0),
            EngineSample(t=59 * NS, scrape_ms=1, step_s=150.0, behind_s=7.0 + behind),
        )

    assert reasons(sampled(2.6)) == ("emulator_late",)
    assert reasons(sampled(2.4)) == ()


def scrapes(stream, growth, **more):
    return stream.add(
        EngineSample(t=0, scrape_ms=1, generation_tokens=5000, prompt_tokens=7000),
        EngineSample(t=60 * NS, scrape_ms=1, generation_tokens=5000 + growth, prompt_tokens=7000 + 120_000, **more),
    )


def test_foreign_load_on_a_drained_run(steady):
    assert reasons(scrapes(steady(), 12_000)) == ()
    assert reasons(scrapes(steady(), 12_100)) == ()
    assert reasons(scrapes(steady(), 12_500)) == ("foreign_load",)
    # An engine that was restarted says nothing of others.
    assert reasons(scrapes(steady(), -4000)) == ("engine_restarted",)


def test_foreign_load_on_a_run_that_was_cut(steady):
    def cut(growth):
        s = steady()
        s.call("s0", 59, 60, call=70, cut=True)
        return s.add(
            EngineSample(t=1 * NS, scrape_ms=1, generation_tokens=200),
            EngineSample(t=59 * NS, scrape_ms=1, generation_tokens=200 + growth),
        )

    assert reasons(cut(58 * 200)) == ()
    assert reasons(cut(58 * 230)) == ("foreign_load",)


def test_failures(stream):
    def run(failed):
        s = stream(1).phase(0, "steady").phase(100, "draining").end(100)
        for i in range(100):
            s.session(i, i + 1, status="failed" if i < failed else "completed", reason="x" if i < failed else None)
        return s

    assert reasons(run(2)) == ()
    assert reasons(run(3)) == ("failures",)


def test_isolation(steady, stream):
    assert reasons(steady(cached_tokens=200)) == ("isolation_not_verified",)
    # Nothing reported: only an engine that confirmed its reset is known to be cold.
    quiet = stream().phase(0, "steady").phase(10, "draining").end(10)
    quiet.call(quiet.session(0, 10), 0, 10, chunks=((1, 1),))
    assert reasons(quiet) == ("isolation_not_verified",)
    assert reasons(quiet, {"isolation": {"method": "reset", "reset": True}}) == ()
    assert reasons(quiet, {"isolation": {"method": "salt"}}) == ("isolation_not_verified",)


def test_calls_of_the_first_moment_may_be_scheduled_in_any_order(stream):
    s = stream(2).phase(0, "steady").phase(10, "draining").end(10)
    s.call(s.session(0, 10), 0, 10, chunks=((2, 1),), prompt_tokens=100, cached_tokens=64)
    s.call(s.session(0, 10, agent=1), 0.001, 10, agent=1, chunks=((1, 1),), prompt_tokens=100, cached_tokens=0)
    assert reasons(s) == ()


def test_gpus(steady):
    def sample(t=30, **more):
        return GpuSample(t=t * NS, index=0, **more)

    assert reasons(steady().add(sample(throttle=("sw_power_cap",)))) == ()
    assert reasons(steady().add(sample(throttle=("hw_thermal_slowdown",)))) == ("gpu_throttling",)
    assert reasons(steady().add(sample(other_processes=1))) == ("other_gpu_process",)
    assert reasons(steady().add(sample(t=61, other_processes=1))) == ()


def test_notes_bring_reasons(steady):
    def note(t, reason):
        return Note(t=t * NS, level="warning", text="x", reason=reason)

    assert reasons(steady().add(note(30, "compilation"), note(31, "compilation"))) == ("compilation",)
    assert reasons(steady().add(note(70, "compilation"))) == ()
    assert reasons(steady().add(note(70, "clock_jumped"))) == ("clock_jumped",)
    assert reasons(steady().add(Note(t=1, level="info", text="x"))) == ()


def test_trend(steady):
    assert reasons(steady(lambda second: 50 + 2 * second)) == ("trend",)
    assert reasons(steady(lambda second: 150 - 2 * second)) == ("trend",)
    assert reasons(steady(lambda second: 100 + second // 10)) == ()


def test_a_working_set_that_grows_is_a_trend(steady):
    s = steady()
    for second in range(60):
        s.add(EngineSample(t=second * NS, scrape_ms=1, kv_usage=0.2 + second / 100))
    assert reasons(s) == ("trend",)


def test_noise_is_no_trend():
    """Calls of coding agents vary by an order of magnitude; of 2,000 steady windows fewer than 1% are called trends."""
    rng = random.Random(3)
    fired = 0
    for _ in range(2000):
        parts = [sum(rng.lognormvariate(5.4, 1.2) for _ in range(12)) for _ in range(12)]
        fired += trends(parts, 0.2 * sum(parts) / 12)
    assert fired < 20


def test_short_or_sparse_windows_have_no_trend(stream):
    s = stream().phase(0, "steady").phase(29, "draining").end(29)
    name = s.session(0, 29)
    for second in range(29):
        s.call(
            name,
            second,
            second + 1,
            call=second,
            chunks=((second + 0.5, 1 + 9 * second),),
            prompt_tokens=1,
            cached_tokens=0,
        )
    assert reasons(s) == ()
    assert not trends([1.0, 2.0, 3.0], 0.1)


def test_failed_runs_are_not_valid(steady):
    s = steady()
    s.made = [e for e in s.made if type(e).__name__ != "RunEnd"]
    assert reasons(s.end(60, "failed", "nothing_completed")) == ("run_failed",)


@pytest.mark.parametrize("gone", ["engine_gone", "worker_gone"])
def test_what_went_away_is_named_before_the_failure(steady, gone):
    s = steady()
    s.made = [e for e in s.made if type(e).__name__ != "RunEnd"]
    assert reasons(s.end(60, "failed", gone)) == (gone, "run_failed")


def test_every_reason_has_words():
    for reason, words in REASONS.items():
        assert in_words(reason) == words
        assert len(words) > 12
    assert in_words("clock_jumped") == "clock jumped"


@pytest.mark.parametrize(("counted", "named"), [(700, True), (850, False), (1150, False), (1250, True), (None, False)])
def test_prompts_of_another_length_than_recorded(stream, counted, named):
    s = stream(1).phase(0, "steady").phase(60, "draining").end(60)
    name = s.session(0, 60)
    told = {"cached_tokens": 0, "prompt_tokens": counted, "expected_prompt_tokens": 1000}
    s.call(name, 1, 2, chunks=((1.5, 10),), **told)
    assert ("prompt_lengths" in reasons(s)) == named


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (1031, "prompts 3.1% longer than recorded"),
        (1250, "prompts 25.0% longer than recorded"),
        (969, "prompts 3.1% shorter than recorded"),
        (1004, None),
        (None, None),
    ],
)
def test_how_much_longer_prompts_were_is_told_where_the_run_is_valid_too(stream, counted, said):
    s = stream(1).phase(0, "steady").phase(60, "draining").end(60)
    name = s.session(0, 60)
    s.call(name, 1, 2, chunks=((1.5, 10),), cached_tokens=0, prompt_tokens=counted, expected_prompt_tokens=1000)
    summary = summarise({}, s.events())
    assert summary.prompts_over == (None if counted is None else pytest.approx(counted / 1000 - 1))
    text = " ".join(render_summary(summary).split())
    assert said in text if said else "than recorded" not in text.replace("not as long as recorded", "")


@pytest.mark.parametrize(
    ("run", "counted", "warm", "named"),
    [
        ({}, 3, False, True),
        ({}, 3, True, False),
        ({}, 5000, False, False),
        ({}, None, False, False),
        ({"config": {"engine": "vllm serve"}}, 5000, False, True),
        ({"config": {"engine": "emulator"}, "engine": {"emulated": True}}, 3, False, False),
    ],
)
def test_first_calls_of_an_engine_inside_the_window(stream, run, counted, warm, named):
    """The engine was started for this run, or its counters say that it never served; warm-up calls make it good."""
    s = stream(1).add(EngineSample(t=0, scrape_ms=1, generation_tokens=counted))
    s.phase(2, "steady").phase(12, "draining").end(12)
    name = s.session(0, 12)
    s.call(name, 0, 2 if warm else 3, chunks=((1.5, 1),), prompt_tokens=9, cached_tokens=0)
    s.call(name, 5, 6, call=1, chunks=((5.5, 1),), prompt_tokens=9, cached_tokens=0)
    told = reasons(s, run)
    assert ("cold_start" in told) == named
    fold = Fold(run)
    fold.apply_all(s.events())
    assert ("cold_start" in fold.invalid_reasons()) == named


RECORDING = {"kind": "recording", "config": {"arrivals": "recorded"}, "engine": {"name": "vllm", "model": "m"}}


def recorded(stream, end=True):
    """Two lanes on a warm server that others use too; the second agent begins late."""
    s = stream(0).phase(0, "steady")
    for lane, start in ((0, 5), (1, 40)):
        name = s.session(start, 60 if end else None, agent=lane)
        for call in range(3):
            at = start + 4 * call
            s.call(name, at, at + 3, agent=lane, call=call, chunks=((at + 1, 9),), prompt_tokens=900, cached_tokens=880)
    for second in range(0, 60, 2):
        s.add(EngineSample(t=second * NS, scrape_ms=1.0, generation_tokens=1e4 * second, prompt_tokens=1e6 * second))
    return s.phase(60, "done").end(60) if end else s


def test_a_recording_takes_the_traffic_as_it_is(stream):
    s = recorded(stream)
    assert reasons(s, RECORDING) == ()
    replay = reasons(s, {**RECORDING, "kind": None})
    assert {"isolation_not_verified", "foreign_load"} <= set(replay)


def test_a_recording_is_judged_the_same_while_it_goes_on(stream):
    s = recorded(stream, end=False)
    fold = Fold(RECORDING)
    for event in s.events():
        fold.apply(event)
        assert fold.invalid_reasons() == ()
    assert fold.in_flight == 0
    assert fold.calls["completed"] == 6


def test_a_recording_that_was_killed_is_not_whole(stream):
    assert summarise(RECORDING, recorded(stream, end=False).events()).invalid_reasons == ("died",)


def test_a_recording_has_as_many_agents_as_sessions(stream):
    summary = summarise(RECORDING, recorded(stream).events())
    assert (summary.kind, summary.agents, summary.calls) == ("recording", 2, 6)
    assert (summary.sessions_per_hour, summary.session_equivalents_per_hour, summary.makespan_s) == (None, None, None)
    assert summary.stall_s_per_agent == 3.0


@pytest.mark.parametrize(("seconds", "valid"), [(0.0, False), (0.2, False), (0.9, False), (1.0, True)])
def test_a_window_of_less_than_a_second_measures_nothing(stream, seconds, valid):
    s = stream(1).phase(0, "warmup").phase(10, "steady").phase(10 + seconds, "draining").end(12)
    name = s.session(0, 12, agent=0)
    s.call(name, 0, 5, agent=0, call=0, chunks=((4, 10),), cached_tokens=0, prompt_tokens=1000)
    if seconds:
        s.call(name, 10, 10 + seconds, agent=0, call=1, chunks=((10.1, 10),), cached_tokens=900, prompt_tokens=1000)
    assert reasons(s) == (() if valid else ("no_steady_state",))
    got = summarise({}, s.events())
    rates = got.output_tokens_per_s, got.prompt_tokens_per_s, got.session_equivalents_per_hour, got.in_flight_mean
    if valid:
        assert got.window_s == seconds
        assert None not in rates
    else:
        assert (got.window_s, rates) == (0.0, (None,) * 4), "what is no window has no rates"
        assert "tokens/s" not in render_summary(got)


def test_a_short_recording_is_all_that_there_is(stream):
    s = stream(0).phase(0, "steady")
    name = s.session(0, 0.6)
    s.call(name, 0, 0.5, chunks=((0.2, 5), (0.4, 5)), prompt_tokens=100, cached_tokens=0)
    got = summarise(RECORDING, s.phase(0.6, "done").end(0.6).events())
    assert (got.window_s, got.output_tokens_per_s, got.invalid_reasons) == (0.6, pytest.approx(10 / 0.6), ())
