"""The process: start, port, signals, parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "windtunnel.simulator.emulator.serve", "--gpu", "b200", "--model", "gpt-oss-20b"]


def start(*flags: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, int(process.stdout.readline())


def test_it_prints_its_port_serves_and_stops_on_sigterm_with_a_request_in_flight() -> None:
    process, port = start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            assert answer.status == 200
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps({"prompt": "x", "max_tokens": 50_000, "ignore_eos": True, "stream": True}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            assert b"200 OK" in client.recv(4096)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            while client.recv(65536):
                pass
        _, log = process.communicate(timeout=5)
        assert time.monotonic() - begun < 1.5
    finally:
        process.kill()
    assert process.returncode == 0
    assert "GPU KV cache size: " in log
    assert "Maximum concurrency for 131,072 tokens per request: " in log
    assert "Application startup complete." in log
    assert "Traceback" not in log


def test_a_port_in_use_is_said_as_vllm_says_it() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        done = subprocess.run(
            [*COMMAND, "--port", str(busy.getsockname()[1])], capture_output=True, text=True, timeout=20, check=False
        )
    assert done.returncode == 1
    assert "Errno 98" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use_ends_with_2_and_one_sentence() -> None:
    done = subprocess.run([*COMMAND, "--prot", "1"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "unrecognized arguments: --prot" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's death on Linux only")
def test_it_does_not_outlive_its_parent() -> None:
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({[*COMMAND, '--port', '0', '--exit-with-parent']!r}, stdout=subprocess.PIPE, text=True)\n"
        "print(child.pid, child.stdout.readline().strip(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    pid, _port = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the emulator outlived its parent")
