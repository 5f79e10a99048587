"""The events of OpenAI's Responses as vLLM 0.32 sends them: created, in progress, one item with its parts, completed.

The first two come before the model has begun. Events are numbered through; the whole response object stands in three
of them, so clients that read only the last one have everything.
"""

import secrets
from typing import Any

import msgspec

from windtunnel.simulator.emulator.ask_responses import ResponsesAsk
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output
from windtunnel.simulator.emulator.script_calls import CallScript
from windtunnel.simulator.emulator.script_stops import Held
from windtunnel.simulator.emulator.wire import Pieces

_json = msgspec.json.encode
Body = dict[str, Any]


class ResponsesWire:
    def __init__(self, pieces: Pieces | Held, blank: Body, *, call: CallScript | None = None) -> None:
        """`blank`: the response object before anything is known."""
        self._pieces = pieces
        self._blank = blank
        self._call = call
        self._number = 0
        self._count = 0
        self._text: list[bytes] = []
        self._item = ("fc_" if call is not None else "msg_") + secrets.token_hex(8)
        self._open = False
        self._before = b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"'
        self._middle = b'","item_id":"%b","logprobs":[],"output_index":0,"sequence_number":' % self._item.encode()
        self._after = b',"type":"response.output_text.delta"}\n\n'
        self.items: list[Body] = []
        """What the response holds at its end."""

    def greeting(self) -> bytes:
        return self._event("response.created", {"response": self._blank}) + self._event(
            "response.in_progress", {"response": self._blank}
        )

    def output(self, output: Output) -> bytes:
        begin = self._count
        self._count += len(output.tokens)
        parts: list[bytes] = []
        if self._call is not None:
            parts += self._called(self._call, begin)
        else:
            text = self._pieces.of(output.tokens)
            if text:
                if not self._open:
                    parts.append(self._opened())
                self._text.append(text)
                parts.append(b"%b%b%b%d%b" % (self._before, text, self._middle, self._number, self._after))
                self._number += 1
        if output.finished is not None:
            if self._open:
                parts.append(self._closed() if self._call is None else self._call_closed(self._call))
            whole = finished_body(self._blank, output.request, self.items)
            parts.append(self._event("response.completed", {"response": whole}))
        return b"".join(parts)

    def _opened(self) -> bytes:
        self._open = True
        item = message_item(self._item, [], "in_progress")
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return self._event("response.output_item.added", {"item": item, "output_index": 0}) + self._event(
            "response.content_part.added",
            {"content_index": 0, "item_id": self._item, "output_index": 0, "part": part},
        )

    def _closed(self) -> bytes:
        text = msgspec.json.decode(b'"%b"' % b"".join(self._text))
        at: Body = {"content_index": 0, "item_id": self._item, "output_index": 0}
        item = message_item(self._item, [text_part(text)], "completed")
        self.items.append(item)
        return (
            self._event("response.output_text.done", {**at, "logprobs": [], "text": text})
            + self._event("response.content_part.done", at | {"part": text_part(text)})
            + self._event("response.output_item.done", {"item": item, "output_index": 0})
        )

    def _called(self, call: CallScript, begin: int) -> list[bytes]:
        parts = []
        if begin <= call.opens < self._count:
            self._open = True
            item = call_item(self._item, call) | {"arguments": "", "status": "in_progress"}
            parts.append(self._event("response.output_item.added", {"item": item, "output_index": 0}))
        text = "".join(call.shown[begin : self._count])
        if text:
            body = {"delta": text, "item_id": self._item, "output_index": 0}
            parts.append(self._event("response.function_call_arguments.delta", body))
        return parts

    def _call_closed(self, call: CallScript) -> bytes:
        text = "".join(call.shown[: self._count])
        item = call_item(self._item, call) | {"arguments": text}
        self.items.append(item)
        body = {"arguments": text, "item_id": self._item, "name": call.name, "output_index": 0}
        return self._event("response.function_call_arguments.done", body) + self._event(
            "response.output_item.done", {"item": item, "output_index": 0}
        )

    def _event(self, kind: str, body: Body) -> bytes:
        body = body | {"sequence_number": self._number, "type": kind}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _json(body))


def text_part(text: str) -> Body:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}


def message_item(ident: str, content: list[Body], status: str) -> Body:
    return {"id": ident, "content": content, "role": "assistant", "status": status, "type": "message", "phase": None}


def call_item(ident: str, call: CallScript) -> Body:
    return {
        "arguments": call.arguments,
        "call_id": call.ident,
        "name": call.name,
        "type": "function_call",
        "id": ident,
        "namespace": None,
        "status": "completed",
    }


def blank_body(ask: ResponsesAsk, ident: str, model: str, created: int, most: int) -> Body:
    """The response object of a request that has begun; `most` tokens may come."""
    reasoning = dict.fromkeys(("context", "effort", "generate_summary", "mode", "summary"))
    return {
        "id": ident,
        "created_at": created,
        "incomplete_details": None,
        "instructions": ask.instructions,
        "metadata": ask.metadata,
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": ask.parallel_tool_calls is not False,
        "temperature": 1.0 if ask.temperature is None else ask.temperature,
        "tool_choice": ask.tool_choice if ask.tools else "none",
        "tools": [_told(tool) for tool in ask.tools],
        "top_p": 1.0 if ask.top_p is None else ask.top_p,
        "background": bool(ask.background),
        "max_output_tokens": most,
        "max_tool_calls": ask.max_tool_calls,
        "previous_response_id": ask.previous_response_id,
        "prompt": None,
        "reasoning": None if ask.reasoning is None else reasoning | ask.reasoning,
        "service_tier": ask.service_tier,
        "status": "in_progress",
        "text": ask.text,
        "top_logprobs": None,
        "truncation": ask.truncation,
        "usage": None,
        "user": ask.user,
        "presence_penalty": ask.presence_penalty or 0.0,
        "frequency_penalty": ask.frequency_penalty or 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def finished_body(blank: Body, request: Request, items: list[Body]) -> Body:
    """The response object at the end."""
    short = request.finished == "length"
    return blank | {
        "incomplete_details": {"reason": "max_output_tokens"} if short else None,
        "output": items,
        "status": "incomplete" if short else "completed",
        "usage": responses_usage(request, request.produced),
    }


def responses_usage(request: Request, completion: int) -> Body:
    """Cached tokens are always told on this route."""
    return {
        "input_tokens": request.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": request.hit or 0,
            "cache_write_tokens": request.created or 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": request.prompt_tokens + completion,
    }


def _told(tool: Body) -> Body:
    """A function tool as vLLM tells it back, with the fields that it has none for."""
    if tool.get("type") != "function":
        return tool
    fields = ("name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description")
    return {key: tool.get(key) for key in (*fields, "output_schema")}
