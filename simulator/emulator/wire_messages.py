"""Anthropic's events as vLLM 0.32 sends them, converted there from a chat stream with usage in every chunk.

One content block: text, or the use of a tool. Tokens without text, such as the one that ends an answer, make no event.
"""

from typing import Any

import msgspec

from windtunnel.simulator.emulator.request import FinishReason, Request
from windtunnel.simulator.emulator.scheduler import Output
from windtunnel.simulator.emulator.script_calls import CallScript
from windtunnel.simulator.emulator.wire import Begun, Pieces

_json = msgspec.json.encode
_BEFORE = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"'
_AFTER = b'"},"index":0}\n\n'
_START = (
    b'event: content_block_start\ndata: {"type":"content_block_start","content_block":{"type":"text","text":""},'
    b'"index":0}\n\n'
)
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
_END = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


class MessagesWire:
    def __init__(self, pieces: Pieces, begun: Begun, model: str, *, details: bool) -> None:
        self._pieces = pieces.said(begun)
        self._stop = begun.stop_reason
        self._ident = begun.request.key
        self._model = model
        self._details = details
        self._call = begun.call
        self._count = 0
        self._open = False

    def greeting(self) -> bytes:
        return b""

    def output(self, output: Output) -> bytes:
        begin = self._count
        self._count += len(output.tokens)
        if self._open and self._call is None and output.finished is None:
            text = self._pieces.of(output.tokens)
            return b"%b%b%b" % (_BEFORE, text, _AFTER) if text else b""
        parts = [self._begun(output.request)] if output.first else []
        if self._call is not None:
            parts += self._called(self._call, begin)
        else:
            text = self._pieces.of(output.tokens)
            if text and not self._open:
                self._open = True
                parts.append(_START)
            if text:
                parts.append(b"%b%b%b" % (_BEFORE, text, _AFTER))
        if output.finished is not None:
            parts.append(self._ended(output.request, output.finished))
        return b"".join(parts)

    def _called(self, call: CallScript, begin: int) -> list[bytes]:
        parts = []
        if begin <= call.opens < self._count:
            self._open = True
            block = {"type": "tool_use", "id": call.ident, "name": call.name, "input": {}}
            parts.append(_event({"type": "content_block_start", "content_block": block, "index": 0}))
        text = "".join(call.shown[begin : self._count])
        if text:
            delta = {"type": "input_json_delta", "partial_json": text}
            parts.append(_event({"type": "content_block_delta", "delta": delta, "index": 0}))
        return parts

    def _begun(self, request: Request) -> bytes:
        message: dict[str, Any] = {"id": self._ident, "type": "message", "role": "assistant", "content": []}
        message |= {"model": self._model, "stop_reason": None, "stop_sequence": None}
        usage = {"input_tokens": request.prompt_tokens, "output_tokens": 0}
        return _event({"type": "message_start", "message": message | {"usage": usage}})

    def _ended(self, request: Request, finished: FinishReason) -> bytes:
        delta = dict(zip(("stop_reason", "stop_sequence"), stopped(finished, self._call, self._stop), strict=True))
        usage = messages_usage(request, self._count, details=self._details)
        closing = _STOP if self._open else b""
        return closing + _event({"type": "message_delta", "delta": delta, "usage": usage}) + _END


def stopped(finished: FinishReason, call: CallScript | None, stop: str | int | None) -> tuple[str, str | None]:
    """Why it ended, and the stop sequence that did it. A stop token is none."""
    if finished == "length":
        return "max_tokens", None
    if isinstance(stop, str):
        return "stop_sequence", stop
    return "tool_use" if call is not None else "end_turn", None


def messages_usage(request: Request, completion: int, *, details: bool) -> dict[str, int]:
    """Anthropic's way: what was read from the cache and written to it are apart from `input_tokens`."""
    if not details:
        return {"input_tokens": request.prompt_tokens, "output_tokens": completion}
    read, created = request.hit or 0, request.created or 0
    return {
        "input_tokens": max(0, request.prompt_tokens - read - created),
        "output_tokens": completion,
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
    }


def messages_body(begun: Begun, model: str, finished: FinishReason, text: str, *, details: bool) -> dict[str, Any]:
    """The whole message of a call that is not streamed."""
    request, call = begun.request, begun.call
    content: dict[str, Any] = {"type": "text", "text": text}
    if call is not None:
        content = {"type": "tool_use", "id": call.ident, "name": call.name}
        content["input"] = msgspec.json.decode(call.arguments)
    reason, sequence = stopped(finished, call, begun.stop_reason)
    body = {
        "id": request.key,
        "type": "message",
        "role": "assistant",
        "content": [content],
        "model": model,
        "stop_reason": reason,
        "usage": messages_usage(request, request.produced, details=details),
    }
    return body if sequence is None else body | {"stop_sequence": sequence}


def _event(body: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(body["type"]).encode(), _json(body))
