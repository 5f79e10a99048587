"""What people read on stdout."""

import msgspec
import pytest

from windtunnel.agents.events import ClientSample, EngineSample, GpuSample
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.text import render_summary

NS = 1_000_000_000
RUN = {
    "run_dir": "/runs/x",
    "lengths_from": ["claude-opus-4"],
    "config": {"slo": "ttft_s.p90<3,tpot_s.p90<0.05"},
    "engine": {"name": "vllm", "version": "0.32.0", "model": "qwen3"},
}


def test_the_headline_names_agents_and_mean_in_flight(busy):
    lines = render_summary(summarise(RUN, busy.events())).splitlines()
    assert lines[0] == "2 agents, 1.2 in flight"
    assert lines[1] == "vllm · 0.32.0 · qwen3"


def test_everything_fits_80_columns_and_ends_with_a_line(busy):
    busy.add(EngineSample(t=12 * NS, scrape_ms=1, running=17.25, waiting=1, kv_usage=0.7812))
    busy.add(GpuSample(t=12 * NS, index=0, utilisation=0.96, power_w=641.0))
    text = render_summary(summarise(RUN, busy.events()))
    assert max(map(len, text.splitlines())) <= 80
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\t" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "resolved", "says"),
    [
        ("vllm", {"cache_config.kv_offloading_size": 64.0}, "GPU's own hit ratio 25.0%"),
        ("vllm", {"cache_config.kv_offloading_size": "64"}, "GPU's own hit ratio 25.0%"),
        ("vllm", {"kv_transfer_config.kv_connector": "OffloadingConnector"}, "GPU's own hit ratio 25.0%"),
        ("windtunnel-emulator", {"offload_config.kv_offload_blocks": 4000}, "GPU's own hit ratio 25.0%"),
        ("vllm", {"cache_config.kv_offloading_size": None}, "   hit ratio 25.0%"),
        ("vllm", {"cache_config.kv_offloading_size": "None"}, "   hit ratio 25.0%"),
        ("windtunnel-emulator", {"offload_config.kv_offload_blocks": 0}, "   hit ratio 25.0%"),
        ("sglang", {"server_args.enable_hierarchical_cache": True}, "   hit ratio 25.0%"),  # it counts the host's
        ("vllm", None, "   hit ratio 25.0%"),
    ],
)
def test_where_kv_is_offloaded_the_engines_ratio_is_of_its_gpu_alone(busy, name, resolved, says):
    run = {**RUN, "engine": {"name": name, "model": "m", "resolved": resolved}}
    busy.add(EngineSample(t=12 * NS, scrape_ms=1, prefix_queries=100, prefix_hits=10))
    busy.add(EngineSample(t=20 * NS, scrape_ms=1, prefix_queries=300, prefix_hits=60))
    summary = summarise(run, busy.events())
    text = render_summary(summary)
    assert says in text.replace("engine        ", "engine           ").replace("\n              ", "   ")
    assert max(map(len, text.splitlines())) <= 80
    text = render_summary(msgspec.structs.replace(summary, window_s=0.0))
    assert says in text.replace("engine        ", "engine           ").replace("\n              ", "   ")


def test_names_of_absurd_length_and_with_line_ends_stay_in_their_line(busy):
    """JSON has them whole, people see how they begin."""
    odd = "m\n\x1b[2J" + "x" * 10_000
    engine = {"name": "vllm", "version": "9" * 10_000, "model": odd, "emulated": True, "emulation": {"model": odd}}
    summary = summarise({**RUN, "engine": engine, "lengths_from": [odd, "short"]}, busy.events())
    assert (summary.engine.model, summary.lengths_from, summary.engine.emulation.model) == (odd, [odd, "short"], odd)
    text = render_summary(summary)
    assert len(text) < 4000
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert lines[1] == "vllm · " + "9" * 73
    assert "m \\u001b[2J" + "x" * 74 + "..., short" in "".join(text.split("lengths from")[1].split("\n")[:4]).replace(
        " " * 14, ""
    )


def test_figures_have_units_and_missing_ones_say_so(busy):
    text = render_summary(summarise(RUN, busy.events()))
    assert "0.9 tokens/s out" in text
    assert "window 20.0 s of 31.0 s" in text
    assert "56.0% hit   could be 61.6%" in text
    assert "650 prompt   280 of 600 cached" in text
    assert "2 started   1 completed   0 failed   1 cut   of 2 traces" in text
    assert "KV use not reported" in text
    assert "lengths from  claude-opus-4" in text
    whole = " ".join(text.split())
    assert "ttft_s.p90<3: 2 of those that ended, not met: 7.6 with the 1 without an end" in whole
    assert "tpot_s.p95<0.86: 0.8694, not met" in render_summary(
        summarise(RUN | {"config": {"slo": "tpot_s.p95<0.86"}}, busy.events())
    )
    assert "tpot_s.p90<0.05: 0.85, not met" in text


def test_what_was_sent_back_otherwise_is_not_told_as_all_that_was_computed_again(busy):
    summary = msgspec.structs.replace(summarise(RUN, busy.events()), reprefilled_tokens=1234)
    words = " ".join(render_summary(summary).split())
    assert "could be 61.6% 1,234 generated tokens sent back as other text" in words
    assert "re-prefilled" not in words
    none = msgspec.structs.replace(summary, reprefilled_tokens=0)
    assert "sent back" not in render_summary(none)
    formula = METRICS["reprefilled_tokens"].formula
    assert "text was sent back otherwise than it was generated" in formula
    assert "evicted and computed again is not among them" in formula


@pytest.mark.parametrize(("expected", "says"), [(1.04, "could be 104.0%"), (31.127, "could be: not comparable")])
def test_more_than_all_cannot_be_cached(busy, expected, says):
    summary = msgspec.structs.replace(summarise(RUN, busy.events()), expected_cache_hit_ratio=expected)
    text = render_summary(summary)
    assert says in text
    assert "3112" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("run", [{}, RUN, {"engine": {"emulated": True, "name": "emulator"}}])
def test_a_run_that_measured_nothing_can_be_read_too(run):
    text = render_summary(summarise(run, []))
    assert text.startswith("0 agents\n")
    assert "not reported" not in text
    assert "0 started   0 failed   0 cut" in text
    assert "NOT VALID" in text
    assert "no_steady_state: no steady window of a second or more was measured" in text
    assert ("EMULATED" in text) == bool(run and run["engine"].get("emulated"))
    assert "None" not in text


def test_an_interrupt_in_warm_up_says_once_that_nothing_was_measured_and_what_there_is(stream):
    s = stream().phase(0, "warmup")
    s.call(s.session(0, None), 1, 3, chunks=((2, 1), (3, 9)), prompt_tokens=1200, cached_tokens=300)
    for t, tokens, hits in ((0, 0, 0), (4, 1200, 300)):
        s.add(
            EngineSample(
                t=t * NS, scrape_ms=1, running=1, prompt_tokens=tokens, prefix_queries=tokens, prefix_hits=hits
            )
        )
    s.end(5, "interrupted", "interrupted")
    summary = msgspec.structs.replace(summarise({}, s.events()), invalid_reasons=("no_steady_state",))
    lines = render_summary(summary).splitlines()
    assert lines[3] == "interrupted in warm-up: nothing was measured"
    assert lines[4:7] == [
        "",
        "of the whole 5.0 s",
        "sessions      1 started   0 completed   0 failed   0 cut   of 1 trace",
    ]
    assert "tokens        10 out   1,200 prompt   300 cached" in lines
    assert "engine        1,200 prompt tokens   hit ratio 25.0%" in lines
    assert len(lines) == 10


def test_cached_tokens_stand_beside_the_prompts_of_which_they_are_known(stream):
    s = stream().phase(0, "warmup")
    name = s.session(0, None)
    s.call(name, 1, 3, chunks=((2, 1), (3, 9)), prompt_tokens=1200, cached_tokens=300)
    s.call(name, 3, 5, call=1, chunks=((4, 1),), completion_tokens=None, expected_prompt_tokens=1500, cut=True)
    s.end(5, "interrupted", "interrupted")
    summary = summarise({}, s.events())
    assert (summary.prompt_tokens, summary.cached_tokens, summary.cache_known_prompt_tokens) == (2700, 300, 1200)
    assert "tokens        11 out   2,700 prompt   300 of 1,200 cached" in render_summary(summary).splitlines()
    older = msgspec.structs.replace(summary, cache_known_prompt_tokens=None)
    assert "2,700 prompt   300 cached" in render_summary(older)


def test_an_interrupt_in_the_window_is_said_once(busy):
    summary = msgspec.structs.replace(summarise(RUN, busy.events()), status="interrupted", status_reason="interrupted")
    assert "\ninterrupted; NOT VALID:\n" in render_summary(summary)


def test_valid_says_so(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    s.session(0, 10)
    assert "completed; valid" in render_summary(summarise({}, s.events()))


def test_failures_are_listed(stream):
    s = stream().phase(0, "steady").phase(10, "draining").end(10, "failed", "nothing_completed")
    s.call(s.session(0, 1, status="failed", reason="http_500"), 0, 1, failure="http_500")
    text = render_summary(summarise({}, s.events()))
    assert "failed (nothing_completed); NOT VALID:" in text
    assert "failures            1  http_500\n" + " " * 23 + "The server answered with HTTP status 500.\n" in text


def test_what_the_server_said_stands_below_a_failure(stream):
    """Most frequent first; messages that differ in numbers only are one."""
    s = stream().phase(0, "steady").phase(30, "draining").end(30)
    name = s.session(0, 20)
    said = ["no tool `x`", "a prompt of 12 tokens is\ntoo long", "no tool `y`", "a prompt of 7 tokens is too long", "z"]
    for n, detail in enumerate([*said, "b" * 300, None]):
        s.call(name, n, n + 1, call=n, failure="http_400", detail=detail)
    summary = summarise({}, s.events())
    assert list(summary.failure_messages["http_400"].items()) == [
        ("a prompt of 12 tokens is too long", 2),
        ("no tool `x`", 1),
        ("no tool `y`", 1),
    ]
    assert render_summary(summary).partition("failures")[2].split("\n\n")[0].splitlines() == [
        "            7  http_400",
        " " * 23 + "The server answered with HTTP status 400.",
        " " * 23 + "- a prompt of 12 tokens is too long (2 times)",
        " " * 23 + "- no tool `x`",
        " " * 23 + "- no tool `y`",
    ]
    assert "failure_messages" not in encode_summary(summarise({}, stream().phase(0, "steady").end(1).events())).decode()


def test_what_a_failure_s_name_means_stands_below_it(busy):
    summary = msgspec.structs.replace(summarise(RUN, busy.events()), failures={"endless": 1200, "odd": 3, "reset": 1})
    assert render_summary(summary).partition("failures")[2].split("\n\n")[0].splitlines() == [
        "        1,200  endless",
        " " * 23 + "The server generated on and on, far beyond what it was",
        " " * 23 + "asked for, and the call was given up.",
        " " * 20 + "3  odd",
        " " * 20 + "1  reset",
    ]


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ({"cpu": 0.094, "blocked": 0}, "client 0.8 of 1 agent live CPU 9.4% of a core no socket blocked"),
        ({"cpu": 0.094, "blocked": 1}, "client 0.8 of 1 agent live CPU 9.4% of a core at most 1 socket blocked"),
        ({"cpu": 0.094}, "client 0.8 of 1 agent live CPU 9.4% of a core"),
    ],
)
def test_what_the_client_was_like(stream, sample, said):
    s = stream().phase(0, "steady").phase(10, "draining").end(10)
    s.session(0, 8)
    s.add(ClientSample(t=5 * NS, lag_us=(100,), **sample))
    text = render_summary(summarise({}, s.events()))
    row = text[text.index("client  ") : text.index("engine  ")]
    assert " ".join(row.split()) == said


def test_a_recording_is_called_one(stream):
    s = stream(0).phase(0, "steady")
    a = s.session(1, 10)
    s.call(a, 1, 5, chunks=((2, 1), (5, 9)), prompt_tokens=1200, cached_tokens=1100)
    s.phase(10, "done").end(10)
    text = render_summary(summarise({"kind": "recording", "lengths_from": ["m"], "engine": {"model": "m"}}, s.events()))
    lines = text.splitlines()
    assert lines[:4] == ["recording of 1 session, 0.4 in flight", "m", "", "completed"]
    assert "tokens        10 out   1,200 prompt   1,100 cached" in lines
    assert not any(line.startswith(("work", "sessions", "makespan")) for line in lines)
    assert "alid" not in text


def test_a_recording_that_broke_off_says_what_is_missing(stream):
    s = stream(0).phase(0, "steady")
    s.session(1, None)
    text = render_summary(summarise({"kind": "recording"}, s.events()))
    assert "failed (died); NOT WHOLE:\n  - died: the run was killed before its end" in text


def test_a_run_that_goes_on_has_not_failed(stream):
    s = stream().phase(0, "steady")
    s.session(0, None)
    text = render_summary(summarise({}, s.events()), running=True)
    assert "still running: these are the figures so far" in text
    assert "failed (" not in text
    assert "NOT VALID" not in text


def test_answers_of_their_own_length_are_not_said_to_have_recorded_ones(busy):
    for lengths, said in (
        ("recorded", "claude-opus-4"),
        ("natural", "claude-opus-4 (prompts); answers are as long as"),
    ):
        summary = summarise({**RUN, "config": {"lengths": lengths}}, busy.events())
        (row,) = [line for line in render_summary(summary).splitlines() if line.startswith("lengths from")]
        assert row.removeprefix("lengths from").strip().startswith(said)
        assert ("answers" in row) == (lengths == "natural")
