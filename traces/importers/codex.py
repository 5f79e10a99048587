"""Codex CLI rollouts (`~/.codex/sessions/**/rollout-*.jsonl`), 0.40 to 0.171.

A sub-agent has a rollout of its own that names its parent; imported together with it (as a folder), it becomes a
thread of the parent's session, alone a session by itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.codex_rollout import Rollout
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.importers.records import Notes, first_rows, parse_json, read_records, table, text
from windtunnel.traces.model import Header

NAME = "codex"
_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context"})
_FIRST_LINE_BYTES = 1 << 20


def detect(path: Path, head: bytes) -> bool:
    """A JSON line of a rollout's record types with a payload."""
    if path.suffix != ".jsonl":
        return False
    first = head.lstrip().split(b"\n", 1)[0]
    if b'"session_meta"' in first[:400] and b'"payload"' in first[:2_000]:
        return True
    for value in first_rows(head, 10):
        if text(value.get("type")) in _TYPES and isinstance(value.get("payload"), dict):
            return True
    return False


def read(path: Path) -> Imported:
    """One rollout as a session of its own."""
    return read_session(path, ())


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many rollouts, each with its sub-agents' rollouts (and theirs)."""
    names = {path: _ids(path) for path in paths}
    by_id = {own: path for path, (own, _) in names.items() if own}
    roots: dict[Path, list[Path]] = {}
    for path in paths:
        root, seen = path, {path}
        while (parent := by_id.get(names[root][1])) is not None and parent not in seen:
            root = parent
            seen.add(root)
        roots.setdefault(root, [])
        if root != path:
            roots[root].append(path)
    for root, children in roots.items():
        yield read_session(root, children)


def _ids(path: Path) -> tuple[str, str]:
    """A rollout's own thread id and its parent's, from its first line."""
    try:
        with path.open("rb") as file:
            payload = table(table(parse_json(file.readline(_FIRST_LINE_BYTES))).get("payload"))
    except (OSError, ValueError):
        return "", ""
    spawn = table(table(table(payload.get("source")).get("subagent")).get("thread_spawn"))
    return text(payload.get("id")), text(payload.get("parent_thread_id")) or text(spawn.get("parent_thread_id"))


def read_session(main: Path, children: Sequence[Path]) -> Imported:
    notes: list[Notes] = []
    rollouts: list[Rollout] = []
    for path in (main, *children):
        note, rollout = Notes(str(path)), Rollout()
        for record in read_records(path, note):
            rollout.read(record, note)
        rollout.finish(note)
        notes.append(note)
        rollouts.append(rollout)
    spawned = {thread: tool for r in rollouts for tool, thread in r.spawned.items()}
    for rollout in rollouts[1:]:
        rollout.thread.tool_call_id = spawned.get(rollout.thread.key)
        rollout.thread.background = True
    threads = [r.thread for i, r in enumerate(rollouts) if r.thread.exchanges or i == 0]
    if not any(t.exchanges for t in threads):
        notes[0].add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for n in notes for p in n.all()))
    trace = assemble(_header(rollouts, main), threads, Rules(exact_cache=False))
    return Imported((trace,), tuple(p for n in notes for p in n.all()))


def _header(rollouts: list[Rollout], path: Path) -> Header:
    main = rollouts[0]
    folder = main.cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return Header(
        id=main.id or path.stem,
        agent=NAME,
        agent_version=main.version or None,
        models=tuple(dict.fromkeys(e.model for r in rollouts for e in r.thread.exchanges if e.model)),
        source=f"{NAME} {path}",
        started_at=min((r.first for r in rollouts if r.first is not None), default=None),
        title=title_of(main.prompt) or folder or None,
    )
