"""A stored run folder with every kind of event: what was once computed from it is computed again."""

import math
from pathlib import Path

import msgspec

from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.text import render_summary

GOLDEN = Path(__file__).parent / "golden"


def test_the_summary_of_the_stored_run():
    problems = []
    assert encode_summary(recompute(GOLDEN, problems)) == (GOLDEN / "summary.json").read_bytes()
    assert problems == []


def test_the_fold_of_the_stored_run_agrees():
    folder = RunFolder.open(GOLDEN)
    summary = folder.summary()
    assert summary is not None
    fold = Fold(folder.run)
    fold.apply_all(folder.events())
    assert fold.output_tokens == summary.output_tokens
    assert fold.prompt_tokens == summary.prompt_tokens
    assert fold.sessions["failed"] == summary.sessions_failed
    assert fold.calls["started"] == summary.calls
    assert fold.failure_reasons == summary.failures
    assert fold.invalid_reasons() == summary.invalid_reasons
    assert fold.trust.in_flight_mean is not None
    assert math.isclose(fold.trust.in_flight_mean, summary.in_flight_mean or 0.0, rel_tol=1e-6)
    assert fold.engine.preemptions == summary.engine.preemptions
    assert fold.engine.acceptance_length == summary.engine.acceptance_length


def test_damage_to_the_stored_run_is_reported_and_the_rest_counts(tmp_path):
    lines = (GOLDEN / "events.jsonl").read_bytes().split(b"\n")
    number = next(i for i, line in enumerate(lines) if b'"call_end"' in line)
    lines[number] = lines[number][:-20]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines[:-5]))
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())
    problems = []
    summary = recompute(tmp_path, problems)
    assert [p.line for p in problems] == [number + 1, len(lines) - 5]
    whole = msgspec.json.decode((GOLDEN / "summary.json").read_bytes())
    assert summary.calls == whole["calls"]  # the call whose end was lost is still known to have started
    assert summary.status_reason == "died"
    assert render_summary(summary)
