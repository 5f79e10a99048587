"""Answers that end where the model ends them."""

import json
from pathlib import Path

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.sources import load


def ends(folder: Path) -> list[dict]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [e for line in lines if (e := json.loads(line))["type"] == "call_end"]


def test_natural_lengths_are_at_most_the_recorded_ones_and_pin_nothing(tmp_path):
    words = [
        "library:small",
        "--agents",
        "2",
        "--calls",
        "40",
        "--max-context",
        "16k",
        "--fit",
        "scale",
        "--pace",
        "none",
    ]
    made = {}
    for lengths in ("recorded", "natural"):
        config = config_of([*words, "--lengths", lengths])
        summary = virtual_run(config, load(config.traces), tmp_path / lengths)
        assert (summary.calls, summary.failed_calls) == (40, 0)
        made[lengths] = ends(tmp_path / lengths)
    pinned = {(e["session"], e["call"]): e["pinned_tokens"] for e in made["recorded"]}
    assert all(e["completion_tokens"] == e["pinned_tokens"] for e in made["recorded"])
    both = [e for e in made["natural"] if (e["session"], e["call"]) in pinned]
    assert len(both) > 20
    assert all(e["completion_tokens"] <= pinned[e["session"], e["call"]] for e in both)
    assert any(e["finish"] == "stop" for e in both)
    assert {e.get("pinned_tokens", 0) for e in made["natural"]} == {0}
    assert json.loads((tmp_path / "natural" / "run.json").read_text())["config"]["lengths"] == "natural"
