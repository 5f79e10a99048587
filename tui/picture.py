"""A screen as an SVG picture that looks the same everywhere.

Nothing is loaded from elsewhere: letters use the reader's own monospace font and are stretched to the grid; blocks and
braille are drawn as shapes, because fonts draw them with gaps.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

from rich.cells import cell_len
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from windtunnel.tui.palettes import DARK, Palette

CELL_W, CELL_H, FONT = 8.4, 18.0, 14.0
MARGIN = 12.0
FONTS = "ui-monospace,'Cascadia Code','JetBrains Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"
LEFT_EIGHTHS = {chr(0x2590 - i): i for i in range(1, 9)}
"""U+2588 (full) to U+258F (one eighth), measured from the left."""
LOWER_EIGHTHS = {chr(0x2580 + i): i for i in range(1, 8)}
SEAMLESS = "█▇─━"
DOTS = ((0, 0x01), (1, 0x02), (2, 0x04), (3, 0x40)), ((0, 0x08), (1, 0x10), (2, 0x20), (3, 0x80))


def svg(strips: Sequence[Strip], width: int, title: str = "", palette: Palette = DARK) -> str:
    """The strips, `width` cells wide, as a complete SVG document on the palette's ground."""
    wide = width * CELL_W + 2 * MARGIN
    high = len(strips) * CELL_H + 2 * MARGIN
    body: list[str] = []
    for y, strip in enumerate(strips):
        x = 0
        for segment in strip:
            body.extend(_segment(segment, x, y, palette))
            x += cell_len(segment.text)
    dots = sorted({char for strip in strips for char in strip.text if "\u2800" < char <= "\u28ff"})
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{palette.ground}"/>',
            *(["<defs>", *(_braille(ord(char) - 0x2800) for char in dots), "</defs>"] if dots else ()),
            f'<g font-family="{FONTS}" font-size="{FONT:g}">',
            *body,
            "</g>",
            "</svg>",
            "",
        )
    )


def _hex(style: Style | None, back: bool) -> str | None:
    colour = None if style is None else style.bgcolor if back else style.color
    if colour is None or colour.type is ColorType.DEFAULT:
        return None
    return "#{:02x}{:02x}{:02x}".format(*colour.get_truecolor())


WORDS = re.compile(r"\S+(?: \S+)*")


def _segment(segment: Segment, x: int, y: int, palette: Palette) -> Iterable[str]:
    style = segment.style
    fore, back = _hex(style, back=False) or palette.text, _hex(style, back=True)
    if style is not None and style.reverse:
        fore, back = back or palette.ground, fore
    left, top = MARGIN + x * CELL_W, MARGIN + y * CELL_H
    size = cell_len(segment.text)
    if back is not None and back != palette.ground:
        yield f'<rect x="{left:g}" y="{top:g}" width="{size * CELL_W + 0.3:g}" height="{CELL_H:g}" fill="{back}"/>'
    # Tall digits and areas are drawn without gaps; bars of a table stand apart.
    area = style is not None and (style.bold or back not in {None, *palette.grounds})
    at = 0
    for run in _runs(segment.text):
        x0 = left + at * CELL_W
        at += cell_len(run)
        shape = _block(run[0], len(run), x0, top, fore) if area else None
        shape = shape or _shape(run[0], len(run), x0, top, fore)
        if shape is not None:
            yield shape
        else:
            yield from _text(run, x0, top, fore, style)


def _runs(text: str) -> Iterable[str]:
    """Stretches of letters, stretches of one rule or full block (drawn as one shape, without seams), single shapes."""
    run = ""
    for char in text:
        kind = char in SEAMLESS and run[-1:] == char
        letter = not _drawn(char)
        if run and not kind and not (letter and not _drawn(run[-1])):
            yield run
            run = ""
        run += char
    if run:
        yield run


def _drawn(char: str) -> bool:
    return char in LEFT_EIGHTHS or char in LOWER_EIGHTHS or char in "─━▕│┤▀" or "\u2800" < char <= "\u28ff"


def _text(letters: str, x: float, y: float, fill: str, style: Style | None) -> Iterable[str]:
    weight = ' font-weight="bold"' if style is not None and style.bold else ""
    faint = ' opacity="0.6"' if style is not None and style.dim else ""
    # Browsers collapse blanks inside a text: words far apart are texts of their own.
    for words in WORDS.finditer(letters):
        left = x + CELL_W * cell_len(letters[: words.start()])
        length = cell_len(words[0]) * CELL_W
        yield (
            f'<text x="{left:g}" y="{y + CELL_H * 0.74:g}" textLength="{length:g}" lengthAdjust="spacingAndGlyphs" '
            f'fill="{fill}"{weight}{faint}>{escape(words[0])}</text>'
        )


def _shape(char: str, n: int, x: float, y: float, fill: str) -> str | None:
    """A block, rule or braille character, `n` times, as a shape; None for a letter."""
    if "\u2800" < char <= "\u28ff":
        return f'<use href="#b{ord(char) - 0x2800:x}" x="{x:g}" y="{y:g}" fill="{fill}"/>'
    if char == "▀":
        return _block(char, n, x, y, fill)
    wide, middle = n * CELL_W, y + CELL_H / 2
    box: tuple[float, float, float, float] | None = None
    if char in LEFT_EIGHTHS:
        box = x, y + 2, wide * LEFT_EIGHTHS[char] / 8, CELL_H - 4
    elif char in LOWER_EIGHTHS:
        high = (CELL_H - 4) * LOWER_EIGHTHS[char] / 8
        box = x, y + CELL_H - 2 - high, wide - 1, high
    elif char in "─━":
        thick = 2.6 if char == "━" else 1.0
        box = x, middle - thick / 2, wide, thick
    elif char == "▕":
        box = x + CELL_W * 7 / 8, y + 2, CELL_W / 8, CELL_H - 4
    elif char == "│":
        box = x + CELL_W / 2 - 0.5, y, 1, CELL_H
    elif char == "┤":
        half = CELL_W / 2
        path = f"M{x + half - 0.5:g} {y:g}h1v{CELL_H:g}h-1zM{x:g} {middle - 0.5:g}h{half:g}v1h-{half:g}z"
        return f'<path d="{path}" fill="{fill}"/>'
    if box is None:
        return None
    left, top, across, high = box
    return f'<rect x="{left:g}" y="{top:g}" width="{across:g}" height="{high:g}" fill="{fill}"/>'


def _block(char: str, n: int, x: float, y: float, fill: str) -> str | None:
    """A full, lower or upper block to the very edges of its cell, so that neighbours join; None for others."""
    eighths = 8 if char == "█" else 4 if char == "▀" else LOWER_EIGHTHS.get(char)
    if eighths is None:
        return None
    high = CELL_H * eighths / 8
    top = y if char == "▀" else y + CELL_H - high
    return f'<rect x="{x:g}" y="{top:g}" width="{n * CELL_W + 0.3:g}" height="{high + 0.3:g}" fill="{fill}"/>'


def _braille(bits: int) -> str:
    """Each dot as a quarter-high block: defined once, used for every cell that shows it."""
    step, wide = CELL_H / 4, CELL_W / 2
    path = "".join(
        f"M{column * wide + 0.4:g} {row * step + 0.5:g}h{wide - 0.8:g}v{step - 1:g}h-{wide - 0.8:g}z"
        for column, dots in enumerate(DOTS)
        for row, bit in dots
        if bits & bit
    )
    return f'<path id="b{bits:x}" d="{path}"/>'
