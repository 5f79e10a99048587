"""Requests on their way to the server: which are recorded, and the few header lines that must change."""

from collections.abc import Sequence
from urllib.parse import unquote

from windtunnel.agents.client import Target

RECORDED = ("/chat/completions", "/responses", "/messages")
"""Ends of the paths that ask a model, with or without `/v1` before them."""
TAG = b"/tag/"
READABLE = ("gzip", "deflate", "zstd", "identity")
"""Encodings of an answer that can be undone here."""

Header = tuple[bytes, bytes, bytes]
"""(name in lower case, name as sent, value)."""


def route_of(method: bytes, path: bytes) -> str | None:
    """The API of a request to a model, None for every other request."""
    if method != b"POST":
        return None
    bare = path.partition(b"?")[0].rstrip(b"/").decode("latin-1")
    return next((route for route in RECORDED if bare.endswith(route)), None)


def split_tag(path: bytes) -> tuple[str, bytes]:
    """`/tag/NAME/v1/...` is `/v1/...` of the run NAME."""
    if not path.startswith(TAG):
        return "", path
    name, slash, rest = path[len(TAG) :].partition(b"/")
    return unquote(name.decode("latin-1")), slash + rest or b"/"


def head(
    method: bytes,
    path: bytes,
    headers: Sequence[Header],
    target: Target,
    *,
    length: int | None = None,
    encodings: tuple[str, ...] | None = None,
) -> bytes:
    """The start of a request: as the client sent it, but for the host and for what follows from reading it here.

    `length` is that of a body held in full; `encodings` are those the answer may come in.
    """
    lines = [b"%s %s%s HTTP/1.1" % (method, target.prefix.encode(), path)]
    for lower, name, value in headers:
        if lower == b"host":
            lines.append(name + b": " + target.netloc.encode())
        elif length is not None and lower in (b"content-length", b"transfer-encoding", b"expect"):
            continue
        elif lower == b"accept-encoding" and encodings is not None:
            lines.append(name + b": " + _narrowed(value, encodings))
        else:
            lines.append(name + b": " + value)
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    lines += [f"{name}: {value}".encode("latin-1") for name, value in target.headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _narrowed(value: bytes, encodings: tuple[str, ...]) -> bytes:
    kept = [item for item in value.split(b",") if item.partition(b";")[0].strip().decode("latin-1") in encodings]
    return b",".join(kept).strip() or b"identity"
