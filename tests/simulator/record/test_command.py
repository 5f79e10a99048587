"""`windtunnel record` as a person runs it: the agent owns the terminal, the recording is a run folder."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.record.clients import agent_name
from windtunnel.simulator.results.store import RunFolder
from windtunnel.traces.format import read_trace
from windtunnel.traces.model import Trace

from .conftest import Upstream, serving

RECORD = [sys.executable, "-m", "windtunnel.simulator.cli", "record"]
PAGE = b'# vLLM\nvllm:num_requests_running{engine="0"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
AGENT = """
import json, os, sys, urllib.request
def ask(n):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"question {n}, my key is {KEY}"}]}
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as answer:
        return answer.read().decode()
KEY = "c0ffee-this-is-a-secret-1234"
"""


class Server(Upstream):
    """A vLLM as far as a recording needs one; holds answers to prompts that say so until it is told to go on."""

    hold = threading.Event()
    mute = ""
    """The path that is not answered until then."""
    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        pages = {"/version": b'{"version": "0.32.0"}', "/metrics": PAGE}
        if self.path == self.mute:
            self.hold.wait(10)
        self.send(pages.get(self.path, b"{}"), 200 if self.path in pages else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append(body)
        events = [
            {"choices": [{"index": 0, "delta": {"content": "An answer."}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 12 * len(body["messages"]), "completion_tokens": 3}},
        ]
        data = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
        if "hold" in body["messages"][0]["content"]:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:100])
            self.wfile.flush()
            self.hold.wait(10)
            return
        self.send(data, 200, "text/event-stream")


@pytest.fixture
def server() -> Iterator[str]:
    Server.asked, Server.hold = [], threading.Event()
    with serving(Server) as url:
        yield url
        Server.hold.set()


def record(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RECORD, *args], capture_output=True, text=True, timeout=30, check=False, **more)


def traces(folder: Path) -> list[Trace]:
    return [t for p in sorted((folder / "traces").glob("*.jsonl")) for t in read_trace(p).traces]


def until(done: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_an_agent_owns_the_terminal_and_its_exit_code_is_ours(server: str, tmp_path: Path) -> None:
    agent = AGENT + 'print(ask(1)); print("to stderr", file=sys.stderr); sys.exit(7)'
    out = tmp_path / "rec"
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    assert result.returncode == 7
    said, mine, last = result.stderr.splitlines()
    assert said.startswith(f"recording {server} at http://127.0.0.1:")
    assert f"windtunnel view {out}" in said
    assert mine == "to stderr"
    assert last == f"recorded 1 call of 1 session in {out}"
    # the client sees no usage, the server was asked for it
    assert "usage" not in result.stdout
    assert result.stdout.rstrip().endswith("data: [DONE]")
    assert Server.asked[0]["stream_options"] == {"include_usage": True}
    (trace,) = traces(out)
    assert trace.header.source == f"recorded from {server}"
    assert (trace.calls[0].usage.prompt, trace.calls[0].usage.completion) == (12, 3)
    assert sorted(p.name for p in out.iterdir()) == ["events.jsonl", "run.json", "summary.json", "text.jsonl", "traces"]


def test_a_server_that_does_not_say_what_it_is_stops_no_recording(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "mute", "/version")
    out = tmp_path / "rec"
    seen = str(out / "events.jsonl")
    agent = AGENT + (
        f"import time; ask(1); time.sleep(2.2); print(open({seen!r}).read().count('heartbeat'), file=sys.stderr)"
    )
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    assert result.returncode == 0
    assert int(result.stderr.splitlines()[-2]) >= 2
    summary = RunFolder.open(out).summary()
    assert summary is not None
    assert (summary.status, summary.calls) == ("completed", 1)


def test_nothing_secret_is_written(server: str, tmp_path: Path) -> None:
    out = tmp_path / "rec"
    record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", AGENT + "ask(1)")
    files = [p for p in out.rglob("*") if p.is_file()]
    assert len(files) == 5
    assert RunFolder.open(out).run["argv"] == ["record", "--upstream", server, "--out", str(out), "--", sys.executable]
    for path in files:
        assert "c0ffee" not in path.read_text(), path
    (trace,) = traces(out)
    assert trace.blocks[0].text == "question 1, my key is [redacted]xxxxxxxxxxxxxxxxxx"


def test_the_recording_is_a_run_folder_with_the_engines_metrics(server: str, tmp_path: Path) -> None:
    agent = AGENT + "import time; ask(1); time.sleep(1.5)"
    out = tmp_path / "rec"
    record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    folder = RunFolder.open(out)
    assert (folder.run["kind"], folder.run["target"], folder.run["agents"]) == ("recording", server, 1)
    assert folder.run["engine"] == {"name": "vllm", "model": "m"}
    events = list(folder.events())
    samples = [e for e in events if isinstance(e, ev.EngineSample)]
    assert {(s.running, s.kv_usage) for s in samples} == {(3.0, 0.25)}
    assert sum(isinstance(e, ev.Heartbeat) for e in events) >= 2
    summary = folder.summary()
    assert summary is not None
    assert (summary.status, summary.calls, summary.output_tokens, summary.prompt_tokens) == ("completed", 1, 3, 12)
    shown = subprocess.run(
        [sys.executable, "-m", "windtunnel.simulator.cli", "view", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0
    assert "12" in shown.stdout


def test_a_kill_leaves_a_folder_that_holds_what_was_seen(server: str, tmp_path: Path) -> None:
    """SIGKILL of the proxy in the middle of a stream: the call that ended is whole, the other is kept as it stood."""
    out = tmp_path / "rec"
    process = subprocess.Popen(
        [*RECORD, "--upstream", server, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    base = process.stderr.readline().split(" at ")[1].split()[0]
    env = {**os.environ, "OPENAI_BASE_URL": f"{base}/v1"}
    subprocess.run([sys.executable, "-c", AGENT + "ask(1)"], env=env, check=True, timeout=20)
    held = subprocess.Popen(
        [sys.executable, "-c", AGENT.replace("question", "hold on") + "ask(2)"], env=env, stderr=subprocess.DEVNULL
    )
    until(lambda: len(Server.asked) == 2)
    time.sleep(0.4)  # longer than the proxy keeps what has come to itself
    process.send_signal(signal.SIGKILL)
    process.communicate()
    held.wait(10)
    until((out / "summary.json").exists)
    calls = [c for t in traces(out) for c in t.calls]
    assert [c.aborted for c in calls] == [False, True]
    summary = RunFolder.open(out).summary()
    assert summary is not None
    assert summary.status == "interrupted"


def test_config_lines_are_printed_where_no_agent_is_started(server: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RECORD, "--upstream", server, "--out", str(tmp_path / "rec"), "--port", "0", "--tag", "mine"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    base = process.stderr.readline().split(" at ")[1].split()[0]
    env = {**os.environ, "OPENAI_BASE_URL": f"{base}/v1"}
    subprocess.run([sys.executable, "-c", AGENT + "ask(1)"], env=env, check=True, timeout=20)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 0
    assert base.endswith("/tag/mine")
    assert f'base_url = "{base}/v1"\nwire_api = "responses"' in stdout
    assert f"ANTHROPIC_BASE_URL={base} OPENAI_BASE_URL={base}/v1" in stdout
    assert stderr == f"recorded 1 call of 1 session in {tmp_path / 'rec'}\n"
    (trace,) = traces(tmp_path / "rec")
    assert trace.header.id == "mine"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["claude", "-p", "do it"], "claude"),
        (["/usr/local/bin/pi", "--mode", "json"], "pi"),
        (["npx", "-y", "cline@3.1.0"], "cline"),
        (["env", "A=b", "python3", "tools/my_agent.py"], "my_agent"),
        (["python3", "-c", "print(1)"], ""),
        ([], ""),
    ],
)
def test_the_name_of_an_agent_that_does_not_say(command: list[str], name: str) -> None:
    assert agent_name(command) == name


def test_an_agent_that_reads_a_file_gets_its_lines_before_it_starts(server: str, tmp_path: Path) -> None:
    codex = tmp_path / "codex"
    codex.write_text("#!/bin/sh\necho started $1\n")
    codex.chmod(0o755)
    result = record("--upstream", server, "--out", str(tmp_path / "rec"), "--port", "0", "--", str(codex), "x")
    assert result.stdout == "started x\n"
    assert "[model_providers.windtunnel]" in result.stderr
    assert "opencode" not in result.stderr
    named = record("--upstream", server, "--out", str(tmp_path / "rec2"), "--", str(codex), "{base_url}/v1")
    assert named.stdout.startswith("started http://127.0.0.1:")
    assert "model_providers" not in named.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_agents(server: str, tmp_path: Path, number: signal.Signals) -> None:
    agent = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(33)); signal.signal(signal.SIGINT, lambda *_: sys.exit(34))\n"
        "print('ready', flush=True); time.sleep(20)"
    )
    command = [*RECORD, "--upstream", server, "--out", str(tmp_path / "rec"), "--", sys.executable, "-c", agent]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == (33 if number == signal.SIGTERM else 34)
    assert (tmp_path / "rec" / "summary.json").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--upstream", "ftp://x", "--", "true"], "no usable target"),
        (["--upstream", "http://127.0.0.1:9", "--", "no-such-agent-here"], "no-such-agent-here cannot be started"),
        (["--", "true"], "--upstream"),
    ],
)
def test_wrong_use_is_one_sentence(args: list[str], says: str, tmp_path: Path) -> None:
    result = record(*args, cwd=tmp_path)
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("windtunnel:")]
    assert len(lines) == 1
    assert says in lines[0]
    assert "Traceback" not in result.stderr


def test_a_recording_is_taken_up_again(server: str, tmp_path: Path) -> None:
    """The session goes on in its trace, `earlier` keeps what was written about the first part."""
    out = tmp_path / "rec"
    first = '{"role": "user", "content": "first question"}'
    for history in (f"[{first}]", f'[{first}, {{"role": "assistant", "content": "An answer."}}, {first}]'):
        agent = AGENT.replace('[{"role": "user", "content": f"question {n}, my key is {KEY}"}]', history) + "ask(1)"
        assert record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent).returncode == 0
    (trace,) = traces(out)
    assert [(c.base, c.keep) for c in trace.calls] == [(None, 0), (0, 1)]
    for folder in (out, out / "earlier" / "1"):
        summary = RunFolder.open(folder).summary()
        assert summary is not None
        assert (summary.status, summary.calls) == ("completed", 1)


def test_a_folder_that_holds_a_run_is_not_touched(server: str, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    result = record("--upstream", server, "--out", str(tmp_path), "--", "true")
    assert result.returncode == 2
    assert "already holds a run" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def small_files() -> None:
    """As on a full disk: no file grows beyond 8 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))


@pytest.mark.parametrize(("agents", "code"), [(0, 1), (5, 5)])
def test_a_full_disk_is_told_at_once_and_counted(server: str, tmp_path: Path, agents: int, code: int) -> None:
    out = tmp_path / "rec"
    agent = AGENT.replace("question {n}", "{n * (100 if n < 'c' else 9000)}") + (
        f"for n in 'abcdef': ask(n)\nimport time; time.sleep(0.5)\nprint('now', file=sys.stderr); sys.exit({agents})"
    )
    command = [sys.executable, "-c", agent]
    result = record("--upstream", server, "--out", str(out), "--", *command, preexec_fn=small_files)
    assert result.returncode == code
    assert len(Server.asked) == 6  # the agent has not noticed
    _, told, now, last = result.stderr.splitlines()
    full = f"cannot write to {out} (File too large)"
    assert told == f"{full}: nothing is recorded any more, the agents go on"
    assert now == "now"
    calls = sum(len(trace.calls) for trace in traces(out))
    assert calls == 2
    assert last == f"4 calls not recorded: {full}; the others are in {out}"
    shown = subprocess.run(
        [sys.executable, "-m", "windtunnel.simulator.cli", "view", "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    # The third was on the screen when its trace did not fit.
    assert (shown.returncode, json.loads(shown.stdout)["calls"]) == (0, 3)
    assert "died" not in shown.stdout + shown.stderr
    assert sorted(p.name for p in out.iterdir()) == ["events.jsonl", "run.json", "summary.json", "text.jsonl", "traces"]


@pytest.mark.parametrize("how", ["moved", "deleted", "deleted, between two calls"])
def test_a_folder_that_goes_away_is_told_at_once_and_counted(server: str, tmp_path: Path, how: str) -> None:
    """The agent's second and third call come after that; the last of the three cases does not wait to be told."""
    out, there = tmp_path / "rec", tmp_path / "there"
    does = f"os.rename({str(out)!r}, {str(there)!r})" if how == "moved" else f"shutil.rmtree({str(out)!r})"
    waits = "" if "," in how else "time.sleep(1.6); "
    agent = AGENT + (
        f"import os, shutil, time\nask('a'); time.sleep(0.5); {does}; {waits}print('now', file=sys.stderr, flush=True)\n"
        "ask('b'); ask('c'); time.sleep(0.5)"
    )
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    assert len(Server.asked) == 3
    lines = result.stderr.splitlines()[1:]
    went = f"the folder {out} was " + (f"moved to {there}" if how == "moved" else "deleted or moved away")
    why = f"{went} while the recording went on"
    told = f"{why}: nothing is recorded any more, the agents go on"
    assert sorted(lines[:2]) == sorted(["now", told])
    assert waits == "" or lines[0] == told
    kept = f"in {there}" if how == "moved" else "gone with it"
    assert lines[2:] == [f"2 calls not recorded: {why}; the others are {kept}"]
    assert result.returncode == 1
    if how == "moved":
        assert sum(len(trace.calls) for trace in traces(there)) == 1
        summary = RunFolder.open(there).summary()
        assert summary is not None
        assert (summary.calls, summary.status, summary.status_reason) == (1, "interrupted", why)
    assert not out.exists()


def test_a_writer_that_dies_is_told(server: str, tmp_path: Path) -> None:
    out = tmp_path / "rec"
    agent = (
        "import json, os, signal, sys, time\n"
        f"os.kill(json.load(open({str(out / 'run.json')!r}))['pid'], signal.SIGKILL); time.sleep(0.5)"
    )
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", agent)
    assert result.returncode == 1
    died = "the process that wrote the recording died"
    assert result.stderr.splitlines()[1:] == [
        f"{died}: nothing is recorded any more, the agents go on",
        f"calls are missing: {died}; the others are in {out}",
    ]


def test_a_folder_whose_name_is_no_text_is_recorded_to(server: str, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"caf\xe9")
    result = record("--upstream", server, "--out", str(out), "--", sys.executable, "-c", AGENT + "ask(1)")
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    folder = RunFolder.open(out)
    assert folder.run["run_dir"] == f"{tmp_path}/caf\ufffd"
    assert f"{tmp_path}/caf\ufffd" in folder.run["argv"]
    assert len(traces(out)) == 1
