"""Damaged logs of every importer: the one table that the mutation tests and `make fuzz` go through.

A case writes one damaged log below a folder, which it has for itself, and returns what is to be imported: a file, or a
folder to be read as a whole.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import (
    agent_logs,
    claude_logs,
    cline_logs,
    codex_logs,
    opencode_logs,
    openhands_logs,
    pi_logs,
    weka_logs,
    workload_logs,
)
from .mutations import encoded, listed, mutate_bytes, mutate_value, mutated
from .test_qwen import agent_log, transcript

Json = dict[str, Any]
Write = Callable[[Path, random.Random], Path]
Encode = Callable[[Any, random.Random], bytes]


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def one(name: str, log: Any, encode: Encode = mutated) -> Write:
    """A log in one file."""

    def write(folder: Path, rng: random.Random) -> Path:
        return put(folder / name, encode(log, rng))

    return write


def several(read: str, **files: Any) -> Write:
    """Files of one session, any of which may be damaged; `read` is what is imported, "" for the whole folder."""

    def write(folder: Path, rng: random.Random) -> Path:
        broken = rng.sample(sorted(files), rng.randint(1, len(files)))
        for name, log in files.items():
            put(folder / name, mutated(log, rng) if name in broken else encoded(log))
        return folder / read if read else folder

    return write


# Claude Code and Codex

CLAUDE_META = {"agentType": "Explore", "toolUseId": "t2"}
CODEX_MAIN, CODEX_CHILD = codex_logs.with_sub_agent(codex_logs.shop())


# pi, Cline, opencode

PI_BRANCHES = [
    *pi_logs.shop(),
    pi_logs.user("f1", "e3", 40, "Look at the tests instead"),
    pi_logs.answer("f2", "f1", (40, 42), (3, 0, 2_140, 9), [pi_logs.said("They are older.")]),
    pi_logs.entry("k", "f2", 43, "compaction", summary="It subtracts.", firstKeptEntryId="f1"),
    pi_logs.user("g1", "k", 44, "Go on"),
    pi_logs.answer("g2", "g1", (45, 46), (3, 0, 2_100, 9), [pi_logs.said("Done.")]),
    pi_logs.user("h1", "e7", 50, "Or not"),
    pi_logs.answer("h2", "h1", (51, 52), (3, 0, 2_300, 9), [pi_logs.said("As you like.")]),
]
"""A session that goes back twice and is compacted in between."""


def cline_task(folder: Path, rng: random.Random) -> Path:
    """Either of the two files of a task is damaged, or both are."""
    which = rng.randrange(3)
    for number, (name, log) in enumerate(
        (("ui_messages.json", cline_logs.task()), ("api_conversation_history.json", cline_logs.history()))
    ):
        put(folder / name, listed(log, rng) if which != 1 - number else json.dumps(log).encode())
    return folder / "ui_messages.json"


def opencode_tree(folder: Path, rng: random.Random) -> Path:
    root = folder / "storage"
    main = opencode_logs.write_tree(root, opencode_logs.shop())[0]
    files = sorted(root.rglob("*.json"))
    for _ in range(rng.randint(1, 3)):
        file = rng.choice(files)
        data = file.read_bytes()
        if not data:
            continue
        try:
            value = json.loads(data)
        except ValueError:
            continue
        file.write_bytes(
            mutate_bytes(data, rng) if rng.random() < 0.3 else json.dumps(mutate_value(value, rng)).encode()
        )
    return main


def opencode_rows(folder: Path, rng: random.Random) -> Path:
    """A sound database whose JSON texts are nonsense."""
    path = folder / "opencode.db"
    path.unlink(missing_ok=True)
    changed = mutate_value(opencode_logs.shop(), rng)
    sessions = [s for s in changed if _writable(s)] if isinstance(changed, list) else []
    return opencode_logs.write_database(path, sessions)


def _writable(session: Any) -> bool:
    """Whether rows can be made of it at all."""
    if not isinstance(session, dict) or not isinstance(session.get("messages"), list):
        return False
    info = session.get("info")
    columns = ("id", "title", "version", "directory")
    if not isinstance(info, dict) or not all(_ascii(info.get(c)) for c in columns):
        return False
    if "parentID" in info and not _ascii(info["parentID"]):
        return False
    for message in session["messages"]:
        if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
            return False
        if not _named(message.get("info")) or not all(map(_named, message["parts"])):
            return False
    return True


def _ascii(value: Any) -> bool:
    return isinstance(value, str) and value.isascii()


def _named(value: Any) -> bool:
    return isinstance(value, dict) and _ascii(value.get("id"))


def opencode_bytes(folder: Path, rng: random.Random) -> Path:
    """A database damaged on the disk."""
    path = folder / "opencode.db"
    sound = folder / "sound.db.bytes"
    if not sound.exists():
        sound.write_bytes(opencode_logs.write_database(path, opencode_logs.shop()).read_bytes())
    data = bytearray(sound.read_bytes())
    at = rng.randrange(16, len(data))
    kind = rng.randrange(3)
    if kind == 0:
        del data[at:]
    elif kind == 1:
        for _ in range(rng.randint(1, 200)):
            data[rng.randrange(16, len(data))] = rng.randrange(256)
    else:
        data[at : at + 2_000] = bytes(len(data[at : at + 2_000]))
    return put(path, bytes(data))


# OpenHands


def openhands_folder(folder: Path, rng: random.Random) -> Path:
    """A conversation's files, one or two of which are damaged; sometimes its state is missing."""
    log = openhands_logs.v1_log()
    names = ["base_state.json", *(f"events/event-{n:05d}-x.json" for n in range(1, len(log)))]
    broken = set(rng.sample(range(len(log)), rng.randint(1, 2)))
    for number, (name, item) in enumerate(zip(names, log, strict=True)):
        put(folder / name, mutated(item, rng) if number in broken else encoded(item))
    if rng.random() < 0.1:
        (folder / names[0]).unlink()
    return folder / names[1]


# Recordings of traffic


def har_bodies(folder: Path, rng: random.Random) -> Path:
    """Bodies are texts inside the recording: damaged as what they hold."""
    log = workload_logs.har()
    hit = rng.choice(log["log"]["entries"])
    if rng.random() < 0.3:
        stream = workload_logs.anthropic_stream("Looking.", {"input_tokens": 3, "cache_read_input_tokens": 700})
        hit["response"]["content"]["text"] = stream
        hit["request"]["url"] = hit["request"]["url"].rpartition("/v1/")[0] + "/v1/messages"
    posted = json.loads(hit["request"]["postData"]["text"])
    if rng.random() < 0.7:
        hit["request"]["postData"]["text"] = mutated(posted, rng).decode("utf-8", "replace")
    answer = hit["response"]["content"]["text"].encode()
    hit["response"]["content"]["text"] = mutate_bytes(answer, rng).decode("utf-8", "replace")
    return put(folder / "m.har", encoded(log))


def aider(folder: Path, rng: random.Random) -> Path:
    return put(folder / "m.aider.chat.history.md", mutate_bytes(workload_logs.AIDER.encode(), rng))


CASES: dict[str, Sequence[Write]] = {
    "qwen-code": (
        one("q-1.jsonl", agent_logs.qwen_log()),
        several(
            "chats/q-1.jsonl",
            **{"chats/q-1.jsonl": agent_log(), "subagents/q-1/agent-a.jsonl": transcript()},
        ),
    ),
    "claude-code": (
        one("s-1.jsonl", claude_logs.shop()),
        one("s-1.jsonl", claude_logs.with_sidechain(claude_logs.shop())),
        one("s-1.jsonl", claude_logs.with_progress(claude_logs.shop())),
        one("s-1.jsonl", claude_logs.with_requests(claude_logs.shop())),
        one("s-1.jsonl", claude_logs.with_compaction(claude_logs.shop())),
        several(
            "s-1.jsonl",
            **{
                "s-1.jsonl": claude_logs.with_task(claude_logs.shop()),
                "s-1/subagents/agent-a7.jsonl": claude_logs.sub_agent(claude_logs.shop(), "a7"),
                "s-1/subagents/agent-a7.meta.json": CLAUDE_META,
            },
        ),
        several(
            "",
            **{
                "s-1.jsonl": claude_logs.with_task(claude_logs.shop()),
                "agent-a7.jsonl": claude_logs.sub_agent(claude_logs.shop(), "a7"),
            },
        ),
    ),
    "codex": (
        one("rollout-1.jsonl", codex_logs.shop()),
        one("rollout-1.jsonl", codex_logs.usage_first(codex_logs.shop())),
        one("rollout-1.jsonl", codex_logs.with_compaction(codex_logs.shop())),
        one("rollout-1.jsonl", codex_logs.with_records(codex_logs.shop())),
        several("", **{"rollout-1.jsonl": CODEX_MAIN, "rollout-2.jsonl": CODEX_CHILD}),
    ),
    "weka": (one("m.json", weka_logs.shop()),),
    "mooncake": (
        one("m.jsonl", workload_logs.mooncake()),
        one("m.jsonl", workload_logs.sessions()),
    ),
    "mooncake-aiperf": (one("m.jsonl", workload_logs.sessions()),),
    "mooncake-dynamo": (one("m.jsonl", workload_logs.sessions()),),
    "opencode": (
        one("export.json", opencode_logs.shop()[0]),
        opencode_tree,
        opencode_rows,
        opencode_bytes,
    ),
    "cline": (one("s1.messages.json", cline_logs.shop()), cline_task),
    "pi": (one("s.jsonl", pi_logs.shop()), one("s.jsonl", PI_BRANCHES)),
    "gemini-cli": (
        one("session-1.jsonl", agent_logs.gemini_log()),
        one("session-1.json", agent_logs.gemini_document()),
    ),
    "openhands": (
        openhands_folder,
        one("run.json", openhands_logs.v0_log(), listed),
        one("output.jsonl", [{"instance_id": "a", "history": openhands_logs.v0_log()}] * 2),
    ),
    "swe-agent": (one("run.traj", agent_logs.swe_log()),),
    "mini-swe-agent": (
        one("run.traj.json", agent_logs.mini_log()),
        one("run.traj.json", agent_logs.mini_log()["messages"], listed),
    ),
    "aiperf-multi-turn": (one("m.jsonl", workload_logs.conversations()),),
    "tracelab": (one("m.jsonl", workload_logs.tracelab()),),
    "otel": (
        one("m.jsonl", workload_logs.otel()),
        one("m.jsonl", workload_logs.otel_events()),
    ),
    "atif": (one("m.json", workload_logs.atif()),),
    "litellm": (
        one("m.json", workload_logs.litellm()),
        one("m.jsonl", workload_logs.payloads()),
    ),
    "har": (one("m.har", workload_logs.har()), har_bodies),
    "aider": (aider,),
}
