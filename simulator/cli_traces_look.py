"""The commands that look at sessions: stats, show; and the table that import and list print."""

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from windtunnel.traces.errors import TraceError
from windtunnel.traces.model import Problem, Trace
from windtunnel.traces.pictures import Pen, count, duration, percent, plural, table
from windtunnel.traces.stats import SessionStats, session_stats, total

MOST_ROWS = 60
"""Sessions from which on the table has a line for each agent instead."""
_WIDE = 110
_MOST_PROBLEMS = 20
_NAME, _LONGEST_NAME = 20, 60
_PICTURE = 24
"""Most columns of the sparkline of a session's prompts, next to a name of at least `_NAME`."""


def pen() -> Pen:
    """What stdout can show: a terminal's own width and colours, 80 columns without colours elsewhere."""
    shown = sys.stdout.isatty()
    colour = shown and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(80, shutil.get_terminal_size((80, 24)).columns)
    return Pen(width, ascii=not _takes_blocks(), colour=colour)


def _takes_blocks() -> bool:
    try:
        "\u2581\u2588\u2592\u258f\u2514\u2192".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return os.environ.get("TERM") != "linux"  # the kernel's console has few glyphs


def complain(problems: Sequence[Problem]) -> None:
    """Problems on stderr, one a line with its place: the first ones, and how many more there are."""
    for problem in problems[:_MOST_PROBLEMS]:
        print(problem, file=sys.stderr)
    if len(problems) > _MOST_PROBLEMS:
        print(f"... and {len(problems) - _MOST_PROBLEMS} more problems (all of them with --json)", file=sys.stderr)


def stats_command(sources: Sequence[str], *, as_json: bool) -> int:
    """What sessions are like: figures, distributions and small pictures; with `as_json` every session's own too."""
    from windtunnel.traces.profile import profile, session_figures
    from windtunnel.traces.profile_text import profile_lines
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    complain(loaded.problems)
    found = profile(loaded.traces)
    if as_json:
        stats = [session_stats(trace) for trace in loaded.traces]
        sessions = [
            {**msgspec.to_builtins(s), **session_figures(trace)} for s, trace in zip(stats, loaded.traces, strict=True)
        ]
        _print_json(
            {"total": total(stats), "sessions": sessions, "problems": loaded.problems, "profile": found},
        )
        return 0
    if len(loaded.traces) == 1:
        print("\n".join(_about(loaded.traces[0], pen())))
    print("\n".join([*profile_lines(loaded.traces, found, pen()), *_emulated(loaded.traces)]))
    return 0


def show_command(source: str, *, as_json: bool) -> int:
    """One session: its timeline, then a line for every call."""
    from windtunnel.traces.profile import session_figures
    from windtunnel.traces.profile_text import wrapped
    from windtunnel.traces.sources import load
    from windtunnel.traces.timeline import lanes
    from windtunnel.traces.timeline_text import timeline_lines
    from windtunnel.traces.turns import turn_rows
    from windtunnel.traces.turns_text import turn_lines

    loaded = load([source])
    complain(loaded.problems)
    trace = _only(loaded.traces, loaded.paths, source)
    rows = turn_rows(trace)
    if as_json:
        session = {**msgspec.to_builtins(session_stats(trace)), **session_figures(trace)}
        _print_json({"session": session, "threads": trace.threads, "lanes": lanes(trace), "calls": rows})
        return 0
    shape = pen()
    print("\n".join([*_about(trace, shape), *wrapped(_summary(session_stats(trace)), shape.width)]))
    drawn = timeline_lines(trace, shape)
    print("\n".join(["", *(drawn or ["No call says when it started or ended: there is no time line."]), ""]))
    print("\n".join(turn_lines(trace, rows, shape)))
    return 0


def _only(traces: Sequence[Trace], paths: Sequence[str], source: str) -> Trace:
    if len(traces) == 1:
        return traces[0]
    files = sorted(set(paths))
    if len(files) > 1:
        known = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
        raise TraceError(f"{source} holds {len(traces)} sessions: give the file of one of them ({known})")
    raise TraceError(
        f"{source} holds {len(traces)} sessions in one file: "
        f"`windtunnel import {source} --out DIR` writes each to a file of its own"
    )


def _about(trace: Trace, shape: Pen) -> list[str]:
    """Which session it is, and below who recorded it with what."""
    head = trace.header
    kinds = ["synthetic"] if head.synthetic else []
    kinds.append("shape only" if head.shape_only else "with text")
    kinds += ["EMULATED"] if head.emulated else []
    name = f"{head.title}  ({head.id})" if head.title and head.title != head.id else head.id
    agent = f"{head.agent} {head.agent_version or ''}".strip()
    models = ", ".join(head.models[:3])
    rest = "   ".join(part for part in (agent, ", ".join(kinds), models) if part)
    return [shape.paint(shape.cut(name, shape.width), "bold"), shape.cut(f"  {rest}", shape.width)]


def _summary(s: SessionStats) -> list[str]:
    parts = [plural(s.calls, "call"), plural(s.tool_runs, "tool run") if s.tool_runs else ""]
    parts += [plural(s.threads - 1, "sub-agent") if s.threads > 1 else ""]
    parts += [f"{duration(s.span_s)} long" if s.span_s is not None else ""]
    parts += [f"{count(s.prompt_tokens)} prompt tokens"]
    parts += [f"{count(s.cached_tokens)} cached" if s.cached_tokens is not None else ""]
    parts += [f"{percent(s.filler_share)} filler" if s.filler_share else ""]
    return [part for part in parts if part]


def print_table(traces: Sequence[Trace], problems: Sequence[Problem], *, as_json: bool) -> None:
    """Sessions and their totals: calls, tool runs, tokens, span, what is estimated and what is filler."""
    stats = [session_stats(trace) for trace in traces]
    if as_json:
        _print_json({"total": total(stats), "sessions": stats, "problems": problems})
        return
    shape = pen()
    by_agent = len(stats) > MOST_ROWS
    groups = _groups(traces, stats) if by_agent else [(_title(t), t, [s]) for t, s in zip(traces, stats, strict=True)]
    wide = shape.width >= _WIDE
    header = ["agent" if by_agent else "session", *(["sessions"] if by_agent else [])]
    header += ["agent"] if wide and not by_agent else []
    header += [
        "calls",
        "tools",
        "subs",
        "prompt",
        *(["cached"] if wide else []),
        "output",
        "peak",
        "span",
        "est.",
        "filler",
    ]
    rows = [_line(name, trace.header.agent, group, wide=wide, by_agent=by_agent) for name, trace, group in groups]
    if len(rows) > 1:
        rows.append(_line("total", "", stats, wide=wide, by_agent=by_agent))
    gap = 2 if wide else 1
    room = shape.width - sum(max(len(row[i]) for row in (header, *rows)) + gap for i in range(1, len(header)))
    picture = min(_PICTURE, room - _NAME - gap) if wide and not by_agent else 0
    most = max(16, min(_LONGEST_NAME, room - (picture + gap if picture > 0 else 0)))
    rows = [[shape.cut(row[0], most), *row[1:]] for row in rows]
    lines = table(header, rows, left=(0, 1) if wide and not by_agent else (0,), gap=gap)
    print(shape.paint(lines[0], "bold"))
    longest = max(len(line) for line in lines)
    for i, line in enumerate(lines[1:]):
        drawn = shape.sparkline(_prompts(traces[i]), picture) if picture > 0 and i < len(traces) else ""
        print(f"{line:<{longest}}  {shape.paint(drawn, 'call')}".rstrip())
    if by_agent:
        print(f"{len(stats):,} sessions, each of them with --json")
    estimated, calls = sum(s.estimated_calls for s in stats), sum(s.calls for s in stats)
    notes = []
    if estimated:
        notes.append(f"est.: prompt or output length is a guess or unknown ({estimated:,} of {calls:,} calls)")
    if any(s.filler_tokens for s in stats):
        notes.append("filler: share of the prompt tokens whose text is not in the log")
    notes += _emulated(traces)
    for note in notes:
        print(shape.paint(note, "dim"))


def _emulated(traces: Sequence[Trace]) -> list[str]:
    """What there is to say of recordings of an emulator."""
    found = sum(trace.header.emulated for trace in traces)
    of = f"the times of {found:,} of {len(traces):,} sessions" if len(traces) > 1 else "this session's times"
    return [f"EMULATED: {of} were computed by an emulator, not measured"] if found else []


def _title(trace: Trace) -> str:
    return trace.header.title or trace.header.id


def _prompts(trace: Trace) -> list[float]:
    from windtunnel.traces.profile import prompt_sizes

    sizes = prompt_sizes(trace)
    return [sizes[c.id] for c in trace.calls if c.thread == 0 and c.kind != "auxiliary"]


def _groups(traces: Sequence[Trace], stats: Sequence[SessionStats]) -> list[tuple[str, Trace, list[SessionStats]]]:
    out: dict[str, tuple[str, Trace, list[SessionStats]]] = {}
    for trace, s in zip(traces, stats, strict=True):
        out.setdefault(trace.header.agent, (trace.header.agent, trace, []))[2].append(s)
    return sorted(out.values(), key=lambda group: -len(group[2]))


def _line(name: str, agent: str, group: Sequence[SessionStats], *, wide: bool, by_agent: bool) -> list[str]:
    t: dict[str, Any] = total(group)
    cells = [name, *([f"{len(group):,}"] if by_agent else []), *([agent] if wide and not by_agent else [])]
    cells += [f"{t['calls']:,}", f"{t['tool_runs']:,}" if t["tool_runs"] else "-"]
    cells += [f"{t['threads'] - len(group):,}" if t["threads"] > len(group) else "-", count(t["prompt_tokens"])]
    cells += [count(t["cached_tokens"])] if wide else []
    cells += [count(t["completion_tokens"]), count(t["max_prompt_tokens"]), duration(t["span_s"])]
    est = t["estimated_calls"] / t["calls"] if t["calls"] else 0.0
    return [*cells, f"{est:.0%}" if est else "-", f"{t['filler_share']:.0%}" if t["filler_share"] else "-"]


def _print_json(data: dict[str, Any]) -> None:
    print(msgspec.json.encode(data).decode())
