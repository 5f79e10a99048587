"""Other programs' logs as traces: one module a format, found by content; `IMPORTERS` lists them.

May import the trace model and text estimates only. Bad content never raises: what could be had is kept, what was lost
is a `Problem` with its file, line and reason.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.errors import UsageError
from windtunnel.traces.importers import (
    aider,
    aiperf_turns,
    atif,
    claude_code,
    cline,
    codex,
    gemini,
    har,
    litellm,
    mini_swe_agent,
    mooncake,
    opencode,
    openhands,
    otel,
    pi,
    qwen,
    swe_agent,
    tracelab,
    weka,
)
from windtunnel.traces.importers.copies import without_copies
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.model import Problem

__all__ = ["IMPORTERS", "Imported", "Importer", "detect", "import_path"]

HEAD_BYTES, MOST_HEAD_BYTES = 65_536, 8 << 20
"""What a file's format is told by: its beginning, and of JSON Lines as much more as lines with long texts take."""
_OF_MANY_FILES = frozenset({opencode.NAME, cline.NAME, openhands.NAME})
"""Importers whose sessions lie in many JSON files, most of which are told by the place they lie in."""
_BESIDE = (".meta.json", "sessions-index.json")
_SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})


class Importer(Struct, frozen=True):
    name: str
    detect: Callable[[Path, bytes], bool]
    """Whether a file, told by its path and beginning, is of this format."""
    read: Callable[[Path], Imported]
    """One file, with what belongs to it."""
    read_group: Callable[[Sequence[Path]], Iterator[Imported]]
    """Many files of this format, those of one session together."""
    suffixes: tuple[str, ...] = (".jsonl", ".json")
    """Endings of the files that are looked at in a folder."""


def _one_by_one(read: Callable[[Path], Imported]) -> Callable[[Sequence[Path]], Iterator[Imported]]:
    return lambda paths: map(read, paths)


IMPORTERS: dict[str, Importer] = {
    # before Claude Code's, whose lines look alike but for what is in them
    qwen.NAME: Importer(qwen.NAME, qwen.detect, qwen.read, qwen.read_group),
    claude_code.NAME: Importer(claude_code.NAME, claude_code.detect, claude_code.read, claude_code.read_group),
    codex.NAME: Importer(codex.NAME, codex.detect, codex.read, codex.read_group),
    weka.NAME: Importer(weka.NAME, weka.detect, weka.read, _one_by_one(weka.read)),
    mooncake.NAME: Importer(mooncake.NAME, mooncake.detect, mooncake.read, _one_by_one(mooncake.read)),
    mooncake.AIPERF: Importer(
        mooncake.AIPERF, mooncake.detect, mooncake.read_aiperf, _one_by_one(mooncake.read_aiperf)
    ),
    mooncake.DYNAMO: Importer(
        mooncake.DYNAMO, mooncake.detect, mooncake.read_dynamo, _one_by_one(mooncake.read_dynamo)
    ),
    opencode.NAME: Importer(opencode.NAME, opencode.detect, opencode.read, opencode.read_group, opencode.SUFFIXES),
    cline.NAME: Importer(cline.NAME, cline.detect, cline.read, cline.read_group, cline.SUFFIXES),
    pi.NAME: Importer(pi.NAME, pi.detect, pi.read, pi.read_group),
    gemini.NAME: Importer(gemini.NAME, gemini.detect, gemini.read, gemini.read_group),
    openhands.NAME: Importer(openhands.NAME, openhands.detect, openhands.read, openhands.read_group),
    swe_agent.NAME: Importer(
        swe_agent.NAME, swe_agent.detect, swe_agent.read, _one_by_one(swe_agent.read), swe_agent.SUFFIXES
    ),
    mini_swe_agent.NAME: Importer(
        mini_swe_agent.NAME, mini_swe_agent.detect, mini_swe_agent.read, _one_by_one(mini_swe_agent.read)
    ),
    aiperf_turns.NAME: Importer(
        aiperf_turns.NAME, aiperf_turns.detect, aiperf_turns.read, _one_by_one(aiperf_turns.read)
    ),
    tracelab.NAME: Importer(tracelab.NAME, tracelab.detect, tracelab.read, tracelab.read_group),
    otel.NAME: Importer(otel.NAME, otel.detect, otel.read, otel.read_group),
    atif.NAME: Importer(atif.NAME, atif.detect, atif.read, _one_by_one(atif.read)),
    litellm.NAME: Importer(litellm.NAME, litellm.detect, litellm.read, litellm.read_group),
    har.NAME: Importer(har.NAME, har.detect, har.read, _one_by_one(har.read), har.SUFFIXES),
    aider.NAME: Importer(aider.NAME, aider.detect, aider.read, _one_by_one(aider.read), aider.SUFFIXES),
}


def detect(path: Path, name: str | None = None) -> str | None:
    """Name of the importer for a file, by its content; None when it is of no known format or cannot be read.

    `name` asks for one importer: some formats look alike and the first of them is taken otherwise.
    """
    if not _is_regular(path):
        return None
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            more = path.suffix == ".jsonl" and len(head) == HEAD_BYTES
            if more and b"\n" not in head:
                head += file.readline(MOST_HEAD_BYTES - HEAD_BYTES)
            found = _told_by(path, head, name)
            if found is None and more:  # the first lines may be long ones that say nothing, as of queued prompts
                found = _told_by(path, head + file.read(MOST_HEAD_BYTES - len(head)), name)
    except OSError:
        return None
    return found


def _is_regular(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder whose files may not be looked at
        return False


def _told_by(path: Path, head: bytes, name: str | None) -> str | None:
    asked = IMPORTERS.values() if name is None else (IMPORTERS[name],)
    return next((i.name for i in asked if i.detect(path, head)), None)


def import_path(path: Path, name: str | None = None, *, once: bool = True) -> Imported:
    """Everything importable in a file or, at any depth, in a folder; `name` forces one importer.

    With `once` a folder's requests come once (see `copies`), and what was left out is named. Who has more sessions
    beside these asks for all of them.
    """
    if name is not None and name not in IMPORTERS:
        raise UsageError(f"there is no importer named {name!r}: use one of {', '.join(IMPORTERS)}")
    return _folder(path, name, once) if path.is_dir() else _file(path, name)


def _file(path: Path, name: str | None) -> Imported:
    if path.exists() and not path.is_file():  # reading a pipe may never end
        return _nothing(path, "is no regular file and was left out")
    found = name or detect(path)
    if found is not None:
        return IMPORTERS[found].read(path)
    if not path.is_file():
        return _nothing(path, "there is no such file")
    if not path.stat().st_size:
        return _nothing(path, "the file is empty")
    return _nothing(path, f"is of none of the formats that can be imported ({', '.join(IMPORTERS)})")


def _folder(path: Path, name: str | None, once: bool) -> Imported:
    groups: dict[str, list[Path]] = {}
    results: list[Imported] = []
    others: list[Path] = []
    odd: list[Path] = []
    for file in _files(path):
        found = detect(file, name)
        if found is not None:
            groups.setdefault(found, []).append(file)
        elif not _is_regular(file):
            odd.append(file)
        elif file.suffix == ".jsonl" and not file.stat().st_size:
            results.append(_nothing(file, "the file is empty"))
        else:
            others.append(file)
    if odd:
        also = f", as were {len(odd) - 1} more" if len(odd) > 1 else ""
        results.append(_nothing(odd[0], f"is no regular file and was left out{also}"))
    if not groups:
        nothing = Problem(str(path), None, "holds nothing that can be imported")
        return Imported((), (nothing, *(p for r in results for p in r.problems)))
    results += _not_taken(others, groups, path, name)
    results += [r for found, files in groups.items() for r in IMPORTERS[found].read_group(files)]
    traces = [t for r in results for t in r.traces]
    problems = [p for r in results for p in r.problems]
    if once:
        traces, copies = without_copies(traces)
        problems += copies
    return Imported(tuple(traces), tuple(problems))


def _not_taken(others: Sequence[Path], groups: dict[str, list[Path]], folder: Path, name: str | None) -> list[Imported]:
    """One line on the files of a folder that no importer takes, but for what agents keep beside their sessions."""
    places = {file.parent for files in groups.values() for file in files}
    many = not _OF_MANY_FILES.isdisjoint(groups)
    left = [
        file
        for file in others
        if file.suffix not in (".json", ".db")
        or not (many or file.name.endswith(_BESIDE) or not places.isdisjoint(file.parent.parents))
    ]
    if not left:
        return []
    what = "of none of the formats that can be imported" if name is None else f"not of the format {name}"
    were = "1 file is" if len(left) == 1 else f"{len(left)} files are"
    first = left[0].relative_to(folder)
    return [_nothing(folder, f"{were} {what} and left out: {first}{' and others' if len(left) > 1 else ''}")]


def _files(folder: Path) -> Iterator[Path]:
    suffixes = tuple({suffix for importer in IMPORTERS.values() for suffix in importer.suffixes})
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS)
        yield from (Path(place, name) for name in sorted(names) if name.endswith(suffixes))


def _nothing(path: Path, reason: str) -> Imported:
    return Imported((), (Problem(str(path), None, reason),))
