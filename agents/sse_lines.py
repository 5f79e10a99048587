"""Bytes to events: the line rules of server-sent events, on bytes.

A line ends with CR LF, LF or CR; an event ends at a blank line; `:` begins a comment; the values of several `data`
lines are joined with LF. Only `data` matters here: engines say everything in it.

A line may have megabytes, nearly all of them the prompt's token ids, of which nobody wants to know more than that they
came. Decoding them in one go would hold the event loop for tens of ms, so most are dropped as they come.
"""

import re
from typing import cast

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONG = 65_536
"""Bytes of a line from which on its ids are dropped."""
_IN_IDS = b"0123456789, "
_IDS_BEGIN = re.compile(rb'[{,] *"prompt_token_ids" *: *\[\Z')
"""In JSON a quote that follows `{` or `,` cannot stand inside of a string, or what comes after it would be no JSON."""
_BEFORE = 64
"""Bytes before a list's bracket in which its name is looked for."""
_LOOK = 524_288
"""Bytes at the end of a line in which the bracket is looked for: more than two reads."""


class Events:
    """Cuts a byte stream into the `data` of its events. Linear in the stream, however it is cut into pieces."""

    def __init__(self) -> None:
        self.clean = True
        """Nothing is held: the next byte begins an event."""
        self._pending = bytearray()
        """Bytes of a line whose end has not come."""
        self._ids: bytes | None = None
        """Inside of a long list of prompt ids: what came after the last comma that was seen."""
        self._data: list[bytes] = []
        """`data` lines of the event that has not ended."""
        self._skip_lf = False
        """The last byte was a CR that ended a line: an LF next belongs to it."""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that these bytes completed."""
        if self.clean and data.endswith(b"\n\n") and b"\r" not in data:
            return self._blocks(data)
        events = self._lines(data)
        self.clean = not self._pending and not self._data and not self._skip_lf
        return events

    def rest(self) -> bytes:
        """The data of an event that was not ended by a blank line."""
        if self._pending:
            self._end_pending(b"")
        rest, self._data = b"\n".join(self._data), []
        return rest

    def _blocks(self, data: bytes) -> list[bytes]:
        events: list[bytes] = []
        for block in data.split(b"\n\n"):
            if b"\n" not in block and block.startswith(b"data: "):
                events.append(block[6:])
            elif block:
                for line in block.split(b"\n"):
                    self._line(line)
                self._end_event(events)
        return events

    def _lines(self, data: bytes) -> list[bytes]:
        events: list[bytes] = []
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        start = 0
        for match in _LINE_END.finditer(data) if b"\n" in data or b"\r" in data else ():
            line = data[start : match.start()]
            start = match.end()
            if self._pending:
                self._end_pending(line)
            elif line:
                self._line(line)
            else:
                self._end_event(events)
        self._skip_lf = data.endswith(b"\r")
        if self._ids is None and len(self._pending) < _LONG:
            self._pending += data[start:]
        else:
            self._hold(data[start:])
        return events

    def _hold(self, data: bytes) -> None:
        """More of a long line. Inside of its prompt ids all between two commas can go: it is valid JSON without."""
        numbers = b"," in data and not data.translate(None, _IN_IDS)
        if numbers and self._ids is None:
            self._ids = self._begin_ids()
        if self._ids is None:
            self._pending += data
        elif numbers:
            self._ids = (self._ids + data).rpartition(b",")[2]
        else:
            self._pending += self._ids
            self._pending += data
            self._ids = None

    def _begin_ids(self) -> bytes | None:
        """Where the line so far ends inside of a list of prompt ids: what follows its last comma, cut off."""
        line = self._pending
        begin = line.rfind(b"[", max(0, len(line) - _LOOK))
        comma = line.rfind(b",", max(0, begin))
        if not 0 <= begin < comma or line[begin + 1 :].translate(None, _IN_IDS):
            return None
        if not _IDS_BEGIN.search(line, max(0, begin - _BEFORE), begin + 1):
            return None
        rest = bytes(line[comma + 1 :])
        del line[comma + 1 :]
        return rest

    def _end_pending(self, line: bytes) -> None:
        """The rest of the line that was held."""
        if self._ids is not None:
            self._pending += self._ids
            self._ids = None
        self._pending += line
        whole, self._pending = self._pending, bytearray()
        self._line(whole)

    def _line(self, line: bytes | bytearray) -> None:
        """Takes a held line as it is: a copy of megabytes would take longer than anything else here."""
        if line.startswith(b"data:"):
            if isinstance(line, bytes):
                self._data.append(line[6 if line[5:6] == b" " else 5 :])
            else:
                del line[: 6 if line[5:6] == b" " else 5]
                self._data.append(cast("bytes", line))  # whatever is done with it, bytes can do
        elif line == b"data":
            self._data.append(b"")

    def _end_event(self, events: list[bytes]) -> None:
        if self._data:
            events.append(b"\n".join(self._data) if len(self._data) > 1 else self._data[0])
            self._data = []
