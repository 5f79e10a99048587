"""Gemini CLI chats: `~/.gemini/tmp/*/chats/session-*.json` and, in later versions, `.jsonl`.

A sub-agent's chat lies in a folder named after its parent's session; imported together with it, it becomes a thread of
that session, alone a session by itself.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.gemini_chat import Chat
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.importers.records import Notes
from windtunnel.traces.importers.thread_writer import adopt, tell_apart
from windtunnel.traces.model import Header, Problem

NAME = "gemini-cli"
AGENT_TOOLS = frozenset({"invoke_agent", "delegate_to_agent"})
_FOLDER_NAME = re.compile(r"\w[\w.-]{0,199}", re.ASCII)
"""Session ids that can be a folder's name; anything else in their place is damage."""


def detect(path: Path, head: bytes) -> bool:
    """A session id and a project hash at the start, or a chat's file name and a message of the model."""
    if path.suffix not in (".json", ".jsonl"):
        return False
    if b'"sessionId"' in head[:2_000] and b'"projectHash"' in head[:2_000]:
        return True
    spoken = b'"type":"gemini"' in head or b'"type": "gemini"' in head
    return path.name.startswith("session-") and (spoken or (path.suffix == ".json" and not head.strip()))


def read(path: Path) -> Imported:
    """One chat and its sub-agents' chats."""
    chat = load(path)
    named = _FOLDER_NAME.fullmatch(chat.session)
    children = sorted((path.parent / chat.session).glob("*.jsonl")) if named else []
    return read_session(chat, [load(p) for p in children])


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many chats, each with its sub-agents' chats (and theirs)."""
    chats = [load(p) for p in paths]
    names = {str(c.path) for c in chats}
    by_session = {c.session: c for c in chats if c.session}
    roots: dict[int, list[Chat]] = {}
    for chat in chats:
        if f"{chat.path}l" in names:
            reason = f"was left out: {chat.path.name}l beside it goes on with this chat"
            yield Imported((), (Problem(str(chat.path), None, reason),))
            continue
        root, seen = chat, {id(chat)}
        while (parent := by_session.get(root.path.parent.name)) is not None and id(parent) not in seen:
            root = parent
            seen.add(id(root))
        roots.setdefault(id(root), [])
        if root is not chat:
            roots[id(root)].append(chat)
    for root in chats:
        if id(root) in roots:
            yield read_session(root, roots[id(root)])


def load(path: Path) -> Chat:
    chat = Chat(path, Notes(str(path)))
    chat.load()
    return chat


def read_session(main: Chat, children: Sequence[Chat]) -> Imported:
    chats = [main, *children]
    for chat in chats:
        chat.read(own=chat is main)
    threads = {c.session: c.writer.thread for c in chats}
    for chat in chats:
        below = [c.writer.thread for c in children if c.path.parent.name == chat.session and c.writer.thread.exchanges]
        for agent, tool in chat.agents.items():
            if agent in threads:
                threads[agent].tool_call_id = tool
        adopt(chat.writer.thread, below, AGENT_TOOLS)
    found = [main.writer.thread, *(c.writer.thread for c in children if c.writer.thread.exchanges)]
    tell_apart(found)
    if not any(t.exchanges for t in found):
        main.notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for c in chats for p in c.notes.all()))
    header = Header(
        id=main.session or main.path.stem,
        agent=NAME,
        models=tuple(dict.fromkeys(e.model for t in found for e in t.exchanges if e.model)),
        source=f"{NAME} {main.path}",
        started_at=min((c.first for c in chats if c.first is not None), default=None),
        title=title_of(main.writer.prompt) or title_of(main.summary),
    )
    return Imported((assemble(header, found, Rules()),), tuple(p for c in chats for p in c.notes.all()))
