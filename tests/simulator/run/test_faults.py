"""Everything that a server can do wrong: one table, each fault under its name in the summary of an ordinary run.

The connections are those of the client, over a wire in memory on virtual time: what happens to one stream must leave
each chunk of all others where it is in a run without faults, to the microsecond.
"""

from typing import NamedTuple

import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.run.config import Warmup

from .conftest import NS, Sketch, chain
from .in_memory import FIRST_S, GAP_S, LATE_S, MIDDLE, SLOW_BYTES, SLOW_S, WIDE, Engine

AGENTS, CALLS, OUT = 5, 3, 20
VICTIM = "s2"


class Row(NamedTuple):
    """What a run says of the one call that meets a fault."""

    failure: str | None
    detail: str | None = None
    chunks: int = OUT
    """Arrivals that carried tokens."""
    tokens: int | None = OUT
    """Completion tokens reported."""
    lasts: float = FIRST_S + (OUT - 1) * GAP_S
    """From the request to the end, s."""


BROKEN = FIRST_S + MIDDLE * GAP_S
FAULTS = {
    "none": Row(None),
    "reset": Row("connection_reset", "[Errno 104] Connection reset by peer", MIDDLE, MIDDLE, BROKEN),
    "close": Row("connection_closed", None, MIDDLE, MIDDLE, BROKEN),
    "no_answer": Row("server_disconnected", None, 0, None, FIRST_S),
    "not_http": Row("malformed_http", "Expected HTTP/", 0, None, FIRST_S),
    "error_event": Row("error_event", "out of memory", MIDDLE, MIDDLE, BROKEN),
    "malformed": Row("malformed_stream", '{"choices": [{"index"}]}'),
    "not_sse": Row("not_sse", '{"choices": []}', 0, None, FIRST_S),
    "no_end": Row("no_end_marker"),
    "no_finish": Row("no_finish_reason"),
    "short": Row("wrong_length", None, OUT - 1, OUT - 1, FIRST_S + (OUT - 2) * GAP_S),
    "400": Row("http_400", "too long", 0, None, FIRST_S),
    "429": Row("http_429", "slow down; retry after 7", 0, None, FIRST_S),
    "503": Row("http_503", "loading", 0, None, FIRST_S),
    "redirect": Row("redirect", "location: https://elsewhere/v1", 0, None, FIRST_S),
    "stall": Row("read_timeout", "no byte for 60 s", MIDDLE, MIDDLE, FIRST_S + (MIDDLE - 1) * GAP_S + 60),
    "pause": Row(None, lasts=FIRST_S + (OUT - 1) * GAP_S + 59),
    "long_ids": Row(None),
    "long_text": Row(None),
    "split": Row(None),
    "crlf": Row(None),
    "cr": Row(None),
    "comments": Row(None),
    "usage_early": Row(None),
    "usage_beside": Row(None),
    "usage_late": Row(None, lasts=FIRST_S + (OUT - 1) * GAP_S + LATE_S),
    "usage_absent": Row(None),
    "counts_absent": Row(None, tokens=None),
    "slow_read": Row(None),
}


@pytest.fixture
def faulty(replay):
    """A run in which the second call of one session meets a fault; the rest of its dials may be given."""

    def run(fault, *traces, calls=("s2-0-1",), **dials):
        engines = []

        def connect(clock):
            engine = Engine(clock, lambda request_id: fault if request_id.endswith(calls) else "none")
            engines.append(engine)
            return engine.client

        given = {"agents": AGENTS, "sessions": AGENTS, **dials}
        traces = traces or [chain(f"t{n}", CALLS, wait=1.0, out=OUT) for n in range(AGENTS)]
        return replay(*traces, connect=connect, **given), engines[0]

    return run


def facts(end):
    """Who, when and how much."""
    times = (end.t_intended, end.t_sent, end.t_first, end.t_last, end.t_end)
    return end.request_id, *times, end.completion_tokens, end.chunks.us, end.chunks.n


def text_of(run, request_id):
    return next(line.text for line in RunFolder.open(run.path).texts() if line.request_id == request_id)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_name_and_the_other_streams_go_on(faulty, fault):
    run, engine = faulty(fault)
    row = FAULTS[fault]
    summary = run.summary
    assert summary.failures == ({} if row.failure is None else {row.failure: 1})
    assert (summary.failed_calls, summary.sessions_failed) == ((0, 0) if row.failure is None else (1, 1))
    assert summary.sessions_completed == AGENTS - summary.sessions_failed

    met = run.end(1, VICTIM)
    assert (met.failure, met.cut) == (row.failure, False)
    assert row.detail is None or row.detail in met.detail
    assert len(met.chunks.us) == row.chunks
    assert met.completion_tokens == row.tokens
    assert (met.t_end - met.t_sent) / NS == pytest.approx(row.lasts, abs=1e-6)
    # Each arrival is at the moment of its write.
    asked = engine.asked[met.request_id]
    assert [t * 1000 + met.t_sent for t in _added(met.chunks.us)] == asked.times[: row.chunks]

    others, clean = ([facts(e) for e in each.ends if e.session != VICTIM] for each in (run, faulty("none")[0]))
    assert len(others) == (AGENTS - 1) * CALLS
    assert sorted(others) == sorted(clean)
    assert all(end.failure is None for end in run.ends if end.session != VICTIM)
    assert engine.client.in_flight == engine.client.blocked == 0


class Given(NamedTuple):
    """What a run says of the one call whose answer has no end."""

    failure: str
    detail: str
    tokens: range
    """Arrivals that carried tokens; progress is looked at every 250 ms, in which 13 come."""
    lasts: float
    """From the request to the end, s; up to 250 ms more."""


EXACTLY = OUT + OUT // 8 + 64
WHOLE = FIRST_S + (OUT - 1) * GAP_S
WITHOUT_END = {
    "endless": Given(
        "endless",
        " tokens and no end where at most 20 tokens were asked for",
        range(EXACTLY + 1, EXACTLY + 14),
        FIRST_S + EXACTLY * GAP_S,
    ),
    "endless_usage": Given(
        "endless", " tokens and no end", range(EXACTLY + 1, EXACTLY + 14), FIRST_S + EXACTLY * GAP_S
    ),
    "endless_text": Given("endless", " pieces and no end", range(297, 326), FIRST_S + 296 * GAP_S),
    "open_after_done": Given("open_after_done", "still open 5 s after [DONE]", range(OUT, OUT + 1), WHOLE + 5),
    "open_after_finish": Given("no_end_marker", "30 s after the finish reason", range(OUT, OUT + 1), WHOLE + 30),
    "open_after_error": Given("error_event", "out of memory", range(MIDDLE, MIDDLE + 1), BROKEN + 5),
    "endless_refusal": Given("http_500", "no. no. no. ", range(1), FIRST_S + 10),
}


@pytest.mark.parametrize("fault", WITHOUT_END)
def test_an_answer_without_end_is_given_up_and_the_other_streams_go_on(faulty, fault):
    run, engine = faulty(fault)
    given = WITHOUT_END[fault]
    met = run.end(1, VICTIM)
    assert run.summary.failures == {given.failure: 1}
    assert (met.failure, met.cut) == (given.failure, False)
    assert given.detail in met.detail
    assert len(met.chunks.us) in given.tokens
    assert 0 <= (met.t_end - met.t_sent) / NS - given.lasts <= 0.6
    assert engine.asked[met.request_id].wire.closing
    assert run.summary.sessions_completed == AGENTS - 1
    others, clean = ([facts(e) for e in each.ends if e.session != VICTIM] for each in (run, faulty("none")[0]))
    assert sorted(others) == sorted(clean)


def _added(us):
    total, out = 0, []
    for step in us:
        total += step
        out.append(total)
    return out


def test_torn_characters_and_odd_line_ends_are_the_text_that_was_meant(faulty):
    plain = "".join(f"w{n} " for n in range(OUT))
    said = {"split": WIDE * OUT, "crlf": plain, "cr": plain, "comments": plain, "long_ids": plain}
    for fault, text in said.items():
        run, _ = faulty(fault)
        assert text_of(run, run.end(1, VICTIM).request_id) == text
    run, _ = faulty("long_text")
    assert len(text_of(run, run.end(1, VICTIM).request_id)) == 10_000_000 + len(plain) - len("w0 ")


def test_usage_that_never_comes_is_not_made_up(faulty):
    met = faulty("usage_absent")[0].end(1, VICTIM)
    assert (met.prompt_tokens, met.cached_tokens, met.completion_tokens) == (None, None, OUT)
    run, _ = faulty("counts_absent")
    assert run.summary.calls_without_usage == 1
    for fault in ("usage_early", "usage_beside", "usage_late"):
        met = faulty(fault)[0].end(1, VICTIM)
        assert (met.prompt_tokens, met.cached_tokens, met.completion_tokens) == (5, 0, OUT)
        assert sum(met.chunks.n) == OUT


def test_a_server_that_reads_slowly_shows_in_the_time_of_sending(faulty):
    blocked = []
    run, engine = faulty("slow_read", at=[(1.9 + 0.05, lambda driver: blocked.append(driver.client.blocked))])
    met = run.end(1, VICTIM)
    late = (met.t_sent - met.t_intended) / NS
    reads = round(late / SLOW_S)
    assert late == pytest.approx(reads * SLOW_S)
    assert reads > 2
    body = len(engine.asked[met.request_id].body["prompt"])
    assert (reads - 1) * SLOW_BYTES < 6 * body + 1000
    assert engine.asked[met.request_id].full == met.t_sent
    # What the server's slowness cost is in the time to the first token, which counts from when the call was due.
    assert (met.t_first - met.t_intended) / NS == pytest.approx(late + FIRST_S)
    assert run.summary.ttft_s.max == pytest.approx(late + FIRST_S)
    assert blocked == [1]


def test_what_a_cut_call_counts_is_what_the_server_had_written(faulty):
    """At the end of a measured window, on purpose in the middle of streams."""
    traces = [chain(f"t{n}", 50, wait=0.0, out=500) for n in range(AGENTS)]
    run, engine = faulty("none", *traces, sessions=None, duration_s=20.013, ramp_s=1.0, warmup=Warmup(calls=1))
    cut = [e for e in run.ends if e.cut]
    assert len(cut) == AGENTS
    for end in cut:
        asked = engine.asked[end.request_id]
        assert 0 < asked.written < 500
        assert not asked.over
        assert (end.failure, sum(end.chunks.n), len(end.chunks.us)) == (None, asked.written, asked.written)
        assert asked.wire.closing
    summary = run.summary
    assert (summary.calls_cut, summary.failed_calls, summary.failures) == (AGENTS, 0, {})


def test_calls_given_up_for_a_failed_sub_agent_count_what_was_written(faulty):
    sketch = Sketch("p")
    first = sketch.call(out=OUT)
    threads = [sketch.thread(first, delay=0.05 * n) for n in range(3)]
    for thread in threads:
        sketch.call(thread=thread, out=OUT)
    sketch.call(("subagent", 1.0), joins=tuple(threads), out=OUT)
    run, engine = faulty("reset", sketch.trace(), calls=("s0-1-1",), agents=1, sessions=1)
    assert run.summary.failures == {"connection_reset": 1}
    beside = [e for e in run.ends if e.cut]
    assert sorted(e.thread for e in beside) == [2, 3]
    for end in beside:
        asked = engine.asked[end.request_id]
        assert sum(end.chunks.n) == asked.written > 0
        assert asked.wire.closing


def test_a_server_that_stalls_for_everybody_ends_the_run_in_minutes_not_in_days(faulty):
    every = tuple(f"s{n}-0-{call}" for n in range(99) for call in range(CALLS))
    run, _ = faulty("stall", calls=every, sessions=None, duration_s=36_000.0)
    assert set(run.summary.failures) == {"read_timeout"}
    assert run.driver.stopped == "failures"
    assert run.phases["done"] < 150
    assert {e.reason for e in run.of(ev.SessionEnd)} <= {"read_timeout", "failures"}
