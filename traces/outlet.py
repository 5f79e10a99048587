"""The place where text leaves for a terminal, a file or a pipe: no escape sequence of the data gets through.

Names, titles, reasons and paths come from recordings, servers and file systems. What would steer a terminal, or turn
the reading direction round, is shown as its escape (backslash, u, four digits), which in JSON means the same character.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, TextIO, cast

_STEERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line end, delete, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # reading direction
    "\u2028\u2029\ufeff\U000e0000-\U000e007f"  # line ends of their own, marks that nobody sees
)
_UNSAFE = re.compile(f"[{_STEERS}]")
_COLOURED = re.compile(rf"(\x1b\[(?:[0127]|3[1-6])m)|[{_STEERS}]")
"""The colours that tables are painted with; then what is not safe."""
_BREAKS = re.compile(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
NAME = 80
"""Characters of a name that are shown."""


def safe(text: str, *, colours: bool = False) -> str:
    """The text with everything that steers a terminal shown as its escape; `colours` lets those of our tables through.

    Lines and tabs stay. Text inside JSON keeps its meaning.
    """
    if text.isascii() and text.isprintable():
        return text
    return _COLOURED.sub(_coloured, text) if colours else _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """A sentence in one line, whatever names in it hold, and safe."""
    return safe(_BREAKS.sub(" ", text))


def shown(name: object) -> str:
    """A name that somebody else gave, as of a model, for people: in one line, and no more of it than helps them."""
    text = _BREAKS.sub(" ", str(name))
    return safe(text if len(text) <= NAME else f"{text[:NAME]}...")


def readable(value: Any) -> Any:
    """Paths and arguments, wherever in `value` they are, as text that can be written down.

    Bytes in them that are no UTF-8 (Python keeps them as lone surrogates, which no encoder takes) become U+FFFD.
    """
    if isinstance(value, PurePath):
        return readable(str(value))
    if isinstance(value, str):
        return value if value.isascii() else _text(value)
    if isinstance(value, dict):
        return {readable(k): readable(v) for k, v in value.items()}
    return [readable(v) for v in value] if isinstance(value, (list, tuple)) else value


def _text(name: str) -> str:
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half of a pair, as JSON can hold it
        return name.encode("utf-8", "replace").decode()


def to_json(value: Any) -> bytes:
    """JSON of what the product tells: whatever the folders in it are called."""
    import msgspec  # not what `--help` waits for

    try:
        return msgspec.json.encode(value, enc_hook=readable)
    except UnicodeEncodeError:
        return msgspec.json.encode(readable(msgspec.to_builtins(value, enc_hook=readable)))


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _coloured(match: re.Match[str]) -> str:
    return match[1] or _escape(match)


class Outlet:
    """A text stream whose text is safe; everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a text stream takes text")
        self._stream.write(safe(text, colours=self._stream.isatty()))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def raw(stream: TextIO) -> TextIO:
    """The stream behind it, for what is meant to steer the terminal."""
    return stream._stream if isinstance(stream, Outlet) else stream  # noqa: SLF001 -- its own


@contextmanager
def safe_streams() -> Iterator[None]:
    """While it lasts, what is printed on stdout and stderr is safe."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        stream if stream is None or isinstance(stream, Outlet) else cast("TextIO", Outlet(stream)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
