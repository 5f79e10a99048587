"""`traces anonymise` as a person meets it: files that can be shared, and a key that stays."""

import json
import stat

import pytest

from windtunnel.simulator.cli_anonymise import KEY_NAME, anonymise_command
from windtunnel.traces.check import faults
from windtunnel.traces.errors import UsageError
from windtunnel.traces.format import read_trace, write_trace
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, digest_of

from .test_cli import one_sentence, windtunnel

TEXT = "the merger is planned for May"


def session(name, text=TEXT):
    return Trace(
        Header(name, models=("acme-7b",), title="about the merger"),
        (Block(0, digest_of(text), "prose", 7, len(text), text),),
        (Message(0, "user", (0,)),),
        threads=(Thread(0),),
        calls=(Call(0, 0, (0,)),),
    )


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    write_trace(session("monday"), folder / "monday.jsonl")
    write_trace(session("tuesday"), folder / "tuesday.jsonl")
    return folder


def digests(folder):
    return {block.digest for path in folder.iterdir() for trace in read_trace(path).traces for block in trace.blocks}


def test_what_is_written_and_where_the_key_is(mine, tmp_path):
    out, key = tmp_path / "out", tmp_path / KEY_NAME
    result = windtunnel("traces", "anonymise", str(mine), "--out", str(out), "--json")
    assert result.returncode == 0, result.stderr
    assert [s["calls"] for s in json.loads(result.stdout)["sessions"]] == [1, 1]
    assert f"the key stays in {key}" in result.stderr
    assert "acme-7b" in result.stderr
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    files = sorted(out.iterdir())
    assert len(files) == 2
    for path in files:
        (trace,) = read_trace(path).traces
        assert path.name == f"{trace.header.id}.jsonl.zst"
        assert faults(trace) == []
        assert trace.header.shape_only
    assert len(digests(out)) == 1
    assert key.read_text().strip().encode() not in b"".join(path.read_bytes() for path in files)


def test_a_set_grows_with_its_key_and_no_other(mine, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    anonymise_command([str(mine / "monday.jsonl")], out, tmp_path / "k")
    anonymise_command([str(mine / "tuesday.jsonl")], out, tmp_path / "k", ["acme-7b"])
    assert (len(list(out.iterdir())), len(digests(out))) == (2, 1)
    with pytest.raises(UsageError, match="another key"):
        anonymise_command([str(mine)], out, tmp_path / "k2")
    anonymise_command([str(mine)], again, tmp_path / "k2")
    assert digests(again) & digests(out) == set()
    assert {p.name for p in again.iterdir()} & {p.name for p in out.iterdir()} == set()
    capsys.readouterr()


def test_the_folder_of_a_session_and_the_session_have_their_keys_beside_them(mine, tmp_path, capsys):
    anonymise_command([str(mine)], tmp_path / "a", None)
    anonymise_command([str(mine / "monday.jsonl")], tmp_path / "b", None)
    assert (tmp_path / KEY_NAME).read_text() != (mine / KEY_NAME).read_text()
    anonymise_command([str(mine)], tmp_path / "a", None)  # the key among the originals disturbs nothing
    assert "problem" not in capsys.readouterr().err
    with pytest.raises(UsageError, match="two keys"):
        anonymise_command([str(mine), str(mine / "monday.jsonl")], tmp_path / "c", None)


@pytest.mark.parametrize(
    ("out", "key", "says"),
    [
        ("mine", "k", "lie in one another"),
        ("mine/shared", "k", "lie in one another"),
        (".", "k", "lie in one another"),
        ("out", "out/k", "would be shared"),
        ("out", "mine/monday.jsonl", "is no key"),
        ("out", "mine", "cannot be read"),
        ("out", "mine/monday.jsonl/k", "cannot be written"),
        ("mine/monday.jsonl", "k", "lie in one another|is not a folder"),
    ],
)
def test_wrong_places_are_refused_before_anything_is_written(out, key, says, mine, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=says):
        anonymise_command([str(mine)], tmp_path / out, tmp_path / key)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_key_that_others_can_read_is_said(mine, tmp_path, capsys):
    key = tmp_path / "k"
    key.write_text("0f" * 32 + "\n")
    key.chmod(0o644)
    anonymise_command([str(mine)], tmp_path / "out", key)
    assert f"chmod 600 {key}" in capsys.readouterr().err


def test_the_library_needs_a_named_key(tmp_path):
    out = str(tmp_path / "out")
    assert "--key FILE" in one_sentence(windtunnel("traces", "anonymise", "library:small", "--out", out))
    result = windtunnel("traces", "anonymise", "library:small", "--out", out, "--key", str(tmp_path / "k"))
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_help_shows_the_example_on_a_line_of_its_own():
    lines = windtunnel("traces", "anonymise", "--help").stdout.splitlines()
    assert "    windtunnel traces anonymise ~/.claude/projects --out shared" in lines
