"""A server that answers as a transcript says. The transcripts are written from an engine's sources, see their heads."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

from aiohttp import web

FOLDER = Path(__file__).parent / "transcripts"
ENGINES = ("sglang", "tensorrt-llm", "llama.cpp", "dynamo")


def load(engine: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{engine}.toml").read_text(encoding="utf-8"))


class Server:
    """`refuses`: request fields that end in a 400. `answers` may be replaced before it starts."""

    def __init__(self, engine: str) -> None:
        self.transcript = load(engine)
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {a["route"]: a for a in self.transcript["answer"]}
        self.stops_after: int | None = None
        self._random = itertools.count(1000)

    def app(self) -> web.Application:
        app = web.Application()
        for route in {*self.answers, *(page["route"] for page in self.transcript["page"])}:
            method, _, path = route.partition(" ")
            app.router.add_route(method, path, self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        route = f"{request.method} {request.path}"
        self.asked.append(route)
        for page in self.transcript["page"]:
            if page["route"] == route:
                return web.Response(text="\n".join(line for line, _ in page["lines"]) + "\n")
        answer, body = self.answers[route], {}
        if request.can_read_body:
            body = await request.json()
        if any(field in body for field in self.transcript["refuses"]):
            return web.json_response({"detail": "Extra inputs are not permitted"}, status=400)
        tokens = min(body.get("max_tokens", 0), self.stops_after or 1 << 30)
        texts = [self._filled(text, body, tokens) for text in answer.get("stream", [answer.get("body", "")])]
        if "stream" in answer:
            texts = [*(f"data: {text}\n\n" for text in texts), "data: [DONE]\n\n"]
        return web.Response(
            text="".join(texts), content_type=answer.get("type", "application/json"), status=answer.get("status", 200)
        )

    def _filled(self, text: str, body: dict[str, Any], tokens: int) -> str:
        while "%RANDOM%" in text:
            text = text.replace("%RANDOM%", str(next(self._random)), 1)
        prompt = body.get("prompt")
        return text.replace("%PROMPT%", str(len(prompt or []))).replace("%TOKENS%", str(tokens))
