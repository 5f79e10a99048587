"""A real frontend of Dynamo with its own mocked worker, both on the CPU.

WINDTUNNEL_DYNAMO_PYTHON names an interpreter that has ai-dynamo (docs/engines.md), WINDTUNNEL_DYNAMO_MODEL a model folder
with a tokenizer; without them the test is skipped.
"""

import os
import shlex
from pathlib import Path

import aiohttp
import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.engines.base import detect
from windtunnel.simulator.engines.launch import Launched, group_alive
from windtunnel.simulator.run.run import Run
from windtunnel.traces.sources import load

from .agreement import assert_counters_agree

PYTHON, MODEL = os.environ.get("WINDTUNNEL_DYNAMO_PYTHON"), os.environ.get("WINDTUNNEL_DYNAMO_MODEL")
pytestmark = pytest.mark.skipif(
    not (PYTHON and MODEL), reason="WINDTUNNEL_DYNAMO_PYTHON and WINDTUNNEL_DYNAMO_MODEL name no Dynamo"
)
READY_S = 120.0


def command(folder: Path) -> str:
    """Frontend and worker in one process group; they find each other through files."""
    both = "--discovery-backend file --event-plane zmq"
    worker = (
        f"{PYTHON} -m dynamo.mocker --model-path {MODEL} --model-name tiny {both} "
        "--num-gpu-blocks-override 512 --block-size 16 --max-model-len 4096"
    )
    frontend = f"{PYTHON} -m dynamo.frontend --http-host 127.0.0.1 --http-port {{port}} {both}"
    script = f"{worker} & exec {frontend}"
    return f"HF_HUB_OFFLINE=1 DYN_FILE_KV={folder} TMPDIR={folder} sh -c {shlex.quote(script)}"


async def test_a_real_frontend_is_recognised_read_run_against_and_ended(tmp_path):
    (tmp_path / "kv").mkdir()
    engine = Launched.start(command(tmp_path / "kv"), tmp_path / "engine.log")
    try:
        async with aiohttp.ClientSession() as session:
            await engine.wait_ready(session, timeout_s=READY_S)
            adapter = await detect(engine.url, session)
            found = await adapter.probe(session, engine.url)
        assert (found.name, found.block_size, found.num_blocks, found.kv_tokens) == ("dynamo", 16, 512, 8192)
        seen = found.capabilities
        assert (seen.token_prompts, seen.ignore_eos, seen.continuous_usage, seen.metrics) == (True, True, True, True)
        assert (seen.return_token_ids, seen.cache_salt, seen.reset) == (False, False, False)
        assert engine.cold_start.total_s > 0
        words = ["--shape", "256x16", "--agents", "2", "--calls", "8", "--warmup", "0", "--out", str(tmp_path / "run")]
        config = config_of([*words, "--target", engine.url])
        summary = await Run(config, load(config.traces), screen=False, exit_when_done=True).on(engine.url, engine)
    finally:
        await engine.stop()
    assert not group_alive(engine.pid)
    assert (summary.status, summary.calls) == ("completed", 8)
    assert_counters_agree(tmp_path / "run", tokens=8 * 16)
