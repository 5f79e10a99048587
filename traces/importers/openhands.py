"""OpenHands conversations: V1 folders (`base_state.json`, `events/event-*.json`), V0 trajectories and event folders.

A V1 sub-agent's conversation lies in `subagents/` of its parent's folder. V0 files are a list of events, events one by
one in `events/N.json`, or an evaluation's `output.jsonl` with one session a line.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.openhands_v0 import read_events, read_file
from windtunnel.traces.importers.openhands_v1 import read_conversation

NAME = "openhands"
_EVENT_V1 = re.compile(r"event-\d+-.*\.json")
_EVENT_V0 = re.compile(r"\d+\.json")
_LISTED = re.compile(rb'\s*(?:\[\s*\{|\{\s*"instance_id")')


def detect(path: Path, head: bytes) -> bool:
    """A file of a V1 conversation by its name and place, events of V0 by their fields."""
    if path.suffix not in (".json", ".jsonl"):
        return False
    if _is_state(path):
        return b'"agent"' in head and (b'"workspace"' in head or b'"execution_status"' in head)
    if path.parent.name == "events" and _EVENT_V1.fullmatch(path.name):
        return True
    acted = b'"source"' in head and (b'"action"' in head or b'"observation"' in head)
    if path.parent.name == "events" and _EVENT_V0.fullmatch(path.name):
        return acted
    told = b'"args"' in head or b'"extras"' in head
    return acted and told and b'"timestamp"' in head and _LISTED.match(head) is not None


def _is_state(path: Path) -> bool:
    return path.name.endswith("base_state.json")


def read(path: Path) -> Imported:
    """The conversation that a file belongs to, with its sub-agents."""
    return next(read_group([path]))


def read_group(paths: Sequence[Path]) -> Iterator[Imported]:
    """Conversations among many files, each with its sub-agents' conversations."""
    folders: dict[Path, None] = {}
    events: dict[Path, None] = {}
    for path in paths:
        if path.parent.name == "events" and _EVENT_V1.fullmatch(path.name):
            folders[path.parent.parent] = None
        elif path.name == "base_state.json":
            folders[path.parent] = None
        elif path.parent.name == "events" and _EVENT_V0.fullmatch(path.name):
            events[path.parent] = None
    for folder in folders:
        if not any(above in folders for above in folder.parents):
            yield read_conversation(folder / "base_state.json", folder)
    for folder in events:
        yield read_events(folder)
    for path in paths:
        if path.parent in events or (path.parent.parent in folders and path.parent.name == "events"):
            continue
        if _is_state(path) and path.name != "base_state.json":
            yield read_conversation(path, None)
        elif not _is_state(path):
            yield from read_file(path)
