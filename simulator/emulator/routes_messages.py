"""`/v1/messages` and `/v1/messages/count_tokens`: Anthropic's API as vLLM 0.32 speaks it, over the chat of the engine.

Errors of the route have Anthropic's shape. A body of the wrong form is refused in front of it, in OpenAI's shape.
"""

from typing import TypeVar

import msgspec
from aiohttp import web

from windtunnel.simulator.emulator.ask import Refusal, chat_prompt, check_model, misshapen
from windtunnel.simulator.emulator.ask_messages import CountAsk, MessagesAsk, as_chat
from windtunnel.simulator.emulator.routes_generate import Generator, answer, chat_ident
from windtunnel.simulator.emulator.wire_messages import MessagesWire, messages_body

T = TypeVar("T", bound=CountAsk)


class Messages:
    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._ask = msgspec.json.Decoder(MessagesAsk)
        self._count = msgspec.json.Decoder(CountAsk)

    def add(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/messages", self.messages)
        router.add_post("/v1/messages/count_tokens", self.count_tokens)

    async def messages(self, http: web.Request) -> web.StreamResponse:
        ask = _decode(self._ask, await http.read())
        generator = self._generator
        try:
            chat = as_chat(ask, merges_system=generator.template.merges_system)
            model = check_model(ask.model, generator.settings)
            begun = generator.begin_chat(chat, chat_ident(http.headers))
        except Refusal as refusal:
            return _refused(refusal)
        details = generator.settings.prompt_details
        if ask.stream:
            wire = MessagesWire(generator.pieces, begun, model, details=details)
            return await generator.stream(http, begun, wire)
        finish, text = await generator.whole(begun)
        return answer(messages_body(begun, model, finish, text, details=details))

    async def count_tokens(self, http: web.Request) -> web.Response:
        ask = _decode(self._count, await http.read())
        template = self._generator.template
        try:
            chat = as_chat(ask, merges_system=template.merges_system)
            check_model(ask.model, self._generator.settings)
            count = len(chat_prompt(chat, self._generator.settings, template))
        except Refusal as refusal:
            return _refused(refusal)
        return answer({"input_tokens": count, "context_management": {"original_input_tokens": count}})


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise misshapen(error) from None


def _refused(refusal: Refusal) -> web.Response:
    if refusal.kind == "Bad Request":
        raise refusal
    body = {"type": "error", "error": {"type": refusal.kind, "message": str(refusal)}}
    return answer(body, refusal.status)
