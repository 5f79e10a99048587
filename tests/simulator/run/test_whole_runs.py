"""Whole runs through the command line against the embedded emulator, and what becomes of them when something dies."""

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


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_a_drained_run_counts_what_the_engine_counts(tmp_path, run_dir, api):
    process = start(tmp_path, "run", *SMALL, "--calls", "48", "--api", api, "--out", str(run_dir), "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    summary = json.loads(out)
    events = events_of(run_dir)
    calls = [e for e in events if isinstance(e, ev.CallEnd)]
    assert summary["calls"] == len(calls) == 48
    assert summary["failed_calls"] == summary["calls_cut"] == 0
    assert all(c.completion_tokens == c.pinned_tokens == sum(c.chunks.n) for c in calls)
    samples = [e for e in events if isinstance(e, ev.EngineSample)]
    first, last = samples[0], samples[-1]
    assert last.generation_tokens - first.generation_tokens == summary["output_tokens"]
    assert last.prompt_tokens - first.prompt_tokens == summary["prompt_tokens"]
    assert last.prefix_hits - first.prefix_hits == summary["cached_tokens"]
    assert "isolation_not_verified" not in summary["invalid_reasons"]
    # The prompts are as long as they were recorded.
    for call in calls:
        assert abs(call.prompt_tokens - call.expected_prompt_tokens) <= 0.03 * call.expected_prompt_tokens
    # What an endless cache would have hit is a ceiling for what was hit.
    assert summary["cache_hit_ratio"] is None or (
        summary["cache_hit_ratio"] <= summary["expected_cache_hit_ratio"] + 0.02
    )


def test_the_summary_follows_from_the_folder_alone(tmp_path, run_dir):
    process = start(tmp_path, "run", *SMALL, "--calls", "30", "--out", str(run_dir))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "6 agents" in out
    assert encode_summary(recompute(run_dir)) == (run_dir / "summary.json").read_bytes()
    run = json.loads((run_dir / "run.json").read_text())
    assert run["seed"] == 0
    assert run["traces"]
    assert all(trace["fingerprint"] for trace in run["traces"])
    assert run["engine"]["version"]
    assert run["engine"]["resolved"]["block_size"]
    assert run["config"]["calls"] == 30


def test_a_window_of_fixed_length_cuts_what_is_in_flight(tmp_path, run_dir):
    process = start(tmp_path, "run", *SMALL, "--duration", "4", "--warmup", "1", "--out", str(run_dir), "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    summary = json.loads(out)
    assert summary["status"] == "completed"
    assert 3.8 <= summary["window_s"] <= 4.5
    assert summary["calls_cut"] > 0
    assert summary["failed_calls"] == 0
    assert summary["sessions_cut"] > 0
    assert summary["output_tokens_per_s"] > 0


def test_the_engine_killed_in_the_middle(tmp_path, run_dir):
    process = start(tmp_path, "run", *SMALL, "--duration", "300", "--out", str(run_dir), "--json")
    wait_for(calls_under_way(run_dir))
    killed = time.monotonic()
    for pid in engine_processes(run_dir):
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - killed < 10
    assert process.returncode == 1, err
    summary = json.loads(out)
    assert summary["status"] == "failed"
    ends = [e for e in events_of(run_dir) if isinstance(e, ev.SessionEnd)]
    starts = [e for e in events_of(run_dir) if isinstance(e, ev.SessionStart)]
    assert sorted(e.session for e in ends) == sorted(e.session for e in starts)
    assert all(e.reason in BECAUSE_IT_DIED for e in ends if e.status != "completed")
    assert summary["status_reason"] == "engine_gone"
    assert "Traceback" not in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_keep_the_results_and_leave_no_orphan(tmp_path, run_dir, signum):
    process = start(tmp_path, "run", *SMALL, "--duration", "300", "--out", str(run_dir), "--json")
    wait_for(calls_under_way(run_dir))
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["status"] == "interrupted"
    assert summary["calls"] >= 8
    assert (run_dir / "summary.json").exists()
    assert not engine_processes(run_dir)


def test_kill_9_of_the_run_leaves_a_folder_that_says_so_and_no_engine(tmp_path, run_dir):
    process = start(tmp_path, "run", *SMALL, "--duration", "300", "--out", str(run_dir))
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


def test_a_server_that_refuses_every_call_ends_the_run(tmp_path, run_dir):
    process = start(
        tmp_path, "run", "--agents", "2", "--duration", "60", "--header", "Content-Length: 1", "--out", str(run_dir)
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2), err
    assert "Traceback" not in err


def test_the_same_seed_draws_the_same_sessions(tmp_path):
    def draws(name, seed):
        folder = tmp_path / name
        args = ["run", *SMALL, "--calls", "18", "--seed", str(seed), "--out", str(folder), "--no-text"]
        process = start(tmp_path, *args)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert not (folder / "text.jsonl").exists()
        starts = [e for e in events_of(folder) if isinstance(e, ev.SessionStart)]
        return [(e.session, e.trace, e.first_turn) for e in sorted(starts, key=lambda e: e.session)][:6]

    assert draws("a", 5) == draws("b", 5)
    assert draws("c", 5) != draws("d", 6)


def test_events_are_readable_as_plain_json(tmp_path, run_dir):
    process = start(tmp_path, "run", *SMALL, "--calls", "12", "--out", str(run_dir))
    process.communicate(timeout=120)
    seen = [msgspec.json.decode(line) for line in (run_dir / "events.jsonl").read_bytes().splitlines()]
    assert [e["seq"] for e in seen] == list(range(1, len(seen) + 1))
    assert seen[0]["type"] == "run_start"
    assert seen[-1]["type"] == "run_end"
    assert {"heartbeat", "progress", "call_end", "client_sample", "engine_sample"} <= {e["type"] for e in seen}
