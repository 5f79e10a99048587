"""A number three rows tall: what is read from the other end of the room."""

from functools import lru_cache

from windtunnel.tui.theme import Glyphs

HEIGHT = 3
PIXELS = {" ": (0, 0), "▀": (1, 0), "▄": (0, 1), "█": (1, 1)}
BLOCKS = {
    "0": ("█▀█", "█ █", "█▄█"),
    "1": ("▀█ ", " █ ", "▄█▄"),
    "2": ("▀▀█", "█▀▀", "█▄▄"),
    "3": ("▀▀█", " ▀█", "▄▄█"),
    "4": ("█ █", "▀▀█", "  █"),
    "5": ("█▀▀", "▀▀█", "▄▄█"),
    "6": ("█▀▀", "█▀█", "█▄█"),
    "7": ("▀▀█", "  █", "  █"),
    "8": ("█▀█", "█▀█", "█▄█"),
    "9": ("█▀█", "▀▀█", "▄▄█"),
    "k": ("█  ", "█▄▀", "█ █"),
    "M": ("█▄ ▄█", "█ ▀ █", "█   █"),
    ".": (" ", " ", "▄"),
    "~": ("   ", "▄▀▄", "   "),
    "–": ("   ", "▀▀▀", "   "),
    " ": (" ", " ", " "),
}
LINES = {
    "0": (" _ ", "| |", "|_|"),
    "1": ("   ", "  |", "  |"),
    "2": (" _ ", " _|", "|_ "),
    "3": (" _ ", " _|", " _|"),
    "4": ("   ", "|_|", "  |"),
    "5": (" _ ", "|_ ", " _|"),
    "6": (" _ ", "|_ ", "|_|"),
    "7": (" _ ", "  |", "  |"),
    "8": (" _ ", "|_|", "|_|"),
    "9": (" _ ", "|_|", " _|"),
    "k": ("   ", "|/ ", "|\\ "),
    "M": ("     ", "|\\ /|", "| v |"),
    ".": (" ", " ", "."),
    "~": ("   ", " ~ ", "   "),
    "-": ("   ", " _ ", "   "),
    " ": (" ", " ", " "),
}


@lru_cache(maxsize=64)
def tall(text: str, glyphs: Glyphs) -> tuple[str, ...]:
    """The text in rows of equal width: digits, a dot, `k`, `M`, `~`, a dash; thousands stand a blank apart."""
    font = BLOCKS if glyphs.braille else LINES
    shapes = [font[char] for char in text.replace(",", " ")]
    return tuple(" ".join(shape[row] for shape in shapes) for row in range(HEIGHT))


@lru_cache(maxsize=64)
def huge(text: str, glyphs: Glyphs) -> tuple[str, ...]:
    """Twice as tall and as wide: six rows. Only blocks can be enlarged; other glyphs are given as they are."""
    rows = tall(text, glyphs)
    if not glyphs.braille:
        return rows
    return tuple("".join("██" if PIXELS[char][half] else "  " for char in row) for row in rows for half in (0, 1))


def read(rows: tuple[str, ...] | list[str], glyphs: Glyphs) -> str:
    """The text that `tall` made the rows of, without blanks."""
    font = {shape: char for char, shape in (BLOCKS if glyphs.braille else LINES).items() if char != " "}
    width = max(map(len, rows))
    padded = [row.ljust(width) for row in rows]
    out, x = "", 0
    while x < width:
        found = next(
            (
                size
                for size in (5, 3, 1)
                if tuple(row[x : x + size] for row in padded) in font
                and all(row[x + size : x + size + 1].strip() == "" for row in padded)
            ),
            0,
        )
        if found:
            out += font[tuple(row[x : x + found] for row in padded)]  # type: ignore[index]
        x += found or 1
    return out
