"""Real agents through the proxy, compared with what the scripted model behind it says it was asked.

Needs `../shared/clients` and agents installed by its `install.sh` under $CLIENTS_HOME; what is not there is skipped.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from truth import NEAR_S, compare, read_log, read_recording

from windtunnel.traces.check import faults
from windtunnel.traces.importers import import_path

pytestmark = pytest.mark.agents

CLIENTS = Path(__file__).resolve().parents[4] / "shared" / "clients"
LAB = Path(os.environ.get("CLIENTS_HOME", Path.home() / ".cache" / "windtunnel-clients"))
NAMES = ("claude", "codex", "opencode", "pi")
SCENARIOS = ("basic", "parallel", "subagent", "subagent2", "toolsearch", "flaky")
LOGS = {"claude": ".claude", "codex": ".codex/sessions", "opencode": ".local/share/opencode", "pi": ".pi"}
LATE_S = 0.25
"""A busy machine lets some processes wait: most times keep the tolerance, the worst may be off by so much."""


def available(client: str) -> None:
    if not CLIENTS.is_dir():
        pytest.skip("no scripts of real agents: ../shared/clients is absent")
    if not (LAB / client / "node_modules").is_dir():
        pytest.skip(f"{client} is not installed: CLIENTS_HOME={LAB} bash {CLIENTS}/install.sh {client}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def model(client: str, scenario: str, run: str, captures: Path) -> Iterator[str]:
    """The scripted model; its log is `captures/client/run.jsonl`."""
    port = free_port()
    python = LAB / "pytest" / "bin" / "python3"
    flags = ["--port", str(port), "--client", client, "--run", run, "--scenario", scenario, "--captures", str(captures)]
    process = subprocess.Popen([str(python), str(CLIENTS / "scripted_model.py"), *flags])
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def recording(upstream: str, out: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "record", "--upstream", upstream, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split(" at ")[1].split()[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def start(client: str, base: str, run: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "CLIENTS_HOME": str(LAB), "BASE_URL": base, "RUN_ID": run, "MODEL": "scripted-coder"}
    log = subprocess.DEVNULL
    return subprocess.Popen(["bash", str(CLIENTS / f"run_{client}.sh")], env=env, stdout=subprocess.PIPE, stderr=log)


def drive(client: str, base: str, *runs: str) -> list[tuple[int, bytes]]:
    """Exit code and output of each client; all run at once."""
    started = [start(client, base, run) for run in runs]
    outputs = [process.communicate(timeout=170)[0] for process in started]
    return [(p.returncode, out) for p, out in zip(started, outputs, strict=True)]


def check(log: Path, out: Path, sessions: int = 1) -> None:
    result = compare(log, out)
    late = [d for d in result.differences if " off by " in d]
    assert [d for d in result.differences if d not in late] == []
    assert result.asked
    assert median(result.starts) < NEAR_S
    assert median(result.ends) < NEAR_S
    assert max(*result.starts, *result.ends) < LATE_S
    if late:
        print(f"{len(late)} of {len(result.asked)} times off by more than {NEAR_S * 1e3:g} ms")
    _, traces, problems = read_recording(out)
    assert problems == []
    assert [faults(t) for t in traces] == [[]] * sessions


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("client", NAMES)
def test_the_recording_is_what_the_model_was_asked(client: str, scenario: str, tmp_path: Path) -> None:
    available(client)
    captures, out = tmp_path / "captures", tmp_path / "recording"
    with model(client, scenario, "r", captures) as upstream, recording(upstream, out) as base:
        ((code, _),) = drive(client, base, f"wt-{scenario}")
    assert code == 0
    check(captures / client / "r.jsonl", out)


@pytest.mark.parametrize("client", NAMES)
def test_two_sessions_at_once(client: str, tmp_path: Path) -> None:
    available(client)
    captures, out = tmp_path / "captures", tmp_path / "recording"
    with model(client, "subagent", "r", captures) as upstream, recording(upstream, out) as base:
        codes = [code for code, _ in drive(client, base, "wt-one", "wt-two")]
    assert codes == [0, 0]
    check(captures / client / "r.jsonl", out, sessions=2)


@pytest.mark.parametrize("client", NAMES)
def test_the_client_behaves_as_without_the_proxy(client: str, tmp_path: Path) -> None:
    """The same requests in the same order, with the same headers and fields, and the same kinds of output lines."""
    available(client)
    captures = tmp_path / "captures"
    with model(client, "parallel", "direct", captures) as upstream:
        ((code, direct),) = drive(client, upstream, "wt-same")
    with model(client, "parallel", "through", captures) as upstream, recording(upstream, tmp_path / "rec") as base:
        ((same_code, through),) = drive(client, base, "wt-same")
    assert same_code == code == 0
    logs = [captures / client / f"{run}.jsonl" for run in ("direct", "through")]
    assert shape(logs[1]) == shape(logs[0])
    assert sorted(kinds(through)) == sorted(kinds(direct))  # what parallel tools print has no order
    assert len(read_log(logs[0])) == len(read_log(logs[1]))


@pytest.mark.parametrize("client", NAMES)
def test_the_imported_log_agrees_with_the_recording(client: str, tmp_path: Path) -> None:
    """The client's own log of the same session: calls, tokens, sub-agents, and ends as near as clients write them."""
    available(client)
    captures, out = tmp_path / "captures", tmp_path / "recording"
    with model(client, "subagent2", "r", captures) as upstream, recording(upstream, out) as base:
        assert [code for code, _ in drive(client, base, "wt-log")] == [0]
    (imported,) = import_path(LAB / "homes" / f"{client}-wt-log" / LOGS[client]).traces
    _, (recorded,), _ = read_recording(out)
    turns = [c for c in recorded.calls if c.kind == "turn"]
    assert [c.usage.prompt for c in imported.calls] == [c.usage.prompt for c in turns]
    assert [c.usage.completion for c in imported.calls] == [c.usage.completion for c in turns]
    spawned = {t.tool_call_id for t in recorded.threads}
    assert {t.tool_call_id for t in imported.threads} == spawned
    assert len(imported.tool_runs) == len(recorded.tool_runs)
    assert [len(c.joins) for c in imported.calls] == [len(c.joins) for c in turns]
    between = (imported.header.started_at or 0.0) - (recorded.header.started_at or 0.0)
    ends = [abs(between + (a.end_s or 0.0) - (b.end_s or 0.0)) for a, b in zip(imported.calls, turns, strict=True)]
    assert max(ends) < LATE_S


def shape(log: Path) -> list[Any]:
    """Paths, header names in order, fields and numbers of messages: what does not change from run to run."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    skipped = ("content-length", "traceparent")
    return [
        (
            r["method"],
            r["path"],
            [k.lower() for k, _ in r["headers"] if k.lower() not in skipped],
            sorted(r.get("body") or ()),
            len((r.get("body") or {}).get("messages") or (r.get("body") or {}).get("input") or ()),
            r["status"],
        )
        for r in rows
        if r["method"] == "POST"
    ]


def kinds(output: bytes) -> list[str]:
    """The types of the events that a client prints as JSON lines."""
    found = []
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            found.append(event["type"])
    return found
