"""`traces anonymise` as a person meets it: files that can be shared, and a key that stays."""

import json
import stat

import pytest

from windtunnel.simulator.cli_anonymise import BESIDE, anonymise_command
from windtunnel.traces.check import faults
from windtunnel.traces.errors import UsageError
from windtunnel.traces.format import read_trace, write_trace
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, digest_of

from .test_cli import windtunnel

TEXT = "the merger is planned for May"


def session(name, text=TEXT):
    return Trace(
        Header(name, models=("acme-7b",), title="about the merger"),
        (Block(0, digest_of(text), "prose", 7, len(text), text),),
        (Message(0, "user", (0,)),),
        threads=(Thread(0),),
        calls=(Call(0, 0, (0,)),),
    )


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Where a key is made that nobody names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "windtunnel" / "anonymise.key"


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    write_trace(session("monday"), folder / "monday.jsonl")
    write_trace(session("tuesday"), folder / "tuesday.jsonl")
    return folder


def digests(folder):
    return {block.digest for path in folder.iterdir() for trace in read_trace(path).traces for block in trace.blocks}


def test_what_is_written_and_where_the_key_is(mine, tmp_path, kept):
    out, key = tmp_path / "out", kept
    before = sorted(mine.iterdir())
    result = windtunnel("traces", "anonymise", str(mine), "--out", str(out), "--json")
    assert result.returncode == 0, result.stderr
    assert [s["calls"] for s in json.loads(result.stdout)["sessions"]] == [1, 1]
    assert f"the key stays in {key}" in result.stderr
    assert "wrote 2 traces to" in result.stderr
    assert sorted(mine.iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out", "settings"]
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


def test_a_source_that_cannot_be_written_to_is_no_trouble_and_one_trace_is_one(mine, tmp_path, kept, capsys):
    mine.chmod(0o500)
    anonymise_command([str(mine / "monday.jsonl")], tmp_path / "a", None)
    said = capsys.readouterr().err
    assert f"wrote 1 trace to {tmp_path / 'a'}\n" in said
    assert f"the key stays in {kept} (was made now: keep it" in said
    anonymise_command([str(mine / "tuesday.jsonl")], tmp_path / "a", None)
    assert f"the key stays in {kept} (was there)" in capsys.readouterr().err
    assert len(digests(tmp_path / "a")) == 1
    mine.chmod(0o700)


def test_a_key_beside_the_source_goes_on_being_used(mine, tmp_path, kept, capsys):
    (tmp_path / BESIDE).write_text("0f" * 32 + "\n")
    (tmp_path / BESIDE).chmod(0o600)
    anonymise_command([str(mine)], tmp_path / "a", None)
    assert f"the key stays in {tmp_path / BESIDE} (was there)" in capsys.readouterr().err
    assert not kept.exists()
    anonymise_command([str(mine)], tmp_path / "b", tmp_path / BESIDE)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    # the key among the originals disturbs nothing, and does not say which of two is meant
    (mine / BESIDE).write_text("1f" * 32 + "\n")
    capsys.readouterr()
    anonymise_command([str(mine)], tmp_path / "a", None)
    assert "problem" not in capsys.readouterr().err
    with pytest.raises(UsageError, match="two keys"):
        anonymise_command([str(mine), str(mine / "monday.jsonl")], tmp_path / "c", None)


def test_without_a_folder_for_settings_the_key_is_in_the_home_folder(mine, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "not-absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    anonymise_command([str(mine)], tmp_path / "a", None)
    assert (tmp_path / "home" / ".config" / "windtunnel" / "anonymise.key").exists()
    with pytest.raises(UsageError, match="would be shared"):
        anonymise_command([str(mine)], tmp_path / "home", None)


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


def test_the_library_needs_no_named_key(tmp_path, kept):
    out = str(tmp_path / "out")
    result = windtunnel("traces", "anonymise", "library:small", "--out", out)
    assert result.returncode == 0, result.stderr
    assert f"the key stays in {kept}" in result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_help_shows_the_example_on_a_line_of_its_own():
    lines = windtunnel("traces", "anonymise", "--help").stdout.splitlines()
    assert "    windtunnel traces anonymise ~/.claude/projects --out shared" in lines
