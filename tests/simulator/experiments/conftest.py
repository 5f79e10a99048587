"""Runs that never happened: folders' facts with wanted figures in them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.results.summary_model import Distribution, EngineDelta, EngineSummary, Summary

S = 1_000_000_000


def same(value: float) -> Distribution:
    return Distribution(10, *[value] * 5)


@pytest.fixture
def made():
    """make(step, block, place, speed, ...) -> Measured."""

    def make(
        step: str,
        block: int,
        place: int,
        speed: float,
        *,
        e2e: dict[tuple[str, int], float] | None = None,
        reasons: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        virtual: bool = False,
        emulated: bool = False,
        ignored: tuple[str, ...] = (),
        model: str = "m",
        config: dict[str, Any] | None = None,
    ) -> Measured:
        nothing = {field.name: 0 if field.type in (int, float) else None for field in fields(Summary)}
        nothing |= {field.name: field.default for field in fields(Summary) if field.default is not NODEFAULT}
        summary = Summary(
            **nothing
            | {
                "schema": "x",
                "kind": "run",
                "status": "completed",
                "valid": not reasons,
                "invalid_reasons": reasons,
                "emulated": emulated,
                "output_tokens_per_s": speed,
                "ttft_s": same(1 / speed),
                "engine": EngineSummary(),
                "engine_delta": EngineDelta(),
                "failures": {},
            }
        )
        calls = {
            (session, 0, call): CallEnd(
                t=0, agent=0, session=session, thread=0, call=call, request_id="r", t_intended=0, t_end=round(s * S)
            )
            for (session, call), s in (e2e or {}).items()
        }
        run = {
            "seed": block,
            "wall_clock": 1000.0 + place,
            "route": "chat",
            "target": f"http://{step}",
            "virtual": virtual,
            "config": {"agents": 8} | (config or {}),
            "traces": [{"fingerprint": "f1"}],
            "engine": {
                "name": "vllm",
                "version": "0.32.0",
                "model": model,
                "emulation": {"gpu": "x", "ignored_flags": list(ignored)} if emulated else None,
                "resolved": {"cache_config.block_size": 16, "x.step": step} | (settings or {}),
            },
        }
        return Measured(Path(f"/runs/{block}-{step}"), run, summary, calls)

    return make
