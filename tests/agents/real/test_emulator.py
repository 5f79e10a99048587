"""Real agents talk to the emulator as to a vLLM: they take its answers, do what it asks for, and end.

Needs `../shared/clients` and agents installed by its `install.sh` under $CLIENTS_HOME; what is not there is skipped.
"""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_agents import NAMES, available, drive

pytestmark = pytest.mark.agents

SEEDS = 5


@contextmanager
def emulator(*flags: str) -> Iterator[str]:
    """The product's own command, with what a vLLM needs for agents; its address."""
    model = ["--gpu", "B200", "--model", "gpt-oss-20b", "--served-model-name", "scripted-coder"]
    parser = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "engine", "--port", "0", *model, *parser, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def totals(base: str) -> dict[str, float]:
    """Counters of `/metrics` by name and labels without the model's."""
    with urllib.request.urlopen(f"{base}/metrics", timeout=10) as response:
        page = response.read().decode()
    rows = re.findall(r"^vllm:(\w+)\{([^}]*)\} (\S+)$", page, re.MULTILINE)
    return {f"{name} {re.sub('(engine|model_name)=[^,]*,?', '', labels)}".strip(): float(n) for name, labels, n in rows}


@pytest.mark.parametrize("client", NAMES)
def test_an_agent_takes_an_answer_and_ends(client: str) -> None:
    available(client)
    with emulator() as base:
        ((code, out),) = drive(client, base, "wt-emulated")
        told = totals(base)
    assert code == 0
    assert out
    answers = told['request_success_total finished_reason="stop"']
    assert answers >= 1
    assert told["num_requests_running"] == told["num_requests_waiting"] == 0
    assert told["prompt_tokens_total"] > 1000 * answers / 2, "its instructions and tools were counted"


@pytest.mark.parametrize("client", NAMES)
def test_an_agent_carries_out_what_the_model_calls(client: str) -> None:
    available(client)
    for seed in range(SEEDS):
        with emulator("--tool-calls", "0.7", "--seed", str(seed)) as base:
            ((code, _),) = drive(client, base, "wt-called")
            told = totals(base)
        assert code == 0
        called = sum(n for name, n in told.items() if "tool_call_parser" in name and 'outcome="tool_call"' in name)
        if called:
            break
    assert called, "no answer was a call, whatever the seed"
    assert told['request_success_total finished_reason="stop"'] >= 2, "it came back with the result"
    assert told["prefix_cache_hits_total"] > 0, "and its prompt went on from the one before"
