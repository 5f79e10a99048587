"""Bytes to events: the line rules of server-sent events, on bytes.

A line ends with CR LF, LF or CR; an event ends at a blank line; `:` begins a comment; the values of several `data`
lines are joined with LF. Only `data` matters here: engines say everything in it.
"""

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Events:
    """Cuts a byte stream into the `data` of its events. Linear in the stream, however it is cut into pieces."""

    def __init__(self) -> None:
        self.clean = True
        """Nothing is held: the next byte begins an event."""
        self._pending = bytearray()
        """Bytes of a line whose end has not come."""
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
            self._line(self._pending)
            self._pending.clear()
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
                self._pending += line
                self._line(self._pending)
                self._pending.clear()
            elif line:
                self._line(line)
            else:
                self._end_event(events)
        self._skip_lf = data.endswith(b"\r")
        self._pending += data[start:]
        return events

    def _line(self, line: bytes | bytearray) -> None:
        """Copies its value once: a line may have megabytes."""
        if line.startswith(b"data:"):
            self._data.append(bytes(memoryview(line)[6 if line[5:6] == b" " else 5 :]))
        elif line == b"data":
            self._data.append(b"")

    def _end_event(self, events: list[bytes]) -> None:
        if self._data:
            events.append(b"\n".join(self._data) if len(self._data) > 1 else self._data[0])
            self._data = []
