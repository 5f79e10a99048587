"""The terminal's driver. Less over the wire: only the cells that changed, and colours where they change and not with
every word. And nothing that is typed, pasted or reported ends the viewer.

Textual draws a line from its beginning to the last cell that changed, and sends each piece of text with all of its
colours and takes them away behind it: two thirds of all bytes. Here the terminal keeps its colours until the next text
wants others.
"""

import os
import re
import select
import signal
from codecs import getincrementaldecoder
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TextIO

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

_STYLE = re.compile("\x1b\\[([\\d;]*)m")
LOOK_S = 0.1
"""How long a lone escape may wait for what belongs to it, and how soon the reader of the keys notices the end."""
READ_BYTES = 1 << 12
_MOVES = re.compile("(?:\n|\r|\x1b\\[\\d+;\\d+H)*")
"""What shows nothing and erases nothing, so that the colours do not matter."""


Look = tuple[str, str, tuple[str, ...]]
"""Colour, ground, and what else is on: as parameters of a sequence; empty is the terminal's own."""
NOTHING: Look = ("", "", ())
OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
"""What takes an attribute away; bold and dim go together."""


class Pen:
    """Rewrites a stream for a terminal that starts without colours."""

    def __init__(self) -> None:
        self.has: Look = NOTHING
        """How the terminal writes now."""
        self.wants: Look = NOTHING
        """What the stream has asked for."""

    def write(self, data: str) -> str:
        """The same pictures, said shorter."""
        out: list[str] = []
        for index, part in enumerate(_STYLE.split(data)):
            if index % 2:
                self.wants = after(self.wants, part)
            elif part:
                if self.wants != self.has and not _MOVES.fullmatch(part):
                    out.append(change(self.has, self.wants))
                    self.has = self.wants
                out.append(part)
        return "".join(out)

    def lift(self) -> str:
        """Takes the colours away; the stream begins anew."""
        self.has = self.wants = NOTHING
        return "\x1b[0m"


@lru_cache(maxsize=4096)
def after(look: Look, parameters: str) -> Look:
    """How a terminal writes after a sequence with these parameters."""
    fore, back, rest = look
    numbers = iter(parameters.split(";"))
    for number in numbers:
        value = int(number or 0)
        if value in {38, 48}:
            kind = next(numbers, "")
            colour = ";".join((number, kind, *(next(numbers, "0") for _ in range(3 if kind == "2" else 1))))
            fore, back = (colour, back) if value == 38 else (fore, colour)
        elif value == 0:
            fore, back, rest = NOTHING
        elif 30 <= value <= 39 or 90 <= value <= 97:
            fore = "" if value == 39 else number
        elif 40 <= value <= 49 or 100 <= value <= 107:
            back = "" if value == 49 else number
        elif number in OFF.values():
            rest = tuple(on for on in rest if OFF.get(on) != number)
        elif number not in rest:
            rest = (*rest, number)
    return fore, back, rest


@lru_cache(maxsize=4096)
def change(old: Look, new: Look) -> str:
    """The shortest sequence from one look to another."""
    whole = ";".join(("0", *new[2], *filter(None, new[:2])))
    lost = {on for on in old[2] if on not in new[2]}
    if lost - OFF.keys():
        return f"\x1b[{whole}m"
    off = {OFF[on] for on in lost}
    kept = {on for on in old[2] if OFF.get(on) not in off}
    said = [*sorted(off), *(on for on in new[2] if on not in kept)]
    if new[0] != old[0]:
        said.append(new[0] or "39")
    if new[1] != old[1]:
        said.append(new[1] or "49")
    return f"\x1b[{min(';'.join(said), whole, key=len)}m" if said else ""


class CroppedUpdate(ChopsUpdate):
    """Draws what changed and nothing to the left of it."""

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        last = self.spans[-1][0]
        for y, left, right in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                first, beyond = max(x, left), min(end, right)
                if strip is not None and first < beyond:
                    out += (Control.move_to(first, y).segment.text, strip.crop(first - x, beyond - x).render(console))
            if y != last:
                out.append("\n")
        return "".join(out)


def cropped(update: CompositorUpdate) -> CompositorUpdate:
    """The same update, drawn with less."""
    if type(update) is ChopsUpdate:
        return CroppedUpdate(update.chops, update.spans, update.chop_ends)
    return update


class Wire:
    """stderr. Where the terminal is gone, the thread that writes must not die of it: the loop would wait for it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lost = False

    def write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError:
            self._hang_up()

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            self._hang_up()

    def fileno(self) -> int:
        return self._file.fileno()

    def _hang_up(self) -> None:
        if not self._lost:
            self._lost = True
            os.kill(os.getpid(), signal.SIGHUP)


class Keyboard:
    """What a terminal sends, as events. Bytes that are no text, and reports that mean nothing, are no end of it."""

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser()

    def feed(self, data: bytes) -> Iterator[Message]:
        for char in self._decode(data):
            yield from self._tried(char)

    def tick(self) -> Iterator[Message]:
        """To be called between two reads: an escape that nothing has followed is a key of its own."""
        yield from self._tried(None)

    def _tried(self, char: str | None) -> Iterator[Message]:
        try:
            yield from self._parser.tick() if char is None else self._parser.feed(char)
        except (ValueError, ArithmeticError):  # a report with numbers that are none, too large, or zero
            self._parser = XTermParser()


class FrugalDriver(LinuxDriver):
    """Textual's own, its stream rewritten, its input read by what cannot fail."""

    _pen: Pen | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file: Any = Wire(self._file)

    def write(self, data: str) -> None:
        if self._pen is None:
            self._pen = Pen()
        super().write(self._pen.write(data))

    def stop_application_mode(self) -> None:
        if self._writer_thread is not None and self._pen is not None:
            super().write(self._pen.lift())
        super().stop_application_mode()

    def run_input_thread(self) -> None:
        """Until the driver ends it, or the terminal is gone: then a signal ends the viewer."""
        keyboard = Keyboard()
        while not self.exit_event.is_set():
            if select.select([self.fileno], [], [], LOOK_S)[0]:
                try:
                    data = os.read(self.fileno, READ_BYTES)
                except OSError:
                    return
                if not data:
                    return
                for event in keyboard.feed(data):
                    self.process_message(event)
            for event in keyboard.tick():
                self.process_message(event)
