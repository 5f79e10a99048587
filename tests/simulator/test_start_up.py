"""The command line starts quickly, loads only what it needs, and can be interrupted from its first moment on."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = {
    *("aiohttp", "asyncio", "httptools", "msgspec", "numpy", "prometheus_client", "pynvml", "textual", "tokenizers"),
    *("transformers", "uvloop", "windtunnel.tui", "zstandard", "windtunnel.simulator.run", "windtunnel.agents"),
}
TOKENIZERS = {"sentencepiece", "tiktoken", "tokenizers", "transformers", "windtunnel.simulator.emulator.tokenizer"}
STARTED = "import sys; from windtunnel.simulator.__main__ import main; sys.argv[0] = 'windtunnel'; main()"
LOADED = f"""
import json, sys
try:
    {STARTED}
finally:
    print(json.dumps(list(sys.modules)))
"""


def loaded(*args, cwd=None):
    """Names of the modules that a command line had loaded when it was over."""
    command = [sys.executable, "-c", LOADED, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["traces", "list", "--help"]])
def test_help_loads_nothing_heavy(args):
    names = loaded(*args)
    assert "windtunnel.simulator.cli" in names
    assert not names & HEAVY


def cpu_s(code, *args):
    """CPU time of a Python program, s: unlike the time it took, it hardly depends on who else is at work."""
    process = subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_help_costs_at_most_one_and_a_half_times_an_import_of_aiohttp():
    turns = [(cpu_s(STARTED, "--help"), cpu_s("import aiohttp")) for _ in range(4)]
    ours, theirs = (min(turn) for turn in zip(*turns, strict=True))
    assert ours <= 1.5 * theirs


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-m", "windtunnel.simulator.emulator.serve", "--gpu", "B200", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.terminate()
    process.communicate(timeout=10)


@pytest.mark.parametrize("api", ["chat", "tokens"])
def test_a_run_loads_no_tokenizer(server, api, tmp_path):
    """Tokens are counted by the engine beforehand; a run itself has nothing that could count any."""
    flags = "run library:small --agents 2 --calls 4 --max-context 4k --fit scale --pace none --ramp 0 --out run --api"
    names = loaded(*flags.split(), api, "--target", server, cwd=tmp_path)
    assert {"windtunnel.simulator.run.driver", "windtunnel.agents.client"} < names
    assert not names & TOKENIZERS
    assert json.loads((tmp_path / "run" / "summary.json").read_bytes())["calls"] == 4


def test_a_run_without_sockets_loads_nothing_for_them(tmp_path):
    flags = (
        "run library:small --virtual --agents 2 --calls 4 --max-context 4k --fit scale --pace none --ramp 0 --out run"
    )
    assert not loaded(*flags.split(), cwd=tmp_path) & {"aiohttp", "prometheus_client", "pynvml", "uvloop"}
    assert json.loads((tmp_path / "run" / "summary.json").read_bytes())["calls"] == 4


INTERRUPTED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
from windtunnel.simulator.__main__ import main
sys.meta_path.insert(0, Finder())
sys.argv = ["windtunnel", "run", "--calls", "1", "--agents", "1", "--target", "http://127.0.0.1:9"]
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        *("windtunnel.simulator.cli", "click", "windtunnel.simulator.cli_options", "windtunnel.simulator.run"),
        *("asyncio", "msgspec", "aiohttp", "numpy", "windtunnel.simulator.run.run", "windtunnel.traces.library"),
    ],
)
def test_an_interrupt_while_a_module_is_loaded(module):
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "windtunnel: interrupted")


def test_an_interrupt_with_nobody_to_tell():
    code = INTERRUPTED.format(module="click")
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (130, "")


def test_the_module_and_the_file_in_it_are_the_same_program():
    for module in ("windtunnel.simulator", "windtunnel.simulator.cli"):
        command = [sys.executable, "-m", module, "run", "--agents", "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (2, "windtunnel: --agents 0: at least one agent is needed\n")
