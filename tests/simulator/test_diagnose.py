"""`diagnose` on runs that were built to have one cause, and a call's parts on times that are known."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from windtunnel.agents.events import CallEnd, Chunks, EngineSample
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.diagnose import against, diagnose, levers_left, lines
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.expected import expected
from windtunnel.simulator.results.bottleneck import again, find
from windtunnel.simulator.results.breakdown import CallTime, Part, break_down, shares
from windtunnel.simulator.results.misses import CallCache
from windtunnel.simulator.results.summary_model import EngineSummary, Summary
from windtunnel.simulator.results.why_text import Paper
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load

S = 1_000_000_000
MODEL = "--model qwen3-coder-30b-a3b --quantization fp8 --max-model-len 32768"
AGENTS = ("library", "--max-context", "32k", "--fit", "scale", "--duration", "120", "--no-text")
BUILT = {
    # Eight agents' histories in a cache for one and a half of the longest.
    "kv_capacity": (AGENTS, 8, f"emulator --gpu H100 {MODEL} --num-gpu-blocks-override 3000"),
    # Short prompts, long answers, a few streams.
    "decode": (("--shape", "100x2000", "--pace", "none", "--duration", "60"), 4, f"emulator --gpu H100 {MODEL}"),
    # Long prompts of which nothing is shared, one token of answer for a thousand of prompt.
    "prefill_compute": (("--shape", "24kx20", "--pace", "none", "--duration", "60"), 3, f"emulator --gpu L40S {MODEL}"),
    # Thirty-two streams where two may run.
    "batch": (("--shape", "500x100", "--pace", "none", "--duration", "60"), 32, f"emulator --gpu H100 {MODEL} --max-num-seqs 2"),
    # The client sends one request a second at most.
    "client": (("--shape", "500x50", "--pace", "none", "--rate", "1", "--duration", "60"), 16, f"emulator --gpu B200 {MODEL}"),
}  # fmt: skip


def made(folder: Path, cause: str) -> Path:
    words, agents, engine = BUILT[cause]
    config = config_of([*words, "--agents", str(agents)])
    virtual_run(replace(config, engine=engine), load(config.traces), folder)
    return folder


@pytest.mark.parametrize("cause", BUILT)
def test_the_cause_that_a_run_was_built_to_have_is_named(tmp_path, cause):
    found, summary, problems = diagnose(made(tmp_path / "run", cause))
    assert problems == []
    assert found.bottleneck.kind == cause
    assert found.bottleneck.evidence
    assert found.lever
    assert sum(found.bottleneck.shares.values()) == pytest.approx(1)
    assert sum(found.bottleneck.parts.values()) == pytest.approx(1)
    assert "first_token" not in found.bottleneck.parts
    assert summary.emulated


def test_the_command_says_it_in_words_and_as_json(tmp_path):
    folder = made(tmp_path / "run", "batch")
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "diagnose", str(folder)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert text.startswith("The batch limit holds this run back")
    assert "2 run, which is the limit" in text
    assert "a higher --max-num-seqs" in text
    assert "EMULATED, not measured: " in text
    assert "times +-20%" in text
    data = json.loads(subprocess.run([*command, "--json"], capture_output=True, timeout=60, check=True).stdout)
    assert data["bottleneck"]["kind"] == "batch"
    call = data["calls"][0]
    assert {"name", "seconds", "basis"} <= call["parts"][0].keys()


def test_a_client_that_was_told_to_wait_is_told_to_wait_less(tmp_path):
    folder = made(tmp_path / "run", "client")
    assert diagnose(folder)[0].lever == "a higher --rate (a flag of windtunnel)"
    summary = json.loads((folder / "summary.json").read_text())
    summary["invalid_reasons"] = ["client_lag"]
    (folder / "summary.json").write_text(json.dumps(summary))
    assert diagnose(folder)[0].lever == "a higher --rate (a flag of windtunnel)"


@pytest.mark.parametrize(("gpu", "slower"), [("H200", True), ("B200", False)])
def test_a_lever_says_what_the_emulator_expects_it_to_cost(gpu, slower):
    engine = f"emulator --gpu {gpu} {MODEL}"
    said = expected(engine, "--kv-cache-dtype fp8", running=12, cached=300_000)
    before, after = (parse(shlex.split(engine)[1:] + more).kv_tokens for more in ([], ["--kv-cache-dtype", "fp8"]))
    assert f"{after:,} tokens of KV cache in place of {before:,}" in said
    assert "a decode step of 12 requests over 300,000 cached tokens" in said
    assert ("(+" in said) == slower
    assert ("(-" in said) != slower
    assert expected(engine, "a higher --max-num-seqs", running=12, cached=300_000) == ""


def test_blocks_that_stay_as_many_are_no_room_though_vllm_prints_other_tokens_of_them():
    engine = "emulator --gpu B200 --model gpt-oss-120b"
    drafts = """--speculative-config '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}'"""
    was, is_ = (parse(shlex.split(engine)[1:] + more) for more in ([], shlex.split(drafts)))
    assert (was.pool.blocks, is_.pool.blocks) == (183_867, 183_867)
    assert (was.kv_tokens, is_.kv_tokens) == (2_351_430, 2_612_446)
    assert expected(engine, drafts, running=12, cached=300_000) == (
        "the emulator expects 1.80 tokens a step by assumed acceptance (unverified)"
    )


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        ("qwen3-coder-30b-a3b", ["--tensor-parallel-size 2", "--quantization fp8"]),
        ("gpt-oss-120b", ["--tensor-parallel-size 2"]),
    ],
)
def test_weights_that_a_checkpoint_has_quantised_are_not_to_be_quantised(model, texts):
    run = {"config": {"engine": f"emulator --gpu B200 --model {model}"}, "virtual": True}
    run["engine"] = {"name": "windtunnel-emulator", "emulated": True}
    assert [lever.text for lever in levers_left(run, "prefill_compute", {})] == texts
    of_vllm = run | {"engine": {"name": "vllm"}}
    told = {"model_config.quantization": "mxfp4"} if len(texts) == 1 else {}
    assert [lever.text for lever in levers_left(of_vllm, "prefill_compute", told)] == texts


def test_a_lever_whose_gain_is_assumed_says_so(tmp_path):
    folder = made(tmp_path / "run", "decode")
    found, summary, _ = diagnose(folder)
    assert "ngram" in (found.lever or "")
    assert "measure it with natural text" in (found.lever_note or "")
    assert "1.80 tokens a step by assumed acceptance (unverified)" in (found.lever_note or "")
    assert "by assumed acceptance" in " ".join(" ".join(lines(found, summary, Paper(100, colour=False), 0)).split())


def call(**times: float) -> CallEnd:
    ns = {name: round(value * S) for name, value in times.items()}
    return CallEnd(t=ns["t_end"], agent=0, session="s0", thread=0, call=1, request_id="r", **ns)


def cache(fresh: int, missed: int, diverged: int = 0) -> CallCache:
    prompt = fresh + missed + diverged + 100
    return CallCache(
        "s0", "t", 0, 0, 1, 0.0, first=False, prompt=prompt, cached=100, missed=missed, diverged=diverged, fresh=fresh,
        cause="evicted" if missed else None, gap_s=42.0,
    )  # fmt: skip


TIMES = {"t_intended": 1.0, "t_sent": 1.25, "t_first": 5.25, "t_last": 9.25, "t_end": 9.25}


def test_the_parts_add_up_to_the_call_and_say_how_they_are_known():
    told = replace(call(**TIMES), queued_s=1.0, throttled_ns=S // 8)
    (time,) = break_down([told], [], {("s0", 1): cache(fresh=200, missed=600, diverged=200)})
    parts = {part.name: part for part in time.parts}
    assert time.seconds == pytest.approx(8.25)
    assert {name: part.seconds for name, part in parts.items()} == pytest.approx(
        {
            "rate_cap": 0.125,
            "client": 0.125,
            "queue": 1.0,
            "prefill_new": 0.6,
            "prefill_missed": 1.8,
            "prefill_diverged": 0.6,
            "decode": 4.0,
        }
    )
    assert parts["queue"].basis == parts["decode"].basis == "measured"
    assert parts["prefill_missed"].basis == "derived"
    assert parts["prefill_missed"].cause == "evicted during a gap of 42 s"


@pytest.mark.parametrize(
    ("waiting", "known"), [((0, 0, 0), True), ((0, 1, 0), False), ((0, 0, 1), False), ((1, 0, 0), False)]
)
def test_an_empty_queue_is_derived_from_scrapes_and_anything_else_is_unknown(waiting, known):
    samples = [EngineSample(t=t * S, scrape_ms=1, waiting=w) for t, w in zip((1, 3, 6), waiting, strict=True)]
    (time,) = break_down([call(**TIMES)], samples, {})
    names = {part.name: part.basis for part in time.parts}
    assert ("first_token" in names) != known
    assert names.get("first_token", "unknown") == "unknown"
    assert time.seconds == pytest.approx(8.25)
    if known:
        assert names["prefill"] == "derived"


def test_without_scrapes_on_both_sides_nothing_is_said_of_the_queue():
    late = [EngineSample(t=3 * S, scrape_ms=1, waiting=0)]
    (time,) = break_down([call(**TIMES)], late, {})
    assert "first_token" in {part.name for part in time.parts}


def test_long_gaps_in_decoding_are_a_part_of_their_own():
    us = [5_000_000, *([10_000] * 99), 1_010_000]
    long = replace(
        call(t_intended=0, t_sent=0, t_first=5, t_last=7, t_end=7),
        chunks=Chunks(tuple(us), (1,) * len(us)),
        queued_s=0.0,
    )
    (time,) = break_down([long], [], {})
    parts = {part.name: part.seconds for part in time.parts}
    assert parts["held_up"] == pytest.approx(1.0, abs=0.001)
    assert parts["decode"] == pytest.approx(1.0, abs=0.001)
    assert shares([time]) == pytest.approx({"prefill": 5 / 7, "held_up": 1 / 7, "decode": 1 / 7}, abs=1e-3)


def test_the_slowdown_is_over_the_calls_that_both_runs_made(tmp_path):
    words = ["--shape", "4000x100", "--pace", "none", "--duration", "40", "--no-text"]
    engine = f"emulator --gpu L40S {MODEL}"
    for name, agents in (("alone", 1), ("crowd", 12)):
        config = replace(config_of([*words, "--agents", str(agents)]), engine=engine)
        virtual_run(config, load(config.traces), tmp_path / name)
    found = against(tmp_path / "crowd", tmp_path / "alone")
    assert found.emulated
    assert found.calls > 12
    assert found.work is not None
    assert found.work > 1.5
    itself = against(tmp_path / "alone", tmp_path / "alone")
    assert itself.work == pytest.approx(1)
    assert itself.e2e is not None
    assert itself.e2e.p50 == pytest.approx(1, rel=0.05)
    other = replace(config_of(["--shape", "4000x90", *words[2:], "--agents", "1"]), engine=engine)
    virtual_run(other, load(other.traces), tmp_path / "other")
    about = tmp_path / "other" / "run.json"
    trace = json.loads((tmp_path / "alone" / "run.json").read_text())["traces"][0]["id"]
    about.write_bytes(
        about.read_bytes().replace(json.loads(about.read_text())["traces"][0]["id"].encode(), trace.encode())
    )
    with pytest.raises(UsageError, match="did not replay the sessions as"):
        against(tmp_path / "crowd", tmp_path / "other")
    with pytest.raises(UsageError, match="a run of 12 agents: give one made with --agents 1"):
        against(tmp_path / "alone", tmp_path / "crowd")


def test_chunks_that_are_read_at_once_do_not_make_the_others_long():
    us = [5_000_000, *([0, 20_000] * 100)]
    told = replace(
        call(t_intended=0, t_sent=0, t_first=5, t_last=7, t_end=7),
        chunks=Chunks(tuple(us), (1,) * len(us)),
        queued_s=0.0,
    )
    (time,) = break_down([told], [], {})
    assert "held_up" not in {part.name for part in time.parts}


def summed(*reasons: str) -> Summary:
    whole = {field.name: None for field in fields(Summary)}
    whole |= {"invalid_reasons": reasons, "engine": EngineSummary(), "failures": {}}
    return Summary(**whole)


def spent(**parts: float) -> CallTime:
    return CallTime("s", 0, 0, 0, 0.0, tuple(Part(name, seconds, "measured") for name, seconds in parts.items()))


def waiting(**told: float) -> list[EngineSample]:
    return [EngineSample(t=t * S, scrape_ms=1, waiting=3, **told) for t in range(4)]


@pytest.mark.parametrize(("many", "said"), [(1, "1 preemption"), (1200, "1,200 preemptions")])
def test_one_is_not_counted_as_many(many, said):
    summary = replace(summed(), engine=replace(EngineSummary(), preemptions=float(many)))
    found = find(summary, [spent(queue=8.0)], waiting(kv_usage=0.97), working_set=None, settings={})
    assert said in found.evidence


def test_what_is_not_known_stays_unknown_also_where_it_is_likely_queue():
    settings = {"scheduler_config.max_num_seqs": 4}
    found = find(
        summed(),
        [spent(first_token=8.0, decode=2.0)],
        waiting(running=4.0, kv_usage=0.2),
        working_set=None,
        settings=settings,
    )
    assert (found.kind, found.share) == ("batch", pytest.approx(0.8))
    assert found.shares == pytest.approx({"unknown": 0.8, "decode": 0.2})
    assert "80%" in found.evidence[-1]


@pytest.mark.parametrize(
    ("settings", "told", "kind"),
    [
        ({}, {"running": 4.0, "kv_usage": 0.2}, "unknown"),
        ({"scheduler_config.max_num_seqs": 64}, {"running": 4.0}, "unknown"),
        ({"scheduler_config.max_num_seqs": 64}, {"running": 4.0, "kv_usage": 0.2}, "prefill_budget"),
        ({"server_args.max_running_requests": 4}, {"running": 4.0, "kv_usage": 0.2}, "batch"),
        ({}, {"running": 4.0, "kv_usage": 0.97}, "kv_capacity"),
    ],
)
def test_the_budget_of_a_step_is_named_only_where_the_other_limits_are_known(settings, told, kind):
    found = find(summed(), [spent(queue=8.0, decode=2.0)], waiting(**told), working_set=None, settings=settings)
    assert found.kind == kind


@pytest.mark.parametrize(
    ("budget", "evicted", "kind", "share"),
    [
        (8192, 2.0, "kv_capacity", 0.8),  # all prefill is of evicted tokens: who waits, waits for that
        (8192, 0.5, "prefill_compute", 0.6),
        (8192, 0.0, "prefill_compute", 0.8),
        (512, 2.0, "prefill_budget", 0.6),
    ],
)
def test_who_waits_below_the_limits_waits_for_what_is_computed_in_front(budget, evicted, kind, share):
    parts = [
        Part("queue", 6.0, "measured"),
        Part("prefill_missed", evicted, "derived", cause="evicted during a gap of 3 s"),
        Part("prefill_new", 2.0 - evicted, "derived"),
        Part("decode", 2.0, "measured"),
    ]
    settings = {"scheduler_config.max_num_seqs": 64, "scheduler_config.max_num_batched_tokens": budget}
    calls = [CallTime("s", 0, 0, 0, 0.0, tuple(part for part in parts if part.seconds))]
    found = find(
        summed(),
        calls,
        waiting(running=4.0, kv_usage=0.2),
        working_set=None,
        settings=settings,
        evicted=evicted / 2.0,
    )
    assert (found.kind, found.share) == (kind, pytest.approx(share))
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("evicted", "kind", "shares"),
    [
        (0.75, "kv_capacity", {"kv_capacity": 0.45, "decode": 0.4, "prefill_compute": 0.15}),
        (0.0, "prefill_compute", {"prefill_compute": 0.6, "decode": 0.4}),
    ],
)
def test_decode_that_prompts_hold_up_is_given_to_what_these_prompts_are(evicted, kind, shares):
    found = find(summed(), [spent(held_up=6.0, decode=4.0)], [], working_set=None, settings={}, evicted=evicted)
    assert found.kind == kind
    assert found.shares == pytest.approx(shares)
    said = " ".join(found.evidence)
    assert ("75% of the prompt tokens that were computed had been evicted or preempted before" in said) == bool(evicted)
    assert ("45% of the calls' time is decode that such prompts hold up" in said) == bool(evicted)


def test_what_had_to_make_room_is_counted_by_tokens_and_what_was_lost_otherwise_is_not():
    calls = [
        cache(fresh=200, missed=600),
        replace(cache(fresh=100, missed=300), cause="preempted"),
        replace(cache(fresh=0, missed=400), cause="not_kept"),
        cache(fresh=300, missed=0, diverged=100),
    ]
    assert again(calls) == pytest.approx(900 / 2000)
    assert again([]) == 0.0


def test_what_a_thread_waited_for_stands_beside_the_call_and_not_in_it(tmp_path):
    found, _, _ = diagnose(made(tmp_path / "run", "kv_capacity"))
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    began = {(e["session"], e["thread"], e["call"], e["cause"]): e["t"] for e in events if e["type"] == "wait_start"}
    lasted = {
        key: (e["t"] - began[key]) / S
        for e in events
        if e["type"] == "wait_end" and (key := (e["session"], e["thread"], e["call"], e["cause"])) in began
    }
    told = {
        (call.session, call.thread, call.call, part.name): part.seconds for call in found.calls for part in call.before
    }
    assert {key[3] for key in told} == {"tool", "human"}
    assert all(seconds == pytest.approx(lasted[key]) for key, seconds in told.items())
    ends = {
        (e["session"], e["thread"], e["call"]): (e["t_end"] - e["t_intended"]) / S
        for e in events
        if e["type"] == "call_end" and "t_end" in e
    }
    for call in found.calls:
        assert call.seconds == pytest.approx(ends[call.session, call.thread, call.call], abs=1e-6)
