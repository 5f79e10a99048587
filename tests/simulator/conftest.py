"""A server that answers like vLLM 0.32.0 where asked to, and like a bare OpenAI server elsewhere. Test code only."""

import asyncio
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

WORD = re.compile(r"<\|\w+\|>|(?:(?!<\|)\S)+|<\|")
CACHE = {
    "block_size": 128,
    "num_gpu_blocks": 70,
    "kv_cache_size_tokens": 8960,
    "enable_prefix_caching": True,
    "effective_attention_block_size": 128,
    "cache_hit_alignment_tokens": None,
}
PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} %(running)s
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} %(generated)s
vllm:cache_config_info{block_size="128",cache_hit_alignment_tokens="None",enable_prefix_caching="True",engine="0",\
kv_cache_size_tokens="8960",num_gpu_blocks="70"} 1.0
"""


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeEngine:
    """What the server has and says."""

    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "tiny", "max_model_len": 4096}])
    version: str | None = "0.32.0"
    metrics: bool = True
    dev_mode: bool = True
    tokenize: bool = True
    completions: bool = True
    strict: bool = False
    details: bool = True
    cache: dict[str, Any] = field(default_factory=lambda: dict(CACHE))
    emulation: dict[str, Any] | None = None
    reset_success: bool = True
    running: int = 0
    generated: list[int] = field(default_factory=lambda: [100])
    key: str | None = None
    special: bool = True
    stops_after: int | None = None
    continuous: bool = True
    refuses: tuple[str, ...] = ()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    deaf: asyncio.Event = field(default_factory=_set_event)
    """Cleared, `/tokenize` does not answer."""
    page: asyncio.Event = field(default_factory=_set_event)
    """Cleared, `/metrics` does not."""
    template: dict[str, int] = field(default_factory=lambda: {"system": 4, "user": 5, "assistant": 6, "tool": 9})

    alone: int = 0
    """Tokens that a text costs on its own, and not inside of a message."""

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        if self.completions:
            app.router.add_post("/v1/completions", self._completions)
        if self.version:
            app.router.add_get("/version", self._version)
            app.router.add_get("/health", self._health)
        if self.metrics:
            app.router.add_get("/metrics", self._metrics)
        if self.tokenize:
            app.router.add_post("/tokenize", self._tokenize)
        if self.dev_mode:
            app.router.add_get("/server_info", self._info)
            app.router.add_post("/reset_prefix_cache", self._reset)
        return app

    @web.middleware
    async def _guard(self, request, handler):
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no"}}, status=401)
        return await handler(request)

    async def _models(self, _):
        return web.json_response({"object": "list", "data": self.models})

    async def _version(self, _):
        return web.json_response({"version": self.version})

    async def _health(self, _):
        return web.Response()

    async def _metrics(self, _):
        await self.page.wait()
        generated = self.generated.pop(0) if len(self.generated) > 1 else self.generated[0]
        return web.Response(text=PAGE % {"running": self.running, "generated": generated})

    async def _info(self, _):
        config = {
            "model_config": {"model": "/models/tiny", "dtype": "torch.bfloat16", "quantization": None},
            "cache_config": self.cache,
            "scheduler_config": {"max_num_seqs": 128},
            "parallel_config": {"data_parallel_rpc_port": 29550, "tensor_parallel_size": 1},
            "instance_id": "1795963558860002635",
        }
        return web.json_response({"vllm_config": config, "emulator": self.emulation})

    async def _reset(self, request):
        assert request.query["reset_external"] == "true"
        return web.json_response({"success": self.reset_success})

    async def _tokenize(self, request):
        """One token a word, special tokens apart; each message and each tool costs a fixed extra."""
        body = await request.json()
        self.bodies.append(body)
        await self.deaf.wait()
        if "prompt" in body:
            words = WORD.findall(body["prompt"]) + ["b"] * self.alone
        elif any(m["role"] in self.refuses for m in body["messages"]):
            return web.json_response({"error": {"message": "this template has no such role"}}, status=400)
        else:
            words = [w for m in body["messages"] for w in ["<|turn|>", *WORD.findall(str(m.get("content") or ""))]]
            words += ["x"] * sum(self.template[m["role"]] - 1 for m in body["messages"])
            words += ["c"] * sum(7 * len(m.get("tool_calls") or []) for m in body["messages"])
            words += ["g"] * 3 + ["t"] * (20 + 30 * len(body["tools"]) if body.get("tools") else 0)
        if not self.special:
            words = [w for word in words for w in ([word] if word[:2] != "<|" else ["<|", word[2:]])]
        strings = words if body.get("return_token_strs") else None
        ids = [zlib.crc32(w.encode()) % 100_000 for w in words]
        return web.json_response({"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": strings})

    async def _completions(self, request):
        body = await request.json()
        self.bodies.append(body)
        return self._stream(len(body["prompt"]), body, {"text": "ab"})

    async def _chat(self, request):
        body = await request.json()
        self.bodies.append(body)
        if self.strict and "ignore_eos" in body:
            return web.json_response({"error": {"message": "unknown field ignore_eos"}}, status=400)
        return self._stream(9, body, {"delta": {"content": "ab"}})

    def _stream(self, prompt, body, piece):
        tokens = min(body["max_tokens"], self.stops_after or body["max_tokens"])
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        early = usage if self.details and self.continuous else None
        token = {"token_ids": [7]} if body.get("return_token_ids") else {}
        parts = [{"choices": [{**piece, **token, "finish_reason": None}], "usage": early}] * 2
        details = {"prompt_tokens_details": {"cached_tokens": 0}} if self.details else {}
        parts.append({"choices": [], "usage": usage | details})
        text = "".join(f"data: {msgspec.json.encode(p).decode()}\n\n" for p in parts) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")


@pytest.fixture
async def fake_engine():
    """Call with a FakeEngine's fields: -> (session, url, engine). Servers and session end with the test."""
    servers = []
    async with aiohttp.ClientSession() as session:

        async def start(**fields):
            engine = FakeEngine(**fields)
            server = TestServer(engine.app())
            await server.start_server()
            servers.append(server)
            return session, str(server.make_url("/")).rstrip("/"), engine

        yield start
        for server in servers:
            await server.close()
