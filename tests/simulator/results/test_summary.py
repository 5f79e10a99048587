"""Every figure of the summary against values worked out by hand."""

import msgspec
import pytest

from windtunnel.agents.events import CallEnd, EngineSample, GpuSample, Note, WaitEnd, WaitStart
from windtunnel.simulator.results.emulation import in_words, of_run
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import Distribution, Summary, decode_summary, encode_summary
from windtunnel.simulator.results.text import render_summary

NS = 1_000_000_000
RUN = {"run_dir": "/runs/x", "seed": 7, "lengths_from": ["glm-4.5"], "config": {}, "engine": {"name": "vllm"}}


def test_counts_and_totals_are_of_the_whole_run(busy):
    s = summarise(RUN, busy.events())
    assert (s.sessions_started, s.sessions_completed, s.sessions_failed, s.sessions_cut) == (2, 1, 0, 1)
    assert (s.calls, s.failed_calls, s.calls_cut, s.calls_without_usage) == (4, 0, 1, 0)
    assert s.output_tokens == 10 + 12 + 4 + 3  # the cut call counts what had arrived
    assert s.prompt_tokens == 100 + 300 + 200 + 50
    assert s.cached_tokens == 280
    assert s.cache_known_prompt_tokens == 100 + 300 + 200  # nothing is known of the cut call's
    assert s.distinct_traces == 2
    assert (s.run_dir, s.seed, s.lengths_from, s.agents) == ("/runs/x", 7, ["glm-4.5"], 2)
    assert (s.status, s.duration_s, s.window_s) == ("completed", 31.0, 20.0)


def test_tokens_are_credited_to_the_moment_they_arrive(busy):
    s = summarise(RUN, busy.events())
    # Window 10..30: 12 of the second call, 4 of the third, 2 of the cut one (its third token came at 30.5).
    assert s.output_tokens_per_s == (12 + 4 + 2) / 20
    # Prompts at their first token: 300 at 14, 200 at 13.5, 50 at 29.
    assert s.prompt_tokens_per_s == 550 / 20


def test_latencies_are_of_completed_calls_intended_in_the_window(busy):
    s = summarise(RUN, busy.events())
    # First tokens: 14 - 12 = 2 s; 13.5 - 11 - 0.5 of rate cap = 2 s. The empty chunk at 12.5 is no token.
    assert s.ttft_s == Distribution(2, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert s.ttft_visible_s == Distribution(1, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5)
    assert s.ttft_tool_s is None
    # Three tokens a chunk: (22 - 14) / (12 - 3); one in the first chunk: (15 - 13.5) / (4 - 1).
    assert s.tpot_s is not None
    assert s.tpot_s.n == 2
    assert s.tpot_s.max == round(8 / 9, 9)
    assert s.tpot_s.mean == round((8 / 9 + 0.5) / 2, 9)
    # Gaps pooled: 2, 2, 4 and 1.5.
    assert s.itl_s is not None
    assert (s.itl_s.n, s.itl_s.mean, s.itl_s.p50, s.itl_s.max) == (4, 2.375, 2.0, 4.0)
    assert s.e2e_s is not None
    assert (s.e2e_s.n, s.e2e_s.mean, s.e2e_s.max) == (2, (10 + 3.5) / 2, 10.0)
    assert s.throttled_s == Distribution(2, 0.25, 0.25, 0.45, 0.495, 0.5, p95=0.475)


def test_percentiles_interpolate_linearly(stream):
    s = stream().phase(0, "steady").phase(100, "draining").end(100)
    name = s.session(0, 100)
    for i in range(11):
        s.call(name, i, i + 5, call=i, chunks=((i + 0.1 * i, 1),))
    got = summarise(RUN, s.events()).ttft_s
    assert got == Distribution(11, 0.5, 0.5, 0.9, 0.99, 1.0, p95=0.95)


def test_where_the_agents_were(busy):
    s = summarise(RUN, busy.events())
    # Agent 0: tool until 12, call 12..22, then nothing until its session ends at 26.
    # Agent 1: human until 11, sent 11.5..15, tool 15..19, call 20..31.
    assert s.in_flight_mean == (10 + 3.5 + 10) / 20
    assert s.in_tool_mean == (2 + 4) / 20
    assert s.live_mean == (16 + 20) / 20
    assert s.waiting_mean == pytest.approx((36 - 23.5 - 6) / 20, abs=1e-9)
    assert s.duty_cycle == round(23.5 / 36, 9)
    # Sent and without a token: 12..14, 11.5..13.5, 20..29, over two agents.
    assert s.stall_s_per_agent == (2 + 2 + 9) / 2
    # Of the tool waits only 15..19 began inside the window.
    assert s.tool_wait_s == Distribution(1, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0)


def test_two_calls_of_one_agent_are_two_in_flight_and_one_agent(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    name = s.session(0, 10)
    s.call(name, 0, 10, chunks=((1, 1),))
    s.call(name, 0, 5, call=1, chunks=((1, 1),))
    got = summarise(RUN, s.events())
    assert (got.in_flight_mean, got.duty_cycle, got.waiting_mean) == (1.5, 1.0, 0.0)


def test_cache_ratios(busy):
    s = summarise(RUN, busy.events())
    assert s.cache_hit_ratio == (100 + 180) / 500
    assert s.expected_cache_hit_ratio == (128 + 180) / 500
    assert s.expected_cache_hit_ratio_exact == (150 + 180) / 500


def test_work_per_hour(busy):
    s = summarise(RUN, busy.events())
    assert s.sessions_per_hour == 1 * 3600 / 20
    # Session 0: its calls weigh 100 (before the window) and 312; session 1 did 0.5 in its one completed call.
    assert s.session_equivalents_per_hour == pytest.approx((312 / 412 + 0.5) * 180, rel=1e-9)
    assert s.makespan_s == Distribution(1, 26.0, 26.0, 26.0, 26.0, 26.0, 26.0)


def test_a_session_entered_in_the_middle_has_no_makespan(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    s.session(0, 9, first_turn=3)
    got = summarise(RUN, s.events())
    assert got.makespan_s is None
    assert got.sessions_per_hour == 360.0


def test_client_figures_are_of_the_window(busy):
    s = summarise(RUN, busy.events())
    assert s.client_lag_s == Distribution(4, 0.00025, 0.00025, 0.00037, 0.000397, 0.0004, p95=0.000385)
    assert s.client_cpu == pytest.approx(0.3)
    assert s.dispatch_s is None


def test_missing_usage_is_not_zero(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    s.call(s.session(0, 10), 0, 10, chunks=((1, 0), (3, 0)), completion_tokens=None, t_first=NS, t_last=3 * NS)
    got = summarise(RUN, s.events())
    assert got.calls_without_usage == 1
    assert (got.output_tokens, got.prompt_tokens, got.cached_tokens, got.reprefilled_tokens) == (None,) * 4
    assert (got.output_tokens_per_s, got.prompt_tokens_per_s, got.cache_hit_ratio) == (None, None, None)
    assert got.tpot_s is None
    assert got.ttft_s is not None
    assert got.ttft_s.mean == 1.0


def test_a_total_without_chunk_counts_is_spread_over_the_chunks(stream):
    s = stream().phase(0, "steady").phase(2, "draining").phase(5, "done").end(5)
    name = s.session(0, 5)
    s.call(name, 0, 4, chunks=((1, 1), (3, 1)), completion_tokens=6)
    made = [
        msgspec.structs.replace(e, chunks=msgspec.structs.replace(e.chunks, n=())) if isinstance(e, CallEnd) else e
        for e in s.events()
    ]
    assert summarise(RUN, made).output_tokens_per_s == 3 / 2


def test_without_a_steady_window_rates_are_null_and_the_run_is_not_valid(stream):
    s = stream().phase(0, "warmup").phase(5, "draining").end(6)
    s.call(s.session(0, 5), 0, 5, chunks=((1, 2), (3, 2)), prompt_tokens=10, cached_tokens=0)
    s.lag(3, 100)
    got = summarise(RUN, s.events())
    assert (got.window_s, got.valid, got.invalid_reasons) == (0.0, False, ("no_steady_state",))
    assert (got.output_tokens, got.prompt_tokens, got.calls) == (4, 10, 1)
    nulls = [name for name, metric in METRICS.items() if metric.distribution or "/" in metric.unit or "mean" in name]
    assert len(nulls) > 15
    assert {name: getattr(got, name) for name in nulls} == dict.fromkeys(nulls)
    assert (got.duty_cycle, got.cache_hit_ratio, got.stall_s_per_agent) == (None, None, None)


def test_an_empty_window_has_rates_of_zero_and_no_latencies(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    s.session(0, 10)
    got = summarise(RUN, s.events())
    assert got.valid
    assert (got.prompt_tokens_per_s, got.in_flight_mean, got.live_mean) == (0.0, 0.0, 1.0)
    assert (got.ttft_s, got.itl_s, got.tool_wait_s) == (None, None, None)


def test_only_the_first_steady_phase_is_the_window(stream):
    s = stream().phase(0, "steady").phase(4, "draining").phase(5, "steady").phase(9, "done").end(9)
    assert summarise(RUN, s.events()).window_s == 4.0


def test_an_interrupted_run_is_measured_until_its_end(stream):
    s = stream().phase(0, "steady").end(8, "interrupted", "SIGINT")
    s.call(s.session(0, 8, status="cut"), 0, 4, chunks=((2, 8),), prompt_tokens=5, cached_tokens=0)
    got = summarise(RUN, s.events())
    assert (got.status, got.status_reason, got.window_s, got.output_tokens_per_s) == ("interrupted", "SIGINT", 8.0, 1.0)
    assert got.valid


def test_a_killed_run_failed_and_what_was_open_counts_as_started(stream):
    s = stream().phase(0, "steady")
    name = s.session(0, None)
    s.call(name, 0, 4, chunks=((2, 8),), prompt_tokens=5, cached_tokens=0)
    s.call(name, 5, 9, call=1)
    s.lag(7, 10)
    events = [e for e in s.events() if e.t <= 7 * NS]
    got = summarise(RUN, events)
    assert (got.status, got.status_reason, got.invalid_reasons) == ("failed", "died", ("died",))
    assert (got.calls, got.sessions_started, got.sessions_completed, got.window_s) == (2, 1, 0, 7.0)
    assert got.in_flight_mean == round((4 + 2) / 7, 9)


def test_nothing_at_all_is_a_summary_too():
    got = summarise({}, [])
    assert (got.calls, got.agents, got.valid, got.status_reason) == (0, 0, False, "died")


def test_failures_are_counted_by_name_once(stream):
    s = stream(3).phase(0, "steady").phase(10, "draining").end(10)
    a = s.session(0, 4, status="failed", reason="http_500")
    s.call(a, 0, 4, failure="http_500", finish=None)
    b = s.session(0, 5, agent=1, status="failed", reason="http_500")
    s.call(b, 0, 5, agent=1, failure="http_500", finish=None)
    s.session(0, 6, agent=2, status="failed", reason="engine_gone")
    got = summarise(RUN, s.events())
    assert got.failures == {"http_500": 2, "engine_gone": 1}
    assert (got.failed_calls, got.sessions_failed) == (2, 3)
    assert "failures" in got.invalid_reasons


def test_a_call_that_failed_is_not_counted_again_by_its_session(stream):
    s = stream(2).phase(0, "steady").phase(10, "draining").end(10, "failed", "engine_gone")
    a = s.session(0, 4, status="failed", reason="engine_gone")
    s.call(a, 0, 3, failure="connect_refused", finish=None)
    s.session(0, 6, agent=1, status="failed", reason="engine_gone")
    got = summarise(RUN, s.events())
    assert got.failures == {"connect_refused": 1, "engine_gone": 1}, "the second one had no call to count"
    fold = Fold(RUN)
    fold.apply_all(s.events())
    assert fold.failure_reasons == got.failures


def test_engine_figures(busy):
    def sample(t, **counters):
        return EngineSample(t=t * NS, scrape_ms=1.0, **counters)

    busy.add(
        sample(0, preemptions=5.0, prefix_queries=0.0, prefix_hits=0.0, generation_tokens=100.0, spec_drafts=0.0),
        sample(12, running=4.0, waiting=0.0, kv_usage=0.2, prefix_queries=100.0, prefix_hits=50.0),
        sample(20, running=6.0, waiting=1.0, kv_usage=0.4, prefix_queries=300.0, prefix_hits=200.0),
        sample(31, running=0.0, preemptions=8.0, prefix_queries=500.0, prefix_hits=280.0, generation_tokens=129.0),
    )
    got = summarise(RUN, busy.events())
    assert (got.engine.running, got.engine.waiting, got.engine.kv_usage) == (5.0, 0.5, pytest.approx(0.3))
    assert got.engine.hit_ratio == 0.75
    assert got.engine.preemptions == 3.0
    assert got.engine.acceptance_length is None
    delta = got.engine_delta
    assert (delta.generation_tokens, delta.prefix_hits, delta.prompt_tokens) == (got.output_tokens, 280.0, None)


def test_acceptance_length(busy):
    busy.add(
        EngineSample(t=11 * NS, scrape_ms=1, spec_drafts=10, spec_accepted=5),
        EngineSample(t=29 * NS, scrape_ms=1, spec_drafts=110, spec_accepted=115),
    )
    assert summarise(RUN, busy.events()).engine.acceptance_length == 2.1


def test_gpu_figures(busy):
    busy.add(
        GpuSample(t=15 * NS, index=0, utilisation=0.8, memory_used=10, memory_total=80, power_w=300.0),
        GpuSample(t=15 * NS, index=1, utilisation=0.6, memory_used=20, memory_total=80, power_w=200.0),
        GpuSample(t=16 * NS, index=0, utilisation=1.0, memory_used=30, memory_total=80, power_w=500.0),
        GpuSample(t=40 * NS, index=0, utilisation=0.0),
    )
    summary = summarise(RUN, busy.events())
    gpu = summary.gpu
    assert gpu is not None
    assert summary.output_tokens_per_s is not None
    assert gpu.kwh_per_million_tokens == pytest.approx(600.0 / summary.output_tokens_per_s / 3.6)
    assert (gpu.count, gpu.memory_used, gpu.memory_total, gpu.power_w) == (2, 50, 160, 600.0)
    assert gpu.utilisation == pytest.approx(0.8)


def test_service_level(busy):
    run = {**RUN, "config": {"slo": "ttft_s.p90<3, tpot_s.max<0.8, cache_hit_ratio>0.9"}}
    slo = summarise(run, busy.events()).slo
    assert slo is not None
    assert [(c.condition, c.met) for c in slo.conditions] == [
        ("ttft_s.p90<3", False),  # the call that was cut had its first token after 9 s
        ("tpot_s.max<0.8", False),
        ("cache_hit_ratio>0.9", False),
    ]
    assert slo.conditions[2].value == 0.56
    assert (slo.met, slo.calls_inside, slo.calls_judged, slo.share) == (False, 1, 3, 1 / 3)
    assert (slo.sessions_inside, slo.sessions_judged) == (0, 2)


def test_a_failed_call_is_outside_the_service_level(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    name = s.session(0, 10)
    s.call(name, 0, 1, chunks=((1, 1),))
    s.call(name, 2, 3, call=1, failure="no_finish")
    slo = summarise({"config": {"slo": "ttft_s.p90<3"}}, s.events()).slo
    assert slo is not None
    assert (slo.met, slo.share) == (True, 0.5)


def test_an_unknown_figure_does_not_meet_its_condition(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    slo = summarise({"config": {"slo": "ttft_s.p90<3"}}, s.events()).slo
    assert slo is not None
    assert (slo.conditions[0].value, slo.conditions[0].met, slo.met, slo.share) == (None, None, False, None)


def test_the_summary_survives_its_file(busy):
    got = summarise(RUN, busy.events())
    data = encode_summary(got)
    assert decode_summary(data) == got
    assert encode_summary(decode_summary(data)) == data
    keys = list(msgspec.json.decode(data))
    # these only where there are messages, calls without ends, and answers of their own length
    assert [*keys, "failure_messages", "output_tokens_by_progress", "lengths"] == list(Summary.__struct_fields__)


def test_a_summary_from_before_there_was_a_p95_is_read(busy):
    written = msgspec.json.decode(encode_summary(summarise(RUN, busy.events())))
    assert written["e2e_s"]["p95"] == 3.5 + 0.95 * (10 - 3.5)
    for value in written.values():
        if isinstance(value, dict):
            value.pop("p95", None)
    for name in ("cache_known_prompt_tokens", "calls_begun", "calls_unended"):
        del written[name]
    older = decode_summary(msgspec.json.encode(written))
    assert older.e2e_s == Distribution(2, 6.75, 6.75, 9.35, 9.935, 10.0)
    assert older.e2e_s.p95 is None
    assert "E2E                     2     6.75 s     6.75 s     9.35 s     9.94 s    10.00 s" in render_summary(older)


def test_every_key_of_the_contract_is_there(busy):
    contract = (
        "schema run_dir status valid invalid_reasons emulated agents seed duration_s window_s lengths_from "
        "sessions_started sessions_completed sessions_failed sessions_cut calls failed_calls calls_cut output_tokens "
        "prompt_tokens cached_tokens reprefilled_tokens output_tokens_per_s prompt_tokens_per_s cache_hit_ratio "
        "expected_cache_hit_ratio in_flight_mean duty_cycle ttft_s ttft_visible_s tpot_s itl_s e2e_s tool_wait_s "
        "client_lag_s sessions_per_hour session_equivalents_per_hour makespan_s stall_s_per_agent slo engine gpu failures"
    )
    written = msgspec.json.decode(encode_summary(summarise(RUN, busy.events())))
    assert set(contract.split()) <= set(written)
    engine = "name version model resolved kv_tokens running waiting kv_usage hit_ratio preemptions acceptance_length"
    engine += " emulated_gpu emulated_model emulated_vllm emulated_calibrated emulated_fit emulated_unverified"
    engine += " emulated_ignored emulated_error_bar unseen_s"
    assert set(engine.split()) == set(written["engine"])
    assert set(written["ttft_s"]) == {"n", "mean", "p50", "p90", "p95", "p99", "max"}


def test_every_metric_is_a_key_and_says_what_it_is():
    for name, metric in METRICS.items():
        assert name in Summary.__struct_fields__
        assert metric.name == name
        assert metric.unit
        assert len(metric.header) <= 15
        assert len(metric.formula) > 10


def test_emulated_is_said():
    assert summarise({"engine": {"emulated": True}}, []).emulated
    assert not summarise({"engine": None}, [Note(t=1, level="info", text="x")]).emulated


EMULATION = {
    "emulates": "vLLM 0.32.0",
    "gpu": "H200",
    "model": "Qwen/Qwen3-32B",
    "fit": "unverified",
    "calibrated": False,
    "unverified": ["gpu", "calibration"],
    "error_bar": 0.2,
    "ignored_flags": ["--pipeline-parallel-size 2", "--trust-remote-code"],
}


def test_an_emulated_result_says_whose_figures_it_has_and_how_sure_they_are():
    summary = summarise({"engine": {"emulated": True, "emulation": EMULATION}}, [])
    told = msgspec.json.decode(encode_summary(summary))["engine"]
    assert {k.removeprefix("emulated_"): v for k, v in told.items() if k.startswith("emulated_")} == {
        {"emulates": "vllm", "ignored_flags": "ignored"}.get(k, k): v for k, v in EMULATION.items()
    }
    text = " ".join(render_summary(summary).split())
    assert (
        "EMULATED, not measured: vLLM 0.32.0's rules, H200, Qwen/Qwen3-32B; uncalibrated, times +-20%; "
        "unverified: gpu, calibration; not modelled: --pipeline-parallel-size 2 " in f"{text} "
    )
    real = msgspec.json.decode(encode_summary(summarise({"engine": {"emulation": EMULATION}}, [])))["engine"]
    assert {v for k, v in real.items() if k.startswith("emulated_")} == {None}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"calibrated": True, "error_bar": 0.008}, "calibrated, times +-0.8%"),
        ({"calibrated": True, "error_bar": None}, "calibrated, error of times not known"),
        ({"calibrated": False, "error_bar": 0.2}, "uncalibrated, times +-20%"),
        ({}, ""),
        ({"calibrated": "x", "error_bar": "y", "unverified": 3, "gpu": 4, "ignored_flags": 5}, ""),
        ({"ignored_flags": ["-ep", "--cpu-offload-gb 40"]}, "not modelled: -ep, --cpu-offload-gb 40"),
        ({"ignored_flags": ["--trust-remote-code", "--no-enable-log-requests"]}, ""),
        ({"ignored_flags": ["--kernel-config " + "x" * 300]}, f"not modelled: --kernel-config {'x' * 64}..."),
    ],
)
def test_how_sure_an_emulation_is(told, words):
    found = of_run({"engine": {"emulated": True, "emulation": told}})
    assert found is not None
    assert in_words(found) == words


def test_a_tool_wait_that_the_end_cut_short_is_left_out(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    name = s.session(0, 10, status="cut")
    s.wait(name, 1, 3)
    base = {"agent": 0, "session": name, "thread": 0, "call": 1, "cause": "tool"}
    s.add(WaitStart(t=4 * NS, seconds=60.0, **base), WaitEnd(t=10 * NS, **base))
    got = summarise(RUN, s.events())
    assert got.tool_wait_s == Distribution(1, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    assert got.in_tool_mean == 0.8
