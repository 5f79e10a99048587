"""From `run.json` and `events.jsonl` to `summary.json`: pure, so that anybody can compute it again.

Read from `run.json`: `kind`, `run_dir`, `seed`, `lengths_from`, `config.slo`, `config.arrivals`, `isolation.reset`
(true when the engine confirmed it), `engine.{name, version, model, resolved, kv_tokens, emulated, emulation}`. All may
be missing.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.agents.events import Event, GpuSample
from windtunnel.simulator.results import emulation, facts, said, slo, validity
from windtunnel.simulator.results.counters import Counters
from windtunnel.simulator.results.damage import lost
from windtunnel.simulator.results.distribution import mean, ratio, tidy
from windtunnel.simulator.results.emulation import Emulation
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.store import EVENTS_FILE, RunFolder
from windtunnel.simulator.results.summary_model import EngineDelta, EngineSummary, GpuSummary, Summary
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.unended import stored
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem

OF_REPLAYS = ("sessions_per_hour", "session_equivalents_per_hour", "makespan_s", "prompts_over")
"""A recorded session ends when the recording does: how long it took and how many fit in an hour is not known. And its
prompts are what they are.
"""

GAP_NS = 10_000_000_000
"""Scrapes are a second apart, and a slow page takes up to five."""


def recompute(run_dir: Path, problems: list[Problem] | None = None) -> Summary:
    """The summary of a run folder, from `run.json` and `events.jsonl` alone."""
    folder = RunFolder.open(run_dir)
    found: list[Problem] = [] if problems is None else problems
    tally = Tally(folder.run, folder.events(found), stored(folder.path / EVENTS_FILE, folder.agents))
    return of_tally(folder.run, tally, damaged=lost(found))


def summarise(run: dict[str, Any], events: Iterable[Event], problems: Sequence[Problem] = ()) -> Summary:
    """`run` is `run.json` as decoded; `events` in file order; `problems`: what was met while they were read."""
    tally = Tally(run, events)
    return of_tally(run, tally, damaged=lost(problems))


def of_tally(run: dict[str, Any], tally: Tally, *, damaged: bool = False) -> Summary:
    """The same of events that were walked through before. `damaged`: some of them could not be read."""
    values = {name: metric.compute(tally) for name, metric in METRICS.items()}
    if validity.is_recording(run):
        values |= dict.fromkeys(OF_REPLAYS)
    reasons = validity.judge(facts.of_tally(tally, values, damaged=damaged))
    end, by_progress = tally.run_end, tally.unended.output
    engine = _dict(run.get("engine"))
    numbers: dict[str, Any] = values
    return Summary(
        kind="recording" if validity.is_recording(run) else "run",
        run_dir=run.get("run_dir"),
        status=end.status if end is not None else "failed",
        status_reason=end.reason if end is not None else "died",
        valid=not reasons,
        invalid_reasons=reasons,
        emulated=engine.get("emulated") is True,
        virtual=run.get("virtual") is True,
        agents=tally.agents,
        seed=run.get("seed"),
        duration_s=tidy((tally.end_t - (tally.run_start.t if tally.run_start else tally.first_t)) / 1e9),
        window_s=tidy(tally.window.seconds) if tally.window else 0.0,
        lengths_from=_names(run.get("lengths_from")),
        lengths="natural" if _dict(run.get("config")).get("lengths") == "natural" else msgspec.UNSET,
        distinct_traces=len({session.start.trace for session in tally.sessions.values()}),
        slo=slo.judge(_conditions(run), tally, values),
        engine=_engine(tally, engine, emulation.of_run(run)),
        engine_delta=_delta(tally.counters),
        gpu=_gpu(tally.gpu_in_window(), values["output_tokens_per_s"]),
        failures=tally.failures(),
        failure_messages=said.messages(tally.calls) or msgspec.UNSET,
        output_tokens_by_progress=by_progress or msgspec.UNSET,
        **numbers,
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _conditions(run: dict[str, Any]) -> tuple[slo.Condition, ...]:
    """The run's service level; none where `run.json` holds something that is no condition."""
    text = _dict(run.get("config")).get("slo")
    try:
        return slo.parse(text) if isinstance(text, str) else ()
    except UsageError:
        return ()


def _names(value: Any) -> str | list[str] | None:
    if isinstance(value, list):
        return [name for name in value if isinstance(name, str)]
    return value if isinstance(value, str) else None


def _delta(counters: Counters) -> EngineDelta:
    return EngineDelta(**{name: counters.grown(name) for name in EngineDelta.__struct_fields__})


def _engine(tally: Tally, engine: dict[str, Any], emulated: Emulation | None) -> EngineSummary:
    samples, inside = tally.engine_in_window, tally.inside
    drafts, queries = inside.grown("spec_drafts"), inside.grown("prefix_queries")
    accepted = ratio(inside.grown("spec_accepted"), drafts)
    return EngineSummary(
        name=engine.get("name"),
        version=engine.get("version"),
        model=engine.get("model"),
        resolved=engine.get("resolved"),
        kv_tokens=engine.get("kv_tokens"),
        running=mean(sample.running for sample in samples),
        waiting=mean(sample.waiting for sample in samples),
        kv_usage=mean(sample.kv_usage for sample in samples),
        hit_ratio=ratio(inside.grown("prefix_hits"), queries),
        preemptions=tally.counters.grown("preemptions"),
        acceptance_length=None if accepted is None else tidy(1 + accepted),
        unseen_s=_unseen(tally, engine),
        restarted_s=tuple(tidy(t / 1e9) for t in tally.counters.restarts) or msgspec.UNSET,
        **({} if emulated is None else {f"emulated_{k}": v for k, v in msgspec.structs.asdict(emulated).items()}),
    )


def _unseen(tally: Tally, engine: dict[str, Any]) -> float | None:
    """Seconds of the window between two samples, or after the last one, that are further apart than scrapes are."""
    window = tally.window
    if window is None:
        return None
    if not tally.engine:
        return tidy(window.seconds) if _dict(engine.get("capabilities")).get("metrics") is True else None
    times = [*(sample.t for sample in tally.engine), tally.end_t]
    gaps = [(a, b) for a, b in pairwise(times) if b - a > GAP_NS]
    return tidy(sum(max(0, min(b, window.end) - max(a, window.start)) for a, b in gaps) / 1e9)


def _gpu(samples: list[GpuSample], rate: Any) -> GpuSummary | None:
    if not samples:
        return None
    by_gpu: dict[int, list[GpuSample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.index, []).append(sample)
    groups = list(by_gpu.values())
    throttles = sorted({name for sample in samples for name in sample.throttle})
    watts = [mean(s.power_w for s in group) for group in groups]
    used = [max((s.memory_used for s in group if s.memory_used is not None), default=None) for group in groups]
    whole = [max((s.memory_total for s in group if s.memory_total is not None), default=None) for group in groups]
    total = sum(known) if (known := [value for value in watts if value is not None]) else None
    return GpuSummary(
        count=len(groups),
        utilisation=mean(sample.utilisation for sample in samples),
        memory_used=sum(known) if (known := [value for value in used if value is not None]) else None,
        memory_total=sum(sizes) if (sizes := [value for value in whole if value is not None]) else None,
        power_w=None if total is None else tidy(total),
        kwh_per_million_tokens=None if total is None or not rate else tidy(total / rate * 1e6 / 3.6e6),
        sm_clock_mhz=mean(sample.sm_clock_mhz for sample in samples),
        throttle={name: tidy(sum(name in s.throttle for s in samples) / len(samples)) for name in throttles},
        other_processes=max((sample.other_processes or 0 for sample in samples), default=0),
    )
