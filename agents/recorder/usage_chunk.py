"""Usage for streams whose client did not ask for it: asked of the server, and hidden from the client.

A chat stream reports its token counts only with `stream_options.include_usage`; the report comes in a chunk of its own
with empty `choices` (and as `"usage": null` in the others, on some servers).
"""

import re

import msgspec
from msgspec import Raw, Struct

_OPTION = b'"stream_options":{"include_usage":true}'
_NULL = re.compile(rb',\s*"usage"\s*:\s*null')
_END = re.compile(rb"\r\n\r\n|\n\n")


class _Body(Struct):
    stream: bool = False
    stream_options: Raw | None = None


class _Chunk(Struct):
    choices: list[Raw] | None = None
    usage: dict[str, Raw] | None = None


_body = msgspec.json.Decoder(_Body)
_chunk = msgspec.json.Decoder(_Chunk)


def asking(body: bytes) -> bytes | None:
    """The request with the usage asked for; None where there is nothing to add: not a stream, or asked already."""
    if b'"include_usage"' in body:
        return None
    try:
        told = _body.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not told.stream:
        return None
    if told.stream_options is None and b'"stream_options"' not in body:
        end = body.rstrip()
        return end[:-1] + b"," + _OPTION + b"}"
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    whole["stream_options"] = {**(whole.get("stream_options") or {}), "include_usage": True}
    return msgspec.json.encode(whole)


class UsageStripper:
    """Passes a stream on without the usage that only we asked for. Holds back nothing but an unfinished event."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._held and b'"usage"' not in data and data.endswith(b"\n\n"):
            return data
        data = self._held + data
        ends = list(_END.finditer(data))
        if not ends:
            self._held = data
            return b""
        upto = ends[-1].end()
        self._held = data[upto:]
        if b'"usage"' not in data[:upto]:
            return data[:upto]
        out = []
        start = 0
        for end in ends:
            event = data[start : end.end()]
            start = end.end()
            if b'"usage"' in event:
                event = b"" if _only_usage(event) else _NULL.sub(b"", event)
            out.append(event)
        return b"".join(out)

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held


def _only_usage(event: bytes) -> bool:
    payload = event.strip().removeprefix(b"data:")
    try:
        chunk = _chunk.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return chunk.choices == [] and chunk.usage is not None
