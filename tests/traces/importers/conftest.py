"""Recorded sessions kept beside the repository, read in place; tests that need them skip where they are absent."""

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded sessions."""
    if not (SHARED / "ground_truth.json").is_file():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return SHARED


@pytest.fixture(scope="session")
def answers(recorded: Path) -> dict[str, dict[str, Any]]:
    """Independent counts for each recorded file, by its path."""
    value: dict[str, dict[str, Any]] = json.loads((recorded / "ground_truth.json").read_text())
    return value


Json = dict[str, Any]


def lines(records: list[Json]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def claude_line(second: float, kind: str, message: Json, **more: Any) -> Json:
    stamp = f"2026-02-03T04:05:{second:06.3f}Z"
    base = {
        "sessionId": "s-1",
        "uuid": f"u-{second}",
        "version": "2.1.29",
        "cwd": "/home/me/shop",
        "isSidechain": False,
    }
    return {**base, "type": kind, "timestamp": stamp, "message": message, **more}


def claude_user(second: float, content: Any, **more: Any) -> Json:
    return claude_line(second, "user", {"role": "user", "content": content}, **more)


def claude_result(second: float, tool: str, content: Any, **more: Any) -> Json:
    return claude_user(second, [{"type": "tool_result", "tool_use_id": tool, "content": content}], **more)


def claude_answer(
    second: float,
    key: str,
    parts: list[Json],
    usage: tuple[int, int, int, int],
    stop: str | None = "end_turn",
    **more: Any,
) -> Json:
    """Usage: input, cache creation, cache read, output."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    message = {
        "id": key,
        "model": "claude-x",
        "role": "assistant",
        "content": parts,
        "stop_reason": stop,
        "usage": dict(zip(names, usage, strict=True)),
    }
    return claude_line(second, "assistant", message, **more)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def used(tool: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": tool, "name": name, "input": arguments}


@pytest.fixture
def claude_log() -> list[Json]:
    """A prompt, two tools (the first starts while the answer still streams), a second prompt, a damaged-free end."""
    return [
        claude_user(1, "Please fix the adder in the shop, it subtracts"),
        claude_answer(4, "m1", [said("I will look at the adder first.")], (3, 9_000, 1_000, 2), None),
        claude_answer(5, "m1", [used("t1", "Read", file="adder.py")], (3, 9_000, 1_000, 2), None),
        claude_result(5.2, "t1", "def add(a, b):\n    return a - b\n"),
        claude_answer(6, "m1", [used("t2", "Bash", command="ls -l")], (3, 9_000, 1_000, 90), "tool_use"),
        claude_result(8, "t2", "total 4\n-rw-r--r-- 1 me me 34 adder.py\n", isError=False),
        claude_answer(10, "m2", [said("The adder subtracts; I would change one sign.")], (1, 180, 10_000, 20)),
        claude_user(40, "Do it"),
        claude_answer(43, "m3", [said("Done.")], (1, 40, 10_180, 4)),
    ]


def codex_line(second: float, kind: str, **payload: Any) -> Json:
    return {"timestamp": f"2026-02-03T04:05:{second:06.3f}Z", "type": kind, "payload": payload}


def codex_message(second: float, role: str, text: str) -> Json:
    part = "output_text" if role == "assistant" else "input_text"
    return codex_line(second, "response_item", type="message", role=role, content=[{"type": part, "text": text}])


def codex_usage(second: float, total: int, usage: tuple[int, int, int, int]) -> Json:
    """Usage: input, cached, output, reasoning; `total` tells repeats apart."""
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": dict(zip(names, usage, strict=True))}
    return codex_line(second, "event_msg", type="token_count", info=info)


def codex_call(second: float, call: str, name: str, arguments: str) -> Json:
    return codex_line(second, "response_item", type="function_call", call_id=call, name=name, arguments=arguments)


def codex_output(second: float, call: str, output: str) -> Json:
    return codex_line(second, "response_item", type="function_call_output", call_id=call, output=output)


@pytest.fixture
def codex_log() -> list[Json]:
    """Two turns; the first with two parallel tools, its usage repeated; reasoning forgotten at the second prompt."""
    meta = {
        "id": "c-1",
        "cli_version": "0.114.0",
        "cwd": "/home/me/shop",
        "base_instructions": {"text": "Be brief. " * 40},
    }
    return [
        codex_line(1, "session_meta", **meta),
        codex_message(1, "user", "Fix the adder"),
        codex_line(1, "event_msg", type="user_message", message="Fix the adder"),
        codex_line(1, "turn_context", model="gpt-x", effort="high"),
        codex_line(3, "response_item", type="reasoning", summary=[], encrypted_content="gAAAA"),
        codex_message(4, "assistant", "Looking."),
        codex_call(4, "k1", "exec", '{"cmd":"cat adder.py"}'),
        codex_call(4.1, "k2", "exec", '{"cmd":"ls"}'),
        codex_usage(4.2, 5_300, (5_000, 1_024, 300, 240)),
        codex_output(5, "k1", "def add(a, b):\n    return a - b\n"),
        codex_output(7, "k2", "adder.py\n"),
        codex_usage(7.1, 5_300, (5_000, 1_024, 300, 240)),
        codex_message(9, "assistant", "It subtracts where it should add."),
        codex_usage(9.1, 10_690, (5_350, 4_992, 40, 10)),
        codex_message(30, "user", "Then change it"),
        codex_line(30, "event_msg", type="user_message", message="Then change it"),
        codex_message(33, "assistant", "Changed."),
        codex_usage(33.1, 15_850, (5_150, 4_992, 10, 0)),
    ]


@pytest.fixture
def weka_log() -> Json:
    """A main chain of three requests (the third rewrites the second's end) and a sub-agent between the first two."""

    def request(t: float, size: int, out: int, hashes: list[int], kind: str, **more: Any) -> Json:
        base = {"t": t, "type": "n", "model": "claude-x", "in": size, "out": out, "hash_ids": hashes}
        return {**base, "input_types": [kind], "output_types": ["text"], "stop": "end_turn", "api_time": 2.0, **more}

    inner = [
        request(0.0, 130, 9, [1, 50], "text", think_time=0.0),
        request(4.0, 200, 9, [1, 50, 51], "tool_result", think_time=2.0),
    ]
    return {
        "id": "w-1",
        "models": ["claude-x"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 40,
        "system_tokens": 20,
        "requests": [
            request(0.0, 200, 30, [1, 2, 3], "text", think_time=0.0),
            {
                "t": 9.0,
                "type": "subagent",
                "agent_id": "a",
                "subagent_type": "Explore",
                "duration_ms": 6_500,
                "requests": inner,
            },
            request(12.0, 400, 50, [1, 2, 3, 4, 5, 6], "tool_result", think_time=10.0),
            request(60.0, 390, 5, [1, 2, 3, 4, 7, 8], "text", think_time=46.0),
        ],
    }
