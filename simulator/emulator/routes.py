"""vLLM's HTTP routes over the engine: chat, completions, tokens; what else there is stands in files beside this one."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from windtunnel.simulator.emulator.ask import (
    Ask,
    ChatAsk,
    CompletionAsk,
    DetokenizeAsk,
    Refusal,
    TokenizeAsk,
    check_model,
    completion_prompt,
    rendered,
)
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.routes_generate import Generator, answer, chat_ident, error_body
from windtunnel.simulator.emulator.routes_messages import Messages
from windtunnel.simulator.emulator.routes_responses import Responses
from windtunnel.simulator.emulator.routes_scale_out import add_scale_out
from windtunnel.simulator.emulator.routes_state import State
from windtunnel.simulator.emulator.template import Renderer, Template
from windtunnel.simulator.emulator.tokenizer import Vocabulary
from windtunnel.simulator.emulator.wire import Begun, ChatWire, Style, usage

T = TypeVar("T")

_MAX_BODY = 1 << 30


class Server:
    """Handlers of all routes, sharing one engine."""

    def __init__(
        self, settings: Settings, engine: Engine, tokenizer: Vocabulary, template: Renderer | None = None
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._template = template or Template(tokenizer)
        self._generator = Generator(settings, engine, tokenizer, self._template)
        self._state = State(settings, engine)
        self._messages = Messages(self._generator)
        self._responses = Responses(self._generator)
        self._chat = msgspec.json.Decoder(ChatAsk)
        self._completion = msgspec.json.Decoder(CompletionAsk)
        self._tokenize = msgspec.json.Decoder(TokenizeAsk)
        self._detokenize = msgspec.json.Decoder(DetokenizeAsk)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[refusals])
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/detokenize", self.detokenize)
        self._messages.add(app.router)
        self._responses.add(app.router)
        add_scale_out(app.router, self._settings)
        self._state.add(app.router)
        return app

    # Generation.

    async def chat(self, http: web.Request) -> web.StreamResponse:
        ask = decode(self._chat, await http.read())
        model = check_model(ask.model, self._settings)
        return await self._generate(http, ask, model, self._generator.begin_chat(ask, chat_ident(http.headers)))

    async def completions(self, http: web.Request) -> web.StreamResponse:
        ask = decode(self._completion, await http.read())
        model = check_model(ask.model, self._settings)
        ident = "cmpl-" + (http.headers.get("X-Request-Id") or secrets.token_hex(8))
        begun = self._generator.begin(ask, ident, completion_prompt(ask, self._tokenizer))
        return await self._generate(http, ask, model, begun)

    async def _generate(self, http: web.Request, ask: Ask, model: str, begun: Begun) -> web.StreamResponse:
        options = ask.stream_options
        counted = bool(ask.stream and options and options.include_usage)
        style = Style(
            chat=isinstance(ask, ChatAsk),
            token_ids=bool(ask.return_token_ids),
            usage=counted,
            continuous=bool(counted and options and options.continuous_usage_stats),
            details=self._settings.prompt_details,
            metrics=self._settings.call_metrics,
        )
        if not ask.stream:
            return await self._whole(begun, style, model)
        shown = begun.prompt.tolist() if style.token_ids else None
        wire = ChatWire(
            style,
            self._generator.pieces.said(begun),
            begun.request.key,
            begun.created,
            model,
            prompt=shown,
            call=begun.call,
            stop_reason=begun.stop_reason,
        )
        return await self._generator.stream(http, begun, wire)

    async def _whole(self, begun: Begun, style: Style, model: str) -> web.Response:
        finish, text = await self._generator.whole(begun)
        request, call = begun.request, begun.call
        ids = request.output
        prompt_ids = begun.prompt.tolist() if style.token_ids else None
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        choice["stop_reason"] = begun.stop_reason
        choice["token_ids"] = ids if style.token_ids else None
        body: dict[str, Any] = {"id": request.key, "created": begun.created, "model": model, "choices": [choice]}
        if style.chat:
            body["object"] = "chat.completion"
            body["prompt_token_ids"] = prompt_ids
            choice["message"] = {"role": "assistant", "content": text, "reasoning": None}
        else:
            body["object"] = "text_completion"
            choice |= {"text": text, "prompt_token_ids": prompt_ids}
        if call is not None:
            function = {"name": call.name, "arguments": call.arguments}
            called = [{"id": call.ident, "type": "function", "function": function}]
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": called, "reasoning": None}
            choice["finish_reason"] = "tool_calls" if finish == "stop" else finish
        body["usage"] = usage(style, request, len(ids))
        return answer(body)

    # Tokens.

    async def tokenize(self, http: web.Request) -> web.Response:
        ask = decode(self._tokenize, await http.read())
        check_model(ask.model, self._settings)
        if ask.messages is not None:
            tokens = rendered(ask, self._template)
        elif ask.prompt is not None:
            tokens = self._tokenizer.encode(ask.prompt, special=ask.add_special_tokens is not False)
        else:
            raise Refusal("Either `prompt` or `messages` must be given.", param="prompt")
        ids = tokens.tolist()
        strings = self._tokenizer.strings(ids) if ask.return_token_strs else None
        body = {"count": len(ids), "max_model_len": self._settings.limits.max_model_len}
        return answer(body | {"tokens": ids, "token_strs": strings})

    async def detokenize(self, http: web.Request) -> web.Response:
        ask = decode(self._detokenize, await http.read())
        check_model(ask.model, self._settings)
        return answer({"prompt": self._tokenizer.decode(ask.tokens)})


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Refusal(str(error)) from None


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return answer(refusal.body, refusal.status)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        kind = "NotFoundError" if error.status == 404 else "BadRequestError"
        return answer(error_body(error.reason, kind, error.status), error.status)
