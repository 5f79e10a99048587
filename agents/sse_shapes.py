"""The JSON of stream events, chat and completions in one shape; only the fields that are read are named.

Field names are those of the OpenAI API and of vLLM 0.32, SGLang 0.5 (`reasoning_content`, `usage.reasoning_tokens`) and
llama.cpp (`timings`). Prompt token ids are recognised and never decoded: they can be megabytes.
"""

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

ABSENT = Raw(b"")
"""Default of the prompt ids: compared by identity, which costs nothing per event."""

MOST_TOKENS = (1 << 31) - 1
Count = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
"""A count outside of this is no count, and the stream that holds it is malformed."""


def believed(count: int | None) -> int | None:
    """A detail that is no count is as good as not reported: some servers send -1 for "unknown"."""
    return count if count is not None and 0 <= count <= MOST_TOKENS else None


class PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None


class CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class Usage(Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    reasoning_tokens: int | None = None

    @property
    def cached(self) -> int | None:
        return believed(self.prompt_tokens_details.cached_tokens) if self.prompt_tokens_details else None

    @property
    def reasoning(self) -> int | None:
        details = self.completion_tokens_details
        told = details.reasoning_tokens if details and details.reasoning_tokens is not None else self.reasoning_tokens
        return believed(told)


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolDelta(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolDelta] | None = None


class Choice(Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: Raw = ABSENT


class Timings(Struct, gc=False):
    cache_n: int | None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: str | None = None
    timings: Timings | None = None
    metrics: Any = None
    """vLLM's `--enable-per-request-metrics`, in the last chunk; other servers may send anything under that name."""
    prompt_token_ids: Raw = ABSENT


def queued_s(metrics: Any) -> float | None:
    """Seconds in the engine's queue, where the last chunk tells them."""
    return _seconds(metrics, "queue_time_ms")


def prefilled_s(metrics: Any) -> float | None:
    """Seconds from a request's scheduling to its first token, where the last chunk tells them."""
    return _seconds(metrics, "time_to_first_token_ms")


def _seconds(metrics: Any, name: str) -> float | None:
    told = metrics.get(name) if isinstance(metrics, dict) else None
    return told / 1000 if isinstance(told, int | float) and 0 <= told < 1e12 else None


def has_ids(raw: Raw) -> bool:
    """Whether prompt ids were sent: servers also send `null`."""
    return raw is not ABSENT and bytes(raw) not in (b"null", b"[]")


decode_strictly = msgspec.json.Decoder(Chunk).decode


def decode(payload: bytes) -> Chunk:
    """One event's data. Raises `msgspec.DecodeError` or `ValueError` for what is not this shape."""
    try:
        return decode_strictly(payload)
    except msgspec.ValidationError:
        raise
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode_leniently(payload)


def decode_leniently(payload: bytes) -> Chunk:
    """Lone surrogates as escapes and stray bytes are no reason to lose a stream that is otherwise well formed."""
    try:
        return msgspec.convert(json.loads(payload.decode("utf-8", "replace")), Chunk)
    except json.JSONDecodeError as error:
        raise ValueError(error.msg) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
