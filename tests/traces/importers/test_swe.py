"""SWE-agent and mini-swe-agent trajectories made up for the purpose."""

import json
from pathlib import Path

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Trace

from .agent_logs import ADDER, UNIX, Json, mini_answer, mini_log, swe_log


def write(path: Path, log: object) -> Path:
    path.write_text(json.dumps(log, indent=1))
    return path


def load(path: Path, log: object) -> Trace:
    result = import_path(write(path, log))
    assert result.problems == ()
    (trace,) = result.traces
    assert faults(trace) == []
    return trace


def texts(trace: Trace, call: int) -> list[str | None]:
    return [trace.blocks[b].text for m in trace.calls[call].append for b in trace.messages[m].blocks]


def test_a_trajectory(tmp_path: Path) -> None:
    trace = load(tmp_path / "run.traj", swe_log())
    assert (trace.header.agent, trace.header.id, trace.header.title) == (
        "swe-agent",
        "run",
        "The adder subtracts INSTRUCTIONS: Be",
    )
    assert len(trace.calls) == 3
    assert {(c.marks["prompt"], c.marks["completion"]) for c in trace.calls} == {("estimated", "estimated")}
    assert [(r.name, r.tool_call_id) for r in trace.tool_runs] == [("open", "t1"), ("edit", "t1-1"), ("submit", "t3")]
    assert [(w.before, w.cause, w.seconds, w.tools) for w in trace.waits] == [
        (1, "tool", 0.25, ("open",)),
        (2, "tool", 1.5, ("edit",)),
    ]
    assert trace.header.notes == ()


def test_totals_scale_the_estimates(tmp_path: Path) -> None:
    log = swe_log()
    log["info"]["model_stats"] = {"tokens_sent": 6_000, "tokens_received": 300, "api_calls": 3}
    trace = load(tmp_path / "run.traj", log)
    assert sum(c.usage.prompt or 0 for c in trace.calls) == 6_000
    assert sum(c.usage.completion or 0 for c in trace.calls) == 300
    assert {c.marks["prompt"] for c in trace.calls} == {"estimated"}


def test_an_action_in_the_text_has_its_result_in_the_next_message(tmp_path: Path) -> None:
    log = swe_log()
    for message in log["history"]:
        message.pop("tool_calls", None)
        if message.pop("tool_call_ids", None):
            message["role"] = "user"
    trace = load(tmp_path / "run.traj", log)
    assert [r.name for r in trace.tool_runs] == ["open", "edit", "submit"]
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 0.25), ("tool", 1.5)]
    assert [trace.messages[m].role for m in trace.calls[1].append] == ["assistant", "user"]


def test_a_demonstration_is_part_of_the_first_prompt(tmp_path: Path) -> None:
    log = swe_log()
    demo = [
        {"role": "user", "content": "Demo", "is_demo": True},
        {"role": "assistant", "content": "So.", "is_demo": True},
    ]
    log["history"][1:1] = demo
    trace = load(tmp_path / "run.traj", log)
    assert len(trace.calls) == 3
    assert texts(trace, 0)[1:3] == ["Demo", "So."]
    assert trace.header.title == "The adder subtracts INSTRUCTIONS: Be"


def test_a_step_says_what_it_really_sent(tmp_path: Path) -> None:
    """A history processor left an old result out: the prompt is shorter than the history."""
    log = swe_log()
    history = log["history"]
    elided = {**history[3], "content": "Old environment output: (2 lines omitted)"}
    for number, query in enumerate((history[:2], history[:4], [*history[:3], elided, *history[4:6]])):
        log["trajectory"][number]["query"] = query
    trace = load(tmp_path / "run.traj", log)
    assert [c.keep for c in trace.calls] == [0, 2, 1]
    assert "Old environment output: (2 lines omitted)" in texts(trace, 2)
    assert ADDER * 5 not in texts(trace, 2)
    assert len([n for n in trace.header.notes if n.startswith("1 calls start")]) == 1


def test_attempts_are_sessions_of_their_own(tmp_path: Path) -> None:
    result = import_path(write(tmp_path / "run.traj", {"attempts": [swe_log(), swe_log()]}))
    assert [t.header.id for t in result.traces] == ["run-attempt-1", "run-attempt-2"]


def test_steps_that_do_not_fit_the_answers(tmp_path: Path) -> None:
    log = swe_log()
    del log["trajectory"][1]
    result = import_path(write(tmp_path / "run.traj", log))
    assert [w.seconds for w in result.traces[0].waits] == [None, None]
    reason = "2 steps beside 3 answers: the times of its actions cannot be told"
    assert [p.reason for p in result.problems] == [reason]


@pytest.mark.parametrize(("name", "log"), [("run.traj", swe_log()), ("run.traj.json", mini_log())])
def test_a_file_that_is_cut_off(name: str, log: Json, tmp_path: Path) -> None:
    if name == "run.traj":
        log = {k: log[k] for k in ("trajectory", "info", "environment", "history")}
    path = write(tmp_path / name, log)
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b'"Done."')])
    result = import_path(path)
    (trace,) = result.traces
    assert (
        1 <= len(trace.calls) <= len([m for m in log.get("history", log.get("messages")) if m["role"] == "assistant"])
    )
    lines = data[: data.rindex(b'"Done."')].count(b"\n") + 1
    cut = "the JSON is damaged or cut off here: what comes after is lost"
    assert [p.line for p in result.problems if p.reason == cut] == [lines]
    assert faults(trace) == []


@pytest.mark.parametrize("name", ["run.traj", "run.traj.json"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert [p.reason for p in import_path(path).problems] == ["the file is empty"]


def test_a_mini_run(tmp_path: Path) -> None:
    trace = load(tmp_path / "run.traj.json", mini_log())
    assert (trace.header.agent, trace.header.agent_version, trace.header.title) == (
        "mini-swe-agent",
        "2.4.6",
        "The adder subtracts You can run",
    )
    assert [(c.usage.prompt, c.usage.cached, c.usage.completion, c.usage.reasoning) for c in trace.calls] == [
        (2_000, 0, 80, 20),
        (2_150, 1_024, 30, 0),
    ]
    assert trace.header.started_at == UNIX + 2
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(0.0, 2.0), (4.01, 7.0)]
    assert [c.marks["start"] for c in trace.calls] == ["estimated", "derived"]
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 2.01)]


def test_mini_commands_in_the_text(tmp_path: Path) -> None:
    log = mini_log()
    log["messages"][2:] = [
        mini_answer(4, "```bash\ncat adder.py\n```", (2_000, 0, 80, 20), []),
        {"role": "user", "content": ADDER, "extra": {"timestamp": UNIX + 6}},
        mini_answer(9, "```bash\nsubmit\n```", (2_150, 1_024, 30, 0), []),
    ]
    for message in log["messages"]:
        if message["role"] == "assistant":
            message["extra"]["actions"] = [{"command": "x"}]
    trace = load(tmp_path / "run.traj.json", log)
    assert [(r.name, r.start_s, r.end_s) for r in trace.tool_runs] == [("bash", 2.0, 4.0), ("bash", 7.0, None)]
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 2.0)]
