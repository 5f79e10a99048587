"""A run's sums are the real engine's own counters, exactly: with room, under eviction and preemption, on both routes."""

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from windtunnel.simulator.engines.vllm import METRICS
from windtunnel.simulator.run.scrape import read_page

SHARED = Path(__file__).parents[2] / ".." / "shared" / "traces"
REAL = ("claude-code", "codex", "weka-kv-cache-tester")
PROBE_TOKENS = 100
"""At most so many tokens are spent on finding out what the server can, before the counters' baseline."""

pytestmark = pytest.mark.vllm


def sources() -> list[str]:
    if not SHARED.is_dir():
        return ["library"]
    return [*(str((SHARED / name).resolve()) for name in REAL), "library"]


def counters(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as page:
        return read_page(page.read(), METRICS)


def windtunnel(*words: str) -> dict:
    """The ordinary command line; its summary."""
    done = subprocess.run(
        [sys.executable, "-m", "windtunnel.simulator.cli", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-2000:]}"
    return json.loads(done.stdout)


def events(folder: Path) -> list[dict]:
    with (folder / "events.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def run_and_compare(url: str, out: Path, *, api: str, calls: int, context: str) -> dict:
    """Run against the server at `url` and hold every figure against the engine's."""
    before = counters(url)
    summary = windtunnel(
        "run", *sources(), "--target", url, "--agents", "32", "--calls", str(calls), "--max-context", context,
        "--fit", "scale", "--api", api, "--pace", "none", "--out", str(out), "--json",
    )  # fmt: skip
    after = counters(url)

    happened = events(out)
    ends = [e for e in happened if e["type"] == "call_end"]
    samples = [e for e in happened if e["type"] == "engine_sample"]
    wrong = [
        e for e in ends if e.get("failure") or e["completion_tokens"] != e["pinned_tokens"] or e["finish"] != "length"
    ]
    assert not wrong, f"{len(wrong)} of {len(ends)} calls, the first: {wrong[0]}"
    assert len(ends) == calls
    recorded_by = {t["id"]: t["agent"] for t in json.loads((out / "run.json").read_bytes())["traces"]}
    played = Counter(recorded_by[e["trace"]] for e in happened if e["type"] == "session_start")
    if SHARED.is_dir():
        assert {"claude-code", "codex", "weka"} <= set(played), f"not every kind of recording was replayed: {played}"
    first, last = samples[0], samples[-1]
    grown = {k: last[k] - first[k] for k in ("generation_tokens", "prompt_tokens", "prefix_hits", "prefix_queries")}
    ours = {
        "generation_tokens": sum(e["completion_tokens"] for e in ends),
        "prompt_tokens": sum(e["prompt_tokens"] for e in ends),
        "prefix_hits": sum(e["cached_tokens"] for e in ends),
        "prefix_queries": sum(e["prompt_tokens"] for e in ends),
    }
    assert grown == ours
    assert last["requests_finished"] - first["requests_finished"] == calls
    assert {k: after[k] for k in grown} == {k: last[k] for k in grown}, "the last sample is not the engine's last word"
    spent = first["prompt_tokens"] + first["generation_tokens"] - before["prompt_tokens"] - before["generation_tokens"]
    assert 0 <= spent <= PROBE_TOKENS, f"{spent} tokens were used before the baseline"

    told = {"output_tokens": "generation_tokens", "prompt_tokens": "prompt_tokens", "cached_tokens": "prefix_hits"}
    assert {k: summary[k] for k in told} == {k: ours[v] for k, v in told.items()}
    assert (summary["status"], summary["calls"], summary["failed_calls"]) == ("completed", calls, 0)
    assert summary["agents"] == 32
    summary["preempted"] = last["preemptions"] - first["preemptions"]
    print(
        f"\n{api}: {calls} calls in {summary['duration_s']:.0f} s, output {ours['generation_tokens']:,} "
        f"prompt {ours['prompt_tokens']:,} cached {ours['prefix_hits']:,} = engine's; {summary['preempted']:.0f} preempted; "
        f"sessions {dict(played)}"
    )
    return summary


@pytest.mark.parametrize("api", ["chat", "tokens"])
def test_sums_equal_the_engines_counters_with_plenty_of_blocks(vllm, tmp_path, api):
    summary = run_and_compare(vllm(max_model_len=4096), tmp_path / "run", api=api, calls=256, context="4k")
    assert summary["cached_tokens"] > 0
    assert summary["preempted"] == 0


@pytest.mark.parametrize("api", ["chat", "tokens"])
def test_sums_equal_the_engines_counters_under_eviction(vllm, tmp_path, api):
    run_and_compare(vllm(max_model_len=4096, blocks=70), tmp_path / "run", api=api, calls=256, context="4k")


@pytest.mark.parametrize("api", ["tokens"])
def test_full_run_at_32k(vllm, tmp_path, api):
    run_and_compare(vllm(max_model_len=32768), tmp_path / "run", api=api, calls=64, context="32k")
