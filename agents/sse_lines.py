"""Bytes to events: the line rules of server-sent events, on bytes.

A line ends with CR LF, LF or CR; an event ends at a blank line; `:` begins a comment; the values of several `data`
lines are joined with LF. Only `data` matters here: engines say everything in it.

A line may have megabytes, nearly all of them the prompt's token ids, of which nobody wants to know more than that they
came. Decoding them in one go would hold the event loop for tens of ms, so most are dropped as they come. What else a
line of megabytes may hold is `sse_long`'s to take in.
"""

import re

from windtunnel.agents.sse_long import LongLine

_LINE_END = re.compile(rb"\r\n|\n|\r")
_IN_IDS = b"0123456789, "
_IDS_BEGIN = re.compile(rb'[{,] *"prompt_token_ids" *: *\[\Z')
"""In JSON a quote that follows `{` or `,` cannot stand inside of a string, or what comes after it would be no JSON."""
_BEFORE = 64
"""Bytes before a list's bracket in which its name is looked for."""
_END = 1024
"""Bytes at the end of a piece that are looked at for the beginning of a list."""
_NAMED = len(b"data: ")
"""Bytes that tell what a line is."""
_LONG_BYTES = 131_072
"""Longer lines are taken in as they come; one as short as this is decoded in a quarter of a millisecond."""


class Events:
    """Cuts a byte stream into the `data` of its events. Linear in the stream, however it is cut into pieces."""

    def __init__(self, *, keep_text: bool = True) -> None:
        """`keep_text=False`: of a long text only its end is wanted."""
        self.clean = True
        """Nothing is held: the next byte begins an event."""
        self._held: list[bytes] = []
        """Of a line whose end has not come. Not one bytearray, which would be copied again and again as it grows."""
        self._other = False
        """The last bytes of it are numbers, but no prompt ids."""
        self._ids: bytes | None = None
        """Inside of a long list of prompt ids: what came after the last comma that was seen."""
        self._keep_text = keep_text
        self._size = 0
        """Bytes held."""
        self._long: LongLine | None = None
        """Of a line that is long: all that is not held any more."""
        self._data: list[bytes | LongLine] = []
        """`data` lines of the event that has not ended."""
        self._skip_lf = False
        """The last byte was a CR that ended a line: an LF next belongs to it."""

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """The events that these bytes completed."""
        if self.clean and data.endswith(b"\n\n") and b"\r" not in data:
            return self._blocks(data)
        events = self._lines(data)
        self.clean = not self._held and not self._data and not self._skip_lf
        return events

    def rest(self) -> bytes:
        """The data of an event that was not ended by a blank line; nothing of a long one."""
        if self._held:
            self._end_held(b"")
        rest, self._data = self._data, []
        return b"\n".join([line for line in rest if isinstance(line, bytes)])

    def _blocks(self, data: bytes) -> list[bytes | LongLine]:
        events: list[bytes | LongLine] = []
        for block in data.lstrip(b"\n").split(b"\n\n"):
            if b"\n" not in block and block.startswith(b"data: "):
                events.append(block[6:])
            elif block:
                for line in block.split(b"\n"):
                    self._line(line)
                self._end_event(events)
        return events

    def _lines(self, data: bytes) -> list[bytes | LongLine]:
        events: list[bytes | LongLine] = []
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        start = 0
        for match in _LINE_END.finditer(data) if b"\n" in data or b"\r" in data else ():
            line = data[start : match.start()]
            start = match.end()
            if self._held:
                self._end_held(line)
            elif line:
                self._line(line)
            else:
                self._end_event(events)
        self._skip_lf = data.endswith(b"\r")
        if start < len(data):
            self._hold(data[start:] if start else data)
        return events

    def _hold(self, data: bytes) -> None:
        """More of a line. Inside of prompt ids all between two commas can go: it is valid JSON without."""
        numbers = b"," in data and not data.translate(None, _IN_IDS)
        if not numbers:
            self._other = False
        elif self._ids is None and not self._other:
            self._ids = self._begin_ids()
            self._other = self._ids is None
        if self._ids is not None:
            data = self._ids + data
            self._ids = data.rpartition(b",")[2] if numbers else None
        if self._ids is None:
            self._held.append(data)
            self._size += len(data)
            if self._size > _LONG_BYTES:
                self._hold_long()

    def _hold_long(self) -> None:
        """Pass on what is held, but for an end in which a list of ids may have begun."""
        *first, last = self._held
        end = last[-_END:]
        if end.translate(None, _IN_IDS):
            first.append(last[: -len(end)])
            self._held = [end]
        elif first:
            self._held = [first.pop(), last]
        if self._long is None:
            value = b"".join(first)
            if not value.startswith(b"data:"):
                if len(value) < _NAMED:
                    self._held = [*first, *self._held]
                else:  # a line that says nothing: how it began is enough to know until it ends
                    self._held, self._size = [b":"], 1
                return
            self._long = LongLine(keep_text=self._keep_text)
            first = [_value(value)]
        for piece in first:
            self._long.feed(piece)

    def _begin_ids(self) -> bytes | None:
        """Where the line so far ends inside of a list of prompt ids: what follows its last comma, cut off."""
        near = b"".join(self._held[-2:])
        begin, comma = near.rfind(b"["), near.rfind(b",")
        if not 0 <= begin < comma or near[begin + 1 :].translate(None, _IN_IDS):
            return None
        if not _IDS_BEGIN.search(near, max(0, begin - _BEFORE), begin + 1):
            return None
        self._held[-2:] = [near[: comma + 1]]
        return near[comma + 1 :]

    def _end_held(self, line: bytes) -> None:
        """The line that was held is whole."""
        pieces = [*self._held, line] if self._ids is None else [*self._held, self._ids, line]
        long, self._long = self._long, None
        self._held, self._size, self._ids, self._other = [], 0, None, False
        if long is not None:
            for piece in pieces:
                long.feed(piece)
            long.end()
            self._data.append(long)
        else:
            self._line(b"".join(pieces))

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(_value(line))
        elif line == b"data":
            self._data.append(b"")

    def _end_event(self, events: list[bytes | LongLine]) -> None:
        if self._data:
            events.append(b"\n".join([_plain(d) for d in self._data]) if len(self._data) > 1 else self._data[0])
            self._data = []


def _plain(value: bytes | LongLine) -> bytes:
    return value if isinstance(value, bytes) else value.plain()


def _value(line: bytes) -> bytes:
    return line[6 if line[5:6] == b" " else 5 :]
