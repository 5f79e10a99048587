"""Known events give known figures: what the bench compares with the truth is not bent on the way."""

import json

import adapter
import numpy as np
import pytest
from compare import measure
from machine import Sample, Watched
from records import Said, Truth, from_log, pairs
from workload import command, make_workload

from windtunnel.agents import events as ev
from windtunnel.simulator.results.store import RunWriter

ORIGIN = 5_000_000_000_000
MS = 1_000_000


def call_end(request_id="r-0", **fields):
    given = {
        "t": 900 * MS,
        "agent": 0,
        "session": "s0",
        "thread": 0,
        "call": 0,
        "request_id": request_id,
        "t_intended": 100 * MS,
        "t_sent": 103 * MS,
        "t_first": 303 * MS,
        "t_last": 343 * MS,
        "t_end": 344 * MS,
        "throttled_ns": 2 * MS,
        "completion_tokens": 7,
        "chunks": ev.Chunks(us=(200_000, 19_000, 21_000), n=(3, 3, 1)),
    }
    return ev.CallEnd(**(given | fields))


@pytest.fixture
def run_dir(tmp_path):
    writer = RunWriter.create(tmp_path / "run", "abcd", no_text=True)
    writer.write_run({"perf_counter_origin_ns": ORIGIN})
    writer.emit(ev.RunStart(t=0, agents=2, wall_clock=1.0))
    writer.emit(call_end())
    writer.emit(call_end("r-1", failure="connection_reset", completion_tokens=None, detail="gone"))
    writer.emit(call_end("r-2", cut=True, t_sent=None, chunks=ev.Chunks(), t_end=None, completion_tokens=None))
    writer.emit(ev.RunEnd(t=1000 * MS, status="completed"))
    writer.close()
    return tmp_path / "run"


def test_calls_of_a_run_become_absolute_times(run_dir):
    good, failed, cut = adapter.said_in(run_dir)
    assert (good.id, good.intended, good.sent, good.end) == (
        "r-0",
        ORIGIN + 102 * MS,
        ORIGIN + 103 * MS,
        ORIGIN + 344 * MS,
    )
    assert good.times.tolist() == [ORIGIN + t * MS for t in (303, 322, 343)]
    assert (good.tokens, good.first_tokens, good.failure, good.cut) == (7, 3, None, False)
    assert good.ttft_ns == 201 * MS
    assert (failed.failure, failed.detail, failed.tokens, len(failed.times)) == ("connection_reset", "gone", None, 3)
    assert (cut.cut, cut.sent, cut.end, cut.times.tolist(), cut.ttft_ns) == (True, None, None, [], None)


def test_answers_for_a_foreign_harness_hold_completed_calls_only(run_dir):
    answers = json.loads(json.dumps(adapter.as_answers(adapter.said_in(run_dir))))
    assert answers == {
        "duration": 0.242,
        "out_tokens": 7,
        "ttft_ms": [201.0],
        "itl_ms": [19.0, 21.0],
        "e2e_ms": [242.0],
        "per_req": [
            {
                "rid": "r-0",
                "t0": ORIGIN + 103 * MS,
                "t1": ORIGIN + 303 * MS,
                "tN": ORIGIN + 343 * MS,
                "tend": ORIGIN + 344 * MS,
            }
        ],
    }


def test_nothing_completed_gives_empty_answers():
    assert adapter.as_answers([])["ttft_ms"] == []


def truth(**fields):
    given = {
        "id": "r-0",
        "fault": "none",
        "how": "done",
        "number": 0,
        "accepted": ORIGIN + 101 * MS,
        "full": ORIGIN + 103 * MS,
        "role": ORIGIN + 302 * MS,
        "end": ORIGIN + 343 * MS,
        "body": 2000,
        "tokens": 7,
        "blocked": 0,
        "reused": False,
        "times": np.array([ORIGIN + t * MS for t in (302, 322, 342)]),
    }
    return Truth(**(given | fields))


def test_the_log_and_the_times_are_put_together():
    lines = b"".join(
        json.dumps(
            {
                **{name: getattr(truth(), name) for name in Truth.__struct_fields__ if name != "times"},
                "first": 1,
                "last": 2,
                "at": at,
                "chunks": 2,
            }
        ).encode()
        + b"\n"
        for at in (0, 2)
    )
    first, second = from_log(lines, np.array([1, 2, 3, 4], dtype=np.int64).tobytes())
    assert (first.times.tolist(), second.times.tolist(), first.id) == ([1, 2], [3, 4], "r-0")


def watched():
    step = 10 * MS
    samples = [Sample(ORIGIN + i * step, i * step // 10, i * step // 5, i * step // 2, 100 + i) for i in range(41)]
    return Watched(0, samples)


def test_reported_minus_true(run_dir):
    said = adapter.said_in(run_dir)
    got = measure("windtunnel", said, [truth()], watched())
    assert (got.requests, got.chunks) == (1, 3)
    assert (got.first_lag.p50, got.last_lag.p50) == (1.0, 1.0)
    assert got.chunk_lag.p50 == 1.0
    assert (got.true_ttft.p50, got.ttft_error.p50, got.sent_ttft_error.p50) == (199.0, 2.0, 1.0)
    assert got.gap_error.p50 == pytest.approx(0.0)
    assert got.tpot_ratio == pytest.approx(40 / 40)
    assert got.tokens_exact is True
    # CPU of the client: a tenth of the time from the first connection to the last end, 242 ms
    assert got.cpu_s == pytest.approx(0.0242, rel=1e-3)
    assert got.cpu_us_per_chunk == pytest.approx(0.0242e6 / 3, rel=1e-3)
    assert got.foreign_cores == pytest.approx(0.3, rel=1e-3)


def test_a_wrong_count_is_not_exact(run_dir):
    said = adapter.said_in(run_dir)
    assert measure("windtunnel", said, [truth(tokens=8)], watched()).tokens_exact is False


def test_a_client_that_takes_chunks_for_tokens_shows():
    times = truth().times + MS
    said = [Said("r-0", int(times[0]), int(times[0]), times, int(times[-1]))]
    got = measure("naive", said, [truth()], watched())
    assert got.tpot_ratio == pytest.approx(2.0)  # 40 ms over 2 chunks instead of over 4 tokens
    assert got.tokens_exact is None


def test_requests_that_only_one_side_knows_are_left_out():
    said = Said("other", 0, 0, truth().times)
    assert pairs([said], [truth()]) == []


def test_the_workload_adds_up_and_goes_on_from_call_to_call():
    trace = make_workload("w", 2000, [100, 50])
    sums = trace.prompt_tokens()
    assert [sums[call.id] for call in trace.calls] == [call.usage.prompt for call in trace.calls]
    assert [call.usage.completion for call in trace.calls] == [100, 50]
    first, second = (prompt for _, prompt in trace.prompts())
    assert tuple(second)[: len(first)] == tuple(first)
    assert trace.calls[0].output in second


def test_the_command_is_an_ordinary_run(tmp_path):
    argv = command(tmp_path / "t.jsonl", "http://127.0.0.1:1", 4, 8, tmp_path / "run", windtunnel=["windtunnel"])
    assert argv[:2] == ["windtunnel", "run"]
    assert argv[argv.index("--sessions") + 1] == "8"
    assert "--duration" not in argv
    cut = command(tmp_path / "t.jsonl", "http://127.0.0.1:1", 4, 8, tmp_path / "run", "--duration", "2")
    assert "--sessions" not in cut
