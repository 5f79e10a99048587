"""JSON documents that end early or are damaged inside."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import import_path
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.records import Notes

from . import agent_logs, openhands_logs, workload_logs

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


def test_a_list_is_read_around_the_damage(tmp_path: Path) -> None:
    """One of its items is lost, not all that come after it."""
    items = [{"n": n, "said": [{"n": -n}]} for n in range(6)]
    path = tmp_path / "x.json"
    for log, kept in ((items, items), ({"a": 1, "list": items, "z": 2}, {"a": 1, "list": items})):
        data = json.dumps(log).encode()
        at = data.index(b'{"n": 3') + 3
        path.write_bytes(data[:at] + b"\x00\xff" + data[at + 2 :])
        notes = Notes(str(path))
        value = read_document(path, notes, "list", lambda v: "said" in v)
        found = value["list"] if isinstance(value, dict) else value
        assert found == [i for i in items if i["n"] != 3]
        assert type(value) is type(kept)
        assert [p.reason for p in notes.all()] == ["the file is damaged here: what could not be read was left out"]


def test_a_cut_list_keeps_what_its_last_item_holds(tmp_path: Path) -> None:
    data = json.dumps([{"n": 1}, {"n": 2, "text": "cut"}]).encode()[:-4]
    path = tmp_path / "x.json"
    path.write_bytes(data)
    notes = Notes(str(path))
    assert read_document(path, notes, "list", lambda v: "n" in v) == [{"n": 1}, {"n": 2}]
    assert [p.reason for p in notes.all()] == [CUT]


def test_messages_behind_damage_are_kept(tmp_path: Path) -> None:
    """Each format whose document is a list of messages."""
    logs: dict[str, tuple[str, Any, bytes]] = {
        "mini-swe-agent": ("run.traj.json", agent_logs.mini_log(), b'"role": "tool"'),
        "gemini-cli": ("session-1.json", agent_logs.gemini_document(), b'"type": "user"'),
        "openhands": ("run.json", openhands_logs.v0_log(), b'"observation": "run"'),
        "atif": ("m.json", workload_logs.atif(), b'"step_id": 2'),
    }
    for importer, (name, log, mark) in logs.items():
        data = json.dumps(log).encode()
        assert mark in data, importer
        path = tmp_path / name
        path.write_bytes(data)
        (whole,) = import_path(path, importer).traces
        path.write_bytes(data.replace(mark, b"\x00" + mark, 1))
        result = import_path(path, importer)
        assert any("damaged here" in p.reason for p in result.problems), importer
        assert len(result.traces[0].calls) >= len(whole.calls) - 1, importer
