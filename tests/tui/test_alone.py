"""Slower than alone: from a run of one agent beside the one that is shown."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake

from windtunnel.agents.events import CallEnd, SessionStart
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.store import RunFolder
from windtunnel.tui import alone
from windtunnel.tui.follow import Follower

Open = Callable[..., Follower]


def write(folder: Path, fake: Fake, *, summary: bool = True, changes: dict[str, object] | None = None) -> Path:
    """A run whose sessions are known by their traces."""
    fake.write(folder, summary=summary)
    run = json.loads((folder / "run.json").read_text())
    ids = sorted({e.trace for e in fake.events if isinstance(e, SessionStart)})
    run["engine"]["kv_tokens"] = 2_000_000
    run["traces"] = [{"id": trace, "fingerprint": trace[:4]} for trace in ids]
    (folder / "run.json").write_text(json.dumps(run | (changes or {})))
    return folder


@pytest.fixture(scope="module")
def single() -> Fake:
    return Fake(1, 200.0, seed=5)


def test_a_run_of_one_agent_beside_it_is_found(tmp_path: Path, running: Fake, single: Fake) -> None:
    many = RunFolder.open(write(tmp_path / "many", running))
    assert alone.find(many) is None
    assert alone.times(many) == {}
    write(tmp_path / "unfinished", single, summary=False)
    write(tmp_path / "other-engine", single, changes={"engine": {"name": "vllm"}})
    write(tmp_path / "other-sessions", single, changes={"traces": [{"id": "x", "fingerprint": "y"}]})
    assert alone.find(many) is None
    for age, name in ((100, "older"), (0, "newer")):
        os.utime(write(tmp_path / name, single) / "run.json", (1e9 - age, 1e9 - age))
    (tmp_path / "no-run").mkdir()
    found = alone.find(many)
    assert found is not None
    assert found.path.name == "newer"
    assert alone.find(RunFolder.open(tmp_path / "newer")) is None, "a run of one agent is compared with none"


def test_turns_tell_how_much_slower_they_were(tmp_path: Path, running: Fake, single: Fake, follow: Open) -> None:
    write(tmp_path / "one", single)
    follower = follow(write(tmp_path / "many", running))
    while follower.poll().reading:
        pass
    usual: dict[tuple[str, int], list[float]] = {}
    traces = {e.session: e.trace for e in single.events if isinstance(e, SessionStart)}
    for event in single.events:
        if isinstance(event, CallEnd) and of_call.completed(event):
            usual.setdefault((traces[event.session], event.call), []).append(of_call.e2e_s(event) or 0)
    seen = 0
    for agent in range(32):
        follower.stories.wait(follower.fold, agent)
        story = follower.story(agent)
        for turn in story.turns:
            times = usual.get((story.trace_id, turn.call))
            if times is None or turn.cut:
                assert turn.slower is None
                continue
            seen += 1
            assert turn.slower == pytest.approx((turn.latency_s or 0) / (sum(times) / len(times)))
        pairs = [(t.latency_s or 0, t.slower) for t in story.turns if t.slower]
        if pairs:
            whole = sum(ours for ours, _ in pairs) / sum(ours / slower for ours, slower in pairs)
            assert story.slower == pytest.approx(whole)
    assert seen >= 2
