"""Folders of made-up past runs and of a made-up experiment."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
from fake_run import Fake

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.experiments.metrics import chosen
from windtunnel.simulator.experiments.outcome import assess
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary

WALL = 1_764_000_000.0
"""24 November 2025, 16:00 UTC."""
HOUR = 3600.0


def write(
    fake: Fake,
    folder: Path,
    *,
    began: float = WALL,
    summary: bool = True,
    rate: float | None = None,
    valid: bool = True,
    settings: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A run as it is on disk; `rate` and `valid` put on the summary, `settings` on the engine, the rest on the config."""
    fake.write(folder)
    run = json.loads((folder / "run.json").read_text())
    run["wall_clock"] = began
    run["config"] |= {"pace": "busy", **config}
    run["agents"] = config.get("agents", run["agents"])
    run["engine"]["resolved"] = {"scheduler_config.max_num_seqs": 256, **(settings or {})}
    run["traces"] = [{"fingerprint": "f"}]
    (folder / "run.json").write_text(json.dumps(run))
    if summary:
        found = recompute(folder)
        reasons = () if valid else ("client_lag",)
        changes: dict[str, Any] = {"valid": valid, "invalid_reasons": reasons, "agents": run["agents"]}
        changes |= {} if rate is None else {"output_tokens_per_s": rate}
        (folder / "summary.json").write_bytes(encode_summary(msgspec.structs.replace(found, **changes)))
    else:
        for name in ("run.json", "events.jsonl"):
            os.utime(folder / name, (began, began))
    return folder


def shelf(fake: Fake, root: Path) -> Path:
    """Six runs, two damaged folders, one of something else."""
    write(fake, root / "newest", began=WALL - HOUR, rate=500.0)
    write(fake, root / "other-seqs", began=WALL - 2 * HOUR, rate=400.0, settings={"scheduler_config.max_num_seqs": 8})
    write(fake, root / "yesterday", began=WALL - 24 * HOUR, rate=450.0)
    write(fake, root / "more-agents", began=WALL - 25 * HOUR, rate=700.0, agents=64)
    write(fake, root / "late-client", began=WALL - 300 * HOUR, rate=300.0, valid=False)
    write(fake, root / "killed", began=WALL - 9000 * HOUR, summary=False)
    (root / "damaged").mkdir()
    (root / "damaged" / "run.json").write_text('{"schema": "windt')
    (root / "no-head").mkdir()
    (root / "no-head" / "events.jsonl").write_text("")
    (root / "notes").mkdir()
    return root


STEPS = (
    ("base", (100.0, 102.0, 98.0, 101.0)),
    ("half", (50.0, 52.0, 49.0, 51.0)),
    ("same", (100.0, 103.0, 98.5, 100.5)),
)


def experiment(fake: Fake, folder: Path, blocks: int = 4, *, outcome: bool = True, variants: bool = False) -> Path:
    """Three configurations and one that did not start; without `outcome`, as in its first block.

    A ladder, each step against the one before; with `variants` all against the base.
    """
    folder.mkdir(parents=True)
    steps, log = [], []
    for number, (name, rates) in enumerate(STEPS):
        found = {}
        for block in range(blocks):
            place = folder / f"block-{block + 1:02}" / name
            began = WALL + 60 * (3 * block + number)
            found[block] = runs.read(write(fake, place, began=began, rate=rates[block], settings={"a.step": number}))
            log.append({"type": "run", "step": name, "block": block, "folder": f"block-{block + 1:02}/{name}"})
        changes = () if number == 0 else (f"--step {number}",)
        steps.append(
            StepRuns(
                name=name, runs=found, previous=None if not number else 0 if variants else number - 1, changes=changes
            )
        )
    broken = StepRuns(name="broken", runs={}, previous=0 if variants else 2, failed="exit 1: no such model")
    found_ = assess([*steps, broken], chosen(()), name="a made-up ladder")
    (folder / "experiment.json").write_text(json.dumps({"name": "a made-up ladder"}))
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in log))
    if outcome:
        (folder / "outcome.json").write_bytes(msgspec.json.encode(found_))
    return folder
