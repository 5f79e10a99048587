"""Routes that tell about the engine, and the one that empties its prefix cache."""

import os
import secrets
from time import time
from typing import Any

from aiohttp import web

from windtunnel.simulator.emulator.assumptions import assumptions
from windtunnel.simulator.emulator.engine import Engine
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings
from windtunnel.simulator.emulator.profile import Profile
from windtunnel.simulator.emulator.routes_generate import answer
from windtunnel.simulator.emulator.steptime import ERROR_BAR

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
            "prefix_caching_hash_algo": "sha256",
            "prefix_match_unit": None,
            "sliding_window": limits.window or None,
            "mamba_cache_mode": settings.mamba_mode,
            "mamba_ssm_cache_dtype": settings.mode.ssm_dtype,
            "num_cpu_blocks": None,
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
        "speculative_config": _speculative(settings),
        "mamba_config": {
            "backend": settings.mode.mamba_backend,
            "enable_stochastic_rounding": settings.mode.stochastic_rounding,
        },
        "offload_config": {"kv_offload_blocks": limits.offload_blocks},
    }


def _error(profile: Profile) -> float:
    """Of runs that the profile was not fitted to, where there were any."""
    error = profile.error
    return error.in_sample if error.held_out is None else error.held_out


def _speculative(settings: Settings) -> dict[str, Any] | None:
    drafted = settings.speculation
    return None if drafted is None else {"method": drafted.method, "num_speculative_tokens": drafted.k}


def labels(settings: Settings) -> dict[str, Any]:
    """What every result of this engine must be labelled with."""
    profile = settings.profile
    return {
        "emulated": True,
        "emulates": f"vLLM {VLLM_VERSION}",
        "gpu": settings.gpu.name,
        "gpu_source": settings.gpu.source,
        "model": settings.model.name,
        "model_source": settings.model.source,
        "fit": settings.reached.fit if profile is None else profile.label,
        "calibrated": profile is not None,
        "unverified": list(settings.unverified),
        "error_bar": ERROR_BAR if profile is None else _error(profile),
        "assumptions": [
            {"name": name, "value": value, "source": source} for name, value, source in assumptions(settings)
        ],
        "omp_threads": settings.mode.threads,
        "ignored_flags": list(settings.ignored),
    }
