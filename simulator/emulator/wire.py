"""What a chat or completions stream looks like: vLLM's chunks, put together from parts that are encoded once.

Field order and presence are those of vLLM 0.32: a chat stream opens with an empty role chunk beside the first token,
each output of the engine is one chunk, the last of them carries the finish reason, and usage follows in a chunk without
choices.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output
from windtunnel.simulator.emulator.script_calls import CallScript
from windtunnel.simulator.emulator.script_stops import End, Held
from windtunnel.simulator.emulator.tokenizer import Vocabulary

_json = msgspec.json.encode
DONE = b"data: [DONE]\n\n"
_USAGE = b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}'


class Wire(Protocol):
    """One stream as bytes."""

    def greeting(self) -> bytes:
        """What is sent before the model has begun."""
        ...

    def output(self, output: Output) -> bytes:
        """What an output of the engine adds; with the last one, all that ends the stream."""
        ...


class Begun(Struct, frozen=True):
    """A request that is ready for the engine."""

    request: Request
    prompt: Tokens
    created: int
    """Unix time, s."""
    call: CallScript | None
    """The tool call that the answer is; None for words."""
    end: End | None = None
    """Where stop strings or stop tokens shape the answer."""

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string or the stop token that the answer ends with."""
        return None if self.end is None else self.end.reason


class Style(Struct, frozen=True):
    """What one request asked its answer to carry."""

    chat: bool
    token_ids: bool = False
    usage: bool = False
    continuous: bool = False
    """Usage beside every chunk."""
    details: bool = True
    """Cached tokens in the last usage."""
    metrics: bool = False
    """How long it queued, prefilled and decoded, beside the last usage."""


class Pieces:
    """JSON text of each token, without quotes, encoded when first seen."""

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._seen: dict[int, bytes] = {}
        self._texts: dict[int, str] = {}

    def __getitem__(self, token: int) -> bytes:
        seen = self._seen.get(token)
        if seen is None:
            seen = self._seen[token] = _json(self.text(token))[1:-1]
        return seen

    def text(self, token: int) -> str:
        """What one token adds to a text."""
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self._tokenizer.piece(token).decode("utf-8", "replace")
        return text

    def said(self, begun: Begun) -> "Pieces | Held":
        """What one stream's tokens say."""
        return self if begun.end is None else Held(begun.end)

    def of(self, tokens: Sequence[int]) -> bytes:
        if len(tokens) == 1:
            return self[tokens[0]]
        return b"".join([self[token] for token in tokens])


class ChatWire:
    """Chunks of `/v1/chat/completions` and `/v1/completions`."""

    def __init__(
        self,
        style: Style,
        pieces: Pieces | Held,
        ident: str,
        created: int,
        model: str,
        *,
        prompt: Sequence[int] | None = None,
        call: CallScript | None = None,
        stop_reason: str | int | None = None,
    ) -> None:
        """`prompt`: its ids, where they are to be shown. `call`: the tool call that the answer is."""
        self._style = style
        self._pieces = pieces
        self._prompt = prompt
        self._call = call
        self._stop = _json(stop_reason)
        self._count = 0
        kind = b"chat.completion.chunk" if style.chat else b"text_completion"
        self._head = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            _json(ident),
            kind,
            created,
            _json(model),
        )
        opening = b'{"index":0,"delta":{"content":"' if style.chat else b'{"index":0,"text":"'
        self._before = self._head + opening
        self._plain = not style.token_ids and not style.continuous and call is None
        after = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
        if not style.chat:
            after = (
                b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
                b'"token_ids":null}]}\n\n'
            )
        self._after = after

    def greeting(self) -> bytes:
        return b""

    def output(self, output: Output) -> bytes:
        tokens = output.tokens
        if self._plain and not output.first and output.finished is None:
            self._count += len(tokens)
            return b"%b%b%b" % (self._before, self._pieces.of(tokens), self._after)
        opening = self._opening(output.request) if output.first else b""
        chunk = self._chunk(output) if self._call is None else self._called(output, self._call)
        closing = b"" if output.finished is None else self._closing(output.request)
        return opening + chunk + closing

    def _opening(self, request: Request) -> bytes:
        """The role chunk of a chat stream; nothing on the completions route."""
        if not self._style.chat:
            return b""
        shown = b"null" if self._prompt is None else _json(self._prompt)
        return (
            b'%b{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]%b,'
            b'"prompt_token_ids":%b,"prompt_text":null}\n\n' % (self._head, self._usage_now(request), shown)
        )

    def _chunk(self, output: Output) -> bytes:
        tokens, finished, style = output.tokens, output.finished, self._style
        self._count += len(tokens)
        ids = _json(tokens) if style.token_ids else b"null"
        reason = b"null" if finished is None else b'"%b"' % finished.encode()
        if style.chat:
            stop = b"" if finished is None else b',"stop_reason":' + self._stop
            rest = b'"},"logprobs":null,"finish_reason":%b%b,"token_ids":%b}]' % (reason, stop, ids)
        else:
            shown = b"null" if self._prompt is None or not output.first else _json(self._prompt)
            rest = b'","logprobs":null,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b,"token_ids":%b}]' % (
                reason,
                b"null" if finished is None else self._stop,
                shown,
                ids,
            )
        return b"%b%b%b%b}\n\n" % (self._before, self._pieces.of(tokens), rest, self._usage_now(output.request))

    def _called(self, output: Output, call: CallScript) -> bytes:
        """Chunks of a tool call: id and name with the first piece of the arguments, and a last empty one."""
        begin = self._count
        self._count += len(output.tokens)
        deltas = [{"tool_calls": [delta]} for delta in deltas_of(call, begin, self._count)]
        if not deltas and not self._style.token_ids and output.finished is None:
            return b""
        parts = []
        for n, delta in enumerate(deltas or [{}]):
            last = n == max(0, len(deltas) - 1)
            ids = _json(output.tokens) if self._style.token_ids and last else b"null"
            ended = output.finished if last else None
            reason = {None: b"null", "stop": b'"tool_calls"'}.get(ended, b'"length"')
            stop = b"" if ended is None else b',"stop_reason":null'
            body = b'%b{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b%b,"token_ids":%b}]%b}\n\n'
            parts.append(body % (self._head, _json(delta), reason, stop, ids, self._usage_now(output.request)))
        return b"".join(parts)

    def _closing(self, request: Request) -> bytes:
        """The usage chunk, where asked for, and the end marker."""
        if not self._style.usage:
            return DONE
        told = b',"metrics":' + _json(metrics(request)) if self._style.metrics else b""
        return b'%b],"usage":%b%b}\n\n%b' % (self._head, _json(usage(self._style, request, self._count)), told, DONE)

    def _usage_now(self, request: Request) -> bytes:
        if not self._style.continuous:
            return b""
        prompt, count = request.prompt_tokens, self._count
        return _USAGE % (prompt, prompt + count, count)


def metrics(request: Request) -> dict[str, float | None]:
    """What vLLM tells of a finished request with `--enable-per-request-metrics`; times are ms, its first token's too,
    from scheduling on.
    """
    scheduled = request.queued_at if request.scheduled_at is None else request.scheduled_at
    first, decoding = request.first_at - scheduled, request.last_at - request.first_at
    gaps, lasted = request.produced - 1, first + decoding
    return {
        "time_to_first_token_ms": first / 1e6,
        "generation_time_ms": decoding / 1e6,
        "queue_time_ms": (scheduled - request.queued_at) / 1e6,
        "mean_itl_ms": decoding / gaps / 1e6 if gaps > 0 else None,
        "tokens_per_second": request.produced / lasted * 1e9 if lasted > 0 else None,
    }


def deltas_of(call: CallScript, begin: int, end: int) -> list[dict[str, object]]:
    """Chat's deltas of a tool call for its tokens `begin` to `end - 1`."""
    deltas: list[dict[str, object]] = []
    if begin <= call.opens < end:
        function = {"name": call.name, "arguments": ""}
        deltas.append({"id": call.ident, "type": "function", "index": 0, "function": function})
    text = "".join(call.shown[begin:end])
    if text:
        deltas.append({"index": 0, "function": {"arguments": text}})
    return deltas


def usage(style: Style, request: Request, completion: int) -> dict[str, object]:
    """The usage object of a finished request."""
    out: dict[str, object] = {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + completion,
        "completion_tokens": completion,
    }
    if style.details:
        details = {"cached_tokens": request.hit or 0}
        if style.chat:
            details["created_cache_tokens"] = request.created or 0
        out["prompt_tokens_details"] = details
    return out
