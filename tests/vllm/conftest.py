"""Starts and stops the real vLLM on the CPU for the tests, through the product's own launcher.

WINDTUNNEL_VLLM_PYTHON names the interpreter of the environment that vLLM is installed in (`make test-vllm` sets it);
without it the tests are skipped.
"""

import asyncio
import json
import os
import shlex
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from windtunnel.simulator.engines.launch import Launched

MODEL = "tiny"
READY_S = 240.0
ENVIRONMENT = "HF_HUB_OFFLINE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1"


def python() -> str:
    """The interpreter that has vLLM."""
    path = os.environ.get("WINDTUNNEL_VLLM_PYTHON")
    if not path:
        pytest.skip("WINDTUNNEL_VLLM_PYTHON names no interpreter with vLLM (make test-vllm sets it)")
    assert Path(path).exists(), f"WINDTUNNEL_VLLM_PYTHON={path}: there is no such file"
    return path


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The tiny model, made once per machine, user and version of its recipe."""
    recipe = Path(__file__).with_name("tiny_model.py")
    version = zlib.crc32(recipe.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"windtunnel-tiny-model-{os.getuid()}-{version:08x}"
    subprocess.run([python(), str(recipe), str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def vllm_command(model_folder: Path) -> Callable[..., str]:
    """Command line with {port}, as a user would write it after --engine.

    With `step_log` the scheduler writes there what it decides (step_log.py); `drafts`: n-gram speculation, so many.
    """

    def command(
        *,
        max_model_len: int,
        blocks: int | None = None,
        block_size: int | None = None,
        drafts: int | None = None,
        step_log: Path | None = None,
    ) -> str:
        flags = [
            f"--model {model_folder} --served-model-name {MODEL} --host 127.0.0.1 --port {{port}}",
            "--load-format dummy --enforce-eager --dtype bfloat16 --generation-config vllm",
            f"--enable-prompt-tokens-details --enable-per-request-metrics --max-model-len {max_model_len}",
        ]
        flags += [f"--num-gpu-blocks-override {blocks}"] if blocks else []
        flags += [f"--block-size {block_size}"] if block_size else []
        if drafts:
            speculation = {"method": "ngram", "num_speculative_tokens": drafts, "prompt_lookup_max": 4}
            flags.append(f"--speculative-config {shlex.quote(json.dumps(speculation))}")
        environment = ENVIRONMENT
        if step_log:
            flags.append("--scheduler-cls step_log.Logged")
            environment += f" PYTHONPATH={Path(__file__).parent} WINDTUNNEL_STEP_LOG={step_log}"
        return f"{environment} {python()} -W ignore -m vllm.entrypoints.openai.api_server {' '.join(flags)}"

    return command


@pytest.fixture(scope="session")
def vllm(vllm_command: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Call with max_model_len and blocks: the URL of a server like that. One runs at a time, kept while the same is asked."""
    running: dict[tuple[tuple[str, int | Path | None], ...], Launched] = {}

    def stop() -> None:
        for engine in running.values():
            asyncio.run(engine.stop())
        running.clear()

    def serve(**settings: int | Path | None) -> str:
        key = tuple(sorted(settings.items()))
        if key not in running:
            stop()
            log = tmp_path_factory.mktemp("vllm") / "engine.log"
            running[key] = Launched.start(vllm_command(**settings), log)
            asyncio.run(ready(running[key]))
        return running[key].url

    try:
        yield serve
    finally:
        stop()


async def ready(engine: Launched) -> None:
    async with aiohttp.ClientSession() as session:
        await engine.wait_ready(session, timeout_s=READY_S)


@pytest.fixture
def vllm_url(vllm: Callable[..., str]) -> str:
    """A server with a context of 4,096 tokens and plenty of blocks."""
    return vllm(max_model_len=4096)
