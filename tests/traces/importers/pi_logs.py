"""Lines of pi sessions made up for the purpose."""

from typing import Any

Json = dict[str, Any]
T0 = 1_770_091_500_000
"""Unix ms of second 0, 2026-02-03T04:05:00Z."""


def stamp(second: float) -> str:
    return f"2026-02-03T04:05:{second:06.3f}Z"


def ms(second: float) -> int:
    return T0 + round(second * 1000)


def head(**more: Any) -> Json:
    return {"type": "session", "version": 3, "id": "p-1", "timestamp": stamp(0), "cwd": "/home/me/shop", **more}


def entry(key: str, parent: str | None, second: float, kind: str, **more: Any) -> Json:
    return {"type": kind, "id": key, "parentId": parent, "timestamp": stamp(second), **more}


def user(key: str, parent: str | None, second: float, text: str) -> Json:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": ms(second)}
    return entry(key, parent, second, "message", message=message)


def answer(
    key: str,
    parent: str | None,
    times: tuple[float, float],
    usage: tuple[int, int, int, int],
    content: list[Json],
    stop: str = "stop",
) -> Json:
    """Usage: input, cache read, cache write, output."""
    names = ("input", "cacheRead", "cacheWrite", "output")
    message = {
        "role": "assistant",
        "content": content,
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": "big-model",
        "usage": dict(zip(names, usage, strict=True)),
        "stopReason": stop,
        "timestamp": ms(times[0]),
    }
    return entry(key, parent, times[1], "message", message=message)


def result(key: str, parent: str | None, second: float, call: str, text: str, *, error: bool = False) -> Json:
    message = {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "bash",
        "content": [{"type": "text", "text": text}],
        "isError": error,
        "timestamp": ms(second),
    }
    return entry(key, parent, second, "message", message=message)


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def called(call: str, command: str) -> Json:
    return {"type": "toolCall", "id": call, "name": "bash", "arguments": {"command": command}}


def shop() -> list[Json]:
    """A prompt, two tools, a second prompt that is stopped."""
    return [
        head(),
        entry("e1", None, 0.1, "thinking_level_change", thinkingLevel="high"),
        user("e2", "e1", 1, "Please fix the adder in the shop"),
        answer(
            "e3", "e2", (1, 4), (3, 0, 2_000, 90),
            [{"type": "thinking", "thinking": "First look"}, said("Looking."), called("c1", "cat adder.py"), called("c2", "ls")],
            "toolUse",
        ),
        result("e4", "e3", 5, "c1", "def add(a, b):\n    return a - b\n"),
        result("e5", "e4", 7, "c2", "no such file", error=True),
        answer("e6", "e5", (7, 9), (1, 2_000, 150, 20), [said("It subtracts where it should add.")]),
        user("e7", "e6", 30, "Then change it"),
        answer("e8", "e7", (30, 31), (0, 0, 0, 0), [], "aborted"),
    ]  # fmt: skip
