"""Routes that tell about the engine, and the one that empties its prefix cache."""

import os
import secrets
from time import time

from aiohttp import web

from windtunnel.simulator.emulator.about import describe, labels
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings
from windtunnel.simulator.emulator.routes_generate import answer

_PERMISSION = {
    "object": "model_permission",
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


class State:
    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._started = int(time())

    def add(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", self.models)
        router.add_get("/health", self.health)
        router.add_route("*", "/ping", self.health)
        router.add_get("/version", self.version)
        router.add_get("/metrics", self.metrics)
        router.add_get("/load", self.load)
        # vLLM has these two with VLLM_SERVER_DEV_MODE=1 only; here they are there unless it is 0.
        if os.environ.get("VLLM_SERVER_DEV_MODE") != "0":
            router.add_get("/server_info", self.server_info)
            router.add_post("/reset_prefix_cache", self.reset_prefix_cache)

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return answer({"version": f"{VLLM_VERSION}+windtunnel.emulator"})

    async def models(self, _: web.Request) -> web.Response:
        shared = {
            "object": "model",
            "created": self._started,
            "owned_by": "windtunnel-emulator",
            "root": self._settings.model.name,
            "parent": None,
            "max_model_len": self._settings.limits.max_model_len,
            "permission": [_PERMISSION | {"id": f"modelperm-{secrets.token_hex(8)}", "created": self._started}],
        }
        return answer({"object": "list", "data": [{"id": name} | shared for name in self._settings.served]})

    async def load(self, _: web.Request) -> web.Response:
        return answer({"server_load": self._engine.in_flight if self._settings.load_tracking else 0})

    async def metrics(self, _: web.Request) -> web.Response:
        page = self._engine.metrics.page() + self._lateness()
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})

    def _lateness(self) -> str:
        """Beside vLLM's names: whether this machine holds the pace that the model of the GPU sets."""
        engine = self._engine
        rows = (
            ("step_late_seconds", "gauge", "Worst delay between a step's end and its tokens.", engine.late_ns),
            ("step_seconds_total", "counter", "Length of all steps, as modelled.", engine.steps_ns),
            ("step_behind_seconds_total", "counter", "Delays beyond a timer's tick, summed.", engine.behind_ns),
        )
        return "".join(
            f"# HELP windtunnel:{name} {text}\n# TYPE windtunnel:{name} {kind}\nwindtunnel:{name} {ns / 1e9}\n"
            for name, kind, text, ns in rows
        )

    async def reset_prefix_cache(self, http: web.Request) -> web.Response:
        preempt = http.query.get("reset_running_requests", "").lower() in ("true", "1")
        return answer({"success": self._engine.reset_prefix_cache(preempt=preempt)})

    async def server_info(self, http: web.Request) -> web.Response:
        config = describe(self._settings)
        as_json = http.query.get("config_format") == "json"
        shown = config if as_json else " ".join(f"{key}={value}" for key, value in config.items())
        return answer({"vllm_config": shown, "emulator": labels(self._settings)})
