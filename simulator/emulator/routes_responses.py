"""`/v1/responses`: OpenAI's Responses API as vLLM 0.32 speaks it, over the chat of the engine.

Like vLLM, it keeps no response unless VLLM_ENABLE_RESPONSES_API_STORE is set: `store` is then ignored, and a
`previous_response_id` is not found.
"""

import os
import secrets
from collections import OrderedDict
from time import time
from typing import Any

import msgspec
from aiohttp import web

from windtunnel.simulator.emulator.ask import Refusal, check_model, misshapen
from windtunnel.simulator.emulator.ask_responses import Item, ResponsesAsk, as_chat, check, messages, missing
from windtunnel.simulator.emulator.routes_generate import Generator, answer
from windtunnel.simulator.emulator.wire import Begun
from windtunnel.simulator.emulator.wire_responses import (
    Body,
    ResponsesWire,
    blank_body,
    call_item,
    finished_body,
    message_item,
    text_part,
)

_KEPT = 10_000
"""Responses that a store holds; the oldest goes first."""


class Responses:
    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._ask = msgspec.json.Decoder(ResponsesAsk)
        self._stores = os.environ.get("VLLM_ENABLE_RESPONSES_API_STORE", "0") not in ("", "0")
        self._stored: OrderedDict[str, tuple[Body, list[Item]]] = OrderedDict()

    def add(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/responses", self.responses)
        router.add_get("/v1/responses/{ident}", self.retrieve)
        router.add_post("/v1/responses/{ident}/cancel", self.cancel)

    async def responses(self, http: web.Request) -> web.StreamResponse:
        try:
            ask = self._ask.decode(await http.read())
        except msgspec.DecodeError as error:
            raise misshapen(error) from None
        generator = self._generator
        check(ask, stores=self._stores)
        model = check_model(ask.model, generator.settings)
        before = self._before(ask.previous_response_id)
        ident = f"resp_{secrets.token_hex(8)}"
        chat = as_chat(ask, before)
        begun = generator.begin_chat(chat, ident, limit="max_output_tokens")
        blank = blank_body(ask, ident, model, int(time()), begun.request.max_tokens)
        if not ask.stream:
            _, text = await generator.whole(begun)
            body = finished_body(blank, begun.request, _items(begun, text))
            self._keep(ask, before, body)
            return answer(body)
        wire = ResponsesWire(generator.pieces.said(begun), blank, call=begun.call)
        response = await generator.stream(http, begun, wire)
        self._keep(ask, before, finished_body(blank, begun.request, wire.items))
        return response

    async def retrieve(self, http: web.Request) -> web.Response:
        ident = http.match_info["ident"]
        if ident not in self._stored:
            raise missing(ident)
        return answer(self._stored[ident][0])

    async def cancel(self, http: web.Request) -> web.Response:
        ident = http.match_info["ident"]
        if ident not in self._stored:
            raise missing(ident)
        raise Refusal("Cannot cancel a synchronous response.", kind="invalid_request_error", param="response_id")

    def _before(self, ident: str | None) -> list[Item]:
        """The messages of an earlier response and its answer."""
        if ident is None:
            return []
        if ident not in self._stored:
            raise missing(ident)
        body, said = self._stored[ident]
        parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        return [*said, *({"role": "assistant", "content": part["text"]} for part in parts)]

    def _keep(self, ask: ResponsesAsk, before: list[Item], body: Body) -> None:
        if not self._stores or not ask.store:
            return
        self._stored[body["id"]] = (body, messages(ask, before))
        while len(self._stored) > _KEPT:
            self._stored.popitem(last=False)


def _items(begun: Begun, text: str) -> list[dict[str, Any]]:
    if begun.call is not None:
        return [call_item(f"fc_{secrets.token_hex(8)}", begun.call)]
    return [message_item(f"msg_{secrets.token_hex(8)}", [text_part(text)] if text else [], "completed")]
