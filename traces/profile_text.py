"""A profile of sessions as lines for a terminal."""

from collections.abc import Callable, Sequence

from windtunnel.traces.model import Trace
from windtunnel.traces.pictures import Pen, Style, count, duration, percent, plural, table
from windtunnel.traces.profile import Profile, ToolTime, prompt_sizes, samples

_ROWS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("turns", "turns a session", count),
    ("first_prompt", "first prompt", count),
    ("peak_prompt", "largest prompt", count),
    ("prompt", "prompt a call", count),
    ("growth", "growth a turn", count),
    ("output", "output a call", count),
    ("reasoning", "reasoning, where any", count),
    ("call_s", "time of a call", duration),
    ("first_token_s", "time to first token", duration),
    ("tool_s", "time of a tool run", duration),
    ("human_s", "wait for the user", duration),
)
_OF_SESSIONS = frozenset({"turns", "first_prompt", "peak_prompt"})
"""Figures that a single session has one value of, told above."""
_STYLES: dict[str, Style] = {"tool": "tool", "human": "human", "client": "client", "subagent": "subagent"}
_MOST_TOOLS = 12
_AGENTS = 32
"""Agents that the duty cycle is turned into requests in flight for."""
_WIDEST, _ROOMY = 160, 100


def profile_lines(traces: Sequence[Trace], found: Profile, pen: Pen) -> list[str]:
    """Everything about the sessions, in sections with a blank line between them."""
    width = min(pen.width, _WIDEST)
    sections = [
        _head(found, pen, width),
        _context(traces, pen, width),
        _spreads(samples(traces), found, pen, width),
        _tools(found.tools, pen, width),
        _waits(found, pen, width),
        _reuse(found, pen, width),
        _duty(found, pen, width),
        _honesty(found, pen, width),
    ]
    return [line for lines in sections if lines for line in (*lines, "")][:-1]


def _title(pen: Pen, text: str, more: str = "") -> str:
    return pen.paint(text, "bold") + (pen.paint(f"  {more}", "dim") if more else "")


def wrapped(parts: Sequence[str], width: int, indent: str = "  ") -> list[str]:
    """Parts joined by commas, broken between parts."""
    lines: list[str] = []
    for i, part in enumerate(parts):
        piece = part + ("," if i < len(parts) - 1 else "")
        if lines and len(lines[-1]) + 1 + len(piece) <= width:
            lines[-1] += " " + piece
        else:
            lines.append(indent + piece)
    return lines


def _head(p: Profile, pen: Pen, width: int) -> list[str]:
    kinds = [plural(p.turns, "turn")]
    kinds += [f"{p.auxiliary:,} auxiliary"] if p.auxiliary else []
    kinds += [plural(p.compactions, "compaction")] if p.compactions else []
    kinds += [plural(p.human_waits, "wait for the user", "waits for the user")] if p.human_waits else []
    lines = [_title(pen, f"{plural(p.sessions, 'session')}, {plural(p.calls, 'call')}"), *wrapped(kinds, width)]
    if p.subagents:
        of = f" of {p.sessions}" if p.sessions > 1 else ""
        where = f"in {plural(p.subagent_sessions, 'session')}{of}" if p.sessions > 1 else "in the session"
        beside = f", {p.background} in the background" if p.background else ""
        share = percent(p.subagent_calls / p.calls)
        text = f"{plural(p.subagents, 'sub-agent')} {where}{beside}, {p.subagent_calls:,} calls ({share})"
        lines += wrapped([text], width)
    if p.sessions == 1 and "first_prompt" in p.spreads:
        first, most = p.spreads["first_prompt"].max, p.spreads["peak_prompt"].max
        lines += wrapped([f"prompt {count(first)} at first", f"{count(most)} at most"], width)
    if p.sessions > 1:
        lines += wrapped([f"{name} {number:,}" for name, number in p.agents.items()], width)
    return lines


def _context(traces: Sequence[Trace], pen: Pen, width: int) -> list[str]:
    """For a single session: the prompt of each of the main agent's calls, from the first to the last."""
    if len(traces) != 1:
        return []
    prompts = prompt_sizes(traces[0])
    sizes = [prompts[c.id] for c in traces[0].calls if c.thread == 0 and c.kind != "auxiliary"]
    if len(sizes) < 3:
        return []
    title = _title(pen, "prompt", "of the main agent's calls, first to last; scaled from zero")
    edge = f"  {count(max(sizes)):>6} "
    most = width - len(edge) - 1
    wide = sizes if len(sizes) > most else [s for s in sizes for _ in range(max(1, min(6, most // len(sizes))))]
    rows = pen.chart(wide, most, 3)
    lines = [edge + pen.paint(rows[0], "call"), *(" " * len(edge) + pen.paint(row, "call") for row in rows[1:])]
    return [title, *lines]


def _spreads(values: dict[str, list[float]], p: Profile, pen: Pen, width: int) -> list[str]:
    names, rows = [], []
    for name, title, show in _ROWS:
        s = p.spreads.get(name)
        if s is not None and not (p.sessions == 1 and name in _OF_SESSIONS):
            names.append(name)
            rows.append((title, f"{s.n:,}", show(s.min), show(s.p50), show(s.p90), show(s.p99), show(s.max)))
    if not rows:
        return []
    lines = table(("", "n", "least", "p50", "p90", "p99", "max"), rows)
    room = min(40, width - len(lines[0]) - 4)
    out = [_title(pen, "spread", "how often, from the least to the most, on a log scale"), "  " + lines[0]]
    for line, name in zip(lines[1:], names, strict=True):
        picture = pen.histogram(values[name], room)
        out.append(f"  {line}  {pen.paint(picture.rstrip(), 'call')}" if len(picture) > 1 else f"  {line}")
    return out


def _tools(tools: Sequence[ToolTime], pen: Pen, width: int) -> list[str]:
    if not tools:
        return []
    total = sum(t.total_s for t in tools)
    runs = sum(t.runs for t in tools)
    shown = list(tools[:_MOST_TOOLS])
    rest = tools[_MOST_TOOLS:]
    most = 26 if width >= _ROOMY else 18
    rows = [_tool_row(pen.cut(t.name, most), t, total) for t in shown]
    if rest:
        timed, time = sum(t.timed for t in rest), sum(t.total_s for t in rest)
        other = ToolTime("", sum(t.runs for t in rest), timed, sum(t.errors for t in rest), None, None, None, time)
        rows.append(_tool_row(f"{len(rest)} others", other, total))
    lines = table(("", "runs", "errors", "p50", "p90", "max", "total", "share"), rows)
    room = min(40, width - max(len(line) for line in lines) - 5)
    longest = max(len(line) for line in lines)
    bars = [t.total_s / total if total else 0.0 for t in shown] + [sum(t.total_s for t in rest) / total if total else 0]
    out = [
        _title(pen, "tool time", plural(runs, "run") + (f", {duration(total)} in all" if total else "")),
        "  " + lines[0],
    ]
    for line, share in zip(lines[1:], bars, strict=False):
        out.append(f"  {line:<{longest}}  {pen.paint(pen.bar(share, room), 'tool')}".rstrip())
    if any(t.timed < t.runs for t in tools):
        unknown = sum(t.runs - t.timed for t in tools)
        out.append(
            pen.paint(f"  {plural(unknown, 'run')} without a time of their own: not recorded, or sub-agents", "dim")
        )
    return out


def _tool_row(name: str, t: ToolTime, total: float) -> tuple[str, ...]:
    share = percent(t.total_s / total) if total and t.timed else "-"
    times = (duration(t.p50_s), duration(t.p90_s), duration(t.max_s), duration(t.total_s) if t.timed else "-")
    return (name, f"{t.runs:,}", f"{t.errors:,}" if t.errors else "", *times, share)


def _waits(p: Profile, pen: Pen, width: int) -> list[str]:
    causes = [c for c in ("tool", "human", "client", "subagent") if c in p.waits or c in p.waits_unknown]
    if not causes:
        return []
    words = {"tool": "tools", "human": "the user", "client": "the client", "subagent": "sub-agents"}
    sums = {c: p.waits[c].mean * p.waits[c].n if c in p.waits else 0.0 for c in causes}
    total = sum(sums.values())
    rows = []
    for cause in causes:
        s, unknown = p.waits.get(cause), p.waits_unknown.get(cause, 0)
        times = ("-",) * 4 if s is None else (duration(s.p50), duration(s.p90), duration(s.max), duration(sums[cause]))
        number = s.n + unknown if s else unknown
        rows.append((words[cause], f"{number:,}", f"{unknown:,}" if unknown else "", *times))
    lines = table(("", "waits", "unknown", "p50", "p90", "max", "total"), rows)
    longest = max(len(line) for line in lines)
    room = min(40, width - longest - 5)
    out = [_title(pen, "waiting", "before calls, for"), "  " + lines[0]]
    for line, cause in zip(lines[1:], causes, strict=True):
        share = sums[cause] / total if total else 0.0
        out.append(f"  {line:<{longest}}  {pen.paint(pen.bar(share, room), _STYLES[cause])}".rstrip())
    return out


def _reuse(p: Profile, pen: Pen, width: int) -> list[str]:
    if p.reused_share is None:
        return []
    room = min(40, max(10, width - 58))
    rows = [("seen before in the session", p.reused_share, "")]
    if p.sessions > 1 and p.reused_across_share is not None:
        rows.append(("seen before in any session", p.reused_across_share, ""))
    partly = "" if p.cached_said == p.calls else f"  ({p.cached_said:,} of {p.calls:,} calls say)"
    if p.cached_share is not None:
        rows.append(("cached, as recorded", p.cached_share, partly))
    out = [
        _title(pen, "reuse", f"share of {count(p.prompt_tokens)} prompt tokens that equals the front of an earlier one")
    ]
    for name, share, more in rows:
        out.append(f"  {name:<27} {percent(share):>6}  {pen.paint(pen.bar(share, room), 'call')}{more}")
    if p.cached_share is None:
        out.append(pen.paint("  cached, as recorded         not reported", "dim"))
    return out


def _duty(p: Profile, pen: Pen, width: int) -> list[str]:
    if not p.duty:
        return [_title(pen, "duty cycle", "unknown: no call says when it started and ended")]
    words = {None: "as recorded", 0.0: "none: no waiting"}
    rows = [
        (
            f"at most {d.cap_s:g} s" if d.cap_s else words[d.cap_s],
            percent(d.duty_cycle),
            f"{d.in_flight * _AGENTS:.1f}",
            duration(d.length_s),
        )
        for d in p.duty
    ]
    lines = table(("idle gaps", "duty", f"in flight of {_AGENTS}", "length"), rows)
    longest = max(len(line) for line in lines)
    room = min(40, width - longest - 5)
    out = [_title(pen, "duty cycle", "share of the time with a request in flight"), "  " + lines[0]]
    for line, d in zip(lines[1:], p.duty, strict=True):
        out.append(f"  {line:<{longest}}  {pen.paint(pen.bar(d.duty_cycle, room), 'call')}")
    return out


def _honesty(p: Profile, pen: Pen, width: int) -> list[str]:
    """What of these figures nobody recorded."""
    parts = []
    for name, number in p.estimated.items():
        some = f"of {plural(number, 'call')} ({percent(number / p.calls)})"
        parts.append(f"{name} {'of all calls' if number == p.calls else some}")
    out = [_title(pen, "estimated or unknown" if parts else "every figure is recorded or derived")]
    out += wrapped(parts, width) if parts else []
    if p.filler_tokens:
        out += wrapped(
            [f"{count(p.filler_tokens)} tokens are filler: the text of these prompt parts is not in the log"], width
        )
    return out


def compared_lines(given: Profile, made: Profile, pen: Pen) -> list[str]:
    """Two profiles side by side: what was given, what was made of it, and the ratio."""
    rows: list[tuple[str, ...]] = []
    for name, title, show in _ROWS:
        a, b = given.spreads.get(name), made.spreads.get(name)
        if a is None or b is None:
            continue
        cells = [title]
        for x, y in ((a.p50, b.p50), (a.p90, b.p90), (a.mean, b.mean)):
            cells += [show(x), show(y), f"{y / x:.2f}" if x else ""]
        rows.append(tuple(cells))
    lines = table(("", "p50", "made", "ratio", "p90", "made", "ratio", "mean", "made", "ratio"), rows)
    if max(len(line) for line in lines) > pen.width - 2:
        lines = table(("", "p50", "made", "ratio", "p90", "made", "ratio"), [row[:7] for row in rows])
    out = [_title(pen, "spread", f"of {given.sessions:,} given sessions and {made.sessions:,} made"), *lines, ""]
    each: list[tuple[str, float | None, float | None, Callable[[float | None], str]]] = [
        ("calls a session", given.calls / given.sessions, made.calls / made.sessions, count),
        ("sub-agents a session", given.subagents / given.sessions, made.subagents / made.sessions, _rare),
        ("waits for the user a session", given.human_waits / given.sessions, made.human_waits / made.sessions, _rare),
        ("compactions a session", given.compactions / given.sessions, made.compactions / made.sessions, _rare),
        ("cached, as recorded", given.cached_share, made.cached_share, percent),
        ("seen before in the session", given.reused_share, made.reused_share, percent),
    ]
    caps = {d.cap_s: d.duty_cycle for d in made.duty}
    for d in given.duty:
        if d.cap_s != 0:
            gaps = "as recorded" if d.cap_s is None else f"at most {d.cap_s:g} s"
            each.append((f"duty cycle, gaps {gaps}", d.duty_cycle, caps.get(d.cap_s), percent))
    out += [
        _title(pen, "session"),
        *table(("", "given", "made"), [(n, show(a), show(b)) for n, a, b, show in each]),
        "",
    ]
    return [*out, *_compared_tools(given, made, pen)]


def _rare(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _compared_tools(given: Profile, made: Profile, pen: Pen) -> list[str]:
    runs = (max(1, sum(t.runs for t in given.tools)), max(1, sum(t.runs for t in made.tools)))
    got = {t.name: t for t in made.tools}
    rows = []
    for tool in sorted(given.tools, key=lambda t: -t.runs)[:_MOST_TOOLS]:
        other = got.get(tool.name)
        if other is not None:
            shares = (percent(tool.runs / runs[0]), percent(other.runs / runs[1]))
            times = (duration(tool.p50_s), duration(other.p50_s), duration(tool.p90_s), duration(other.p90_s))
            rows.append((pen.cut(tool.name, 26), *shares, *times))
    if not rows:
        return []
    return [_title(pen, "tools"), *table(("", "of runs", "made", "p50", "made", "p90", "made"), rows)]
