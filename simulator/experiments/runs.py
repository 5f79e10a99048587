"""Run folders as an experiment sees them: what was measured, on which workload, of which engine configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.engines import command as cmd
from windtunnel.simulator.experiments.digests import digest, text
from windtunnel.simulator.experiments.metrics import Calls, Key
from windtunnel.simulator.results.damage import in_words, judged
from windtunnel.simulator.results.eventless import doubted, without_events
from windtunnel.simulator.results.facts import command_of, history_of
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import EVENTS_FILE, RunFolder
from windtunnel.simulator.results.summary import of_tally
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.unended import stored
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import shown

NO_WORKLOAD = frozenset(
    (
        "target",
        "engine",
        "model",
        "out",
        "text",
        "headers",
        "seed",
        "slo",
        "workers",
        "metrics_urls",
        "isolate",
        "traces",
        "api",
        "virtual",
    )
)
"""Settings of a run that do not change the work: how it is written down, where it is sent, or told by other keys."""

PROFILED = ("num_gpu_blocks", "kv_cache_size", "kv_cache_max_concurrency", "kv_cache_memory")
"""Parts of names of settings that a real engine finds out anew at each start: they differ a little by themselves. What
its command sets of them stands in the command."""

TELLS_ALL = frozenset(("vllm", "sglang", "windtunnel-emulator"))
"""Engines whose `server_info` holds every setting. Others tell a few of them: equal ones then prove nothing."""


class Measured(Struct, frozen=True):
    """One run."""

    path: Path
    run: dict[str, Any]
    """`run.json`."""
    summary: Summary
    calls: Calls
    """Calls of the measured window that completed."""
    damage: str = ""
    """What of its events could not be read; empty where all could."""
    live: bool = False
    """It goes on: these are its figures so far, and that it has no end is not held against it."""

    @property
    def seed(self) -> int | None:
        seed = self.run.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def place(self) -> str:
        """Where it lies: its block and its step; of a run by itself its own folder."""
        above = self.path.parent.name
        return f"{above}/{self.path.name}" if above.startswith("block-") else self.path.name

    @property
    def virtual(self) -> bool:
        return self.run.get("virtual") is True

    @property
    def natural(self) -> bool:
        """The model's own words on recorded ones: what it drafts and accepts there it would in earnest."""
        config, traces = self.run.get("config"), self.run.get("traces")
        listed = traces if isinstance(traces, list) else []
        made_up = [trace for trace in listed if isinstance(trace, dict) and trace.get("shape_only")] if listed else [1]
        return isinstance(config, dict) and config.get("lengths") == "natural" and not made_up

    @property
    def began(self) -> float:
        clock = self.run.get("wall_clock")
        return float(clock) if isinstance(clock, int | float) else 0.0


def read(path: Path, now: float | None = None) -> Measured:
    """A run folder; UsageError where it is none. A run without a summary is summed up from its events.

    With `now` (Unix time) a run that goes on is told from one that died.
    """
    reading = Reading(path)
    try:
        return reading.on(now)
    finally:
        reading.close()


class Reading:
    """A run folder that may still grow; UsageError where it is none. `on` reads what was added since the last time."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path)
        self.tally = Tally(self.folder.run, (), stored(self.folder.path / EVENTS_FILE, self.folder.agents))
        """Everything that its events tell."""
        self._tail = self.folder.tail()

    def on(self, now: float | None = None) -> Measured:
        """The run as it is at `now` (Unix time, see `read`)."""
        run, tally, tail = self.folder.run, self.tally, self._tail
        # Looked at before the events are read: what ends in between is read whole the next time.
        live = now is not None and state(self.folder, now) == "running"
        if live:
            run = tally.run = self.folder.reload()
        tally.more(event for events in iter(tail.poll, []) for event in events)
        problems = list(tail.problems)
        if tail.partial and not live:
            problems.append(Problem(str(tail.path), tail.line, "the last line is incomplete"))
        calls: dict[Key, CallEnd] = {(call.session, call.thread, call.call): call for call in tally.window_calls}
        summary = judged(self.folder.summary() or of_tally(run, tally), problems)
        if gone := without_events(self.folder):
            summary = doubted(summary)
        damage = gone or in_words(problems)
        return Measured(self.folder.path, run, _so_far(summary) if live else summary, calls, damage, live=live)

    def close(self) -> None:
        self._tail.close()


def _so_far(summary: Summary) -> Summary:
    """Of a run that goes on: that it has no end yet is nothing against its figures."""
    reasons = tuple(reason for reason in summary.invalid_reasons if reason != "died")
    return replace(summary, status=None, status_reason=None, valid=not reasons, invalid_reasons=reasons)


def workload(run: Mapping[str, Any]) -> dict[str, str]:
    """What was asked of the engine, by name, without the seed: two runs are comparable when these are equal."""
    config = run.get("config")
    dials = {key: value for key, value in config.items() if key not in NO_WORKLOAD} if isinstance(config, dict) else {}
    traces = run.get("traces")
    listed = traces if isinstance(traces, list) else []
    known = {
        "traces": sorted(str(trace.get("fingerprint")) for trace in listed if isinstance(trace, dict)),
        "route": run.get("route"),
        "history": history_of(run),
        "max_context": run.get("max_context"),
        "fit": run.get("fit"),
    }
    return {key: text(value) for key, value in {**dials, **{k: v for k, v in known.items() if v is not None}}.items()}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In what the workloads of two `run.json` differ, a few words each; empty when they are comparable."""
    a, b = workload(one), workload(other)
    said = []
    for key in sorted(a.keys() | b.keys()):
        mine, theirs = a.get(key, "not said"), b.get(key, "not said")
        if mine != theirs:
            said.append("other traces" if key == "traces" else f"{key} {mine} against {theirs}")
    return said


def played(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The sessions of a run as they were replayed, and how: what the settings of an engine may change."""
    known = workload(run)
    return tuple(known.get(key, "") for key in ("traces", "route", "history"))


def engine_identity(run: Mapping[str, Any]) -> str:
    """12 hex digits of the engine's resolved settings: equal configurations have equal ones, whatever started them.

    The environment of its command belongs to it, for no engine tells that. An engine that does not tell all of its
    settings is known by its whole command too, or by its URL.
    """
    engine = run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    resolved = engine.get("resolved")
    command = command_of(run) or ""
    env, words = cmd.split(command) if command.strip() else ({}, [])
    parts: dict[str, Any] = {key: engine.get(key) for key in ("name", "version", "model", "emulation")}
    if engine.get("emulated"):
        parts["kv_tokens"] = engine.get("kv_tokens")
    else:
        flags = {name: value for name, value in cmd.flags_of(words).items() if _profiled(name.replace("-", "_"))}
        parts["env"], parts["set"] = env, flags
    if isinstance(resolved, dict):
        parts["settings"] = {key: value for key, value in resolved.items() if not _profiled(str(key))}
    if not _tells_all(engine):
        parts["started"] = words or run.get("target")
    return digest(parts, 6)


def _profiled(name: str) -> bool:
    return any(part in name for part in PROFILED)


def _tells_all(engine: Mapping[str, Any]) -> bool:
    """Of a run that does not say what was seen of its engine, by whether there are settings of any depth."""
    seen = engine.get("capabilities")
    if isinstance(seen, dict) and seen.get("server_info") is not True:
        return False
    resolved = engine.get("resolved")
    told = isinstance(resolved, dict) and any("." in str(key) for key in resolved)
    return told and engine.get("name") in TELLS_ALL


def engine_title(run: Mapping[str, Any]) -> str:
    """Name, version and model of the engine, for people."""
    engine = run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    return " ".join(shown(engine[key]) for key in ("name", "version", "model") if engine.get(key))


def setting_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Resolved settings in which two engines differ, `name: theirs`, of the second."""
    a, b = (_table(_table(run.get("engine")).get("resolved")) for run in (one, other))
    return [f"{key}: {text(b.get(key))}" for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
