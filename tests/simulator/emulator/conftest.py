"""A real server of the emulator on this machine's loopback, in the test's own loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.serve import build

FAST = ["--gpu", "b200", "--model", "gpt-oss-20b", "--prefix-cache-retention-interval", "None"]
"""With its sliding windows kept at every block, so that a prefix is found as far as it goes."""


PROFILE = """
schema = "windtunnel.profile/1"
gpu = "h200"
engine = "vllm 0.18.0"
[reached]
hw = 0.66
[error]
in_sample = 0.04
held_out = 0.07
[figures]
skew = 0.9
[[source]]
run = "a run"
fingerprint = "00"
model = "openai/gpt-oss-120b"
calls = 300
"""


@pytest.fixture
def profile_text() -> str:
    """A profile as `calibrate` writes it."""
    return PROFILE


class Served:
    """A running emulator and the few things tests do with one."""

    def __init__(self, engine: Engine, server: TestServer, session: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.server = server
        self.session = session

    def url(self, path: str) -> str:
        return str(self.server.make_url(path))

    async def get(self, path: str) -> Any:
        async with self.session.get(self.url(path)) as response:
            body = await response.read()
            return response.status, json.loads(body) if response.content_type == "application/json" else body.decode()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async with self.session.post(self.url(path), json=body, headers=headers) as response:
            return response.status, await response.json()

    async def stream(self, path: str, body: dict[str, Any], **headers: str) -> list[Any]:
        """Events of a stream, parsed; the end marker as the string it is."""
        async with self.session.post(self.url(path), json=body | {"stream": True}, headers=headers) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            text = (await response.read()).decode()
        events = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]
        return [json.loads(event) if event != "[DONE]" else event for event in events]

    async def events(self, path: str, body: dict[str, Any], **headers: str) -> list[tuple[str, Any]]:
        """Events of a stream that names them: name and parsed data."""
        async with self.session.post(self.url(path), json=body | {"stream": True}, headers=headers) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            text = (await response.read()).decode()
        pairs = [event.split("\ndata: ") for event in text.split("\n\n")[:-1]]
        return [(name.removeprefix("event: "), json.loads(data)) for name, data in pairs]

    async def call(self, chat: bool, prompt: Any, out: int, **more: Any) -> dict[str, Any]:
        """One streamed call of pinned length: usage, token ids, text, finish."""
        path = "/v1/chat/completions" if chat else "/v1/completions"
        body: dict[str, Any] = {"max_tokens": out, "min_tokens": out, "ignore_eos": True, "return_token_ids": True}
        body |= {"messages" if chat else "prompt": prompt, "stream_options": {"include_usage": True}} | more
        events = await self.stream(path, body)
        assert events[-1] == "[DONE]"
        choices = [event["choices"][0] for event in events[:-1] if event["choices"]]
        return {
            "usage": events[-2]["usage"],
            "ids": [i for c in choices for i in c.get("token_ids") or ()],
            "text": "".join(c["delta"].get("content", "") if chat else c["text"] for c in choices),
            "finish": choices[-1]["finish_reason"],
        }

    async def counters(self) -> dict[str, float]:
        """Totals of `/metrics`, summed over labels."""
        _, page = await self.get("/metrics")
        totals: dict[str, float] = {}
        for line in page.splitlines():
            if not line.startswith("#"):
                name, value = line.split("{")[0], float(line.rsplit(" ", 1)[1])
                totals[name.removeprefix("vllm:")] = totals.get(name.removeprefix("vllm:"), 0.0) + value
        return totals


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start an emulator with the given flags; all are stopped after the test."""
    running: list[tuple[Served, TestServer]] = []

    async def start(*flags: str) -> Served:
        engine, app = build(parse([*FAST, *flags]), asyncio.get_running_loop())
        server = TestServer(app)
        await server.start_server()
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        running.append((Served(engine, server, session), server))
        return running[-1][0]

    yield start
    for served, server in running:
        await served.session.close()
        served.engine.stop()
        await server.close()
