"""The table of a session's calls as lines for a terminal."""

from collections.abc import Sequence

from windtunnel.traces.model import Trace
from windtunnel.traces.pictures import Pen, Style, clock, count, duration, table
from windtunnel.traces.turns import Pause, ToolUse, TurnRow

WIDE = 116
"""From this width on the table has every column."""
_MISSED = 0.05
"""Share of the prompt from which tokens missing from the cache are told."""
_WORDS = {"human": "user", "client": "client", "subagent": "sub-agents", "tool": "tools"}
_WIDEST = 200


def turn_lines(trace: Trace, rows: Sequence[TurnRow], pen: Pen) -> list[str]:
    """A header and a line for every call; a figure that is a guess has a ~ before it."""
    if not rows:
        return []
    width = min(pen.width, _WIDEST)
    wide = width >= WIDE
    threads = len(trace.threads) > 1
    header = ["call", *(["of"] if threads else []), "at", "prompt", "cached", "new"]
    header += ["missed"] if wide else []
    header += ["output"]
    header += ["reasoning", "first"] if wide else []
    header += ["took"]
    left = (1,) if threads else ()
    cells = [_cells(row, wide=wide, threads=threads) for row in rows]
    said = [i for i, name in enumerate(header) if name == "call" or any(row[i] not in {"", "-"} for row in cells)]
    lines = table([header[i] for i in said], [[row[i] for i in said] for row in cells], left)
    longest = max(len(line) for line in lines)
    room = width - longest - 2
    title = "what it led to, and the wait after it" if room >= 37 else "then"
    out = [pen.paint(f"{lines[0]:<{longest}}  {title}", "bold")]
    for line, row in zip(lines[1:], rows, strict=True):
        out.append(f"{line:<{longest}}  {_then(row, pen, room, wide=wide)}".rstrip())
    return out


def _cells(row: TurnRow, *, wide: bool, threads: bool) -> list[str]:
    def figure(name: str, text: str) -> str:
        return f"~{text}" if name in row.estimated and text != "-" else text

    cells = [str(row.call)]
    cells += ["" if row.thread == 0 else f"#{row.thread}"] if threads else []
    cells += [figure("start", clock(row.start_s)), figure("prompt", count(row.prompt))]
    cells += [figure("cached", count(row.cached)), count(row.new)]
    if wide:
        told = row.missed is not None and row.missed > _MISSED * row.prompt
        cells += [count(row.missed) if told else ""]
    cells += [figure("completion", count(row.output))]
    if wide:
        cells += [count(row.reasoning) if row.reasoning else "", figure("first", duration(row.first_token_s))]
    return [*cells, figure("end", duration(row.took_s))]


def _then(row: TurnRow, pen: Pen, room: int, *, wide: bool) -> str:
    """Tools, then waits; what does not fit is cut at the tools' end, so that the wait for the user is always seen."""
    notes: list[str] = []
    if row.kind != "turn":
        notes.append(row.kind)
    if row.aborted:
        notes.append("aborted")
    if row.stop is not None and row.stop not in {"tool_use", "tool_calls", "end_turn", "stop", "completed", "toolUse"}:
        notes.append(row.stop)
    if not wide and row.missed is not None and row.missed > _MISSED * row.prompt:
        notes.append(f"{count(row.missed)} missed")
    head = f"[{', '.join(notes)}] " if notes else ""
    waits = [_wait(w, row.tools) for w in row.waits]
    tail = "  ".join(w for w in waits if w)
    parts = [_tools(row.tools, pen), *([_started(row.starts, pen)] if row.starts else [])]
    tools = head + ", ".join(part for part in parts if part)
    if tail and len(tools) + 2 + len(tail) > room:
        tail = pen.cut(tail, room)
        tools = pen.cut(tools, room - 2 - len(tail)) if room - 2 - len(tail) > 4 else ""
    tools = pen.cut(tools, room)
    style: Style = "human" if any(w.cause == "human" for w in row.waits) else "dim"
    painted = pen.paint(tools, "tool") if not notes else tools
    return f"{painted}{'  ' if tools and tail else ''}{pen.paint(tail, style)}"


def _tools(uses: Sequence[ToolUse], pen: Pen) -> str:
    """Each tool with how often and how long: `Read x3 0.12s`."""
    grouped: dict[str, list[ToolUse]] = {}
    for use in uses:
        grouped.setdefault(use.name, []).append(use)
    parts = []
    for name, same in grouped.items():
        text = pen.cut(name, 24) + (f" {pen.pick(chr(0xD7), 'x')}{len(same)}" if len(same) > 1 else "")
        started = [use.thread for use in same if use.thread is not None]
        known = [use.seconds for use in same if use.seconds is not None]
        if started:
            text += f" {_started(started, pen)}"
        elif known:
            text += f" {duration(max(known))}"
        failed = sum(use.error for use in same)
        text += "!" if failed else ""
        parts.append(text)
    return ", ".join(parts)


def _started(threads: Sequence[int], pen: Pen) -> str:
    return pen.pick("\u2192", "->") + ",".join(f"#{thread}" for thread in threads)


def _wait(wait: Pause, tools: Sequence[ToolUse]) -> str:
    """A wait in words; tools that say their own time need none, nor do pauses too short to matter."""
    if wait.cause == "tool" and any(use.seconds is not None for use in tools):
        return ""
    if wait.cause == "client" and wait.seconds is not None and wait.seconds < 1:
        return ""
    time = "?" if wait.seconds is None else duration(wait.seconds)
    return f"{_WORDS[wait.cause]} {'~' if wait.estimated else ''}{time}"
