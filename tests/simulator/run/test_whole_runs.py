"""Whole runs through the command line against the emulator, and what becomes of them when something dies.

Processes are dear: one run serves several tests, and runs that are to be disturbed are started together.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary

CLI = [sys.executable, "-m", "windtunnel.simulator.cli"]
ENGINE = "emulator --gpu B200 --model gpt-oss-20b"
SMALL = ["--agents", "6", "--max-context", "4k", "--fit", "scale", "--pace", "none", "--ramp", "0.5"]


BECAUSE_IT_DIED = ("engine_gone", "connection_closed", "connection_reset", "server_disconnected", "connect_refused")


def start(cwd, *args):
    return subprocess.Popen(
        [*CLI, *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds=30.0):
    """Poll a condition on another process; the limit only bounds a broken build."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        os.sched_yield()
        time.sleep(0.05)
    pytest.fail("the condition did not come true in time")


def events_of(run_dir):
    return list(RunFolder.open(run_dir).events()) if (run_dir / "run.json").exists() else []


def calls_under_way(run_dir, count=8):
    """The run is in the middle: some calls have ended."""
    return lambda: sum(isinstance(e, ev.CallEnd) for e in events_of(run_dir)) >= count


def engine_processes(run_dir):
    """Process ids of the engine that this run started."""
    port = json.loads((run_dir / "run.json").read_text())["target"].rpartition(":")[2]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"engine" in words and port.encode() in words and not any(w.endswith(b"keeper.py") for w in words):
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def server():
    """An emulator that serves several runs, one after the other."""
    command = [sys.executable, "-m", "windtunnel.simulator.emulator.serve", *ENGINE.split()[1:], "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.terminate()
    process.communicate(timeout=10)


def finished(process, run_dir):
    """Folder, summary, stdout and stderr of a run that came to its end."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return run_dir, json.loads((run_dir / "summary.json").read_bytes()), out, err


@pytest.fixture(scope="module")
def drained(tmp_path_factory, server):
    """By route: a run over token ids with an engine of its own, one over chat messages with a server that was there."""
    cwd = tmp_path_factory.mktemp("drained")
    own = ["--calls", "48", "--api", "tokens", "--engine", ENGINE]
    there = f"--calls 36 --api chat --target {server} --seed 6 --no-text --json".split()
    runs = {
        name: start(cwd, "run", "library", *SMALL, *flags, "--out", str(cwd / name))
        for name, flags in (("tokens", own), ("chat", there))
    }
    return {name: finished(process, cwd / name) for name, process in runs.items()}


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_a_drained_run_counts_what_the_engine_counts(drained, api):
    run_dir, summary, _, _ = drained[api]
    events = events_of(run_dir)
    calls = [e for e in events if isinstance(e, ev.CallEnd)]
    assert summary["calls"] == len(calls) == (48 if api == "tokens" else 36)
    assert summary["failed_calls"] == summary["calls_cut"] == 0
    assert all(c.completion_tokens == c.pinned_tokens == sum(c.chunks.n) for c in calls)
    samples = [e for e in events if isinstance(e, ev.EngineSample)]
    first, last = samples[0], samples[-1]
    assert last.generation_tokens - first.generation_tokens == summary["output_tokens"]
    assert last.prompt_tokens - first.prompt_tokens == summary["prompt_tokens"]
    assert last.prefix_hits - first.prefix_hits == summary["cached_tokens"]
    # The counters' baseline is taken after the reset and before the first call.
    assert first.seq < min(e.seq for e in events if isinstance(e, ev.CallStart))
    assert json.loads((run_dir / "run.json").read_bytes())["isolation"]["reset"] is True
    assert "isolation_not_verified" not in summary["invalid_reasons"]
    # The prompts are as long as they were recorded.
    for call in calls:
        assert abs(call.prompt_tokens - call.expected_prompt_tokens) <= 0.03 * call.expected_prompt_tokens
    # What an endless cache would have hit is a ceiling for what was hit.
    assert summary["cache_hit_ratio"] is None or (
        summary["cache_hit_ratio"] <= summary["expected_cache_hit_ratio"] + 0.02
    )


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_the_summary_follows_from_the_folder_alone(drained, api):
    run_dir, _, out, err = drained[api]
    assert encode_summary(recompute(run_dir)) == (run_dir / "summary.json").read_bytes()
    run = json.loads((run_dir / "run.json").read_text())
    assert run["seed"] == (0 if api == "tokens" else 6)
    assert len({trace["fingerprint"] for trace in run["traces"]}) == len(run["traces"]) >= 12
    assert run["perf_counter_origin_ns"] > 0
    assert abs(run["wall_clock"] - (run_dir / "run.json").stat().st_mtime) < 60
    assert run["engine"]["version"]
    assert run["engine"]["resolved"]["block_size"]
    assert run["config"]["calls"] == (48 if api == "tokens" else 36)
    # Data on stdout, talk on stderr.
    assert out.startswith("6 agents") if api == "tokens" else json.loads(out)["agents"] == 6
    assert "length: " in err
    assert (run_dir / "text.jsonl").exists() == (api == "tokens")
    assert (run_dir / "engine.log").exists() == (api == "tokens")


def test_events_are_readable_as_plain_json(drained):
    run_dir = drained["tokens"][0]
    seen = [msgspec.json.decode(line) for line in (run_dir / "events.jsonl").read_bytes().splitlines()]
    assert [e["seq"] for e in seen] == list(range(1, len(seen) + 1))
    assert seen[0]["type"] == "run_start"
    assert seen[-1]["type"] == "run_end"
    assert {"heartbeat", "progress", "call_end", "client_sample", "engine_sample"} <= {e["type"] for e in seen}


def test_an_engine_that_was_started_is_stopped(drained):
    assert not engine_processes(drained["tokens"][0])


@pytest.fixture(scope="module")
def windowed(tmp_path_factory, server):
    cwd = tmp_path_factory.mktemp("windowed")
    more = ["--duration", "3", "--warmup", "1", "--target", server, "--out", str(cwd / "run")]
    return finished(start(cwd, "run", "library", *SMALL, *more), cwd / "run")


def test_a_window_of_fixed_length_cuts_what_is_in_flight(windowed):
    summary = windowed[1]
    assert summary["status"] == "completed"
    assert 2.9 <= summary["window_s"] <= 3.4
    assert summary["calls_cut"] > 0
    assert summary["failed_calls"] == 0
    assert summary["sessions_cut"] > 0
    assert summary["output_tokens_per_s"] > 0


def test_the_same_seed_draws_the_same_sessions(drained, windowed):
    """In processes of their own, whose `hash` differs."""

    def draws(folder):
        starts = [e for e in events_of(folder) if isinstance(e, ev.SessionStart)]
        return [(e.session, e.trace, e.first_turn) for e in sorted(starts, key=lambda e: int(e.session[1:]))][:6]

    one, two, other = (draws(folder) for folder, *_ in (drained["tokens"], windowed, drained["chat"]))
    assert len(one) == 6
    assert one == two != other


def test_a_server_that_refuses_every_call_ends_the_run(tmp_path, server):
    flags = ["--agents", "2", "--duration", "60", "--target", server, "--header", "Content-Length: 1"]
    process = start(tmp_path, "run", *flags, "--out", str(tmp_path / "run"))
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2), err
    assert "Traceback" not in err


# -- runs that something happens to


@pytest.fixture(scope="module")
def under_way(tmp_path_factory):
    """Runs in their middle, by what will happen to them. They idle a little, so that they leave each other room."""
    cwd = tmp_path_factory.mktemp("disturbed")
    flags = ["library:small", *SMALL, "--pace", "busy", "--tool-time", "<=0.5", "--human-time", "<=0.5"]
    runs = {}
    for name in ("engine", "SIGINT", "SIGTERM", "SIGKILL"):
        as_json = [] if name == "SIGKILL" else ["--json"]
        more = ["--duration", "300", "--engine", ENGINE, "--out", str(cwd / name), *as_json]
        runs[name] = (start(cwd, "run", *flags, *more), cwd / name)
    yield runs
    for process, _ in runs.values():
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_engine_killed_in_the_middle(under_way):
    process, run_dir = under_way["engine"]
    wait_for(calls_under_way(run_dir))
    killed = time.monotonic()
    for pid in engine_processes(run_dir):
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - killed < 10
    assert process.returncode == 1, err
    summary = json.loads(out)
    assert summary["status"] == "failed"
    events = events_of(run_dir)
    ends = [e for e in events if isinstance(e, ev.SessionEnd)]
    starts = [e for e in events if isinstance(e, ev.SessionStart)]
    assert sorted(e.session for e in ends) == sorted(e.session for e in starts)
    assert all(e.reason in BECAUSE_IT_DIED for e in ends if e.status != "completed")
    assert summary["status_reason"] == "engine_gone"
    assert {"engine_gone", "run_failed"} <= set(summary["invalid_reasons"])
    assert "Traceback" not in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_interrupts_keep_the_results_and_leave_no_orphan(under_way, signum):
    process, run_dir = under_way[signum.name]
    wait_for(calls_under_way(run_dir))
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["status"] == "interrupted"
    assert summary["calls"] >= 8
    assert (run_dir / "summary.json").exists()
    assert not engine_processes(run_dir)


def test_kill_9_of_the_run_leaves_a_folder_that_says_so_and_no_engine(under_way):
    process, run_dir = under_way["SIGKILL"]
    wait_for(calls_under_way(run_dir))
    process.kill()
    process.communicate(timeout=30)
    wait_for(lambda: not engine_processes(run_dir))
    viewed = subprocess.run(
        [*CLI, "view", str(run_dir), "--plain"],
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert viewed.returncode == 0, viewed.stderr
    assert "died" in viewed.stderr
    assert "6 agents" in viewed.stdout
