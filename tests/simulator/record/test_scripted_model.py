"""A small agent of our own against the scripted model, through `windtunnel record`: the whole way, on each API.

The scripted model walks through a task with the client's own tools and logs what it was asked; the agent pretends to
run them. Sub-agents run at once, in threads, and refused requests are sent again as they were.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from truth import compare, read_recording

CLIENTS = Path(__file__).resolve().parents[4] / "shared" / "clients"
LATE_S = 0.2
"""Times on a busy machine; the tolerance proper is tested with the real agents."""
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TASK = {
    "type": "object",
    "properties": {"description": {"type": "string"}, "prompt": {"type": "string"}},
    "required": ["description", "prompt"],
}


class Agent:
    """One conversation on one API. `headers` name its session, where it has a name."""

    def __init__(self, api: str, port: int, headers: dict[str, str]) -> None:
        self.api, self.port, self.headers = api, port, headers

    def run(self, prompt: str, **more: str) -> str:
        history = [self.user(prompt)]
        while True:
            text, calls, wrote = self.ask(history, more)
            history += wrote
            if not calls:
                return text
            with ThreadPoolExecutor() as pool:
                results = list(pool.map(self.use, calls))
            history += [self.result(call, result) for call, result in zip(calls, results, strict=True)]

    def use(self, call: tuple[str, str, dict[str, Any]]) -> str:
        _, name, arguments = call
        return self.run(arguments["prompt"]) if name == "task" else f"{arguments} done"

    def user(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    def result(self, call: tuple[str, str, dict[str, Any]], text: str) -> dict[str, Any]:
        if self.api == "chat":
            return {"role": "tool", "tool_call_id": call[0], "content": text}
        if self.api == "messages":
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call[0], "content": text}]}
        return {"type": "function_call_output", "call_id": call[0], "output": text}

    def body(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        named = (("bash", SHELL), ("task", TASK))
        if self.api == "chat":
            tools = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in named]
            return {"model": "m", "stream": True, "messages": history, "tools": tools}
        if self.api == "messages":
            tools = [{"name": n, "input_schema": p} for n, p in named]
            return {"model": "m", "stream": True, "max_tokens": 99, "messages": history, "tools": tools}
        tools = [{"type": "function", "name": n, "parameters": p} for n, p in named]
        return {"model": "m", "stream": True, "input": history, "tools": tools}

    def ask(self, history: list[dict[str, Any]], more: dict[str, str]) -> tuple[str, list[Any], list[dict[str, Any]]]:
        data = json.dumps(self.body(history)).encode()
        head = {"Content-Type": "application/json", "Authorization": "Bearer local", **self.headers, **more}
        while True:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("POST", PATHS[self.api], data, head)
            answer = connection.getresponse()
            said = answer.read().decode()
            connection.close()
            if answer.status == 200:
                break
        events = [json.loads(line[6:]) for line in said.split("\n") if line.startswith("data: {")]
        return getattr(self, f"read_{self.api}")(events)

    def read_chat(self, events: list[dict[str, Any]]) -> tuple[str, list[Any], list[dict[str, Any]]]:
        text, calls = "", {}
        for event in events:
            assert "usage" not in event
            delta = event["choices"][0]["delta"]
            text += delta.get("content") or ""
            for part in delta.get("tool_calls", []):
                call = calls.setdefault(part["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] = part.get("id", call.get("id"))
                for key, value in part["function"].items():
                    call["function"][key] += value
        whole = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls.values()]
        message = {"role": "assistant", "content": text}
        return text, whole, [message | ({"tool_calls": list(calls.values())} if calls else {})]

    def read_messages(self, events: list[dict[str, Any]]) -> tuple[str, list[Any], list[dict[str, Any]]]:
        blocks: dict[int, dict[str, Any]] = {}
        inputs: dict[int, str] = {}
        for event in events:
            if event["type"] == "content_block_start":
                blocks[event["index"]] = event["content_block"]
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                if delta["type"] == "text_delta":
                    blocks[event["index"]]["text"] += delta["text"]
                else:
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
        for index, text in inputs.items():
            blocks[index]["input"] = json.loads(text)
        content = list(blocks.values())
        calls = [(b["id"], b["name"], b["input"]) for b in content if b["type"] == "tool_use"]
        text = "".join(b["text"] for b in content if b["type"] == "text")
        return text, calls, [{"role": "assistant", "content": content}]

    def read_responses(self, events: list[dict[str, Any]]) -> tuple[str, list[Any], list[dict[str, Any]]]:
        (final,) = (e["response"]["output"] for e in events if e["type"] == "response.completed")
        calls = [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in final if i["type"] == "function_call"]
        text = "".join(i["content"][0]["text"] for i in final if i["type"] == "message")
        return text, calls, final


@contextmanager
def recorded(scenario: str, tmp_path: Path) -> Iterator[int]:
    """The port of a proxy in front of the scripted model; the recording is whole when this ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--port", str(port), "--client", "own", "--run", "r", "--scenario", scenario, "--delay", "0.001"]
    script = [sys.executable, str(CLIENTS / "scripted_model.py"), *flags, "--captures", str(tmp_path)]
    model = subprocess.Popen(script)
    record = [sys.executable, "-m", "windtunnel.simulator.cli", "record", "--upstream", f"http://127.0.0.1:{port}"]
    proxy = subprocess.Popen(
        [*record, "--port", "0", "--out", str(tmp_path / "rec")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert proxy.stderr is not None
    try:
        base = proxy.stderr.readline().split(" at ")[1].split()[0]
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield int(base.rpartition(":")[2])
    finally:
        proxy.send_signal(signal.SIGINT)
        proxy.communicate(timeout=20)
        model.terminate()
        model.wait()


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("scenario", ["flaky", "subagent2"])
def test_the_recording_is_what_the_model_was_asked(scenario: str, api: str, named: bool, tmp_path: Path) -> None:
    if not CLIENTS.is_dir():
        pytest.skip("no scripted model: ../shared/clients is absent")
    with recorded(scenario, tmp_path) as port:
        agent = Agent(api, port, {"X-Session-ID": "ses-own"} if named else {})
        assert agent.run("MAINTASK: the function greet() in hello.py has a typo; fix it.").startswith("Done")
    result = compare(tmp_path / "own" / "r.jsonl", tmp_path / "rec", nameless=True)
    assert [d for d in result.differences if " off by " not in d] == []
    assert max(*result.starts, *result.ends) < LATE_S
    _, (trace,), problems = read_recording(tmp_path / "rec")
    assert problems == []
    assert (trace.header.id == "ses-own") == named
    assert len(trace.threads) == (3 if scenario == "subagent2" else 1)
    assert {t.name for t in trace.threads[1:]} == ({"count lines", "count words"} if trace.threads[1:] else set())
    joins = [c.joins for c in trace.calls if c.joins]
    assert joins == ([(1, 2)] if scenario == "subagent2" else [])
