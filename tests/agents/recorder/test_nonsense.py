"""Whatever a client or a server sends, the recorder goes on: it must never cost the recording."""

import json
import random
from typing import Any

import msgspec
import pytest
from test_apis import CLAUDE, CODEX, claude, codex, codex_headers, fcall, fout, item, responded, text, use, wrote
from test_recorder import CHAT, assistant, call, chat, result, stream, user

from windtunnel.agents.events import AnyEvent

STRANGE = [None, True, -1, 0, 1.5, 1 << 70, "", "x", "\ud800", [], {}, [None], {"type": None}, [[[]]], "a" * 3000]
CASES: dict[str, tuple[str, dict[str, Any], list[bytes]]] = {
    "chat": (
        CHAT,
        chat(user("go"), assistant("a", call("t", command="ls")), result("t", "x"), user("on")),
        stream(assistant("Look.", call("t1", command="ls")), cached=64),
    ),
    "messages": (
        CLAUDE,
        claude(
            {"role": "user", "content": [text("go"), {"type": "image", "source": {"data": "aGk=", "media_type": "image/png"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, use("t", command="ls")]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [text("x")]}]},
        ),
        wrote({"type": "thinking", "thinking": "hm"}, text("Look."), use("t1", command="ls"), read=8, made=900),
    ),
    "responses": (
        CODEX,
        codex(item("user", "go"), {"type": "reasoning", "summary": [{"text": "hm"}]}, fcall("c", cmd="ls"), fout("c", "x")),
        responded(item("assistant", "Look."), fcall("c1", cmd="ls")),
    ),
}  # fmt: skip


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one place in it replaced, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.2:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.random()
        if kind < 0.2:
            return value[:at] + value[at + 1 :]
        if kind < 0.4:
            return [*value, value[at]]
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    return rng.choice(STRANGE)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Bytes cut, doubled, or one of their JSON values changed."""
    kind = rng.random()
    if kind < 0.6 and data.startswith((b"data: {", b"event:")):
        head, mark, payload = data.partition(b"data: ")
        value = json.loads(payload)
        return head + mark + json.dumps(changed(value, rng)).encode() + b"\n\n"
    at = rng.randrange(len(data) + 1)
    return data[:at] if kind < 0.8 else data[:at] + bytes([rng.randrange(256)]) + data[at:]


@pytest.mark.parametrize("name", CASES)
def test_nonsense_is_survived(name: str, told: Any) -> None:
    path, body, answer = CASES[name]
    rng = random.Random(name)
    headers = (
        codex_headers() if name == "responses" else {"x_session_id": "s", "authorization": "Bearer nobody-knows-this"}
    )
    for i in range(200):
        strange = body
        for _ in range(rng.randrange(1, 4)):
            strange = changed(strange, rng)
        if not isinstance(strange, dict):
            strange = {"messages": strange, "input": strange}
        pieces = [mutated(a, rng) if rng.random() < 0.3 else a for a in answer]
        if i % 7 == 0:
            strange, pieces = body, answer  # now and then all is well
        number = told.ask(path, strange, at=i * 100, **(headers if i % 3 else {}))
        how = rng.choice(["complete", "client_gone", "upstream_gone"])
        told.answer(number, i * 100 + 50, *pieces, status=rng.choice([200, 200, 200, 500, None]), how=how)
        told.recorder.progress((i * 100 + 60) * 1_000_000)
    told.finish(at=30_000)
    for event in told.sink.events:
        msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
    whole = [e for e in told.sink.events if type(e).__name__ == "CallEnd" and e.failure is None]
    assert len(whole) > 20


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"messages": 3}', b"\xff\xfe", b"[" * 5000])
def test_bodies_that_are_no_requests(body: bytes, told: Any) -> None:
    from windtunnel.agents.recorder.told import Closed, Opened

    for i, path in enumerate((CHAT, CLAUDE, CODEX)):
        told.recorder.opened(Opened(i, 0, 1, path, "", ()), body)
        told.recorder.closed(Closed(i, 10, 400, "complete"))
    assert told.finish() == []
