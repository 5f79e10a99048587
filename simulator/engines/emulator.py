"""The emulator speaks vLLM's routes and metric names; beside them it says that it is one, and of what hardware."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.simulator.engines.base import Resolved, Seen, fetch, root_of
from windtunnel.simulator.engines.vllm import METRICS, Vllm

if TYPE_CHECKING:
    import aiohttp


class Emulator:
    name = "windtunnel-emulator"
    metric_names: Mapping[str, str] = {
        **METRICS,
        "windtunnel:step_seconds": "step_s",
        "windtunnel:step_behind_seconds": "behind_s",
    }

    metrics_path = "/metrics"
    prefixes: tuple[str, ...] = ("windtunnel:",)

    def __init__(self) -> None:
        self._vllm = Vllm()

    def recognises(self, seen: Seen) -> bool:
        return seen.version is not None and "windtunnel" in seen.version

    async def probe(
        self, session: "aiohttp.ClientSession", base_url: str, model: str | None = None, *, quiet: bool = False
    ) -> Resolved:
        resolved = await self._vllm.probe(session, base_url, model, quiet=quiet)
        told = await emulation(session, base_url)
        return msgspec.structs.replace(resolved, name=self.name, emulated=True, emulation=told)

    async def reset(self, session: "aiohttp.ClientSession", base_url: str) -> tuple[bool, str]:
        return await self._vllm.reset(session, base_url)


async def emulation(session: "aiohttp.ClientSession", base_url: str) -> dict[str, Any] | None:
    """What it says of itself, which every result of it is labelled with: GPU, model, how sure its times are."""
    info = (await fetch(session, f"{root_of(base_url)}/server_info?config_format=json")).record()
    told = info.get("emulator")
    return told if isinstance(told, dict) else None
