"""Pictures of screens that are kept as files and compared byte for byte.

After a deliberate change: `WINDTUNNEL_GOLDEN=write pytest tests/tui`, then look at every picture that changed (any
browser shows them) before it is committed. A picture is named after its test and its size: `fleet-running-120x40`.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from html import unescape
from itertools import zip_longest
from pathlib import Path

from textual.strip import Strip

from windtunnel.tui.app import Viewer
from windtunnel.tui.picture import svg
from windtunnel.tui.theme import Line, Theme, strip

FOLDER = Path(__file__).parent / "snapshots"
RENEW = "WINDTUNNEL_GOLDEN"
SIZES = ((80, 24), (120, 40), (200, 60))
TEXT = re.compile(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')


def picture(lines: Sequence[Line], width: int, look: Theme | None = None, marked: int | None = None) -> str:
    """The lines of a screen as an SVG, with the row `marked` on the selection's background."""
    look = look or Theme()
    over = ["select" if y == marked else "" for y in range(len(lines))]
    return _svg([strip(line, width, look.ink, o) for line, o in zip(lines, over, strict=True)], width, look)


def screen(app: Viewer) -> str:
    """What a running app shows, as an SVG."""
    return _svg(app.screen._compositor.render_strips(), app.size.width, app.look)


def _svg(strips: Sequence[Strip], width: int, look: Theme) -> str:
    # How a line was put together of pieces is not to be seen, so it must not be in the file.
    return svg([one.simplify() for one in strips], width, "windtunnel", look.colours)


def same(name: str, drawn: str) -> None:
    """Fails when the kept picture `name` is another than the one drawn now; with WINDTUNNEL_GOLDEN=write renews it."""
    kept = FOLDER / f"{name}.svg"
    if os.environ.get(RENEW) == "write":
        FOLDER.mkdir(exist_ok=True)
        kept.write_text(drawn, encoding="utf-8")
        return
    before = kept.read_text(encoding="utf-8") if kept.exists() else ""
    if drawn == before:
        return
    new = Path(tempfile.gettempdir()) / f"windtunnel-{name}.svg"
    new.write_text(drawn, encoding="utf-8")
    raise AssertionError(
        f"{kept.name} is not what is drawn now ({new}): {difference(before, drawn)}\n"
        f"Where that is meant: {RENEW}=write pytest tests/tui, look at the new picture, commit it."
    )


def words(picture: str) -> dict[float, str]:
    """The text of each row, by its height in the picture; shapes are left out."""
    rows: dict[float, str] = {}
    for _, y, text in TEXT.findall(picture):
        rows[float(y)] = f"{rows.get(float(y), '')} {unescape(text)}".strip()
    return rows


def difference(before: str, after: str) -> str:
    """The first row whose text changed, or that it is in colours and shapes only."""
    if not before:
        return "there was no such picture"
    for old, new in zip_longest(sorted(words(before).items()), sorted(words(after).items())):
        if old != new:
            return f"\n- {old[1] if old else ''}\n+ {new[1] if new else ''}"
    return "the words are the same, colours or shapes are not"
