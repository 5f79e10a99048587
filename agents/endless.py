"""Answers without an end: given up while they still come, so that no call outlives by far what it asked for.

Looked at together with a stream's progress, never where bytes are read. Times count from the look that first saw a
thing, so that a client that looks late gives nothing up too early.
"""

from windtunnel.agents.failures import Failure, http_failure
from windtunnel.agents.http import RawStream, error_detail, may_be_sse
from windtunnel.agents.sse import Parser

AFTER_END_S = 5.0
"""[DONE], or an error, is the last thing that a server has to say."""
AFTER_FINISH_S = 30.0
"""Usage may follow a finish reason, and [DONE] must."""
REFUSAL_S, REFUSAL_BYTES = 10.0, 1 << 20
"""An answer that is no stream says why in less time and space."""
WORDLESS_S = 3600.0
"""Comments and empty events keep a connection alive while a request waits its turn, but not for ever."""
MOST_BYTES, TOKEN_BYTES = 1 << 26, 1 << 14
"""Of an answer, and for each token of it: the longest prompt's ids are 10 MB, a token's event has hundreds."""


class Watch:
    """Over one stream that has not ended."""

    __slots__ = ("_doing", "_since", "_tokens")

    def __init__(self) -> None:
        self._doing = ""
        self._tokens = 0
        self._since = 0
        """ns; when it was first seen to be where it is."""

    def verdict(self, raw: RawStream, parser: Parser, size: int, now: int) -> tuple[str, str | None] | None:
        """The failure to give it up with and what the server did; None to go on. `size`: bytes so far; `now`: ns."""
        tokens = parser.tokens_so_far
        if self._tokens < tokens <= (raw.most_tokens or 0):  # as nearly always: it goes on as it should
            self._doing, self._tokens, self._since = "streaming", tokens, now
            return None
        if (found := _too_much(raw, parser, size)) is not None:
            return found
        doing = _doing(raw, parser)
        if doing != self._doing or (tokens != self._tokens and doing in _GOES_ON):
            self._doing, self._tokens, self._since = doing, tokens, now
            return None
        return _overdue(raw, parser, doing, (now - self._since) / 1e9)


_GOES_ON = ("streaming", "finished")
"""Here each token is a reason to wait for the next."""


def _doing(raw: RawStream, parser: Parser) -> str:
    if raw.status is not None and raw.status != 200:
        return "refusing"
    if raw.status is not None and not may_be_sse(raw.headers.get("content-type")):
        return "other"
    if parser.ended:
        return "ended"
    if parser.broke_off is not None:
        return "broken"
    return "finished" if parser.finished else "streaming"


def _overdue(raw: RawStream, parser: Parser, doing: str, waited: float) -> tuple[str, str | None] | None:
    if doing == "streaming" and waited >= WORDLESS_S:
        return Failure.READ_TIMEOUT.value, f"bytes, but no token for {WORDLESS_S:,.0f} s"
    if doing == "ended" and waited >= AFTER_END_S:
        return Failure.OPEN_AFTER_DONE.value, f"the answer was still open {AFTER_END_S:g} s after [DONE]"
    if doing == "broken" and waited >= AFTER_END_S:
        return Failure.ERROR_EVENT.value, parser.broke_off
    if doing == "finished" and waited >= AFTER_FINISH_S:
        return Failure.NO_END_MARKER.value, f"still open {AFTER_FINISH_S:g} s after the finish reason"
    if doing == "refusing" and waited >= REFUSAL_S:
        return http_failure(raw.status or 0), error_detail(raw)
    if doing == "other" and waited >= REFUSAL_S:
        return Failure.NOT_SSE.value, f"{raw.headers['content-type']}, still open after {REFUSAL_S:g} s"
    return None


def _too_much(raw: RawStream, parser: Parser, size: int) -> tuple[str, str | None] | None:
    """More than was asked for, by so much that it is no mistake of counting.

    An engine that tells counts is held to them closely. Where it does not, a chunk may be part of a token, or several:
    it takes twice as many chunks as tokens, and more text than tokens have.
    """
    if raw.status is not None and raw.status != 200:
        too_long = sum(len(data) for _, data in raw.pieces) > REFUSAL_BYTES
        return (http_failure(raw.status), error_detail(raw)) if too_long else None
    asked = raw.most_tokens
    if asked is None:
        return None
    if size > MOST_BYTES + TOKEN_BYTES * asked:
        return _endless(f"{size >> 20:,} MiB", asked)
    if parser.ended:
        return None
    tokens, chunks = parser.tokens_so_far, parser.chunks
    if parser.counts and tokens > asked + asked // 8 + 64:
        return _endless(f"{tokens:,} tokens", asked)
    if chunks <= 2 * asked + 256:
        return None
    if max(chunks, parser.characters or 0) <= 8 * asked + 1024:
        return None
    return _endless(f"{chunks:,} pieces", asked)


def _endless(came: str, asked: int) -> tuple[str, str]:
    return Failure.ENDLESS.value, f"{came} and no end where at most {asked:,} tokens were asked for"
