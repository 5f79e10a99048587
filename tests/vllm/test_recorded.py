"""What was recorded from real agents replays against the real engine, and a recording of the engine's own traffic too.

A recording replays as it was: its prompts' tokens and what the engine finds of them in its cache, anonymised or not.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces import library
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Trace

from .test_equality import counters, events, windtunnel

pytestmark = pytest.mark.vllm

CONTEXT = 4096
COUNTERS = ("generation_tokens", "prompt_tokens", "prefix_hits", "prefix_queries")


def replay(url: str, out: Path, *sources: str, api: str, sessions: int, agents: int) -> list[dict[str, Any]]:
    """Every call of the sessions from their first, held against the engine's counters; the calls' ends."""
    summary = windtunnel(
        "run", *sources, "--target", url, "--agents", str(agents), "--sessions", str(sessions), "--start", "fresh",
        "--max-context", "4k", "--fit", "scale", "--api", api, "--pace", "none", "--out", str(out), "--json",
    )  # fmt: skip
    happened = events(out)
    ends = [e for e in happened if e["type"] == "call_end"]
    wrong = [e for e in ends if e.get("failure") or e["completion_tokens"] != e["pinned_tokens"]]
    assert not wrong, f"{len(wrong)} of {len(ends)} calls, the first: {wrong[0]}"
    samples = [e for e in happened if e["type"] == "engine_sample"]
    assert {k: samples[-1][k] - samples[0][k] for k in COUNTERS} == {
        "generation_tokens": sum(e["completion_tokens"] for e in ends),
        "prompt_tokens": sum(e["prompt_tokens"] for e in ends),
        "prefix_hits": sum(e["cached_tokens"] for e in ends),
        "prefix_queries": sum(e["prompt_tokens"] for e in ends),
    }
    assert (summary["status"], summary["calls"], summary["failed_calls"]) == ("completed", len(ends), 0)
    assert summary["sessions_completed"] == sessions
    return ends


def total(ends: list[dict[str, Any]], key: str) -> int:
    return sum(int(e[key]) for e in ends)


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_every_call_of_the_recorded_library_is_replayed(vllm: Any, tmp_path: Path, api: str) -> None:
    traces = [read_trace(library.path(n)).traces[0] for n in library.recorded()]
    url = vllm(max_model_len=CONTEXT)
    ends = replay(url, tmp_path / "run", "library:recorded", api=api, sessions=len(traces), agents=len(traces))
    assert len(ends) == sum(len(t.calls) for t in traces)
    assert total(ends, "cached_tokens") > 0.5 * total(ends, "prompt_tokens")
    print(
        f"\n{api}: {len(ends)} calls, prompt {total(ends, 'prompt_tokens'):,} cached {total(ends, 'cached_tokens'):,}"
    )


AGENT = """
    import json, os, sys, urllib.request

    ASK = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    RULES = " ".join(f"Rule {n}: read the file {n * 7 % 31} before you change line {n * 13 % 97}." for n in range(60))

    def ask(name, messages):
        body = {"model": "tiny", "stream": True, "max_tokens": 40, "ignore_eos": True, "temperature": 0,
                "messages": messages}
        head = {"Content-Type": "application/json", "X-Session-ID": name}
        text = ""
        with urllib.request.urlopen(urllib.request.Request(ASK, json.dumps(body).encode(), head)) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
        return text

    for name in ("ses-one", "ses-two"):
        messages = [{"role": "system", "content": RULES}]
        for turn in range(6):
            words = " ".join(f"{name} looks at value {turn * 100 + n}" for n in range(25))
            messages.append({"role": "user", "content": words})
            messages.append({"role": "assistant", "content": ask(name, messages)})
"""


@pytest.fixture(scope="module")
def recording(vllm: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Trace], dict[str, float]]:
    """Two short conversations with the engine, recorded: the folder, its traces, what the engine's counters grew by."""
    url, out = vllm(max_model_len=CONTEXT), tmp_path_factory.mktemp("recorded") / "rec"
    before = counters(url)
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "record", "--upstream", url, "--out", str(out), "--"]
    subprocess.run([*command, sys.executable, "-c", textwrap.dedent(AGENT)], check=True, timeout=90)
    after = counters(url)
    traces = [read_trace(p).traces[0] for p in sorted((out / "traces").glob("*.jsonl"))]
    return out, traces, {k: after[k] - before[k] for k in COUNTERS}


def test_a_recording_counts_what_the_engine_counted(
    recording: tuple[Path, list[Trace], dict[str, float]],
) -> None:
    out, traces, grown = recording
    usages = [c.usage for t in traces for c in t.calls]
    assert [len(t.calls) for t in traces] == [6, 6]
    assert {c.marks.get("prompt", "recorded") for t in traces for c in t.calls} == {"recorded"}
    assert sum(u.prompt or 0 for u in usages) == grown["prompt_tokens"] == grown["prefix_queries"]
    assert sum(u.completion or 0 for u in usages) == grown["generation_tokens"] == 12 * 40
    assert sum(u.cached or 0 for u in usages) == grown["prefix_hits"] > 0
    summary = windtunnel("view", str(out), "--json")
    assert (summary["kind"], summary["valid"], summary["agents"]) == ("recording", True, 2)
    assert summary["cached_tokens"] == grown["prefix_hits"]
    assert summary["engine"]["name"] == "vllm"
    assert summary["engine"]["kv_usage"] is not None


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_a_recording_replays_as_it_was_anonymised_and_not(
    recording: tuple[Path, list[Trace], dict[str, float]], vllm: Any, tmp_path: Path, api: str
) -> None:
    out, traces, grown = recording
    shared = tmp_path / "shared"
    windtunnel("traces", "anonymise", str(out / "traces"), "--out", str(shared), "--key", str(tmp_path / "k"), "--json")
    url = vllm(max_model_len=CONTEXT)
    ends = {
        name: replay(url, tmp_path / name, str(source), api=api, sessions=2, agents=1)
        for name, source in (("original", out / "traces"), ("anonymised", shared))
    }
    unit = json.loads((tmp_path / "original" / "run.json").read_bytes())["engine"]["resolved"]["block_size"]
    calls = sum(len(t.calls) for t in traces)
    cached = {name: total(e, "cached_tokens") for name, e in ends.items()}
    prompt = {name: total(e, "prompt_tokens") for name, e in ends.items()}
    assert {name: len(e) for name, e in ends.items()} == {"original": calls, "anonymised": calls}
    print(
        f"\n{api}: block {unit}, recorded {grown['prefix_hits']:.0f} of {grown['prompt_tokens']:.0f}, {cached} {prompt}"
    )
    assert abs(cached["original"] - cached["anonymised"]) <= unit * calls
    assert abs(cached["original"] - grown["prefix_hits"]) <= unit * calls
    if api == "tokens":
        assert prompt == dict.fromkeys(prompt, int(grown["prompt_tokens"]))
    assert min(cached.values()) > unit * calls
