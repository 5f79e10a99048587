"""What made prompts part from those before them, and what the cache missed: for a trace, or for a run."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.results import emulation, searched
from windtunnel.simulator.results.eventless import with_events
from windtunnel.simulator.results.misses import CacheReport, provided, read, settings, unit_known
from windtunnel.simulator.results.store import RUN_FILE, RunFolder, without_description
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.why_cache import filler, let_go
from windtunnel.simulator.results.why_text import Paper, Row, misses, one_break, percent, rows, table, where_from
from windtunnel.traces.breakers import Break, Report, find
from windtunnel.traces.culprits import CULPRITS
from windtunnel.traces.differing import shown
from windtunnel.traces.errors import TraceError, UsageError
from windtunnel.traces.format import fingerprint
from windtunnel.traces.model import Problem, Trace
from windtunnel.traces.outlet import safe, to_json
from windtunnel.traces.remedies import remedy
from windtunnel.traces.sources import Loaded, load

MIN_WIDTH = 60
Session = tuple[Trace, Report]


def explain(sources: Sequence[str], *, limit: int, width: int | None, as_json: bool) -> int:
    """Print the answer; `limit` breaks are shown in full, on `width` columns or the terminal's."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    paper = Paper(width or max(MIN_WIDTH, shutil.get_terminal_size((100, 24)).columns), colour)
    runs = [s for s in sources if s.strip() and (Path(s) / RUN_FILE).is_file()]
    if runs and len(sources) > 1:
        raise UsageError(f"{runs[0]} is a run: ask about one run at a time, or about traces only")
    for source in sources:
        if source.strip() and (said := searched.instead(Path(source))) is not None:
            raise UsageError(said)
        if source.strip() and (said := without_description(Path(source))) is not None:
            raise UsageError(said)
    data, lines = _run(Path(runs[0]), paper, limit) if runs else _traces(sources, paper, limit)
    if as_json:
        text = msgspec.json.format(to_json(data), indent=2).decode()
        sys.stdout.buffer.write(safe(text).encode() + b"\n")
    else:
        print("\n".join(lines))
    return 0


def _traces(sources: Sequence[str], paper: Paper, limit: int) -> tuple[dict[str, Any], list[str]]:
    loaded = load(sources)
    _complain(loaded.problems)
    sessions = [(trace, find(trace)) for trace in loaded.traces]
    prompt = sum(report.prompt_tokens for _, report in sessions)
    found = rows(((b.culprit, t.header.agent, b.lost_tokens) for t, r in sessions for b in r.breaks), prompt)
    data = {
        "total": _total(sessions),
        "culprits": [_row(row) for row in found],
        "sessions": [_session(t, r) for t, r in sessions],
        "problems": loaded.problems,
    }
    lines = [*_headline(sessions, paper), *_culprits(found, paper), *_details(sessions, paper, limit)]
    return data, lines + let_go([(_label(t), r) for t, r in sessions], paper, limit)


def _headline(sessions: Sequence[Session], paper: Paper) -> list[str]:
    total = _total(sessions)
    trace = sessions[0][0]
    who = _label(trace) if len(sessions) == 1 else f"{len(sessions)} sessions"
    said = f"{who}: {total['calls']:,} calls, {total['prompt_tokens']:,} prompt tokens"
    starts = _starts(sessions, paper)
    if not total["broken_calls"]:
        text = f"{said}. Every prompt extends an earlier one of its thread: nothing broke the prefix."
        return [*paper.wrapped(text, ""), *starts, *filler(total["filler_tokens"], total["prompt_tokens"], paper)]
    share = percent(total["lost_tokens"] / max(1, total["prompt_tokens"]))
    calls = "call does" if total["broken_calls"] == 1 else "calls do"
    text = (
        f"{said}. {total['broken_calls']:,} {calls} not extend an earlier prompt: {total['lost_tokens']:,} tokens "
        f"({share}) behind the changes have to be computed again."
    )
    return [*paper.wrapped(text, ""), *starts, *filler(total["filler_tokens"], total["prompt_tokens"], paper)]


def _starts(sessions: Sequence[Session], paper: Paper) -> list[str]:
    starts = [start for _, report in sessions for start in report.starts]
    if not starts:
        return []
    tokens, common = sum(s.prompt_tokens for s in starts), sum(s.common_tokens for s in starts)
    subject = "1 sub-agent starts" if len(starts) == 1 else f"{len(starts)} sub-agents start"
    text = f"{subject} with {tokens:,} tokens; earlier prompts begin with {common:,} of these."
    named = [s.culprit for s in starts if s.culprit is not None]
    for culprit in dict.fromkeys(named):
        text += f" {named.count(culprit)} of them parted there over: {CULPRITS[culprit]}."
    return paper.wrapped(text, "")


def _culprits(found: Sequence[Row], paper: Paper) -> list[str]:
    return ["", *table(found, paper)] if found else []


def _details(sessions: Sequence[Session], paper: Paper, limit: int) -> list[str]:
    """The dearest breaks in the order of their calls, each session's under its name."""
    dearest = sorted((b.lost_tokens for _, r in sessions for b in r.breaks), reverse=True)
    least = dearest[limit - 1] if 0 < limit <= len(dearest) else 0 if limit else None
    lines: list[str] = []
    left = limit
    for trace, report in sessions:
        chosen = [b for b in report.breaks if least is not None and b.lost_tokens >= least][:left]
        left -= len(chosen)
        if chosen and len(sessions) > 1:
            lines += ["", _label(trace)[: paper.width]]
        for found in chosen:
            lines += ["", *one_break(found, paper)]
    hidden = len(dearest) - (limit - left)
    if hidden > 0:
        what = ("1 more is" if hidden == 1 else f"{hidden:,} cheaper ones are") if lines else f"{hidden:,} not"
        lines += ["", f"{what}{' not' if lines else ''} shown (--limit {len(dearest)} shows all)"]
    return lines


def _label(trace: Trace) -> str:
    header = trace.header
    version = f" {header.agent_version}" if header.agent_version else ""
    title = f" ({' '.join(header.title.split())[:48]})" if header.title else ""
    return shown(f"{header.agent}{version} {header.id}{title}")


def _run(path: Path, paper: Paper, limit: int) -> tuple[dict[str, Any], list[str]]:
    folder = with_events(RunFolder.open(path))
    traces, notes = _replayed(folder)
    breaks = _breaks(traces)
    problems: list[Problem] = []
    unit, exact, holds = settings(folder.run)
    report = read(
        folder.events(problems),
        unit,
        breaks,
        exact=exact,
        kv_tokens=holds,
        provided=provided(folder.run),
        unit_known=unit_known(folder.run),
    )
    _complain((*notes, *problems))
    agents = {t.header.id: t.header.agent for t in traces}
    prompt = report.total("prompt")
    changed = [c for c in report.calls if c.culprit is not None]
    found = rows(((c.culprit or "", agents.get(c.trace, ""), c.diverged) for c in changed), prompt)
    emulated = emulation.of_run(folder.run) is not None
    data = {
        "run_dir": str(path),
        "emulated": emulated,
        "match_unit": report.unit if report.unit_known else None,
        "total": {k: report.total(k) for k in ("prompt", "cached", "missed", "diverged", "fresh")}
        | {"calls": len(report.calls), "calls_without_usage": report.unknown},
        "culprits": [_row(row) for row in found],
        "breaks": [
            {"trace": trace} | msgspec.to_builtins(breaks[trace, call])
            for trace, call in dict.fromkeys((c.trace, c.call) for c in changed)
        ],
        "calls": report.calls,
        "problems": [*notes, *problems],
    }
    lines = _run_lines(path, report, found, breaks, paper, limit)
    if emulated:
        lines[:0] = paper.wrapped(emulation.announced(folder.run["engine"].get("emulation")), "")
    return data, lines


def breaks_of(folder: RunFolder) -> tuple[dict[tuple[str, int], Break], list[Problem]]:
    """Where the traces that a run replayed broke their own prefixes, by trace id and call."""
    traces, notes = _replayed(folder)
    return _breaks(traces), notes


def _breaks(traces: Sequence[Trace]) -> dict[tuple[str, int], Break]:
    return {(t.header.id, b.call): b for t in traces for b in find(t).breaks}


def _run_lines(
    path: Path,
    report: CacheReport,
    found: Sequence[Row],
    breaks: dict[tuple[str, int], Break],
    paper: Paper,
    limit: int,
) -> list[str]:
    if not report.calls and not report.unknown:
        return [f"{path}: no call has completed."]
    if not report.calls:
        return paper.wrapped(
            f"{path}: no completed call says how many of its tokens were cached ({report.unknown:,} say nothing); "
            "vLLM tells with --enable-prompt-tokens-details.",
            "",
        )
    head = f"{path}: {count(len(report.calls), 'call')}, {report.total('prompt'):,} prompt tokens"
    unit = f", found in the cache by blocks of {report.unit} tokens" if report.unit > 1 else ""
    if not report.unit_known:
        unit = "; the size of the cache's blocks is not known"
    lines = [*paper.wrapped(head + unit, ""), "", *where_from(report, paper)]
    if report.unknown:
        lines.append(f"{report.unknown:,} further calls did not say how many of their tokens were cached")
    missed = misses(report, paper, limit)
    if missed:
        lines += ["", "the calls that missed most, in tokens of those they had sent before", *missed]
    lines += _culprits(found, paper)
    shown: set[tuple[str, int]] = set()
    for call in sorted((c for c in report.calls if c.culprit), key=lambda c: -c.diverged):
        key = (call.trace, call.call)
        if key not in shown and len(shown) < limit:
            shown.add(key)
            times = sum(c.trace == call.trace and c.call == call.call and c.diverged > 0 for c in report.calls)
            lines += ["", f"{call.trace}{f', {times} times; the dearest:' if times > 1 else ''}"[: paper.width]]
            lines += one_break(breaks[key], paper, call.diverged)
    return lines


def _replayed(folder: RunFolder) -> tuple[list[Trace], list[Problem]]:
    """The traces of a run: a recording's own, or those that `run.json` names, where they are still there."""
    told = folder.run.get("traces")
    if not isinstance(told, list):
        own = folder.path / "traces"
        if not own.is_dir():
            return [], [Problem(str(folder.path), None, "names no traces: prompts cannot be compared")]
        if not any(own.iterdir()):
            return [], [Problem(str(folder.path), None, "no session of it was kept: prompts cannot be compared")]
        loaded = load([str(own)])
        return list(loaded.traces), list(loaded.problems)
    wanted = {t.get("id"): t for t in told if isinstance(t, dict) and isinstance(t.get("id"), str | None)}
    traces: list[Trace] = []
    notes: list[Problem] = []
    paths = [t.get("path") for t in wanted.values()]
    loaded = _together([p for p in dict.fromkeys(paths) if isinstance(p, str)], notes)
    for trace, path in zip(loaded.traces, loaded.paths, strict=True):
        entry = wanted.get(trace.header.id)
        if entry is None:
            continue
        if entry.get("fingerprint") == fingerprint(trace) or entry.get("calls") == len(trace.calls):
            traces.append(trace)
        else:
            notes.append(Problem(path, None, f"session {trace.header.id} is not what was replayed: left out"))
    return traces, notes


def _together(paths: Sequence[str], notes: list[Problem]) -> Loaded:
    """Loaded as the run did: of logs that share requests each counts once only where all are named."""
    try:
        return _all(paths)
    except TraceError:
        return _all([path for path in paths if _readable(path, notes)])


def _all(paths: Sequence[str]) -> Loaded:
    return load(paths) if paths else Loaded((), (), ())


def _readable(path: str, notes: list[Problem]) -> bool:
    try:
        load([path])
    except TraceError as error:
        notes.append(Problem(path, None, f"the trace cannot be read any more ({error})"))
        return False
    return True


def _total(sessions: Sequence[Session]) -> dict[str, int]:
    return {
        "sessions": len(sessions),
        "calls": sum(r.calls for _, r in sessions),
        "prompt_tokens": sum(r.prompt_tokens for _, r in sessions),
        "broken_calls": sum(len(r.breaks) for _, r in sessions),
        "lost_tokens": sum(r.lost_tokens for _, r in sessions),
        "filler_tokens": sum(r.filler_tokens for _, r in sessions),
        "let_go_calls": sum(len(r.let_go) for _, r in sessions),
        "let_go_tokens": sum(gone.missed_tokens for _, r in sessions for gone in r.let_go),
    }


def _session(trace: Trace, report: Report) -> dict[str, Any]:
    header = trace.header
    return {
        "id": header.id,
        "source": header.source,
        "agent": header.agent,
        "calls": report.calls,
        "prompt_tokens": report.prompt_tokens,
        "lost_tokens": report.lost_tokens,
        "filler_tokens": report.filler_tokens,
        "let_go": [msgspec.to_builtins(gone) | {"missed_tokens": gone.missed_tokens} for gone in report.let_go],
        "subagent_starts": msgspec.to_builtins(report.starts),
        "breaks": [msgspec.to_builtins(b) | {"lost_tokens": b.lost_tokens} for b in report.breaks],
    }


def _row(row: Row) -> dict[str, Any]:
    advice = {agent: found for agent in row.agents if (found := remedy(row.culprit, agent)) is not None}
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {"title": CULPRITS[row.culprit], "remedies": msgspec.to_builtins(advice)}


def _complain(problems: Sequence[Problem]) -> None:
    for problem in problems[:20]:
        print(f"windtunnel: {problem}", file=sys.stderr)
    if len(problems) > 20:
        print(f"windtunnel: and {len(problems) - 20} more problems (--json lists them)", file=sys.stderr)
