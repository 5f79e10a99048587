"""A real llama.cpp server on the CPU.

WINDTUNNEL_LLAMA_SERVER is its command (the binary, or an interpreter and llama_server.py), WINDTUNNEL_LLAMA_MODEL a small
GGUF file (docs/engines.md); without them the tests are skipped.
"""

import os
from pathlib import Path

import aiohttp
import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.engines.base import detect, fetch
from windtunnel.simulator.engines.launch import Launched, group_alive
from windtunnel.simulator.run.run import Run
from windtunnel.traces.errors import EngineError
from windtunnel.traces.sources import load

from .agreement import assert_counters_agree

SERVER, MODEL = os.environ.get("WINDTUNNEL_LLAMA_SERVER"), os.environ.get("WINDTUNNEL_LLAMA_MODEL")
pytestmark = pytest.mark.skipif(
    not (SERVER and MODEL), reason="WINDTUNNEL_LLAMA_SERVER and WINDTUNNEL_LLAMA_MODEL name no llama-server"
)
READY_S = 120.0


def command(folder: Path, flags: str = "--cache-ram 0") -> str:
    return (
        f"{SERVER} -m {MODEL} --host 127.0.0.1 --port {{port}} --metrics --jinja --parallel 2 --ctx-size 4096 "
        f"--slot-save-path {folder} {flags}"
    )


async def test_a_real_server_is_recognised_read_reset_run_against_and_ended(tmp_path):
    engine = Launched.start(command(tmp_path), tmp_path / "engine.log")
    try:
        async with aiohttp.ClientSession() as session:
            await engine.wait_ready(session, timeout_s=READY_S)
            adapter = await detect(engine.url, session)
            found = await adapter.probe(session, engine.url)
            assert (found.name, found.max_model_len, found.kv_tokens) == ("llama.cpp", 2048, 4096)
            seen = found.capabilities
            assert seen.metrics
            assert seen.reset
            assert seen.prompt_token_details
            assert not seen.cache_salt
            body = {"prompt": "one two three", "max_tokens": 40, "ignore_eos": True, "temperature": 0}
            usage = (await fetch(session, f"{engine.url}/v1/completions", body)).record()["usage"]
            assert (usage["completion_tokens"] == 40) is seen.ignore_eos
            assert (await adapter.reset(session, engine.url))[0] is True
        words = ["--shape", "128x16", "--agents", "2", "--calls", "6", "--warmup", "0", "--out", str(tmp_path / "run")]
        config = config_of([*words, "--target", engine.url])
        summary = await Run(config, load(config.traces), screen=False, exit_when_done=True).on(engine.url, engine)
    finally:
        await engine.stop()
    assert not group_alive(engine.pid)
    assert (summary.status, summary.calls) == ("completed", 6)
    assert engine.cold_start.load_s is not None
    assert_counters_agree(tmp_path / "run", tokens=6 * 16)


async def test_a_cache_in_memory_keeps_a_reset_from_being_one(tmp_path):
    engine = Launched.start(command(tmp_path, "--cache-ram 64"), tmp_path / "engine.log")
    try:
        async with aiohttp.ClientSession() as session:
            await engine.wait_ready(session, timeout_s=READY_S)
            done, why = await (await detect(engine.url, session)).reset(session, engine.url)
    finally:
        await engine.stop()
    assert not done
    assert "--cache-ram 0" in why


async def test_a_model_that_is_not_there_is_named(tmp_path):
    line = command(tmp_path).replace(str(MODEL), "/no/such.gguf")
    engine = Launched.start(line, tmp_path / "engine.log")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineError, match=r"the model /no/such\.gguf could not be loaded"):
            await engine.wait_ready(session, timeout_s=READY_S)
    await engine.stop()
