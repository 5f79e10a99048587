"""Damaged opencode, Cline and pi sessions: nothing escapes, nothing hangs, and what is kept still adds up."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import IMPORTERS, import_path

from . import cline_logs, opencode_logs, pi_logs
from .test_mutations import check, mutate_bytes, mutate_value, mutated

MOST_BYTES = 50_000
MOST_SECONDS = 5

Write = Callable[[Path, random.Random], Path]


def pi_file(folder: Path, rng: random.Random) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(mutated(pi_logs.shop(), rng))
    return path


def pi_branches(folder: Path, rng: random.Random) -> Path:
    """A session that goes back twice and is compacted in between."""
    log = [
        *pi_logs.shop(),
        pi_logs.user("f1", "e3", 40, "Look at the tests instead"),
        pi_logs.answer("f2", "f1", (40, 42), (3, 0, 2_140, 9), [pi_logs.said("They are older.")]),
        pi_logs.entry("k", "f2", 43, "compaction", summary="It subtracts.", firstKeptEntryId="f1"),
        pi_logs.user("g1", "k", 44, "Go on"),
        pi_logs.answer("g2", "g1", (45, 46), (3, 0, 2_100, 9), [pi_logs.said("Done.")]),
        pi_logs.user("h1", "e7", 50, "Or not"),
        pi_logs.answer("h2", "h1", (51, 52), (3, 0, 2_300, 9), [pi_logs.said("As you like.")]),
    ]
    path = folder / "s.jsonl"
    path.write_bytes(mutated(log, rng))
    return path


def cline_file(folder: Path, rng: random.Random) -> Path:
    path = folder / "s1.messages.json"
    path.write_bytes(mutated(cline_logs.shop(), rng))
    return path


def cline_task(folder: Path, rng: random.Random) -> Path:
    """Either of the two files of a task, or both."""
    shown, texts = folder / "ui_messages.json", folder / "api_conversation_history.json"
    which = rng.randrange(3)
    shown.write_bytes(_whole(cline_logs.task(), rng if which != 1 else None))
    texts.write_bytes(_whole(cline_logs.history(), rng if which != 0 else None))
    return shown


def _whole(log: list[Any], rng: random.Random | None) -> bytes:
    """A list as one document, damaged when `rng` is given."""
    if rng is None:
        return json.dumps(log).encode()
    if rng.random() < 0.7:
        return json.dumps(mutate_value(log, rng)).encode()
    return mutate_bytes(json.dumps(log).encode(), rng)


def opencode_export(folder: Path, rng: random.Random) -> Path:
    path = folder / "export.json"
    path.write_bytes(mutated(opencode_logs.shop()[0], rng))
    return path


def opencode_tree(folder: Path, rng: random.Random) -> Path:
    root = folder / "storage"
    main = opencode_logs.write_tree(root, opencode_logs.shop())[0]
    files = sorted(p for p in root.rglob("*.json"))
    for _ in range(rng.randint(1, 3)):
        file = rng.choice(files)
        data = file.read_bytes()
        if data and rng.random() < 0.3:
            file.write_bytes(mutate_bytes(data, rng))
        elif data:
            value = _parsed(data)
            file.write_bytes(json.dumps(mutate_value(value, rng)).encode() if value is not None else data)
    return main


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def opencode_rows(folder: Path, rng: random.Random) -> Path:
    """A sound database whose JSON texts are nonsense."""
    path = folder / "opencode.db"
    path.unlink(missing_ok=True)
    sessions = [s for s in mutate_value(opencode_logs.shop(), rng) if _writable(s)]
    return opencode_logs.write_database(path, sessions)


def _writable(session: Any) -> bool:
    """Whether a row can be made of it at all."""
    if not isinstance(session, dict) or not isinstance(session.get("messages"), list):
        return False
    info = session.get("info")
    columns = ("id", "title", "version", "directory")
    if not isinstance(info, dict) or not all(isinstance(info.get(c), str) and info[c].isascii() for c in columns):
        return False
    if not isinstance(info.get("parentID", ""), str):
        return False
    for message in session["messages"]:
        if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
            return False
        inner = message.get("info")
        if not isinstance(inner, dict) or not _named(inner) or not all(map(_named, message["parts"])):
            return False
    return True


def _named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("id"), str) and value["id"].isascii()


def opencode_bytes(folder: Path, rng: random.Random) -> Path:
    """A database damaged on the disk."""
    path = folder / "opencode.db"
    path.unlink(missing_ok=True)
    data = bytearray(opencode_logs.write_database(path, opencode_logs.shop()).read_bytes())
    kind = rng.randrange(3)
    if kind == 0:
        del data[rng.randrange(16, len(data)) :]
    elif kind == 1:
        for _ in range(rng.randint(1, 200)):
            data[rng.randrange(16, len(data))] = rng.randrange(256)
    else:
        at = rng.randrange(16, len(data))
        data[at : at + 2_000] = bytes(len(data[at : at + 2_000]))
    path.write_bytes(data)
    return path


CASES: tuple[tuple[str, Write, int], ...] = (
    ("pi", pi_file, 100),
    ("pi", pi_branches, 100),
    ("cline", cline_file, 100),
    ("cline", cline_task, 100),
    ("opencode", opencode_export, 60),
    ("opencode", opencode_tree, 40),
    ("opencode", opencode_rows, 50),
    ("opencode", opencode_bytes, 50),
)
"""Two hundred mutations for each importer."""


@pytest.mark.parametrize(("importer", "write", "mutations"), CASES, ids=[w.__name__ for _, w, _ in CASES])
def test_no_mutation_escapes(importer: str, write: Write, mutations: int, tmp_path: Path) -> None:
    rng = random.Random(f"mutations of {write.__name__}")
    began = time.perf_counter()
    traces = problems = 0
    for number in range(mutations):
        path = write(tmp_path, rng)
        assert path.stat().st_size < MOST_BYTES
        result = IMPORTERS[importer].read(path)
        check(result, f"mutation {number}")
        traces += bool(result.traces)
        problems += bool(result.problems)
    # both happen: damage is survived and it is said
    assert traces > mutations // 4
    assert problems > mutations // 20
    assert time.perf_counter() - began < MOST_SECONDS


@pytest.mark.parametrize(
    ("importer", "name", "key", "log"),
    [
        ("pi", "s.jsonl", '"cacheRead": 2000', "".join(json.dumps(r) + "\n" for r in pi_logs.shop())),
        ("cline", "s.messages.json", '"inputTokens": 9300', json.dumps(cline_logs.shop())),
        ("cline", "ui_messages.json", '\\"tokensIn\\": 3', json.dumps(cline_logs.task())),
        ("opencode", "export.json", '"read": 9000', json.dumps(opencode_logs.shop()[0])),
    ],
)
def test_an_incredible_count_is_reported(importer: str, name: str, key: str, log: str, tmp_path: Path) -> None:
    assert key in log
    field = key.partition(":")[0]
    for nonsense in ("-5", "1e300", "[]", "123456789012345678901234567890"):
        path = tmp_path / name
        path.write_text(log.replace(key, f"{field}: {nonsense}", 1))
        result = IMPORTERS[importer].read(path)
        assert any("not a credible count" in p.reason for p in result.problems), nonsense


def test_a_folder_with_all_of_them(tmp_path: Path) -> None:
    cline_logs.write_sessions(tmp_path / "cline")
    cline_logs.write_task(tmp_path / "vscode", texts=True)
    opencode_logs.write_database(tmp_path / "opencode.db", opencode_logs.shop())
    (tmp_path / "pi").mkdir()
    (tmp_path / "pi" / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in pi_logs.shop()))
    result = import_path(tmp_path)
    assert result.problems == ()
    assert sorted((t.header.agent, len(t.calls)) for t in result.traces) == [
        ("cline", 4),
        ("cline", 6),
        ("opencode", 7),
        ("pi", 3),
    ]
