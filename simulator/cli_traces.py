"""The commands that look at traces: import, list, show, stats, export."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.traces.errors import TraceError, UsageError
from windtunnel.traces.model import Call, Problem, Trace

KEYS = ("calls", "tool_runs", "threads", "prompt_tokens", "cached_tokens", "completion_tokens", "max_prompt_tokens")


def import_command(sources: Sequence[str], out: Path | None, *, as_json: bool, form: str | None = None) -> int:
    """Import, write one trace a session below `out`, print the table. `form` names the importer to use."""
    from windtunnel.traces.format import write_trace
    from windtunnel.traces.sources import load

    loaded = load(sources, form)
    _complain(loaded.problems)
    if out is not None:
        for name, trace in zip(_file_names(loaded.traces), loaded.traces, strict=True):
            write_trace(trace, out / f"{name}.jsonl.zst")
        print(f"wrote {len(loaded.traces)} traces to {out}", file=sys.stderr)
    _table(loaded.traces, loaded.problems, as_json=as_json)
    return 0


def list_command(sources: Sequence[str], *, as_json: bool) -> int:
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    _complain(loaded.problems)
    _table(loaded.traces, loaded.problems, as_json=as_json)
    return 0


def stats_command(sources: Sequence[str], *, as_json: bool) -> int:
    """Totals, and how the figures are spread over the sessions and the calls."""
    import numpy as np

    from windtunnel.traces.sources import load
    from windtunnel.traces.stats import session_stats, total

    loaded = load(sources or ("library",))
    _complain(loaded.problems)
    stats = [session_stats(trace) for trace in loaded.traces]
    if as_json:
        _table(loaded.traces, loaded.problems, as_json=True)
        return 0
    totals = total(stats)
    print(f"{len(stats)} sessions")
    for key, value in totals.items():
        print(f"  {key:<20} {_number(value):>16}")
    spread: dict[str, list[float]] = {
        "calls per session": [s.calls for s in stats],
        "peak prompt": [s.max_prompt_tokens for s in stats if s.max_prompt_tokens is not None],
        "prompt per call": [c.usage.prompt for t in loaded.traces for c in t.calls if c.usage.prompt is not None],
        "output per call": [
            c.usage.completion for t in loaded.traces for c in t.calls if c.usage.completion is not None
        ],
        "tool wait s": [
            w.seconds for t in loaded.traces for w in t.waits if w.cause == "tool" and w.seconds is not None
        ],
        "human wait s": [
            w.seconds for t in loaded.traces for w in t.waits if w.cause == "human" and w.seconds is not None
        ],
    }
    print(f"\n  {'':<20} {'n':>7} {'p50':>10} {'p90':>10} {'p99':>10} {'max':>10}")
    for name, values in spread.items():
        if values:
            cells = [*np.percentile(values, [50, 90, 99]), max(values)]
            print(f"  {name:<20} {len(values):>7} " + " ".join(f"{_number(v):>10}" for v in cells))
    return 0


def show_command(source: str, *, as_json: bool) -> int:
    """One session, a line a call, sub-agents marked by their thread."""
    from windtunnel.traces.sources import load

    loaded = load([source])
    _complain(loaded.problems)
    if len(loaded.traces) > 1:
        names = ", ".join(t.header.id for t in loaded.traces[:5])
        raise TraceError(f"{source}: holds {len(loaded.traces)} sessions ({names}, ...); name one")
    trace = loaded.traces[0]
    if as_json:
        print(msgspec.json.encode([_row(trace, call) for call in trace.calls]).decode())
        return 0
    head = trace.header
    kind = "synthetic, " if head.synthetic else ""
    text = "shape only" if head.shape_only else "with text"
    print(f"{head.title or head.id}   {head.agent} {head.agent_version or ''}  {kind}{text}, {len(trace.calls)} calls")
    print(f"{'call':>5} {'thread':>6} {'start s':>9} {'prompt':>8} {'cached':>8} {'output':>7}  stop / tools")
    for call in trace.calls:
        row = _row(trace, call)
        cells = [_number(row[key]) for key in ("start_s", "prompt", "cached", "output")]
        print(
            f"{call.id:>5} {call.thread:>6} {cells[0]:>9} {cells[1]:>8} {cells[2]:>8} {cells[3]:>7}  "
            f"{row['stop'] or ''} {' '.join(row['tools'])}".rstrip()
        )
    return 0


def export_command(sources: Sequence[str], form: str, out: Path | None) -> int:
    """Write traces in another program's format: to `out`, a file or, where each session has its own, a folder."""
    from windtunnel.traces.exporters import EXPORTERS, export
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    _complain(loaded.problems)
    exported = export(loaded.traces, form)
    _complain(exported.problems)
    exporter = EXPORTERS[form]
    if out is None:
        if len(exported.files) > 1:
            raise UsageError(
                f"{form} takes a file for each of the {len(exported.files)} sessions: name a folder with --out"
            )
        sys.stdout.buffer.write(exported.files[0])
        return 0
    names = [out]
    if not exporter.one_file:
        names = [out / f"{name}{exporter.suffix}" for name in _file_names(loaded.traces)]
    try:
        for name, data in zip(names, exported.files, strict=True):
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"{error.filename or out} cannot be written ({error.strerror}); choose another --out"
        ) from error
    print(f"wrote {len(loaded.traces)} sessions to {out} as {form}", file=sys.stderr)
    return 0


def _row(trace: Trace, call: Call) -> dict[str, Any]:
    output = trace.messages[call.output] if call.output is not None else None
    return {
        "call": call.id,
        "thread": call.thread,
        "kind": call.kind,
        "start_s": call.start_s,
        "prompt": call.usage.prompt,
        "cached": call.usage.cached,
        "output": call.usage.completion,
        "stop": call.stop,
        "tools": [tool.name for tool in output.tool_calls] if output else [],
    }


def _table(traces: Sequence[Trace], problems: Sequence[Problem], *, as_json: bool) -> None:
    from windtunnel.traces.stats import session_stats, total

    stats = [session_stats(trace) for trace in traces]
    if as_json:
        data = {"total": total(stats), "sessions": stats, "problems": problems}
        print(msgspec.json.encode(data).decode())
        return
    header = ("session", "title", "calls", "tools", "threads", "prompt", "cached", "output", "peak", "span s", "filler")
    print("{:<26} {:<24} {:>6} {:>6} {:>7} {:>12} {:>12} {:>9} {:>8} {:>8} {:>9}".format(*header))
    for trace, s in zip(traces, stats, strict=True):
        cells = (
            trace.header.id[-26:],
            (trace.header.title or "")[:24],
            s.calls,
            s.tool_runs,
            s.threads,
            _number(s.prompt_tokens),
            _number(s.cached_tokens),
            _number(s.completion_tokens),
            _number(s.max_prompt_tokens),
            _number(s.span_s),
            _number(s.filler_tokens),
        )
        print("{:<26} {:<24} {:>6} {:>6} {:>7} {:>12} {:>12} {:>9} {:>8} {:>8} {:>9}".format(*cells))
    estimated = sum(s.estimated_calls for s in stats)
    print(f"{len(stats)} sessions, {sum(s.calls for s in stats)} calls, {estimated} of them with estimated figures")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) and value < 1000 and value != int(value) else f"{value:,.0f}"


def _file_names(traces: Sequence[Trace]) -> list[str]:
    """A name for each trace, from its id; sessions of equal ids are numbered, so that none replaces another."""
    names: dict[str, None] = {}
    for trace in traces:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", trace.header.id).strip("-.")[:200] or "trace"
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names[name] = None
    return list(names)


def _complain(problems: Sequence[Problem]) -> None:
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    if len(problems) > 20:
        print(f"... and {len(problems) - 20} more problems (all of them with --json)", file=sys.stderr)
