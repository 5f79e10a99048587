"""JSON documents that end early or are damaged inside."""

import json
import time
from pathlib import Path

import pytest

from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.records import Notes

VALUE = {"a": [1, {"b": "x,]}", "c": None}, "é"], "d": {"e": [True, "last"]}}
CUT = "the JSON is damaged or cut off here: what comes after is lost"


def read(tmp_path: Path, data: bytes) -> tuple[object, list[tuple[int | None, str]]]:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    notes = Notes(str(path))
    value = read_document(path, notes)
    return value, [(p.line, p.reason) for p in notes.all()]


def test_a_sound_document(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(VALUE).encode()) == (VALUE, [])


def test_every_cut_keeps_the_whole_values_before_it(tmp_path: Path) -> None:
    data = json.dumps(VALUE).encode()
    seen = []
    for at in range(1, len(data)):
        value, problems = read(tmp_path, data[:at])
        assert [p[1] for p in problems] == [CUT]
        seen.append(json.dumps(value))
    assert seen[0] == "{}"
    assert json.loads(seen[-1]) == VALUE
    steps = list(dict.fromkeys(seen))
    assert len(steps) > 6
    assert [len(s) for s in steps] == sorted(len(s) for s in steps)


def test_damage_inside_costs_what_comes_after(tmp_path: Path) -> None:
    data = json.dumps(VALUE, indent=1).encode()
    at = data.index(b'"d"')
    value, problems = read(tmp_path, data[:at] + b"\xff\xfe#" + data[at:])
    assert value == {"a": VALUE["a"]}
    assert problems == [(data.count(b"\n", 0, at) + 1, CUT)]


@pytest.mark.parametrize("data", [b"nothing", b"[" * 5_000, b"\0\0"])
def test_nonsense(data: bytes, tmp_path: Path) -> None:
    value, problems = read(tmp_path, data)
    assert value is None
    assert [p[1] for p in problems] == ["the file is not valid JSON and was left out"]


def test_a_long_text_cut_at_a_backslash_takes_no_time(tmp_path: Path) -> None:
    data = json.dumps({"a": 1, "b": '"x' * 300_000}).encode()[:900_000].rstrip(b"x\\") + b"\\"
    began = time.perf_counter()
    value, _ = read(tmp_path, data)
    assert value == {"a": 1}
    assert time.perf_counter() - began < 2
