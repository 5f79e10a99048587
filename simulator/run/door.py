"""The routes that a run's preparation asks, answered in the same process: what `aiohttp` would bring, without sockets.

`Link.session` for runs on the virtual clock. Only what is not measured comes through here.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from windtunnel.simulator.emulator.ask import Refusal, TokenizeAsk, check_model, rendered
from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.template import Renderer
from windtunnel.simulator.emulator.tokenizer import Vocabulary

ROOT = "http://virtual"
"""Stands where a server's address stands."""


class Response:
    """As much of an answer as is looked at."""

    def __init__(self, status: int, body: object) -> None:
        self.status = status
        self._body = msgspec.json.encode(body)

    @property
    def content(self) -> "Response":
        return self

    async def readany(self) -> bytes:
        """All of it, then nothing."""
        body, self._body = self._body, b""
        return body


class Door:
    def __init__(self, settings: Settings, core: Core, template: Renderer, tokenizer: Vocabulary) -> None:
        self._settings = settings
        self._core = core
        self._template = template
        self._tokenizer = tokenizer
        self._tokenize = msgspec.json.Decoder(TokenizeAsk)

    @asynccontextmanager
    async def request(
        self, verb: str, url: str, *, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Response]:
        """As `aiohttp.ClientSession.request`."""
        del headers
        path = urlsplit(url).path
        try:
            if (verb, path) == ("POST", "/tokenize"):
                answer = Response(200, self._tokens(self._tokenize.decode(data or b"")))
            elif (verb, path) == ("POST", "/reset_prefix_cache"):
                answer = Response(200, {"success": self._core.reset_prefix_cache()})
            else:
                answer = Response(404, {"error": {"message": "Not Found", "type": "NotFoundError"}})
        except Refusal as refusal:
            answer = Response(refusal.status, refusal.body)
        yield answer

    def _tokens(self, ask: TokenizeAsk) -> dict[str, Any]:
        check_model(ask.model, self._settings)
        if ask.messages is not None:
            tokens = rendered(ask, self._template)
        else:
            tokens = self._tokenizer.encode(ask.prompt or "", special=ask.add_special_tokens is not False)
        ids = tokens.tolist()
        strings = self._tokenizer.strings(ids) if ask.return_token_strs else None
        body = {"count": len(ids), "max_model_len": self._settings.limits.max_model_len}
        return body | {"tokens": ids, "token_strs": strings}
