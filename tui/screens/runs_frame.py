"""The lines of the screen of past runs: pure functions of what is known of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.tui.matching import matcher
from windtunnel.tui.past import Past, sought, words
from windtunnel.tui.playing import REPLAY
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.widgets.compose import Part, clip, cut, first_seen, spread
from windtunnel.tui.widgets.shelf import about_lines, arranged, columns, head, row_line

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Choice(Struct, frozen=True):
    """What the user asked of the table."""

    sort: str = "date"
    backwards: bool = False
    pattern: str = ""
    cursor: Path | None = None
    top: int = 0
    marked: tuple[Path, ...] = ()
    """To be compared, in the order in which they were marked."""


class Frame(Struct, frozen=True):
    lines: tuple[Line, ...]
    marked: int | None
    first: int
    """Screen line of the table's first row."""
    shown: tuple[Path, ...]
    order: tuple[Path, ...]
    choice: Choice
    """With cursor and top moved to where they are valid."""
    under: Past | None
    """The entry under the cursor."""


def compose_runs(
    entries: Sequence[Past],
    choice: Choice,
    title: str,
    width: int,
    height: int,
    now: float,
    look: Theme,
    *,
    subject: str = "",
    against: Mapping[Path, tuple[str, str]] | None = None,
    problem: str = "",
    about: str = "",
    unread: int = 0,
    footer: bool = True,
    aside: Line = (),
    nested: bool = False,
) -> Frame:
    """The screen's lines, a pure function. With a `subject` it asks for the run to compare that one with.

    `about`: what is to be said of them all, in a line above them.
    """
    glyphs = look.glyphs
    picking = bool(subject)
    kept = [p for p in entries if not picking or p.opens or p.kind == "unread"]
    order = arranged(_filtered(kept, choice.pattern), choice.sort, choice.backwards)
    details = 5 if height >= 34 else 4 if height >= 20 else 0
    first = 3 if about else 2
    room = max(1, height - first - details - (1 if footer else 0))
    place = next((i for i, p in enumerate(order) if p.path == choice.cursor), 0)
    under = order[place] if order else None
    top = first_seen(choice.top, place, room, len(order))
    shown = order[top : top + room]
    spec = columns(width, against=picking)
    where = f"against {subject}" if picking else ""
    lines: list[Line] = [
        _title(kept, title, subject, unread, width, look, _part(choice, top, shown, order, kept)),
        *([((" ", ""), (cut(about, width - 2, glyphs.ellipsis), "text"))] if about else []),
        head(spec, choice.sort, choice.backwards, width, glyphs, where),
    ]
    for past in shown:
        mark = LETTERS[choice.marked.index(past.path) % 26] if past.path in choice.marked else ""
        other = (against or {}).get(past.path, ("", "dim")) if picking else None
        lines.append(row_line(past, spec, width, now, glyphs, mark=mark, against=other))
    if not shown:
        lines += _empty(kept, choice, title, problem, picking, unread, width)
    lines += [()] * (first + room - len(lines))
    if details:
        lines.append(((glyphs.rule * width, "rule"),))
        lines += about_lines(under, width, details - 1, now, glyphs)
    if footer:
        lines.append(_footer(choice, under, width, aside, picking=picking, nested=nested))
    return Frame(
        lines=tuple(lines[:height]),
        marked=first + place - top if shown else None,
        first=first,
        shown=tuple(p.path for p in shown),
        order=tuple(p.path for p in order),
        choice=replace(choice, top=top, cursor=under.path if under else choice.cursor),
        under=under,
    )


def _filtered(entries: Sequence[Past], pattern: str) -> list[Past]:
    if pattern in {"", "!"}:
        return list(entries)
    expression, inverted = matcher(sought(pattern))
    return [p for p in entries if bool(expression.search(words(p))) != inverted]


def _title(entries: Sequence[Past], title: str, subject: str, unread: int, width: int, look: Theme, part: Line) -> Line:
    live = sum(p.live for p in entries)
    right: list[Part] = [(6, part or (("1 entry" if len(entries) == 1 else f"{len(entries)} entries", "dim"),))]
    if live:
        right.append((5, ((f"{look.glyphs.states['decode']} {live} live", "decode bold"),)))
    if unread:
        right.append((4, ((f"reading {unread} more", "prefill"),)))
    left: list[Part] = [(9, (("windtunnel", "brand"),))]
    if subject:
        left += [(8, (("compare ", "strong"), (subject, "brand"), (" with which run?", "strong")))]
    else:
        left += [
            (8, (("runs", "strong"),)),
            (
                4,
                (
                    (
                        cut(
                            title if title.startswith("/") else f"./{title}", max(12, width // 2), look.glyphs.ellipsis
                        ),
                        "dim",
                    ),
                ),
            ),
        ]
    return spread(left, right, width)


def _part(choice: Choice, top: int, shown: Sequence[Past], order: Sequence[Past], kept: Sequence[Past]) -> Line:
    out: list[tuple[str, str]] = []
    if choice.pattern:
        out.append((f"/{cut(choice.pattern, 20)}/ {len(order)} of {len(kept)}  ", "key"))
    if len(shown) < len(order):
        out.append((f"{top + 1}-{top + len(shown)} of {len(order)}", "dim"))
    return tuple(out)


def _empty(
    kept: Sequence[Past], choice: Choice, title: str, problem: str, picking: bool, unread: int, width: int
) -> list[Line]:
    if choice.pattern and kept:
        said = [f"no run matches {choice.pattern!r}: / changes the filter, escape clears it"]
    elif problem:
        said = [problem]
    elif unread:
        said = ["reading"]
    elif picking:
        said = ["there is no other run here yet: this one is the first"]
    else:
        said = [f"there are no runs in {title} yet"]
    if not kept and not picking and not unread:
        said += ["", "windtunnel watch      runs 32 agents against the emulator and keeps the run here"]
        said += ["windtunnel view DIR   lists the runs of another folder"]
    return [(), *(((("  ", ""), (cut(line, width - 4), "dim"))) for line in said)]


def _footer(choice: Choice, under: Past | None, width: int, aside: Line, *, picking: bool, nested: bool) -> Line:
    marks = len(choice.marked)
    if picking:
        keys = [(9, "enter", "compare"), (6, "/", "filter"), (5, "s", "sort"), (8, "escape", "back"), (4, "?", "help")]
    else:
        compare = f"compare {marks}" if marks > 1 else "compare with this" if marks == 1 else "compare"
        what = {"experiment": "open", "folder": "look into", "damaged": "why", "unstarted": "why"}.get(
            under.kind if under else "", "open"
        )
        keys = [
            (9, "enter", what),
            (7, "space", "mark"),
            (8, "c", compare),
            (5, "R", f"replay {REPLAY:g}x"),
            (6, "/", "filter"),
            (4, "s", "sort"),
            (9, "?", "help"),
            *([(8, "escape", "back")] if nested else []),
            (8 if not nested else 2, "q", "quit"),
        ]
    parts = [(weight, ((key, "key"), (f" {text}", "dim"))) for weight, key, text in keys]
    right: list[Part] = [(0, clip(aside, width - 4))] if aside else []
    return spread(parts, right, width, "   " if width >= 100 else "  ")
