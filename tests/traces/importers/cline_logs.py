"""Cline sessions made up for the purpose: the CLI's messages, and VS Code's task files."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]
T0 = 1_770_091_500_000
"""Unix ms of second 0."""


def ms(second: float) -> int:
    return T0 + round(second * 1000)


def heard(second: float, *parts: Json) -> Json:
    return {"role": "user", "content": list(parts), "ts": ms(second)}


def written(second: float, usage: tuple[int, int, int] | None, *parts: Json, **more: Any) -> Json:
    """Usage: input with its cached part, cached, output."""
    message = {
        "role": "assistant",
        "content": list(parts),
        "ts": ms(second),
        "modelInfo": {"id": "big-model", "provider": "local"},
        **more,
    }
    if usage is not None:
        names = ("inputTokens", "cacheReadTokens", "outputTokens")
        message["metrics"] = {**dict(zip(names, usage, strict=True)), "cacheWriteTokens": 0}
    return message


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def use(call: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, said: str, *, success: bool = True) -> Json:
    content = [{"query": call, "result": said, "success": success}]
    return {"type": "tool_result", "tool_use_id": call, "name": "run_commands", "content": content}


def session(own: str, messages: list[Json], **more: Any) -> Json:
    return {
        "version": 1,
        "updated_at": "2026-02-03T04:06:30Z",
        "agent": "lead",
        "sessionId": own,
        "origin": {"source": "cli", "version": "3.0.65"},
        "messages": messages,
        "system_prompt": "Be brief and careful. " * 30,
        **more,
    }


def shop() -> Json:
    """A prompt, a command beside a sub-agent, a command that fails, a second prompt."""
    return session(
        "s1",
        [
            heard(1, text('<user_input mode="act">Please fix the adder in the shop</user_input>')),
            written(
                4,
                (9_000, 0, 80),
                {"type": "thinking", "thinking": "First look"},
                text("Looking."),
                use("c1", "run_commands", commands=["cat adder.py"]),
                use("c2", "spawn_agent", task="Find out what the adder does and report"),
            ),
            heard(5, result("c1", "def add(a, b):\n    return a - b\n")),
            heard(12, result("c2", "It subtracts.")),
            written(14, (9_300, 8_900, 30), use("c3", "run_commands", commands=["ls tests"])),
            heard(15, result("c3", "no such file", success=False)),
            written(17, (9_400, 9_200, 12), text("It subtracts where it should add.")),
            heard(40, text('<user_input mode="act">Then change it</user_input>')),
            written(43, (9_450, 9_300, 7), text("Changed.")),
        ],
    )


def helper() -> Json:
    return session(
        "s1__agent7",
        [
            heard(4.5, text("Find out what the adder does and report")),
            written(7, (4_000, 0, 20), use("c1", "run_commands", commands=["cat adder.py"])),
            heard(8, result("c1", "a - b\n")),
            written(11, (4_060, 4_000, 9), text("It subtracts.")),
        ],
        agent="subagent",
    )


def write_sessions(root: Path, *, with_helper: bool = True) -> Path:
    folder = root / "sessions" / "s1"
    folder.mkdir(parents=True)
    (folder / "s1.json").write_text(json.dumps({"session_id": "s1", "cwd": "/home/me/shop", "metadata": {}}))
    main = folder / "s1.messages.json"
    main.write_text(json.dumps(shop(), indent=2))
    if with_helper:
        (folder / "agent7.messages.json").write_text(json.dumps(helper()))
    return main


def say(second: float, kind: str, said: str | None = None, index: int | None = None, **more: Any) -> Json:
    value: Json = {"ts": ms(second), "type": "say", "say": kind, **more}
    if said is not None:
        value["text"] = said
    if index is not None:
        value["conversationHistoryIndex"] = index
    value["modelInfo"] = {"providerId": "anthropic", "modelId": "big-model", "mode": "act"}
    return value


def started(second: float, request: str, usage: tuple[int, int, int, int] | None, **more: Any) -> Json:
    """Usage: tokensIn, cacheReads, cacheWrites, tokensOut."""
    names = ("tokensIn", "cacheReads", "cacheWrites", "tokensOut")
    counts = {} if usage is None else dict(zip(names, usage, strict=True))
    return say(second, "api_req_started", json.dumps({"request": request, **counts, **more}))


READ = "[read_file for 'adder.py'] Result:\ndef add(a, b):\n    return a - b\n"
RAN = "[execute_command for 'ls tests'] Result:\nno such file\n"


def task() -> list[Json]:
    """A prompt, a file read and a command, a second prompt whose answer is stopped, a request from a shorter history."""
    return [
        say(0, "task", "Please fix the adder in the shop"),
        started(1, "<task>\nPlease fix the adder in the shop\n</task>", (3, 0, 9_000, 90)),
        say(3, "reasoning", "First look", 0),
        say(4, "text", "Looking.", 0),
        say(4.5, "tool", json.dumps({"tool": "readFile", "path": "adder.py"}), 0),
        say(5, "task_progress", "- [ ] fix", 1),
        say(5.1, "command", "ls tests", 1),
        say(5.2, "command_output", "no such file", 1),
        say(8, "checkpoint_created", index=1),
        started(9, READ + RAN, (3, 9_000, 300, 20)),
        say(11, "text", "It subtracts.", 2),
        say(12, "completion_result", "It subtracts where it should add.", 2),
        say(13, "task_progress", "- [x] look", 3),
        say(40, "user_feedback", "Then change it", 3),
        started(41, "<feedback>\nThen change it\n</feedback>", None, cancelReason="user_cancelled"),
        say(44, "text", "I will", 4),
        say(60, "user_feedback", "Go on", 5),
        started(61, "<feedback>\nGo on\n</feedback>", (3, 9_000, 90, 5)),
        say(63, "text", "Done.", 6, conversationHistoryDeletedRange=[2, 3]),
        say(64, "task_progress", "- [x] all", 7),
    ]


def history() -> list[Json]:
    """The texts of `task`, as an older task keeps them: no times, no usage."""
    return [
        {"role": "user", "content": [text("<task>\nPlease fix the adder in the shop\n</task>"), text("<environment_details>\nshop\n</environment_details>")]},
        {"role": "assistant", "content": [text("Looking."), use("t1", "read_file", path="adder.py"), use("t2", "execute_command", command="ls tests")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "def add(a, b):\n    return a - b\n"}, {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True}]},
        {"role": "assistant", "content": [text("It subtracts."), use("t3", "attempt_completion", result="It subtracts where it should add.")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "<feedback>\nThen change it\n</feedback>"}]},
        {"role": "assistant", "content": "I will"},
        {"role": "user", "content": [text("<feedback>\nGo on\n</feedback>")]},
        {"role": "assistant", "content": [text("Done.")]},
    ]  # fmt: skip


def write_task(root: Path, *, texts: bool) -> Path:
    folder = root / "tasks" / "1770091500000"
    folder.mkdir(parents=True)
    (folder / "ui_messages.json").write_text(json.dumps(task()))
    if texts:
        (folder / "api_conversation_history.json").write_text(json.dumps(history()))
    return folder
