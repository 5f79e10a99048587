"""Past runs: what a folder of runs holds, read little by little so that hundreds of them open at once.

Of each run only `run.json` and `summary.json` are read. What cannot be read is listed with its reason.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.events import RunEnd
from windtunnel.simulator.experiments.experiment import OUTCOME_FILE, PLAN_FILE
from windtunnel.simulator.experiments.kept import at_work, is_experiment, name_of, read_outcome
from windtunnel.simulator.experiments.outcome import Outcome
from windtunnel.simulator.experiments.table import blocks
from windtunnel.simulator.results import searched
from windtunnel.simulator.results.eventless import doubted, without_events
from windtunnel.simulator.results.files import open_regular
from windtunnel.simulator.results.lines import UNREADABLE
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, RunFolder, without_description
from windtunnel.simulator.results.unstarted import reason_of
from windtunnel.traces.errors import UsageError
from windtunnel.traces.outlet import to_json
from windtunnel.tui.figures import plural
from windtunnel.tui.snapshot import head_of

RUNS = Path("runs")
"""Where `run`, `record` and `compare` write when they are not told where."""
SET_ASIDE = ".left-"
"""In the name of what an ended command left half done."""
INSIDE = 200
"""Entries of a folder that are looked at to find out whether it holds runs."""
END_BYTES = 1 << 16
"""Of the events, in which a run's end is looked for."""
STARTING_S = 60.0
"""A folder changed so recently may be of a run that is being prepared."""

_AGENTS = re.compile(r"agents-(\d+)-")
_VALID = re.compile(r"(?<!not )(?<![\w\\-])valid(?![\w-])", re.IGNORECASE)

Kind = Literal["run", "recording", "experiment", "folder", "starting", "unstarted", "damaged", "other", "unread"]
"""`starting`: a run that is being prepared; `unstarted`: one that ended before it began; `other`: a folder with nothing
of ours in it.
"""
Condition = Literal["finished", "running", "ended", "died"]
"""`ended`: it came to its end, and was never summed up."""


class Past(Struct, frozen=True, kw_only=True):
    """One entry: a run, a recording, an experiment, or a folder with runs in it."""

    path: Path
    kind: Kind = "unread"
    began: float = 0.0
    """Unix time; of what does not tell, when its file was written."""
    condition: Condition = "finished"
    reason: str = ""
    """Why it cannot be read, or failed."""
    name: str = ""
    """Of an experiment or a folder: what it is called."""
    about: str = ""
    """The same: what is in it."""
    model: str = ""
    engine: str = ""
    hardware: str = ""
    emulated: bool = False
    error_bar: str = ""
    virtual: bool = False
    source: str = ""
    agents: int | None = None
    pace: str = ""
    status: str = ""
    valid: bool | None = None
    invalid: tuple[str, ...] = ()
    duration_s: float | None = None
    rate: float | None = None
    """Output tokens/s."""
    ttft_p50: float | None = None
    ttft_p90: float | None = None
    tpot_p50: float | None = None
    cached: float | None = None
    per_hour: float | None = None
    """Sessions' work an hour."""

    @property
    def opens(self) -> bool:
        """Whether it is one run, to be opened or compared."""
        return self.kind in {"run", "recording"}

    @property
    def live(self) -> bool:
        return self.condition == "running"


def sought(pattern: str) -> str:
    """A filter's expression in which the word `valid` finds valid runs only: not `not valid`, `invalid`, or a name."""
    return _VALID.sub("=valid", pattern)


def words(past: Past) -> str:
    """What the filter looks at, with `sought`. A recording is never called valid."""
    kind = "emulated" if past.emulated else "real" if past.kind == "run" else past.kind
    valid = {True: "" if past.kind == "recording" else "=valid", False: "invalid not valid", None: ""}[past.valid]
    reasons = (*past.invalid, *(reason.replace("_", " ") for reason in past.invalid))
    live = {"running": "live", "ended": "ended no summary", "died": "died", "finished": ""}[past.condition]
    parts = (past.path.name, past.name, past.about, past.model, past.engine, past.hardware, past.source, past.pace)
    return " ".join((*parts, kind, past.kind, valid, *reasons, past.status, live, past.reason))


class Shelf:
    """What lies in `root`, or the folders named; `poll` reads on for a while and says what is known by now."""

    def __init__(
        self,
        root: Path,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        only: Sequence[Path] | None = None,
    ) -> None:
        self.root = root
        self.problem = ""
        """Why there is nothing to list."""
        self.about = ""
        """Of the runs of a capacity search: what it came to, or how far it is."""
        self._wall, self._monotonic = wall, monotonic
        self._only = None if only is None else tuple(only)
        self._found: dict[Path, Past] = {}
        self._marks: dict[Path, Any] = {}
        """Files' times when an entry was read: a finished run is read once."""

    def look(self) -> None:
        """What is there now: new folders appear, removed ones go."""
        paths = self._paths()
        self.about = _told(self.root) if self._only is None and searched.is_search(self.root) else ""
        stamps = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
        for path in [path for path in self._found if path not in stamps]:
            del self._found[path]
            self._marks.pop(path, None)
        for path, stamp in stamps.items():
            if path not in self._found:
                self._found[path] = Past(path=path, began=stamp[0])
            elif self._marks.get(path) != stamp or self._found[path].live:
                self._marks.pop(path, None)

    def _paths(self) -> list[Path]:
        if self._only is not None:
            return list(self._only)
        self.problem = ""
        try:
            with os.scandir(self.root) as entries:
                return [Path(e.path) for e in entries if e.is_dir() and not e.name.startswith(".")]
        except FileNotFoundError:
            self.problem = f"there is no folder {self.root} yet: a run makes it"
        except OSError as error:
            self.problem = f"{self.root} cannot be read ({error.strerror})"
        return []

    def poll(self, budget_s: float, first: Sequence[Path] = ()) -> tuple[Past, ...]:
        """Everything known, in no order; reads the paths given and then the newest ones until the time is used up."""
        began = self._monotonic()
        waiting = [path for path in self._found if path not in self._marks]
        early = {path: place for place, path in enumerate(first)}
        waiting.sort(key=lambda path: (early.get(path, len(early)), -self._found[path].began))
        for path in waiting:
            stamp = _stamp(path)
            if stamp is not None:
                self._found[path] = read(path, self._wall(), stamp[0])
                self._marks[path] = stamp
            if self._monotonic() - began > budget_s:
                break
        return tuple(self._found.values())

    @property
    def unread(self) -> int:
        return len(self._found) - len(self._marks)


def _stamp(path: Path) -> tuple[float, ...] | None:
    """(when the entry was begun, as far as its files tell without being opened, and the times that change with it)."""
    times = []
    for name in (RUN_FILE, PLAN_FILE, SUMMARY_FILE, OUTCOME_FILE):
        try:
            times.append((path / name).stat().st_mtime)
        except OSError:
            times.append(0.0)
    try:
        own = path.stat().st_mtime
    except OSError:
        return None
    return (next((t for t in times if t), own), *times)


def read(path: Path, now: float, began: float) -> Past:
    """One entry; never raises for what is wrong with it."""
    try:
        if (path / RUN_FILE).exists():
            return _run(path, now, began)
        if is_experiment(path):
            return _experiment(path, began)
        return _folder(path, now, began)
    except UsageError as error:
        return Past(path=path, kind="damaged", began=began, reason=str(error).replace(f"{path}/", ""))
    except OSError as error:
        return Past(path=path, kind="damaged", began=began, reason=f"cannot be read ({error.strerror})")


def _run(path: Path, now: float, began: float) -> Past:
    folder = RunFolder.open(path)
    head = head_of(folder.run, path.name)
    clock, config = folder.run.get("wall_clock"), folder.run.get("config")
    pace = config.get("pace") if isinstance(config, dict) else None
    found = Past(
        path=path,
        kind="recording" if head.recording else "run",
        began=float(clock) if isinstance(clock, int | float) else began,
        condition=state(folder, now),
        model=head.model,
        engine=head.engine_name,
        hardware=head.hardware,
        emulated=head.emulated,
        error_bar=head.error_bar,
        virtual=folder.run.get("virtual") is True,
        source=head.source,
        agents=head.agents or None,
        pace=pace if isinstance(pace, str) and not head.recording else "",
    )
    summary = folder.summary(strict=True)
    if summary is None:
        end = _end(path / EVENTS_FILE) if found.condition == "died" else None
        return found if end is None else replace(found, condition="ended", status=end)
    if without_events(folder):
        summary = doubted(summary)
    ttft, tpot = summary.ttft_s, summary.tpot_s
    return replace(
        found,
        condition="finished",
        reason=(summary.status_reason or "").replace("_", " "),
        status=summary.status or "",
        valid=summary.valid,
        invalid=summary.invalid_reasons,
        agents=summary.agents,
        emulated=summary.emulated,
        duration_s=summary.duration_s,
        rate=summary.output_tokens_per_s,
        ttft_p50=ttft.p50 if ttft else None,
        ttft_p90=ttft.p90 if ttft else None,
        tpot_p50=tpot.p50 if tpot else None,
        cached=summary.cache_hit_ratio,
        per_hour=summary.session_equivalents_per_hour,
    )


def _end(events: Path) -> str | None:
    """How a run without a summary ended, by its last event; None where it was killed before that."""
    try:
        with open_regular(events) as file:
            file.seek(max(0, events.stat().st_size - END_BYTES))
            lines = file.read(END_BYTES).splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        if line.startswith(b'{"type":"run_end"'):
            return _status(line)
    return None


def _status(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=RunEnd).status
    except UNREADABLE:
        return None


def _experiment(path: Path, began: float) -> Past:
    found = Past(
        path=path,
        kind="experiment",
        began=began,
        condition="running" if at_work(path) else "finished",
        name=name_of(path),
        about="no block of it is complete yet",
    )
    if not (path / OUTCOME_FILE).exists():
        return found
    outcome = read_outcome(path)
    first = next((step.resolved for step in outcome.steps if step.resolved), {})
    return replace(found, about=about(outcome), emulated=outcome.emulated, model=str(first.get("model") or ""))


def about(outcome: Outcome) -> str:
    """`6 configurations, 3 blocks, all count; better: A, B; worse: C`."""
    metric = next((metric for step in outcome.steps for metric in step.metrics), "")
    parts = [f"{plural(len(outcome.steps), 'configuration')}, {blocks(outcome)}"]
    for verdict, word in (("better", "better"), ("worse", "worse")):
        said = [s.name for s in outcome.steps if (c := s.versus_base.get(metric)) is not None and c.verdict == verdict]
        if said:
            parts.append(f"{word}: {', '.join(said)}")
    failed = sum(step.failed is not None for step in outcome.steps)
    if failed:
        parts.append(f"{failed} did not start")
    return "; ".join(parts)


def _folder(path: Path, now: float, began: float) -> Past:
    """A folder that is no run: a capacity search, one with runs in it, or one with nothing that can be shown."""
    if searched.is_search(path):
        return _search(path, began)
    inside = sorted(path.iterdir())[:INSIDE]
    count = sum((entry / RUN_FILE).exists() or is_experiment(entry) for entry in inside if entry.is_dir())
    if count:
        about = f"folder with {plural(count, 'run')} in it"
        return Past(path=path, kind="folder", began=began, name=path.name, about=about)
    if (reason := reason_of(path)) is not None:
        return Past(path=path, kind="unstarted", began=began, reason=reason)
    if (path / EVENTS_FILE).exists() and _begins(path, now):
        return Past(
            path=path, kind="starting", began=began, name=path.name, about="it is being prepared", condition="running"
        )
    if any((path / name).exists() for name in (EVENTS_FILE, SUMMARY_FILE)):
        return Past(path=path, kind="damaged", began=began, reason=f"it has no {RUN_FILE}: what was run is not known")
    return Past(path=path, kind="other", began=began, name=path.name, about="no run, and no runs in it")


def _begins(path: Path, now: float) -> bool:
    """Whether somebody may be about to write its `run.json`: the folder is young, or whoever makes it is at work."""
    if SET_ASIDE in path.name or without_description(path) is not None:
        return False
    age = now - max((path / EVENTS_FILE).stat().st_mtime, path.stat().st_mtime)
    return abs(age) <= STARTING_S or any(at_work(above) for above in (path.parent, path.parent.parent))


def _search(path: Path, began: float) -> Past:
    """Its runs lie in it, or with several configurations in the folder of each one's search."""
    count, live = sum(1 for _ in searched.runs_in(path)), at_work(path)
    if not count and (reason := reason_of(path)) is not None:
        return Past(path=path, kind="unstarted", began=began, reason=reason)
    said = searched.in_short(path) or ("" if live else searched.why_unanswered(path))
    about = f"capacity search with {plural(count, 'run')} in it{': ' if said else ''}{said}"
    condition: Condition = "running" if live else "finished"
    return Past(path=path, kind="folder", began=began, name=path.name, about=about, condition=condition)


def _told(root: Path) -> str:
    """What a capacity search came to, above the list of its runs."""
    found = _search(root, 0.0)
    if found.kind == "unstarted":
        return f"capacity search that did not start: {found.reason}"
    if not found.live:
        return f"{found.about}; `windtunnel report {root}` says more" if searched.in_short(root) else found.about
    runs = [run.parent for run in searched.runs_in(root)]
    if not runs:
        return "capacity search, still going on: no run of it has begun"
    agents = sorted({int(name[1]) for run in runs if (name := _AGENTS.match(run.name)) is not None})
    tried = " and ".join(part for part in (", ".join(map(str, agents[:-1])), *map(str, agents[-1:])) if part)
    latest = max(runs, key=lambda run: (_stamp(run) or (0.0,), run)).relative_to(root)
    return f"capacity search, still going on: {plural(len(runs), 'run')} begun ({tried} agents), the latest {latest}"


def as_data(entries: Sequence[Past]) -> str:
    """JSON of all entries, newest first."""
    newest = sorted(entries, key=lambda p: (-p.began, str(p.path)))
    return to_json(newest).decode()
