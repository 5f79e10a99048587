"""Each reason for which a run does not count, provoked once on purpose in a whole run, and named wherever it is told.

Beside each stands nothing else: what is provoked gives the reasons that are written down here and no other.
"""

import asyncio
import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from windtunnel.agents import events as ev
from windtunnel.agents.failures import Failure
from windtunnel.agents.fake import Answer
from windtunnel.simulator.results import store
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.validity import REASONS
from windtunnel.simulator.run import window
from windtunnel.simulator.run.config import Warmup
from windtunnel.traces.errors import RunError
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.reasons import reason_lines
from windtunnel.tui.theme import Theme
from windtunnel.tui.view import View

from .conftest import NS
from .whole_run import Rig, killed, screen, shown


@pytest.fixture
def rig(tmp_path, monkeypatch, capsys):
    kept = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield Rig(tmp_path, monkeypatch, capsys)
    for signum, handler in kept.items():
        signal.signal(signum, handler)


class Provoked(Struct, frozen=True):
    """How a run is disturbed, and what is said of it."""

    disturb: Callable[[Rig], Any]
    beside: tuple[str, ...] = ()
    """Reasons that cannot be kept apart from it."""
    dials: dict[str, Any] = {}
    live: bool = True
    """It is known in the middle of the run; else at its end."""


def blocks_the_loop(rig):
    async def holds():
        while True:
            await rig.clock.sleep(0.2)
            rig.hold(0.03)

    rig.at(4.0, holds)


def is_busy(rig):
    rig.cpu = 0.71


def lanes_lie_idle(rig):
    """A lane whose session failed pauses: every second call fails."""
    rig.answer = lambda asked: Answer(failure=Failure.CONNECTION_RESET if asked.number % 2 else None)


def somebody_else(rig):
    body = msgspec.json.encode({"prompt": [1, 2, 3], "max_tokens": 2000})
    rig.at(10.0, lambda: rig.client.stream("/v1/completions", (body,), request_id="other"))


def is_restarted(rig):
    rig.at(20.0, lambda: setattr(rig.server, "served", -rig.client.generated_tokens))


def one_session_fails(rig):
    rig.answer = lambda asked: Answer(failure=Failure.CONNECTION_RESET if asked.number == 20 else None)


def never_warm(rig):
    rig.monkeypatch.setattr(window, "WARMUP_LIMIT_S", 60.0)


def cache_is_warm(rig):
    rig.server.dev_mode = False
    rig.server.door = rig.server.app()
    rig.server.door.freeze()
    rig.answer = lambda asked: Answer(cached=100)


def has_never_served(rig):
    rig.server.served = 5


def compiles(rig):
    def says():
        with rig.process.log_path.open("a") as log:
            log.write("INFO 11-29 [backends.py:1] torch.compile took 31.2 s in total\n")

    rig.at(20.0, says)


def throttles(rig):
    def hot():
        rig.nvml.reasons |= 0x40

    rig.at(20.0, hot)


def shares_its_gpu(rig):
    rig.at(20.0, lambda: rig.nvml.pids.append(4711))


def speeds_up(rig):
    rig.look_s = 110.0
    rig.answer = lambda asked: Answer(first_s=max(0.1, 4.0 - asked.t / NS / 30))


def is_no_fast_machine(rig):
    rig.server.version = "0.32.0+windtunnel.emulator"
    rig.server.emulation = {"emulated": True, "error_bar": 0.2}
    rig.server.late = 0.06


def counts_other_tokens(rig):
    rig.answer = lambda asked: Answer(prompt=len(asked.prompt) * 5 // 4)


def goes_away(rig):
    rig.answer = lambda asked: Answer(failure=Failure.CONNECT_REFUSED if asked.t > 55 * NS else None)


def loses_a_worker(rig):
    rig.loses_worker_s = 55.0


def refuses_everything(rig):
    rig.answer = lambda _: Answer(failure=Failure.SERVER_DISCONNECTED)


PROVOKED = {
    "client_lag": Provoked(blocks_the_loop),
    "client_cpu": Provoked(is_busy),
    "agents_missing": Provoked(lanes_lie_idle, beside=("failures",), dials={"max_failures": 1.0}),
    "foreign_load": Provoked(somebody_else),
    "engine_restarted": Provoked(is_restarted),
    "failures": Provoked(one_session_fails, dials={"calls": 4}),
    "no_steady_state": Provoked(never_warm, dials={"warmup": Warmup(calls=100), "duration_s": 2.0}, live=False),
    "isolation_not_verified": Provoked(cache_is_warm),
    "cold_start": Provoked(has_never_served, dials={"warmup": Warmup(calls=0), "ramp_s": 0.0}),
    "compilation": Provoked(compiles, dials={"engine": "an-engine --port {port}"}),
    "gpu_throttling": Provoked(throttles),
    "other_gpu_process": Provoked(shares_its_gpu),
    "trend": Provoked(speeds_up, dials={"duration_s": 120.0, "agents": 8}),
    "emulator_late": Provoked(is_no_fast_machine),
    "prompt_lengths": Provoked(counts_other_tokens),
    "engine_gone": Provoked(goes_away, beside=("run_failed", "failures"), live=False),
    "worker_gone": Provoked(loses_a_worker, beside=("run_failed",), dials={"workers": 2}, live=False),
    "run_failed": Provoked(refuses_everything, beside=("no_steady_state", "failures"), live=False),
}
"""By the name of the reason. `died` and `disk_full` have tests of their own: such a run prints no summary. `damaged` is what
happens to a folder afterwards (results/test_damaged.py).
"""


def test_every_reason_is_provoked():
    assert set(REASONS) - set(PROVOKED) == {"died", "disk_full", "damaged"}
    assert set(PROVOKED) <= set(REASONS)


@pytest.mark.parametrize("reason", PROVOKED)
def test_provoked(rig, reason):
    case = PROVOKED[reason]
    case.disturb(rig)
    seen = rig.go(**case.dials)
    summary = seen.summary
    named = summary["invalid_reasons"]
    assert (sorted(named), summary["valid"]) == (sorted({reason, *case.beside}), False)
    assert "NOT VALID" in seen.printed
    assert f"  - {reason}: {REASONS[reason]}" in " ".join(seen.printed.split()).replace(" - ", "  - ")
    view, top = shown(seen.folder)
    assert (list(view.invalid), view.valid) == (named, False)
    assert named[0] != reason or f"not valid: {reason.replace('_', ' ')}" in top
    assert REASONS[reason] in top
    if not case.live:
        shutil.copytree(seen.folder, seen.live, dirs_exist_ok=True)
        (seen.live / "summary.json").unlink()  # as it is for a moment at the end
    view, top = shown(seen.live)
    assert (view.ending, view.valid) == (None, False)
    assert set(view.invalid) == {reason, *case.beside}
    assert REASONS[reason][1:] in behind_v(view)


def test_an_undisturbed_run_of_the_same_kind_is_valid(rig):
    seen = rig.go()
    assert (seen.summary["valid"], seen.summary["invalid_reasons"], seen.code) == (True, [], 0)
    assert "completed; valid" in seen.printed
    for folder, ending in ((seen.folder, "completed"), (seen.live, None)):
        view, top = shown(folder)
        assert (view.valid, view.invalid, view.ending) == (True, (), ending)
        assert "● valid" in top
        assert "not valid" not in top


def test_died(rig):
    """Killed in the middle: the folder has no summary, and whoever opens it is told."""
    seen = rig.go()
    killed(seen.live)
    summary = recompute(seen.live)
    assert (summary.valid, summary.invalid_reasons, summary.status) == (False, ("died",), "failed")
    assert f"died: {REASONS['died']}" in render_summary(summary)
    view, top = shown(seen.live)
    assert (view.ending, view.valid, view.invalid, view.why) == ("died", False, ("died",), (REASONS["died"],))
    assert "DIED" in top
    assert "the run was killed" in top


def test_somebody_else_is_told_of_a_run_under_way_and_of_a_killed_one(rig):
    """Not by the tokens of its own calls under way, which have no end to count them by (see `test_died`)."""
    somebody_else(rig)
    seen = rig.go()
    assert "foreign_load" in recompute(seen.live).invalid_reasons


def test_what_the_client_was_like_is_in_the_events_and_in_the_summary(rig):
    """Event-loop lag, share of a core, dispatch delay, agents that were wanted and that were live, blocked sockets."""
    rig.at(20.0, lambda: setattr(rig.client, "blocked", 3))
    rig.at(30.0, lambda: setattr(rig.client, "blocked", 0))
    rig.look_s = 25.0
    seen = rig.go()
    events = list(RunFolder.open(seen.folder).events())
    (begun,) = (e for e in events if isinstance(e, ev.RunStart))
    phases = {e.phase: e.t for e in events if isinstance(e, ev.Phase)}
    samples = [e for e in events if isinstance(e, ev.ClientSample)]
    inside = [e for e in samples if phases["steady"] <= e.t < phases["draining"]]
    assert len(inside) == 60
    assert (begun.agents, {e.live for e in inside}) == (4, {4})
    assert {e.cpu for e in inside} == {0.1}
    probes = sum(len(e.lag_us) for e in inside)
    assert 60 / 0.047 - 22 < probes < 60 / 0.047 + 22
    assert sum(len(e.dispatch_us) for e in samples) >= 80
    assert {e.blocked for e in inside if 21 * NS < e.t < 29 * NS} == {3}
    assert {e.blocked for e in inside if e.t > 32 * NS} == {0}
    summary = seen.summary
    assert summary["client_lag_s"]["n"] == probes
    assert summary["dispatch_s"]["n"] == sum(len(e.dispatch_us) for e in inside)
    assert (summary["client_cpu"], summary["agents"], summary["live_mean"], summary["blocked_max"]) == (0.1, 4, 4.0, 3)
    assert "client        4 of 4 agents live   CPU 10.0% of a core" in seen.printed
    assert "at most 3 sockets blocked" in seen.printed
    for name in ("client lag", "dispatch"):
        assert any(line.startswith(name) for line in seen.printed.splitlines())
    assert "blocked 3  client lag p99 0.00 ms" in screen(shown(seen.live)[0])
    assert "blocked 3  client lag p99 0.00 ms" in screen(shown(seen.folder)[0])


def behind_v(view: View) -> str:
    """What the screen says of the result when it is asked, on one line."""
    lines = reason_lines(view, 100, Theme().glyphs)
    return " ".join(" ".join(text for line in lines for text, _ in line).split())


async def top_of(folder: Path) -> str:
    """The first lines of the real screen, and what it says when it is asked why."""
    follower = Follower.open(folder, time.time, lambda: 0.0, whole=True)
    app = Viewer(follower, Theme(), "view", tick_s=0)
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()][:3]
        lines.append(behind_v(app.view))
    follower.close()
    return "\n".join(lines)


def test_the_screen_says_it_while_the_run_goes_on_and_after_it(rig):
    blocks_the_loop(rig)
    seen = rig.go()
    for folder in (seen.live, seen.folder):
        top = asyncio.run(top_of(folder))
        assert "✗ not valid: client lag" in top
        assert REASONS["client_lag"][1:] in top


def test_disk_full(rig):
    """No room from the 40th second on, but for what is freed: the folder says so itself."""
    write, full = os.write, []

    def refuses(fd, data):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    rig.monkeypatch.setattr(store.os, "write", refuses)
    rig.at(40.0, lambda: full.append(True))
    with pytest.raises(RunError, match=r"cannot write to .* \(No space left on device\): free some space"):
        rig.go()
    folder = rig.path / "run"
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "run.json", "summary.json", "text.jsonl"]
    summary = json.loads((folder / "summary.json").read_bytes())
    assert (summary["status"], summary["status_reason"]) == ("failed", "disk_full")
    assert summary["duration_s"] == pytest.approx(40.0, abs=1.0)
    assert set(summary["invalid_reasons"]) == {"disk_full", "run_failed"}
    view, top = shown(folder)
    assert (view.ending, view.valid) == ("failed", False)
    assert REASONS["disk_full"] in top
