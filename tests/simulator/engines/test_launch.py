"""Real processes: an engine is started, watched and stopped, and nothing of it survives the run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from windtunnel.simulator.engines import launch, signatures
from windtunnel.simulator.engines.launch import Launched, expand, group_alive
from windtunnel.traces.errors import EngineError, UsageError

SERVER = """
import http.server, json, os, subprocess, sys
port, worker_file = int(sys.argv[1]), sys.argv[2]
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(worker_file, "w").write(str(worker.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "m"}]} if self.path == "/v1/models" else {}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
print("loading the weights", os.environ.get("FLAVOUR"), flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.fixture
def command(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    return f"FLAVOUR=vanilla {sys.executable} {tmp_path}/server.py {{port}} {tmp_path}/worker.pid"


async def test_start_serve_stop(command, tmp_path):
    told: list[str] = []
    engine = Launched.start(command, tmp_path / "run" / "engine.log")
    async with aiohttp.ClientSession() as session:
        await engine.wait_ready(session, timeout_s=20, progress=told.append)
    assert engine.exited() is None
    assert str(engine.port) in engine.command
    assert engine.last_line() == "loading the weights vanilla"
    assert engine.log_lines_since(0) == ["loading the weights vanilla"]
    assert engine.log_lines_since(engine.log_mark()) == []
    worker = int((tmp_path / "worker.pid").read_text())
    assert alive(worker)
    assert await engine.stop() == 128 + signal.SIGTERM
    assert not group_alive(engine.pid)
    assert not alive(worker)


async def test_a_cold_start_is_timed_by_the_logs_lines(tmp_path):
    (tmp_path / "server.py").write_text(
        "import sys, time\n"
        "print('INFO Starting to load model m...', flush=True); time.sleep(0.5)\n"
        "print('INFO Model loading took 1.25 GiB memory and 0.437500 seconds', flush=True)\n"
        "print('INFO init engine (profile, create kv cache, warmup model) took 0.20 s', flush=True)\n"
        + SERVER.replace("sys.argv[2]", "sys.argv[0] + '.pid'")
    )
    engine = Launched.start(f"{sys.executable} {tmp_path}/server.py {{port}}", tmp_path / "engine.log")
    assert engine.cold_start is None
    async with aiohttp.ClientSession() as session:
        await engine.wait_ready(session, timeout_s=20)
    await engine.stop()

    found = engine.cold_start
    assert found.load_s >= 0.2
    assert (found.compile_s, found.capture_s) == (None, None)
    assert found.start_s + found.load_s + found.ready_s == pytest.approx(found.total_s, abs=0.01)
    assert found.told == {"load": 0.438, "init": 0.2}


async def test_the_next_start_waits_until_the_gpus_memory_is_free(tmp_path):
    """A driver gives an engine's memory back some time after the process is gone."""
    told = iter([5 << 30, 80 << 30, 30 << 30, (5 << 30) + (100 << 20)])
    engine = Launched.start("sleep 600 {port}", tmp_path / "engine.log", gpu_memory=lambda: next(told))
    await engine.stop()
    assert next(told, None) is None


async def test_gpu_memory_that_stays_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "GPU_FREE_S", 0.0)
    told = iter([1 << 30, 21 << 30, 21 << 30])
    engine = Launched.start("sleep 600 {port}", tmp_path / "engine.log", gpu_memory=lambda: next(told))
    with pytest.raises(EngineError, match=r"the GPU holds 20\.0 GiB more than before"):
        await engine.stop()


async def test_without_a_gpu_nothing_is_waited_for(tmp_path):
    engine = Launched.start("sleep 600 {port}", tmp_path / "engine.log", gpu_memory=lambda: None)
    assert await engine.stop() == 128 + signal.SIGTERM


async def test_kill_9_of_the_run_leaves_no_orphan(command, tmp_path):
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import sys, time; from pathlib import Path; from windtunnel.simulator.engines.launch import Launched;"
                "print(Launched.start(sys.argv[1], Path(sys.argv[2])).pid, flush=True); time.sleep(600)"
            ),
            command,
            str(tmp_path / "engine.log"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    with run:
        pid = int(run.stdout.readline())
        deadline = time.monotonic() + 10
        while not (tmp_path / "worker.pid").exists() or not (tmp_path / "worker.pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        worker = int((tmp_path / "worker.pid").read_text())
        assert alive(pid)
        run.kill()
    assert gone(pid)
    assert gone(worker)


async def test_an_engine_that_exits_gives_its_reason(tmp_path):
    engine = Launched.start(
        f"{sys.executable} -c \"import sys; print('error: unrecognized arguments: --max-seqs 4'); sys.exit(2)\" {{port}}",
        tmp_path / "engine.log",
    )
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineError, match=r"exited before it served: .*does not know the flag --max-seqs 4"):
            await engine.wait_ready(session, timeout_s=20)
    assert await engine.stop() == 2


async def test_an_engine_that_never_serves_is_given_up(tmp_path):
    engine = Launched.start("sleep 600 {port}", tmp_path / "engine.log")
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineError, match=r"did not serve within 0 s"):
            await engine.wait_ready(session, timeout_s=0)
    await engine.stop()


def test_a_command_that_does_not_exist(tmp_path):
    with pytest.raises(EngineError, match=r"'no-such-engine': No such file or directory; install it"):
        Launched.start("no-such-engine --port {port}", tmp_path / "engine.log")


async def test_an_engine_deaf_to_sigterm_is_killed(tmp_path):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    engine = Launched.start(f'{sys.executable} -c "{script}" {{port}}', tmp_path / "engine.log", grace_s=0.1)
    while engine.last_line() != "up":
        time.sleep(0.02)
    assert await engine.stop() == 128 + signal.SIGKILL
    assert not group_alive(engine.pid)


def test_a_command_needs_a_place_for_its_port():
    with pytest.raises(UsageError, match=r"needs \{port\}"):
        expand("vllm serve some-model --port 8000")
    with pytest.raises(UsageError, match="quotes do not match"):
        expand("vllm serve 'some-model")


def test_the_emulator_in_short_form():
    own = expand("emulator --gpu H100")
    assert own == f"{sys.executable} -m windtunnel.simulator.cli engine --gpu H100 --port '{{port}}'"
    assert expand(None) == f"{sys.executable} -m windtunnel.simulator.cli engine --port '{{port}}'"
    assert expand("emulator --port {port}").count("--port") == 1
    assert expand("vllm serve m --port {port}") == "vllm serve m --port '{port}'"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("usage: x\napi_server.py: error: unrecognized arguments: --foo 3", "does not know the flag --foo 3"),
        (
            "windtunnel engine: unrecognized arguments: --foo; see windtunnel engine --help.",
            "the engine does not know the flag --foo; correct the command",
        ),
        (
            "windtunnel engine: argument --gpu: expected one argument; see windtunnel engine --help.",
            "the engine refuses the flag --gpu (expected one argument); correct the command",
        ),
        ("OSError: [Errno 98] Address already in use", "port is taken"),
        (
            (
                "(EngineCore pid=7) ERROR 11-29 14:46:30 [core.py:1] ValueError: Free memory on device cuda:0 (1.2/139 GiB) on "
                "startup is less than desired GPU memory utilization"
            ),
            "another process holds memory of the GPU (cuda:0)",
        ),
        (
            (
                "ValueError: To serve at least one request with the model's max seq len (131072), (4.0 GiB KV cache is needed, "
                "which is larger than the available KV cache memory (1 GiB). Based on the available memory, the estimated "
                "maximum model length is 30720. Try"
            ),
            "too small for a context of 131072 tokens; start with --max-model-len 30720",
        ),
        (
            "RuntimeError: Worker failed with error 'No common block size for 7 (CPU_ATTN: [MultipleOf(32)]).'",
            "block size 7",
        ),
        ("Repo id must be in the form 'repo_name' or 'a/b': '/no/such/model'. Use", "there is no model /no/such/model"),
        (
            "ValueError: No available memory for the cache blocks. Try increasing",
            "no memory is left for the KV cache; raise --gpu-memory-utilization",
        ),
        (
            "ERROR [emulator] No available memory for the cache blocks: Llama-3.1 needs 131.4 GiB; try another --gpu.\n",
            "no memory is left for the KV cache: Llama-3.1 needs 131.4 GiB; try another --gpu",
        ),
        (
            (
                "(EngineCore pid=7) ERROR 11-29 14:46:30 [core.py:1] AssertionError: head size 33 is odd\n"
                "Traceback (most recent call last):\n"
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
            ),
            "AssertionError: head size 33 is odd",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "died without a word",
        ),
        ("starting\nall well\nsegmentation fault", "exit code 9, its last words: segmentation fault"),
        ("", "exit code 9, nothing in its log"),
    ],
)
def test_the_reason_is_the_root_cause(log, said):
    assert said in signatures.reason(log, 9)


def test_compilation_is_seen_in_a_log_and_its_absence_is_not():
    assert signatures.compiling(
        [
            "(Worker pid=1) WARNING kernel JIT compilation during inference: _fwd. This causes a latency spike",
            "INFO Starting torch.compile",
            "INFO Graph capturing finished in 5 secs, took 0.4 GiB",
            "WARNING Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.",
            "INFO Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn.",
            "WARNING Inductor compilation was disabled by user settings",
            "INFO Engine 000: Avg prompt throughput: 100 tokens/s",
        ]
    ) == [
        "(Worker pid=1) WARNING kernel JIT compilation during inference: _fwd. This causes a latency spike",
        "INFO Starting torch.compile",
        "INFO Graph capturing finished in 5 secs, took 0.4 GiB",
    ]
