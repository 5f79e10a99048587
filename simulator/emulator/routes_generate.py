"""From a prompt to an answer: what the generating routes of all three APIs share."""

import asyncio
import secrets
from collections.abc import Mapping
from time import time
from typing import Any

import msgspec
from aiohttp import web

from windtunnel.simulator.emulator.acceptance import acceptance_of
from windtunnel.simulator.emulator.ask import Ask, ChatAsk, chat_prompt, output_limits
from windtunnel.simulator.emulator.ask_sampling import check_sampling
from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.request import FinishReason, Request
from windtunnel.simulator.emulator.scheduler import Output
from windtunnel.simulator.emulator.script import Inventory, Words
from windtunnel.simulator.emulator.script_calls import CallScript, drawn
from windtunnel.simulator.emulator.script_stops import Stops, ended, stops_of
from windtunnel.simulator.emulator.template import Renderer
from windtunnel.simulator.emulator.tokenizer import Vocabulary
from windtunnel.simulator.emulator.wire import Begun, Pieces, Wire

_STALLED = 1 << 26
"""Bytes a client may leave unread before its stream is cut."""


class Generator:
    """The engine with everything that turns text into tokens and back."""

    def __init__(self, settings: Settings, engine: Engine, tokenizer: Vocabulary, template: Renderer) -> None:
        self.settings = settings
        self.engine = engine
        self.tokenizer = tokenizer
        self.template = template
        self.pieces = Pieces(tokenizer)
        self._inventory = Inventory.of(tokenizer)
        self._acceptance = acceptance_of(settings)

    def begin_chat(self, ask: ChatAsk, ident: str, limit: str = "max_completion_tokens") -> Begun:
        """A conversation; Refusal where vLLM refuses it. `limit`: what the route calls the most tokens to come."""
        return self.begin(ask, ident, chat_prompt(ask, self.settings, self.template), limit)

    def begin(self, ask: Ask, ident: str, prompt: Tokens, limit: str = "max_completion_tokens") -> Begun:
        check_sampling(ask, self.tokenizer.bound)
        most, least = output_limits(ask, len(prompt), self.settings, limit)
        seed = self.settings.seed if ask.seed is None else ask.seed
        stops = stops_of(ask, least, self._inventory.stop)
        call = self._call(ask, prompt, seed, least, stops)
        script = Words(prompt, seed, self._inventory, acceptance=self._acceptance) if call is None else call
        ends = None if ask.ignore_eos else script.natural_length(least)
        end = None
        if stops is not None and call is None:
            end = ended(script, most if ends is None else min(ends, most), self.pieces, stops)
            if end is not None and end.reason is not None:
                ends = end.tokens
        request = Request(
            ident,
            prompt,
            script,
            most,
            block_size=self.settings.limits.hash_block_size,
            ends=ends,
            salt=ask.cache_salt,
            priority=ask.priority,
            arrival=self.engine.now(),
        )
        return Begun(request, prompt, int(time()), call, end)

    def _call(self, ask: Ask, prompt: Tokens, seed: int, least: int, stops: Stops | None) -> CallScript | None:
        rate = self.settings.tool_calls
        if rate <= 0 or not isinstance(ask, ChatAsk) or ask.ignore_eos or ask.tool_choice == "none":
            return None
        call = drawn(prompt, seed, rate, ask.tools or (), self.tokenizer)
        if call is None or len(call) < least or (stops is not None and stops.cut(call)):
            return None
        return call

    async def stream(self, http: web.Request, begun: Begun, wire: Wire) -> web.StreamResponse:
        request = begun.request
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        transport = http.transport
        done = asyncio.get_running_loop().create_future()
        greeting = wire.greeting()
        if greeting and transport is not None:
            transport.write(b"%x\r\n%b\r\n" % (len(greeting), greeting))

        def sink(output: Output) -> None:
            if transport is None or transport.is_closing() or transport.get_write_buffer_size() > _STALLED:
                return
            body = wire.output(output)
            if body:
                transport.write(b"%x\r\n%b\r\n" % (len(body), body))
            if output.finished and not done.done():
                done.set_result(None)

        self.engine.submit(request, sink)
        try:
            await done
        finally:
            self.engine.abort(request)
            self._parsed(begun, "streaming")
        await response.write_eof()
        return response

    async def whole(self, begun: Begun) -> tuple[FinishReason, str]:
        """The answer of a request that is not streamed: why it ended, and its text."""
        request = begun.request
        done: asyncio.Future[FinishReason] = asyncio.get_running_loop().create_future()

        def sink(output: Output) -> None:
            if output.finished and not done.done():
                done.set_result(output.finished)

        self.engine.submit(request, sink)
        try:
            finish = await done
        finally:
            self.engine.abort(request)
            self._parsed(begun, "non_streaming")
        return finish, self.tokenizer.decode(list(request.output)) if begun.end is None else begun.end.text

    def _parsed(self, begun: Begun, mode: str) -> None:
        """A vLLM with a tool parser counts its looks: at each token of a stream, at a whole answer once."""
        parsed, key = self.engine.metrics.parsed, begun.request.key
        if parsed is None or key.startswith("cmpl-"):
            return
        kind = "responses" if key.startswith("resp_") else "chat_completions"
        looks, calls = begun.request.produced, 0
        if begun.call is not None:
            calls = sum(1 for text in begun.call.shown[:looks] if text)
        if mode == "non_streaming":
            looks, calls = 1, min(1, calls)
        for outcome, count in (("tool_call", calls), ("no_tool_call", looks - calls)):
            parsed[mode, outcome, kind] = parsed.get((mode, outcome, kind), 0) + count


def chat_ident(headers: Mapping[str, str]) -> str:
    """The id of an answer, with the client's own one in it where it gave one."""
    return "chatcmpl-" + (headers.get("X-Request-Id") or secrets.token_hex(8))


def answer(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def error_body(message: str, kind: str, status: int) -> dict[str, Any]:
    """An error in the shape of the OpenAI routes."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}
