"""Lines of megabytes, taken in as they come: nothing that holds the event loop is left for their end.

Nearly all of such a line is one string. Bytes of a string that goes on from piece to piece are cut out of the line
and decoded as they come; a short name stands in their place. What is left of the line is decoded when it ends, and
each name found in it stands for the text that was cut out there.

The result is that of decoding the whole line in one go. Where that could be in doubt, the whole line is decoded.
"""

import json
from collections.abc import Iterator, Mapping
from uuid import uuid4

import msgspec

from windtunnel.agents.sse_shapes import Chunk, decode, decode_leniently, decode_strictly
from windtunnel.agents.sse_text import TAIL_CHARS

_CUT_BYTES = 32_768
"""Strings shorter than this stay in the line."""
_NAME = f"cut out {uuid4().hex} "
"""Begins the names, and no text that a server sends."""
_ESCAPE = len(rb"\ud83d")

_decode_text = msgspec.json.Decoder(str).decode


class Cut:
    """The inside of one long JSON string."""

    __slots__ = ("_keep", "_left", "broken", "odd", "parts", "tail")

    def __init__(self, *, keep: bool) -> None:
        self.parts: list[str] = []
        """The text; empty unless it is kept."""
        self.tail = ""
        """Its last 200 characters."""
        self.odd = False
        """It holds bytes that are no UTF-8, or half of a surrogate pair."""
        self.broken: str | None = None
        """What makes it no JSON string at all."""
        self._keep = keep
        self._left = b""
        """The last bytes, which the next ones may complete to a character."""

    def feed(self, data: bytes, masked: bytes) -> None:
        """More of it, and the same bytes without escaped quotes and backslashes."""
        if self._left:
            data, masked = self._left + data, self._left + masked
        end = _whole_characters(data, masked)
        self._left = data[end:]
        self._take(data[:end])

    def end(self) -> None:
        self._take(self._left)
        self._left = b""

    def _take(self, data: bytes) -> None:
        if self.broken is not None:
            return
        try:
            text = _decode_text(b'"%b"' % data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            try:
                text = json.loads(f'"{data.decode("utf-8", "replace")}"')
            except json.JSONDecodeError as error:
                self.broken = error.msg
                return
            self.odd = True
        self.tail = (self.tail + text[-TAIL_CHARS:])[-TAIL_CHARS:]
        if self._keep:
            self.parts.append(text)


def _whole_characters(data: bytes, masked: bytes) -> int:
    """Where to stop so that no character, escape or pair of surrogates is cut in two."""
    end = len(data)
    escape = masked.rfind(b"\\", max(0, end - _ESCAPE + 1))
    if escape >= 0 and masked[escape + 1 : escape + 2] in (b"", b"u"):
        end = escape
    for back in range(1, min(3, end) + 1):
        byte = data[end - back]
        if byte >= 0xC0:
            if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4):
                end -= back
            break
        if byte < 0x80:
            break
    last = masked[max(0, end - _ESCAPE) : end].lower()
    if last.startswith((b"\\ud8", b"\\ud9", b"\\uda", b"\\udb")):
        end -= _ESCAPE
    return end


def _mask(data: bytes) -> bytes:
    """Without escaped quotes and backslashes: what is left of either has a meaning."""
    return data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data


class LongLine:
    """The value of a `data` line. `feed` it, `end` it, then `decode` it."""

    def __init__(self, *, keep_text: bool) -> None:
        self._keep = keep_text
        self._pieces: list[bytes] = []
        """As they came."""
        self._rest: list[bytes] = []
        """What is left of them."""
        self._cuts: dict[str, Cut] = {}
        self._inside = False
        """The last byte was one of a string."""
        self._string: list[bytes] = []
        """Of a string that goes on: its bytes so far, unless they are cut out."""
        self._size = 0
        self._cut: Cut | None = None
        self._left = b""
        """A backslash: the next byte says what it means."""

    @property
    def begin(self) -> bytes:
        return self._pieces[0]

    def plain(self) -> bytes:
        """The whole line."""
        return b"".join(self._pieces)

    def give_up(self) -> list[bytes]:
        """The bytes of a line that is done with: to free megabytes in one go takes milliseconds."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        data = self._left + piece if self._left else piece
        masked = _mask(data)
        self._left = b""
        if masked.endswith(b"\\"):
            self._left, data, masked = b"\\", data[:-1], masked[:-1]
        begin = after = 0
        if self._inside:
            begin = masked.find(b'"')
            if begin < 0:
                self._in_string(data, masked)
                return
            self._in_string(data[:begin], masked[:begin])
            self._end_string()
            after = begin + 1
        if masked.count(b'"', after) % 2:
            last = masked.rindex(b'"') + 1
            self._rest.append(data[begin:last])
            self._inside = True
            self._in_string(data[last:], masked[last:])
        else:
            self._rest.append(data[begin:])

    def end(self) -> None:
        """No more will come."""
        if self._inside:
            self._end_string()
            self._inside = True
        elif self._left:
            self._rest.append(self._left)

    def decode(self) -> tuple[Chunk, Mapping[str, Cut]]:
        """The event, and by the names in it the texts that were cut out; raises what `sse_shapes.decode` does."""
        if self._inside:
            raise ValueError("a string has no end")
        rest = b"".join(self._rest)
        if not self._cuts:
            return decode(rest), {}
        try:
            chunk = decode_strictly(rest)
        except msgspec.ValidationError:
            raise
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._leniently(rest)
        texts = self._cuts.keys() & set(_texts(chunk))
        if chunk.error is not None or self._cuts.keys() & set(_words(chunk)):
            return decode(self.plain()), {}
        strange = {name for name, cut in self._cuts.items() if cut.odd or cut.broken}
        if not strange:
            return chunk, self._cuts
        if strange <= texts:
            return self._leniently(rest)
        return decode(self.plain()), {}

    def _leniently(self, rest: bytes) -> tuple[Chunk, Mapping[str, Cut]]:
        for cut in self._cuts.values():
            if cut.broken:
                raise ValueError(cut.broken)
        chunk = decode_leniently(rest)
        if chunk.error is not None or self._cuts.keys() & set(_words(chunk)):
            return decode(self.plain()), {}
        return chunk, self._cuts

    def _in_string(self, data: bytes, masked: bytes) -> None:
        if self._cut is None:
            self._string.append(data)
            self._size += len(data)
            if self._size < _CUT_BYTES:
                return
            self._cut = Cut(keep=self._keep)
            data = b"".join(self._string)
            masked = _mask(data)
            self._string = []
        self._cut.feed(data, masked)

    def _end_string(self) -> None:
        self._inside = False
        self._rest += self._string
        self._string, self._size = [], 0
        if self._cut is not None:
            self._cut.end()
            name = f"{_NAME}{len(self._cuts)}"
            self._cuts[name] = self._cut
            self._rest.append(name.encode())
            self._cut = None


def _texts(chunk: Chunk) -> Iterator[str | None]:
    """Where a long text may stand."""
    for choice in chunk.choices or ():
        yield choice.text
        if (delta := choice.delta) is not None:
            yield from (delta.content, delta.reasoning, delta.reasoning_content)
            yield from (part.function.arguments for part in delta.tool_calls or () if part.function)


def _words(chunk: Chunk) -> Iterator[str | None]:
    """Where none is expected."""
    yield from (chunk.object, chunk.message)
    for choice in chunk.choices or ():
        yield choice.finish_reason
        for part in (choice.delta.tool_calls if choice.delta else None) or ():
            yield part.id
            yield part.function.name if part.function else None
