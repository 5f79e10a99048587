"""opencode sessions made up for the purpose, in each of the forms that opencode stores them in."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

Json = dict[str, Any]
T0 = 1_770_091_500_000
"""Unix ms of second 0."""


def at(second: float) -> int:
    return T0 + round(second * 1000)


def user(key: int, second: float, text: str, **part: Any) -> Json:
    info = {"id": f"msg_{key:04}", "role": "user", "time": {"created": at(second)}, "agent": "build"}
    return {"info": info, "parts": [{"id": f"prt_{key:04}", "type": "text", "text": text, **part}]}


def said(text: str, begin: float, end: float) -> Json:
    return {"type": "text", "text": text, "time": {"start": at(begin), "end": at(end)}}


def tool(call: str, name: str, begin: float, end: float, output: str, **state: Any) -> Json:
    whole = {
        "status": "completed",
        "input": {"what": call},
        "output": output,
        "time": {"start": at(begin), "end": at(end)},
        **state,
    }
    return {"type": "tool", "tool": name, "callID": call, "state": whole}


def answer(
    key: int, begin: float, end: float, usage: tuple[int, int, int, int, int], parts: list[Json], **info: Any
) -> Json:
    """Usage: input, cache read, cache write, output, reasoning."""
    fresh, read, write, output, reasoning = usage
    tokens = {"input": fresh, "output": output, "reasoning": reasoning, "cache": {"read": read, "write": write}}
    whole = {
        "id": f"msg_{key:04}",
        "role": "assistant",
        "mode": "build",
        "agent": "build",
        "modelID": "big-model",
        "providerID": "local",
        "tokens": tokens,
        "time": {"created": at(begin), "completed": at(end)},
        "finish": "stop",
        **info,
    }
    return {"info": whole, "parts": [{"id": f"prt_{key:04}_{i}", **p} for i, p in enumerate(parts)]}


def session(own: str, messages: list[Json], parent: str | None = None, title: str = "Adder") -> Json:
    info = {
        "id": own,
        "slug": "quiet-otter",
        "version": "1.18.33",
        "projectID": "p",
        "directory": "/home/me/shop",
        "title": title,
        "time": {"created": at(0), "updated": at(90)},
    }
    return {"info": info if parent is None else {**info, "parentID": parent}, "messages": messages}


def shop() -> list[Json]:
    """A prompt, a tool beside a sub-agent, a tool that fails, a compaction, a second prompt that is stopped."""
    main = [
        user(10, 1, "Please fix the adder in the shop, it subtracts"),
        answer(
            20,
            2,
            9,
            (9_000, 0, 0, 60, 20),
            [
                {"type": "reasoning", "text": "I should look first", "time": {"start": at(3), "end": at(3.5)}},
                said("Looking.", 3.5, 4),
                tool("c1", "read", 4, 5, "def add(a, b):\n    return a - b\n"),
                tool("c2", "task", 4.2, 9, "It subtracts.", metadata={"sessionId": "ses_b"}),
            ],
            finish="tool-calls",
        ),
        answer(
            30, 10, 13, (300, 9_000, 0, 30, 0), [tool("c3", "bash", 11, 13, "", status="error", error="no such file")]
        ),
        answer(
            40,
            13.5,
            15,
            (500, 0, 0, 25, 0),
            [said("Summary: the adder subtracts.", 14, 15)],
            mode="compaction",
            summary=True,
        ),
        user(50, 15.1, "Continue if you have next steps.", synthetic=True),
        answer(60, 15.2, 17, (200, 8_800, 0, 12, 0), [said("It subtracts where it should add.", 16, 17)]),
        user(70, 40, "Then change it"),
        answer(80, 41, 44, (0, 0, 0, 0, 0), [], error={"name": "MessageAbortedError"}),
    ]
    child = [
        user(22, 4.3, "Find out what the adder does and report"),
        answer(
            24,
            4.5,
            6,
            (5_000, 0, 0, 15, 0),
            [said("I see.", 5, 5.5), tool("c1", "bash", 5.5, 6, "a - b\n")],
            agent="general",
        ),
        answer(26, 6.2, 8.8, (40, 5_000, 0, 9, 0), [said("It subtracts.", 8, 8.6)], agent="general"),
    ]
    return [session("ses_a", main), session("ses_b", child, "ses_a", "Look at it (@general subagent)")]


def write_export(folder: Path, sessions: list[Json]) -> list[Path]:
    paths = [folder / f"export_{s['info']['id']}.json" for s in sessions]
    for path, value in zip(paths, sessions, strict=True):
        path.write_text(json.dumps(value, indent=2))
    return paths


def write_tree(root: Path, sessions: list[Json]) -> list[Path]:
    paths = []
    for value in sessions:
        info = value["info"]
        paths.append(_put(root / "session" / "p" / f"{info['id']}.json", info))
        for message in value["messages"]:
            own = message["info"]["id"]
            _put(root / "message" / info["id"] / f"{own}.json", message["info"])
            for part in message["parts"]:
                _put(root / "part" / own / f"{part['id']}.json", part)
    return paths


def _put(path: Path, value: Json) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def write_database(path: Path, sessions: list[Json]) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = OFF")
        fill(db, sessions)
    return path


def fill(db: sqlite3.Connection, sessions: list[Json]) -> None:
    db.execute("CREATE TABLE session (id text, parent_id text, title text, version text, directory text)")
    db.execute("CREATE TABLE message (id text, session_id text, data text)")
    db.execute("CREATE TABLE part (id text, message_id text, data text)")
    for value in sessions:
        info = value["info"]
        row = (info["id"], info.get("parentID"), info["title"], info["version"], info["directory"])
        db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?)", row)
        for message in value["messages"]:
            data = {k: v for k, v in message["info"].items() if k != "id"}
            own = message["info"]["id"]
            db.execute("INSERT INTO message VALUES (?, ?, ?)", (own, info["id"], json.dumps(data)))
            for part in message["parts"]:
                inner = {k: v for k, v in part.items() if k != "id"}
                db.execute("INSERT INTO part VALUES (?, ?, ?)", (part["id"], own, json.dumps(inner)))
    db.commit()
