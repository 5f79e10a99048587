"""A run as curves: read in full, and in outline."""

from pathlib import Path

import msgspec
import pytest

from windtunnel.agents.events import Event, Progress
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.curves import curves, outlined
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.tally import Tally

GOLDEN = Path(__file__).parent / "golden"
NOTHING: dict[str, int] = {"prompt_tokens": 0, "in_flight": 0, "in_tool": 0, "waiting": 0}


def test_the_outline_is_the_same_but_for_when_within_a_moment_tokens_came(tmp_path: Path) -> None:
    golden = RunFolder.open(GOLDEN)
    events = list(golden.events())
    tally = Tally(golden.run, events)
    moments = [
        Progress(t=t, output_tokens=int(tally.arrivals.counts[tally.arrivals.times <= t].sum()), **NOTHING)
        for t in range(0, tally.end_t + NS // 4, NS // 4)
    ]
    kept = [event for event in events if not isinstance(event, Progress)]
    lines = map(msgspec.json.encode, sorted([*kept, *moments], key=lambda event: event.t))
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    whole, outline = curves(tally), outlined(RunFolder.open(tmp_path))
    for name, values in whole.latencies.items():
        assert list(outline.latencies[name]) == list(values)
    assert len(whole.latencies["ttft_s"]) > 10
    assert (outline.window, outline.step_s, len(outline.rates)) == (whole.window, whole.step_s, len(whole.rates))
    assert outline.rates == pytest.approx(whole.rates, abs=2.0)
    assert max(whole.rates) > 40


def test_a_run_that_seldom_told_its_sums_is_read_in_full(tmp_path: Path) -> None:
    lines = (GOLDEN / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())
    (tmp_path / "events.jsonl").write_bytes(b"".join(line for line in lines if b'"progress"' not in line))
    folder = RunFolder.open(tmp_path)
    found = outlined(folder)
    assert list(found.rates) == list(curves(Tally(folder.run, folder.events())).rates)
    assert max(found.rates) > 40


def test_a_tally_that_takes_its_events_in_parts_knows_the_same() -> None:
    folder = RunFolder.open(GOLDEN)
    events: list[Event] = list(folder.events())
    whole, parts = Tally(folder.run, events), Tally(folder.run, ())
    for at in range(0, len(events), len(events) // 7):
        parts.more(events[at : at + len(events) // 7])
        assert parts.arrivals.counts.sum() <= whole.arrivals.counts.sum()
    assert (parts.window, parts.occupancy, parts.first_t, parts.end_t) == (
        whole.window,
        whole.occupancy,
        whole.first_t,
        whole.end_t,
    )
    assert (len(parts.window_calls), len(parts.calls)) == (len(whole.window_calls), len(whole.calls))
    assert list(parts.arrivals.times) == list(whole.arrivals.times)
