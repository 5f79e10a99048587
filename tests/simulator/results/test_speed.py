"""A long run must open quickly and cost the run nothing: orders of magnitude, printed with `-s`."""

from time import process_time

from windtunnel.agents.events import (
    AgentProgress,
    CallEnd,
    CallStart,
    Chunks,
    Heartbeat,
    Phase,
    Progress,
    RunStart,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.store import RunFolder, RunWriter
from windtunnel.simulator.results.summary import summarise

NS = 1_000_000_000
AGENTS = 32
CALLS = 6000


def made():
    """About five events a call, one progress event of 17 agents for every third."""
    yield RunStart(t=0, agents=AGENTS, wall_clock=0.0)
    for agent in range(AGENTS):
        start = {"session": f"s{agent}", "trace": "t", "title": "t", "copy": 0, "calls_total": CALLS, "turns_total": 1}
        yield SessionStart(t=0, agent=agent, **start)
    yield Phase(t=0, phase="steady")
    for i in range(CALLS):
        agent, t = i % AGENTS, i * NS // 10
        base = {"agent": agent, "session": f"s{agent}", "thread": 0, "call": i}
        yield WaitStart(t=t, cause="tool", seconds=1.0, label="Bash", **base)
        yield WaitEnd(t=t + 1, cause="tool", **base)
        sent = {"request_id": f"r{i}", "t_intended": t + 2, "expected_prompt_tokens": 100_000}
        yield CallStart(t=t + 2, turn=1, turns=9, **base, **sent)
        if i % 3 == 0:
            seen = tuple(AgentProgress(a, 0, i, "decode", i) for a in range(17))
            yield Progress(
                t=t + 2, output_tokens=i * 30, prompt_tokens=i, in_flight=17, in_tool=9, waiting=6, agents=seen
            )
            yield Heartbeat(t=t + 3)
        yield CallEnd(
            t=t + 4 * NS,
            t_sent=t + 2,
            t_first=t + NS,
            t_last=t + 4 * NS,
            t_end=t + 4 * NS,
            prompt_tokens=100_000,
            completion_tokens=30,
            chunks=Chunks((100_000,) * 30, (1,) * 30),
            **base,
            **sent,
        )


def timed(label, count, work):
    began = process_time()
    result = work()
    passed = process_time() - began
    print(f"{label}: {count / passed:,.0f}/s, {passed / count * 1e6:.2f} us each")
    return result, passed / count


def test_write_decode_fold_and_summarise(tmp_path):
    events = list(made())
    writer = RunWriter.create(tmp_path / "run", "x", no_text=True)
    writer.write_run({})
    _, write = timed("emit", len(events), lambda: [writer.emit(event) for event in events])
    writer.close()
    read, decode = timed("decode", len(events), lambda: list(RunFolder.open(tmp_path / "run").events()))
    assert read == events
    fold = Fold()
    _, folding = timed("fold", len(events), lambda: fold.apply_all(read))
    summary, summing = timed("summarise", len(events), lambda: summarise({}, read))
    assert summary.calls == fold.calls["started"] == CALLS
    assert summary.output_tokens == fold.output_tokens == CALLS * 30
    # Loose: the machine may be busy. Quadratic work would miss these by far.
    assert write < 50e-6
    assert decode < 50e-6
    assert folding < 100e-6
    assert summing < 200e-6


def test_plain_events_decode_fast(tmp_path):
    count = 200_000
    (tmp_path / "run.json").write_text("{}")
    line = (
        b'{"type":"wait_end","t":123456789012,"seq":99,"agent":3,"session":"s3","thread":0,"call":7,"cause":"tool"}\n'
    )
    (tmp_path / "events.jsonl").write_bytes(line * count)
    read, each = timed("decode plain", count, lambda: sum(1 for _ in RunFolder.open(tmp_path).events()))
    assert read == count
    assert each < 20e-6
