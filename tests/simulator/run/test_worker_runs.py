"""Whole runs with two client processes: the same run as with one, and what becomes of it when one of them dies."""

import json
import os
import signal
import subprocess
import sys

import pytest

from windtunnel.agents import events as ev

from .test_whole_runs import CLI, ENGINE, SMALL, calls_under_way, events_of, finished, start, wait_for

TWO = ["--workers", "2"]


@pytest.fixture(scope="module")
def server():
    """An emulator for all the runs of this module."""
    command = [sys.executable, "-m", "windtunnel.simulator.emulator.serve", *ENGINE.split()[1:], "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.terminate()
    process.communicate(timeout=10)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, server):
    """The same run with one process and with two."""
    cwd = tmp_path_factory.mktemp("pair")
    flags = ["library:small", *SMALL, "--calls", "36", "--target", server, "--no-text"]

    def one(workers):
        out = cwd / f"by{workers}"
        return finished(start(cwd, "run", *flags, "--workers", str(workers), "--out", str(out)), out)[:2]

    return [one(1), one(2)]


def processes_of(run_dir):
    """Worker processes of a run that are still there."""
    return [pid for pid in json.loads((run_dir / "run.json").read_text())["worker_pids"] if exists(pid)]


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_seed_gives_the_same_sessions_whatever_the_number_of_processes(pair):
    def draws(run_dir):
        starts = [e for e in events_of(run_dir) if isinstance(e, ev.SessionStart)]
        return [(e.session, e.agent, e.trace, e.copy, e.first_turn, e.calls_total) for e in starts][:6]

    one, two = (draws(run_dir) for run_dir, _ in pair)
    assert [session for session, *_ in one] == ["s0", "s1", "s2", "s3", "s4", "s5"]
    assert len({first_turn for *_, first_turn, _ in one}) > 1
    assert one == two


def test_a_drained_run_of_two_processes_counts_what_the_engine_counts(pair):
    run_dir, summary = pair[1]
    events = events_of(run_dir)
    calls = [e for e in events if isinstance(e, ev.CallEnd)]
    assert summary["calls"] == len(calls) == 36
    assert summary["failed_calls"] == summary["calls_cut"] == 0
    assert all(c.completion_tokens == c.pinned_tokens == sum(c.chunks.n) for c in calls)
    samples = [e for e in events if isinstance(e, ev.EngineSample)]
    assert samples[-1].generation_tokens - samples[0].generation_tokens == summary["output_tokens"]
    assert samples[-1].prompt_tokens - samples[0].prompt_tokens == summary["prompt_tokens"]
    assert samples[-1].prefix_hits - samples[0].prefix_hits == summary["cached_tokens"]
    assert summary["cached_tokens"] <= sum(c.expected_cached_tokens for c in calls)


def test_there_is_one_stream_of_events(pair):
    run_dir, _ = pair[1]
    events = events_of(run_dir)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    progress = [e.t for e in events if isinstance(e, ev.Progress)]
    assert len(progress) <= events[-1].t / 250_000_000 + 2
    assert len(json.loads((run_dir / "run.json").read_text())["worker_pids"]) == 2
    assert not processes_of(run_dir)
    assert json.loads((pair[0][0] / "run.json").read_text())["worker_pids"] == []


def sessions_of(run_dir):
    """What was replayed, by session. Which agent takes the next one depends on who is done first."""
    starts = [e for e in events_of(run_dir) if isinstance(e, ev.SessionStart)]
    return {e.session: (e.trace, e.copy, e.first_turn, e.calls_total, round(e.work, 9)) for e in starts}


def calls_of(run_dir):
    """What was asked and how much was answered, by session, thread and call."""
    ends = [e for e in events_of(run_dir) if isinstance(e, ev.CallEnd)]
    return {
        (e.session, e.thread, e.call): (e.expected_prompt_tokens, e.prompt_tokens, e.pinned_tokens, e.completion_tokens)
        for e in ends
    }


def test_sessions_and_calls_are_the_same_by_one_process_and_by_two(pair):
    """All that both runs came to: which calls the budget still covers depends on who is done first."""
    for facts, least in ((sessions_of, 8), (calls_of, 25)):
        one, two = (facts(run_dir) for run_dir, _ in pair)
        both = one.keys() & two.keys()
        assert len(both) >= least
        assert {key: one[key] for key in both} == {key: two[key] for key in both}


def test_the_merged_stream_tells_each_thing_once_and_in_order(pair):
    events = events_of(pair[1][0])
    place = {}
    for event in events:
        if isinstance(event, ev.CallStart | ev.CallEnd):
            key = event.request_id, type(event)
            assert key not in place
            place[key] = event.seq
    begun = [request for request, kind in place if kind is ev.CallStart]
    assert len(place) == 2 * len(begun)
    assert all(place[request, ev.CallStart] < place[request, ev.CallEnd] for request in begun)
    for end in (e for e in events if isinstance(e, ev.CallEnd)):
        # Times of another process are of the same clock.
        assert end.t_intended <= end.t_sent <= end.t_first <= end.t_last <= end.t_end <= end.t


@pytest.fixture(scope="module")
def under_way(tmp_path_factory, server):
    """Runs of two client processes in their middle, by what will happen to them."""
    cwd = tmp_path_factory.mktemp("disturbed")
    flags = ["library:small", *SMALL, "--pace", "busy", "--tool-time", "<=0.3", "--human-time", "<=0.3", *TWO]
    more = ["--duration", "300", "--target", server, "--isolate", "none"]
    runs = {n: (start(cwd, "run", *flags, *more, "--out", str(cwd / n)), cwd / n) for n in ("stop", "worker", "run")}
    yield runs
    for process, _ in runs.values():
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_an_interrupt_keeps_the_results_and_leaves_no_process(under_way):
    process, run_dir = under_way["stop"]
    wait_for(calls_under_way(run_dir))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the job
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in out
    ends = [e for e in events_of(run_dir) if isinstance(e, ev.CallEnd)]
    assert not [e.failure for e in ends if e.failure]
    assert not processes_of(run_dir)


def test_a_killed_worker_fails_the_run_and_is_named(under_way):
    process, run_dir = under_way["worker"]
    wait_for(calls_under_way(run_dir))
    os.kill(processes_of(run_dir)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    assert "client process 1 of 2" in err
    assert "SIGKILL" in err
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["status"], summary["status_reason"]) == ("failed", "worker_gone")
    assert {"worker_gone", "run_failed"} <= set(summary["invalid_reasons"])
    events = events_of(run_dir)
    starts, ends = ([e.session for e in events if isinstance(e, kind)] for kind in (ev.SessionStart, ev.SessionEnd))
    assert sorted(starts) == sorted(ends)
    # It says nothing about the engine: what was in flight is cut, not failed.
    assert not [e.failure for e in events if isinstance(e, ev.CallEnd) and e.failure]
    assert not processes_of(run_dir)


def test_kill_9_of_the_run_ends_its_workers(under_way):
    process, run_dir = under_way["run"]
    wait_for(calls_under_way(run_dir))
    assert len(processes_of(run_dir)) == 2
    process.kill()
    process.communicate(timeout=30)
    wait_for(lambda: not processes_of(run_dir), 10)


def test_no_workers_is_wrong_use():
    said = subprocess.run([*CLI, "run", "--workers", "0"], capture_output=True, text=True, timeout=30, check=False)
    assert said.returncode == 2
    assert said.stderr == "windtunnel: --workers 0: give 1 to 64 client processes\n"
