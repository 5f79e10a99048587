"""ATIF trajectories made up for the purpose."""

import json
from pathlib import Path
from typing import Any

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Trace

from .workload_logs import atif


def load(path: Path, value: dict[str, Any]) -> Imported:
    path.write_text(json.dumps(value))
    result = import_path(path)
    assert [f for t in result.traces for f in faults(t)] == []
    return result


def check(trace: Trace) -> None:
    assert [(c.thread, c.usage.prompt, c.usage.cached, c.usage.completion) for c in trace.calls] == [
        (0, 2_000, 1_000, 60),
        (1, 500, 0, 6),
        (0, 2_100, 2_000, 12),
    ]
    assert [(c.start_s, c.end_s) for c in trace.calls] == [(1, 4), (5, 7), (None, 19)]
    main, child = trace.threads
    assert (child.parent, child.spawn_call, child.tool_call_id, child.background) == (main.id, 0, "k2", False)
    assert trace.calls[2].joins == (child.id,)
    assert [(r.name, r.thread) for r in trace.tool_runs] == [("shell", None), ("Task", 1)]


def test_a_session_with_an_embedded_sub_agent(tmp_path: Path) -> None:
    result = load(tmp_path / "t.json", atif())
    assert result.problems == ()
    (trace,) = result.traces
    check(trace)
    # neither the tools' times nor the second request's start are told
    assert [(w.before, w.cause, w.seconds, w.mark) for w in trace.waits] == [
        (2, "tool", None, "estimated"),
        (2, "subagent", None, "estimated"),
    ]
    assert trace.calls[0].marks == {"start": "derived", "end": "derived"}
    said = trace.messages[trace.calls[0].output or 0]
    assert trace.blocks[said.reasoning[0]].text == "I should look first."


def test_a_sub_agent_in_a_file_beside(tmp_path: Path) -> None:
    value = atif()
    (child,) = value.pop("subagent_trajectories")
    value["steps"][2]["observation"]["results"][1]["subagent_trajectory_ref"][0]["trajectory_path"] = "logs/child.json"
    (tmp_path / "child.json").write_text(json.dumps(child))
    (trace,) = load(tmp_path / "t.json", value).traces
    check(trace)
    (tmp_path / "child.json").unlink()
    result = load(tmp_path / "t.json", value)
    assert [len(t.threads) for t in result.traces] == [1]
    assert [p.reason for p in result.problems] == ["the sub-agent's trajectory child.json is not beside this file"]


def test_steps_that_are_no_requests(tmp_path: Path) -> None:
    value = atif()
    del value["subagent_trajectories"]
    value["steps"][2] |= {"is_copied_context": True}
    value["steps"] += ["nonsense", {"source": "moon"}]
    result = load(tmp_path / "t.json", value)
    assert [c.usage.prompt for t in result.traces for c in t.calls] == [2_100]
    assert [p.reason for p in result.problems] == [
        "step 5 is not an object and was left out",
        "step 6 has no usable timestamp: waits around it are not known",
        "step 6 comes from 'moon', which is no source; left out",
    ]


def test_a_truncated_trajectory_keeps_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    whole = json.dumps(atif(), indent=1)
    path.write_text(whole[: whole.index('"step_id": 4')])
    result = import_path(path)
    assert [c.usage.prompt for t in result.traces for c in t.calls] == [2_000]
    assert any("cut off" in p.reason and p.line for p in result.problems)
