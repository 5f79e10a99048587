"""opencode sessions: `opencode.db` (1.18), the JSON tree before it (1.1), and the output of `opencode export`.

A sub-agent is a session that names its parent, and the parent's `task` call names it. Requests for titles and failed
attempts that were retried are not stored; one request stands on each message of the model.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import link_by_prompt
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.opencode_messages import Reader
from windtunnel.traces.importers.opencode_store import (
    Stored,
    is_database,
    is_export,
    is_session_file,
    read_database,
    read_export,
    read_tree,
)
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.importers.records import Notes
from windtunnel.traces.model import Header, Problem

NAME = "opencode"
SUFFIXES = (".db", ".json")


def detect(path: Path, head: bytes) -> bool:
    if path.suffix == ".json":
        return is_session_file(head) or is_export(head)
    return is_database(path, head)


def read(path: Path) -> Imported:
    """The sessions of a database, an exported session, or a session's file in the tree with its sub-agents' ones."""
    notes: list[Notes] = []
    found = _load(path, notes)
    if found and path.suffix == ".json":
        found += _children(found[0], notes)
    results = list(_trees(found, notes))
    return Imported(tuple(t for r in results for t in r.traces), tuple(p for r in results for p in r.problems))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Sessions among many files; one that stands in several is taken from where it has the most messages."""
    notes: list[Notes] = []
    best: dict[str, Stored] = {}
    for path in paths:
        for stored in _load(path, notes):
            other = best.get(stored.id)
            if other is None:
                best[stored.id] = stored
                continue
            left_out = min(other, stored, key=lambda s: len(s.messages))
            kept = other if left_out is stored else stored
            best[stored.id] = kept
            notes.append(Notes(str(left_out.file)))
            notes[-1].add(None, f"the session {stored.id} is read from {kept.file}, which has it too")
    yield from _trees(list(best.values()), notes)


def _load(path: Path, notes: list[Notes]) -> list[Stored]:
    try:
        with path.open("rb") as file:
            head = file.read(65_536)
    except OSError:
        head = b""
    if path.suffix != ".json":
        notes.append(Notes(str(path)))
        return read_database(path, notes[-1])
    one = read_export(path, notes) if is_export(head) or b'"messages"' in head else read_tree(path, notes)
    return [] if one is None else [one]


def _children(root: Stored, notes: list[Notes]) -> list[Stored]:
    """The sub-agents of a session in the tree, and theirs: sessions of the same project."""
    if not root.file.name.startswith("ses_"):
        return []
    others: dict[str, list[Stored]] = {}
    for file in sorted(root.file.parent.glob("ses_*.json")):
        if file != root.file:
            quiet: list[Notes] = []
            stored = read_tree(file, quiet)
            if stored is not None and stored.parent:
                others.setdefault(stored.parent, []).append(stored)
                notes += quiet
    found: list[Stored] = []
    asked = [root.id]
    while asked:
        for child in others.pop(asked.pop(), []):
            found.append(child)
            asked.append(child.id)
    return found


def _trees(sessions: list[Stored], notes: list[Notes]) -> Iterator[Imported]:
    """One trace for each session that no other one started, with its sub-agents; problems come with the first."""
    by_id = {s.id: s for s in sessions}
    members: dict[str, list[Stored]] = {}
    for stored in sessions:
        root, seen = stored, {stored.id}
        while root.parent in by_id and root.parent not in seen:
            root = by_id[root.parent]
            seen.add(root.id)
        if root.parent in seen:
            root = by_id[min(seen)]
        members.setdefault(root.id, [])
        if root is not stored:
            members[root.id].append(stored)
    said = [p for n in notes for p in n.all()]
    if not members and not said:
        said = [Problem("", None, "holds no session")]
    for root_id, children in members.items():
        result = _trace([by_id[root_id], *sorted(children, key=lambda s: s.messages[0].id if s.messages else "")])
        yield Imported(result.traces, (*said, *result.problems))
        said = []
    if said:
        yield Imported((), tuple(said))


def _trace(sessions: list[Stored]) -> Imported:
    taken: set[str] = set()
    readers = [Reader(s, taken, alone=i == 0) for i, s in enumerate(sessions)]
    for reader in readers:
        reader.read_all()
    children = {child: tool for r in readers for child, tool in r.spawned.items()}
    for reader in readers[1:]:
        reader.thread.tool_call_id = children.get(reader.thread.key)
    problems = tuple(p for r in readers for p in r.notes.all())
    main, *others = [r.thread for r in readers]
    threads = [main, *(t for t in others if t.exchanges)]
    if not any(t.exchanges for t in threads):
        nothing = Problem(str(sessions[0].file), None, f"session {sessions[0].id} holds no request to a model")
        return Imported((), (*problems, nothing))
    link_by_prompt(threads)
    rules = Rules(exact_cache={p for r in readers for p in r.providers} == {"anthropic"}, exact_starts=True)
    return Imported((assemble(_header(sessions[0], readers), threads, rules),), problems)


def _header(stored: Stored, readers: list[Reader]) -> Header:
    folder = stored.folder.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return Header(
        id=stored.id,
        agent=NAME,
        agent_version=stored.version or None,
        models=tuple(dict.fromkeys(e.model for r in readers for e in r.thread.exchanges if e.model)),
        source=f"{NAME} {stored.file}",
        started_at=min((r.talk.first for r in readers if r.talk.first is not None), default=None),
        title=title_of(readers[0].talk.prompt) or title_of(stored.title) or folder or None,
        notes=("requests for titles are not in the log",),
    )
