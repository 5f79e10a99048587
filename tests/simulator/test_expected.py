"""What is named against a limit of an emulated engine is something that the emulator can be moved by."""

import pytest

from windtunnel.simulator.diagnose import levers_left
from windtunnel.simulator.experiments.tries import tries

EMULATED = {"name": "windtunnel-emulator", "emulated": True}
REAL = {"name": "vllm", "emulated": False}
OFFLOAD = "--kv-offloading-size"


def named(command: str, engine: dict) -> bool:
    run = {"engine": engine, "config": {"engine": command}}
    return any(lever.flag == OFFLOAD for lever in levers_left(run, "kv_capacity", {}))


@pytest.mark.parametrize(
    ("flags", "able"),
    [
        ("--gpu h100 --model llama-3.1-8b", True),
        ("--gpu h100 --model gpt-oss-20b", False),  # groups of layers with windows
        ("--gpu gb300-desk --model qwen3.5-27b", False),  # recurrent state
        ("--gpu gb10 --model llama-3.1-8b --max-model-len 32k", False),  # no memory but the GPU's
        ("--gpu gb300-desk --model llama-3.1-8b", True),
    ],
)
def test_an_offload_is_named_where_it_is_modelled(flags: str, able: bool) -> None:
    command = f"emulator {flags}"
    assert named(command, EMULATED) is able
    found = tries("kv_capacity", command, {"engine": EMULATED})
    assert any(OFFLOAD in tried.flags for tried in (*found.pulled, *found.further)) is able
    assert not any(OFFLOAD in text for text in found.left_out)


def test_of_a_real_engine_it_stays_named() -> None:
    assert named("vllm serve openai/gpt-oss-20b", REAL)
