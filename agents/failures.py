"""The names under which a call can fail, and what each one means. A call that was cut by the end of a run is none."""

from enum import StrEnum


class Failure(StrEnum):
    """HTTP statuses have names of their own: `http_failure(503) == "http_503"`."""

    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECT_FAILED = "connect_failed"
    UNKNOWN_HOST = "unknown_host"
    TLS_FAILED = "tls_failed"
    SERVER_DISCONNECTED = "server_disconnected"
    CONNECTION_RESET = "connection_reset"
    CONNECTION_CLOSED = "connection_closed"
    MALFORMED_HTTP = "malformed_http"
    READ_TIMEOUT = "read_timeout"
    REDIRECT = "redirect"
    NOT_SSE = "not_sse"
    MALFORMED_STREAM = "malformed_stream"
    ERROR_EVENT = "error_event"
    NO_END_MARKER = "no_end_marker"
    NO_FINISH_REASON = "no_finish_reason"
    WRONG_LENGTH = "wrong_length"
    ENDLESS = "endless"
    OPEN_AFTER_DONE = "open_after_done"
    ENGINE_GONE = "engine_gone"
    ABORTED = "aborted"


_MEANING: dict[str, str] = {
    Failure.CONNECT_REFUSED: "Nothing listens on the target's port.",
    Failure.CONNECT_TIMEOUT: "The connection was not accepted in time.",
    Failure.CONNECT_FAILED: "The connection could not be made.",
    Failure.UNKNOWN_HOST: "The target's host name does not resolve.",
    Failure.TLS_FAILED: "The TLS handshake failed.",
    Failure.SERVER_DISCONNECTED: "The server closed the connection before it answered.",
    Failure.CONNECTION_RESET: "The connection was reset.",
    Failure.CONNECTION_CLOSED: "The server closed the connection in the middle of its answer.",
    Failure.MALFORMED_HTTP: "The answer is not valid HTTP.",
    Failure.READ_TIMEOUT: "No byte arrived for the stall limit.",
    Failure.REDIRECT: "The server redirects to another address; give that one as the target.",
    Failure.NOT_SSE: "The answer is not an event stream.",
    Failure.MALFORMED_STREAM: "An event of the stream is not the JSON that the route defines.",
    Failure.ERROR_EVENT: "The stream carried an error instead of going on.",
    Failure.NO_END_MARKER: "The stream ended without [DONE].",
    Failure.NO_FINISH_REASON: "The stream ended without a finish reason.",
    Failure.WRONG_LENGTH: "The number of generated tokens is not the pinned one.",
    Failure.ENDLESS: "The server generated on and on, far beyond what it was asked for, and the call was given up.",
    Failure.OPEN_AFTER_DONE: "The server did not end its answer after [DONE], and the call was given up.",
    Failure.ENGINE_GONE: "The engine exited or refused connections, and the run stopped.",
    Failure.ABORTED: "The client gave the call up.",
}


def http_failure(status: int) -> str:
    """The failure name of an HTTP status that is no success: `http_429`, or `redirect` for 3xx."""
    return Failure.REDIRECT.value if 300 <= status < 400 else f"http_{status}"


def explain(name: str) -> str:
    """One sentence for a failure name."""
    if name in _MEANING:
        return _MEANING[name]
    if name.startswith("http_"):
        return f"The server answered with HTTP status {name.removeprefix('http_')}."
    return name
