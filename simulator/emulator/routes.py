"""vLLM's HTTP routes over the engine."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from time import time
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
    chat_prompt,
    check_model,
    completion_prompt,
    output_limits,
    rendered,
)
from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Output
from windtunnel.simulator.emulator.script import Words
from windtunnel.simulator.emulator.steptime import ERROR_BAR
from windtunnel.simulator.emulator.template import Template
from windtunnel.simulator.emulator.tokenizer import Tokenizer
from windtunnel.simulator.emulator.wire import Pieces, Style, Wire, usage

T = TypeVar("T")

_MAX_BODY = 1 << 30
_STALLED = 1 << 26
"""Bytes a client may leave unread before its stream is cut."""


class Server:
    """Handlers of all routes, sharing one engine."""

    def __init__(self, settings: Settings, engine: Engine, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._engine = engine
        self._tokenizer = tokenizer
        self._template = Template(tokenizer)
        self._pieces = Pieces(tokenizer)
        self._started = int(time())
        self._chat = msgspec.json.Decoder(ChatAsk)
        self._completion = msgspec.json.Decoder(CompletionAsk)
        self._tokenize = msgspec.json.Decoder(TokenizeAsk)
        self._detokenize = msgspec.json.Decoder(DetokenizeAsk)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[refusals])
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/detokenize", self.detokenize)
        app.router.add_get("/health", self.health)
        app.router.add_route("*", "/ping", self.health)
        app.router.add_get("/version", self.version)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/load", self.load)
        app.router.add_get("/server_info", self.server_info)
        app.router.add_post("/reset_prefix_cache", self.reset_prefix_cache)
        return app

    # Generation.

    async def chat(self, http: web.Request) -> web.StreamResponse:
        ask = _decode(self._chat, await http.read())
        model = check_model(ask.model, self._settings)
        prompt = chat_prompt(ask, self._settings, self._template)
        return await self._generate(http, ask, model, prompt, chat=True)

    async def completions(self, http: web.Request) -> web.StreamResponse:
        ask = _decode(self._completion, await http.read())
        model = check_model(ask.model, self._settings)
        prompt = completion_prompt(ask.prompt, self._tokenizer)
        return await self._generate(http, ask, model, prompt, chat=False)

    async def _generate(
        self, http: web.Request, ask: Ask, model: str, prompt: Tokens, *, chat: bool
    ) -> web.StreamResponse:
        most, least = output_limits(ask, len(prompt), self._settings)
        ident = ("chatcmpl-" if chat else "cmpl-") + (http.headers.get("X-Request-Id") or secrets.token_hex(16))
        script = Words(prompt, self._settings.seed if ask.seed is None else ask.seed)
        request = Request(
            ident,
            prompt,
            script,
            most,
            block_size=self._settings.limits.block_size,
            ends=None if ask.ignore_eos else script.natural_length(least),
            salt=ask.cache_salt,
            priority=ask.priority,
            arrival=self._engine.now(),
        )
        options = ask.stream_options
        counted = bool(ask.stream and options and options.include_usage)
        style = Style(
            chat=chat,
            token_ids=bool(ask.return_token_ids),
            usage=counted,
            continuous=bool(counted and options and options.continuous_usage_stats),
            details=self._settings.prompt_details,
        )
        if ask.stream:
            wire = Wire(style, self._pieces, ident, int(time()), model, len(prompt))
            return await self._stream(http, request, wire, prompt if ask.return_token_ids else None)
        return await self._whole(request, style, model, prompt if ask.return_token_ids else None)

    async def _stream(
        self, http: web.Request, request: Request, wire: Wire, shown: Tokens | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        transport = http.transport
        done = asyncio.get_running_loop().create_future()

        def sink(output: Output) -> None:
            if transport is None or transport.is_closing() or transport.get_write_buffer_size() > _STALLED:
                return
            ids = shown.tolist() if shown is not None and output.first else None
            parts = [wire.opening(ids)] if output.first else []
            for token in output.tokens:
                last = token is output.tokens[-1]
                parts.append(wire.token(token, output.finished if last else None, ids))
                ids = None
            if output.finished:
                parts.append(wire.closing(request.hit or 0, request.created or 0))
                if not done.done():
                    done.set_result(None)
            body = b"".join(parts)
            transport.write(b"%x\r\n%b\r\n" % (len(body), body))

        self._engine.submit(request, sink)
        try:
            await done
        finally:
            self._engine.abort(request)
        await response.write_eof()
        return response

    async def _whole(self, request: Request, style: Style, model: str, shown: Tokens | None) -> web.Response:
        done = asyncio.get_running_loop().create_future()

        def sink(output: Output) -> None:
            if output.finished and not done.done():
                done.set_result(output.finished)

        self._engine.submit(request, sink)
        try:
            finish = await done
        finally:
            self._engine.abort(request)
        ids = request.output
        text = self._tokenizer.decode(ids)
        prompt_ids = None if shown is None else shown.tolist()
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        choice["token_ids"] = ids if style.token_ids else None
        body: dict[str, Any] = {"id": request.key, "created": int(time()), "model": model, "choices": [choice]}
        if style.chat:
            body["object"] = "chat.completion"
            body["prompt_token_ids"] = prompt_ids
            choice["message"] = {"role": "assistant", "content": text, "reasoning": None}
        else:
            body["object"] = "text_completion"
            choice |= {"text": text, "prompt_token_ids": prompt_ids}
        body["usage"] = usage(style, request.prompt_tokens, len(ids), request.hit or 0, request.created or 0)
        return _answer(body)

    # Tokens.

    async def tokenize(self, http: web.Request) -> web.Response:
        ask = _decode(self._tokenize, await http.read())
        check_model(ask.model, self._settings)
        if ask.messages is not None:
            tokens = rendered(self._template, ask.messages, ask.tools, generate=ask.add_generation_prompt)
        elif ask.prompt is not None:
            tokens = self._tokenizer.encode(ask.prompt)
        else:
            raise Refusal("Either `prompt` or `messages` must be given.", param="prompt")
        ids = tokens.tolist()
        strings = self._tokenizer.strings(ids) if ask.return_token_strs else None
        body = {"count": len(ids), "max_model_len": self._settings.limits.max_model_len}
        return _answer(body | {"tokens": ids, "token_strs": strings})

    async def detokenize(self, http: web.Request) -> web.Response:
        ask = _decode(self._detokenize, await http.read())
        check_model(ask.model, self._settings)
        return _answer({"prompt": self._tokenizer.decode(ask.tokens)})

    # State.

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return _answer({"version": f"{VLLM_VERSION}+windtunnel.emulator"})

    async def models(self, _: web.Request) -> web.Response:
        shared = {
            "object": "model",
            "created": self._started,
            "owned_by": "windtunnel-emulator",
            "root": self._settings.model.name,
            "parent": None,
            "max_model_len": self._settings.limits.max_model_len,
        }
        return _answer({"object": "list", "data": [{"id": name} | shared for name in self._settings.served]})

    async def load(self, _: web.Request) -> web.Response:
        return _answer({"server_load": self._engine.in_flight if self._settings.load_tracking else 0})

    async def metrics(self, _: web.Request) -> web.Response:
        # Beside vLLM's names: how late this process handed out a step at worst. Large: the machine was too slow for it.
        late = f"# TYPE windtunnel:step_late_seconds gauge\nwindtunnel:step_late_seconds {self._engine.late_ns / 1e9}\n"
        page = self._engine.metrics.page() + late
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})

    async def reset_prefix_cache(self, http: web.Request) -> web.Response:
        preempt = http.query.get("reset_running_requests", "").lower() in ("true", "1")
        return _answer({"success": self._engine.reset_prefix_cache(preempt=preempt)})

    async def server_info(self, http: web.Request) -> web.Response:
        config = describe(self._settings)
        as_json = http.query.get("config_format") == "json"
        shown = config if as_json else " ".join(f"{key}={value}" for key, value in config.items())
        return _answer({"vllm_config": shown, "emulator": labels(self._settings)})


def describe(settings: Settings) -> dict[str, Any]:
    """The resolved settings, laid out as vLLM's configuration."""
    limits = settings.limits
    return {
        "model_config": {
            "model": settings.model.name,
            "served_model_name": list(settings.served),
            "max_model_len": limits.max_model_len,
            "quantization": settings.quantization,
            "enforce_eager": settings.eager,
            "seed": settings.seed,
        },
        "cache_config": {
            "block_size": limits.block_size,
            "num_gpu_blocks": limits.num_gpu_blocks,
            "kv_cache_size_tokens": settings.kv_tokens,
            "kv_cache_max_concurrency": settings.kv_tokens / limits.max_model_len,
            "cache_dtype": settings.kv_dtype,
            "gpu_memory_utilization": settings.utilization,
            "enable_prefix_caching": limits.enable_prefix_caching,
        },
        "scheduler_config": {
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "long_prefill_token_threshold": limits.long_prefill_token_threshold,
            "enable_chunked_prefill": True,
            "policy": "priority" if limits.priority else "fcfs",
            "async_scheduling": settings.asynchronous,
            "scheduler_reserve_full_isl": limits.scheduler_reserve_full_isl,
            "watermark": limits.watermark,
        },
        "parallel_config": {"tensor_parallel_size": settings.tensor_parallel},
        "speculative_config": None,
    }


def labels(settings: Settings) -> dict[str, Any]:
    """What every result of this engine must be labelled with."""
    return {
        "emulated": True,
        "emulates": f"vLLM {VLLM_VERSION}",
        "gpu": settings.gpu.name,
        "gpu_source": settings.gpu.source,
        "model": settings.model.name,
        "model_source": settings.model.source,
        "fit": settings.gpu.reached.fit,
        "calibrated": False,
        "unverified": list(settings.unverified),
        "error_bar": ERROR_BAR,
        "ignored_flags": list(settings.ignored),
    }


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Refusal(str(error)) from None


def _answer(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return _answer(refusal.body, refusal.status)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        kind = "NotFoundError" if error.status == 404 else "BadRequestError"
        body = {"error": {"message": error.reason, "type": kind, "param": None, "code": error.status}}
        return _answer(body, error.status)
