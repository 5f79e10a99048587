"""Prefix breakers for people: tables by culprit, and the first differing block as two lines."""

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import Struct

from windtunnel.simulator.results.miss_words import CAUSES
from windtunnel.simulator.results.misses import CacheReport, CallCache
from windtunnel.traces.breakers import Break, Side
from windtunnel.traces.culprits import CULPRITS
from windtunnel.traces.differing import common_end, shown, window
from windtunnel.traces.remedies import remedy

_RED, _GREEN, _BOLD, _DIM, _MARK, _OFF = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[7m", "\x1b[0m"


class Paper(Struct, frozen=True):
    """What is written on."""

    width: int = 80
    colour: bool = False

    def dye(self, text: str, code: str) -> str:
        return f"{code}{text}{_OFF}" if self.colour and text else text

    def wrapped(self, text: str, indent: str, hanging: str | None = None) -> list[str]:
        return textwrap.wrap(
            text,
            max(20, self.width),
            initial_indent=indent,
            subsequent_indent=indent if hanging is None else hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )


class Row(Struct, frozen=True):
    """One culprit's part."""

    culprit: str
    calls: int
    lost_tokens: int
    share: float
    """Of all prompt tokens."""
    agents: tuple[str, ...]
    """Clients it was seen with."""


def rows(breaks: Iterable[tuple[str, str, int]], prompt_tokens: int) -> list[Row]:
    """From (culprit, client, tokens lost) of each call; the dearest first."""
    sums: dict[str, list[int]] = {}
    clients: dict[str, dict[str, None]] = {}
    for culprit, agent, lost in breaks:
        held = sums.setdefault(culprit, [0, 0])
        held[0] += 1
        held[1] += lost
        clients.setdefault(culprit, {})[agent] = None
    made = [Row(c, n, lost, lost / max(1, prompt_tokens), tuple(clients[c])) for c, (n, lost) in sums.items()]
    return sorted(made, key=lambda r: (-r.lost_tokens, r.culprit))


def percent(share: float) -> str:
    return "< 0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def table(found: Sequence[Row], paper: Paper) -> list[str]:
    """Tokens, share, calls, culprit; then the settings that avoid them, as far as a client documents one."""
    lines = [paper.dye(f"{'tokens lost':>13} {'of prompt':>9} {'calls':>6}  culprit", _DIM)]
    advice: list[str] = []
    for row in found:
        name = CULPRITS[row.culprit]
        lines.append(f"{row.lost_tokens:>13,} {percent(row.share):>9} {row.calls:>6,}  {paper.dye(name, _BOLD)}")
        for agent in row.agents:
            known = remedy(row.culprit, agent)
            if known is not None:
                advice += paper.wrapped(f"{name}, {agent}: {known.what} [{known.source}]", "  ", "    ")
    return [*lines, *(["", paper.dye("what avoids it", _DIM), *advice] if advice else [])]


def one_break(found: Break, paper: Paper, tokens: int | None = None) -> list[str]:
    """Three to five lines: what happened in which call, where, and the two sides. `tokens` as an engine counted."""
    lost = f"{found.lost_tokens if tokens is None else tokens:,} tokens lost"
    title = f"call {found.call} against {found.against}: {CULPRITS[found.culprit]}"
    room = paper.width - len(lost) - 2
    lines = [f"{paper.dye(f'{title[:room]:<{room}}', _BOLD)}  {lost}"]
    thread = f"thread {found.thread}, " if found.thread else ""
    taken = f" ({found.common_filler:,} of them filler)" if found.common_filler else ""
    match = f"{found.common_tokens:,} of {found.prompt_tokens:,} tokens before it{taken}"
    if found.lost_filler:
        match += f"; {found.lost_filler:,} of those lost are filler"
    if found.cached_tokens:
        match += f"; {found.cached_tokens:,} were cached when it was recorded"
    lines += paper.wrapped(shown(f"{thread}{found.place}; {match}"), "  ")
    if found.detail:
        lines += paper.wrapped(shown(found.detail), "  ")
    if found.old is not None or found.new is not None:
        lines += [_side_line("-", found.old, found.new, paper), _side_line("+", found.new, found.old, paper)]
    return lines


def _side_line(sign: str, side: Side | None, other: Side | None, paper: Paper) -> str:
    head = f"  {sign} "
    code = _RED if sign == "-" else _GREEN
    room = max(8, paper.width - len(head))
    if side is None:
        return head + paper.dye("(nothing)", code)
    label = "" if other is not None and other.what == side.what else f"{side.what}: "
    if side.text is None:
        why = "not in the log" if side.filler else "text never recorded"
        return head + paper.dye(f"{label}({why}; {side.tokens:,} tokens, digest {side.digest[:12]})"[:room], code)
    if not side.text[side.at :] and other is not None and other.text:
        label += "(ends here) "
    label = shown(label)
    cut, place = window(side.text, side.at, room - len(label))
    if _columns(cut) > room - len(label):
        cut, place = window(side.text, side.at, (room - len(label)) // 2)
    if not paper.colour:
        return head + label + cut
    length = _differing(side, other)
    marked = cut[place : place + max(1, length)]
    return (
        head
        + paper.dye(label + cut[:place], code)
        + paper.dye(marked, code + _MARK)
        + paper.dye(cut[place + len(marked) :], code)
    )


def _columns(text: str) -> int:
    """Columns of a terminal; many Asian characters and pictures take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _differing(side: Side, other: Side | None) -> int:
    """Characters of a side that the other one does not have, up to where both go on alike."""
    if other is None or other.text is None or side.text is None or other.what != side.what:
        return 0
    return len(side.text) - common_end(side.text, other.text, side.at) - side.at


def where_from(report: CacheReport, paper: Paper) -> list[str]:
    """The four sources of a run's prompt tokens, with the reasons for what was missed."""
    prompt = report.total("prompt")
    lines = [paper.dye(f"{'tokens':>13} {'of prompt':>9} {'calls':>6}  where they came from", _DIM)]

    def line(tokens: int, calls: int, text: str) -> None:
        head = f"{tokens:>13,} {percent(tokens / max(1, prompt)):>9} {calls:>6,}  "
        lines.extend(paper.wrapped(head + text, "", " " * len(head)))

    line(report.total("cached"), sum(c.cached > 0 for c in report.calls), "cached by the engine")
    for cause, calls in _by_cause(report.calls):
        line(sum(c.missed for c in calls), len(calls), f"missed: {_cause_in_words(cause, calls)}")
    changed = [c for c in report.calls if c.diverged]
    if changed:
        line(sum(c.diverged for c in changed), len(changed), "lost: the prompt changed before them (below)")
    for first, text in ((True, "new: first prompts of their threads"), (False, "new: what the turns added")):
        fresh = [c for c in report.calls if c.fresh and c.first is first]
        line(sum(c.fresh for c in fresh), len(fresh), text)
    return lines


def _by_cause(calls: Sequence[CallCache]) -> list[tuple[str, list[CallCache]]]:
    found = [(cause, [c for c in calls if c.cause == cause]) for cause in CAUSES]
    return sorted(((k, v) for k, v in found if v), key=lambda kv: -sum(c.missed for c in kv[1]))


def _cause_in_words(cause: str, calls: Sequence[CallCache]) -> str:
    if cause == "not_kept":
        return f"{CAUSES[cause]}: windows and recurrent state stay only where prompts end"
    gaps = sorted(c.gap_s for c in calls if c.gap_s is not None)
    if cause != "evicted" or not gaps:
        return CAUSES[cause]
    return f"evicted during gaps of {gaps[len(gaps) // 2]:.1f} s (median; longest {gaps[-1]:.1f})"


def misses(report: CacheReport, paper: Paper, limit: int) -> list[str]:
    """The calls that missed most."""
    told = (c for c in report.calls if c.cause not in (None, "caching_off", "rounding", "part_of_block"))
    found = sorted(told, key=lambda c: -c.missed)
    lines = []
    for call in found[:limit]:
        where = f"{call.session[:12]}, thread {call.thread}" if call.thread else call.session[:12]
        dated = call.gap_s is not None and call.cause not in {"evicted_in_queue", "expired"}
        gap = f" after a gap of {call.gap_s:.1f} s" if dated else ""
        cause = "evicted" if call.cause == "evicted" else CAUSES[call.cause or "unknown"]
        text = f"of {call.missed + call.cached:,}: {where}, call {call.call}, {cause}{gap}"
        lines += paper.wrapped(f"{call.missed:>13,} {text}", "", " " * 14)
    if len(found) > limit:
        lines.append(f"{'':>13} and {len(found) - limit:,} more calls (--limit)")
    return lines
