"""Codex CLI rollouts (`~/.codex/sessions/**/rollout-*.jsonl`), 0.40 to 0.171.

A sub-agent has a rollout of its own that names its parent; imported together with it (as a folder), it becomes a
thread of the parent's session, alone a session by itself. History that a fork or a sub-agent begins with stands in its
first prompt; the requests in it were the other thread's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.codex_history import Origin, copied_until, origin_of, usages
from windtunnel.traces.importers.codex_rollout import Rollout
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import title_of
from windtunnel.traces.importers.records import Notes, Record, first_rows, parse_json, read_records, table, text
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
    origins = {path: _origin(path) for path in paths}
    by_id = {origin.id: path for path, origin in origins.items() if origin.id}
    roots: dict[Path, list[Path]] = {}
    for path in paths:
        root, seen = path, {path}
        while (parent := by_id.get(origins[root].parent)) is not None and parent not in seen:
            root = parent
            seen.add(root)
        roots.setdefault(root, [])
        if root != path:
            roots[root].append(path)
    for root, children in roots.items():
        yield read_session(root, children, {p: by_id.get(origins[p].source) for p in (root, *children)})


def _origin(path: Path) -> Origin:
    """What a rollout's first line says of it."""
    try:
        with path.open("rb") as file:
            return origin_of(table(table(parse_json(file.readline(_FIRST_LINE_BYTES))).get("payload")))
    except (OSError, ValueError):
        return Origin("", "", "")


def read_session(main: Path, children: Sequence[Path], sources: Mapping[Path, Path | None] | None = None) -> Imported:
    """A session and its sub-agents; `sources` are the rollouts that theirs may begin with the history of."""
    notes: list[Notes] = []
    rollouts: list[Rollout] = []
    for path in (main, *children):
        session = rollouts[0].id if rollouts else ""
        notes.append(Notes(str(path)))
        rollouts.append(_read(path, notes[-1], session, (sources or {}).get(path)))
    spawned = {thread: tool for r in rollouts for tool, thread in r.spawned.items()}
    for rollout in rollouts[1:]:
        rollout.thread.tool_call_id = spawned.get(rollout.thread.key)
        rollout.thread.background = True
    threads = [r.thread for i, r in enumerate(rollouts) if r.own() or i == 0]
    if not any(r.own() for r in rollouts):
        notes[0].add(None, "holds no request to a model: nothing to replay")
        return Imported((), tuple(p for n in notes for p in n.all()))
    trace = assemble(_header(rollouts, main), threads, Rules(exact_cache=False))
    return Imported((trace,), tuple(p for n in notes for p in n.all()))


def _read(path: Path, notes: Notes, session: str, source: Path | None) -> Rollout:
    """One rollout; `session` is the id of the session that it is a sub-agent of, `source` the rollout it came from."""
    origin, rollout = _origin(path), Rollout()
    records: Iterable[Record] = read_records(path, notes)
    until = 0
    if origin.source:
        records = list(records)
        known = () if source is None or source == path else usages(read_records(source, Notes(str(source))))
        until = copied_until(records, frozenset(figures for _, figures in known))
    for record in records:
        if 0 < until < record.line:
            _leave_out(rollout, notes, session, origin.source)
            until = 0
        rollout.read(record, notes)
    if until:
        _leave_out(rollout, notes, session, origin.source)
    rollout.finish(notes)
    return rollout


def _leave_out(rollout: Rollout, notes: Notes, session: str, source: str) -> None:
    number = rollout.copied(session or source, source)
    if number:
        what = "1 request" if number == 1 else f"the first {number} requests"
        verb = "is" if number == 1 else "are"
        notes.add(None, f"{what} {verb} copied history of {source} and {verb} not counted")


def _header(rollouts: list[Rollout], path: Path) -> Header:
    main = rollouts[0]
    folder = main.cwd.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return Header(
        id=main.id or path.stem,
        agent=NAME,
        agent_version=main.version or None,
        models=tuple(
            dict.fromkeys(e.model for r in rollouts for e in r.thread.exchanges if e.model and e.copied is None)
        ),
        source=f"{NAME} {path}",
        started_at=min((r.first for r in rollouts if r.first is not None), default=None),
        title=title_of(main.prompt) or folder or None,
    )
