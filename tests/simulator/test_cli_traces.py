"""The commands that look at traces, check them and make others of them, as a person runs them."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.simulator.cli_traces_look import MOST_ROWS, pen
from windtunnel.simulator.results.emulation import Emulation, announced
from windtunnel.traces import library
from windtunnel.traces.format import encode_trace, read_trace
from windtunnel.traces.model import Call, Header, Message, Thread, Trace, Usage
from windtunnel.traces.stats import KEYS

from .test_cli import one_sentence, windtunnel

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
BLOCKS = "\u2581\u2588\u2592"


def shown(*args, columns=80, **env):
    """stdout of a command that succeeds, at a width."""
    command = [sys.executable, "-m", "windtunnel.simulator.cli", *args]
    environment = {**os.environ, "COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8", **env}
    result = subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environment, stdin=subprocess.DEVNULL, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def recorded():
    if not SHARED.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return SHARED


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize(
    "args", [("list",), ("stats",), ("show", "library:review-patch"), ("stats", "library:explain-regex")]
)
def test_lines_fit_the_terminal(args, columns):
    text = shown("traces", *args, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "\033" not in text
    assert set(BLOCKS).isdisjoint(text) == (args == ("list",) and columns == 80)


def test_a_terminal_of_few_characters_gets_ascii():
    for args in (("list",), ("stats",), ("show", "library:review-patch")):
        assert shown("traces", *args, columns=160, PYTHONIOENCODING="ascii").isascii()


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch):
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not pen().colour
    monkeypatch.setattr("sys.stdout", Terminal())
    assert pen().colour
    assert not pen().ascii
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not pen().colour
    monkeypatch.setenv("TERM", "linux")
    assert pen().ascii
    monkeypatch.setenv("COLUMNS", "133")
    assert pen().width == 133


def test_list_has_a_line_for_each_session_and_their_sum():
    lines = shown("traces", "list", "library:small", columns=120).splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert set(library.SMALL) <= set(rows)
    assert rows["session"][:4] == ["session", "agent", "calls", "tools"]
    calls = sum(int(rows[name][2]) for name in library.SMALL)
    assert int(rows["total"][1]) == calls
    assert "\u2588" in rows["fix-importer"][-1]


def test_many_sessions_are_told_by_agent(tmp_path):
    calls = (Call(0, 0, (0,), usage=Usage(completion=5)),)
    for i in range(MOST_ROWS + 1):
        header = Header(f"s{i}", agent="pi" if i % 2 else "codex")
        trace = Trace(header, messages=(Message(0, "user"),), threads=(Thread(0),), calls=calls)
        (tmp_path / f"{i}.jsonl").write_bytes(encode_trace(trace))
    lines = shown("traces", "list", str(tmp_path)).splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["agent", "sessions", "calls"],
        ["codex", "31", "31"],
        ["pi", "30", "30"],
        ["total", "61", "61"],
    ]
    assert len(json.loads(shown("traces", "list", str(tmp_path), "--json"))["sessions"]) == MOST_ROWS + 1


def test_recordings_of_an_emulator_say_so(tmp_path):
    said = announced(Emulation(gpu="H200"))
    calls = (Call(0, 0, (0,), usage=Usage(completion=5)),)
    for name, notes in (("a", (said,)), ("b", ())):
        trace = Trace(Header(name, notes=notes), messages=(Message(0, "user"),), threads=(Thread(0),), calls=calls)
        (tmp_path / f"{name}.jsonl").write_bytes(encode_trace(trace))
    for command in ("stats", "list"):
        (line,) = [line for line in shown("traces", command, str(tmp_path), columns=120).splitlines() if "EMUL" in line]
        assert "the times of 1 of 2 sessions" in line
        assert "EMULATED" in shown("traces", command, str(tmp_path / "a.jsonl"), columns=120)
        assert "EMULATED" not in shown("traces", command, str(tmp_path / "b.jsonl"), columns=120)
    assert "EMULATED" in shown("traces", "show", str(tmp_path / "a.jsonl"))


def test_stats_json_has_the_contract_s_keys_and_more():
    data = json.loads(shown("traces", "stats", "library:review-patch", "--json"))
    assert set(data) == {"total", "sessions", "problems", "profile"}
    (session,) = data["sessions"]
    assert set(KEYS) <= set(session)
    assert set(KEYS) <= set(data["total"])
    assert (session["calls"], session["subagents"], session["turns"]) == (46, 3, 46)
    assert set(session["duty_cycle"]) == {"0", "10", "60", "none"}
    assert data["profile"]["spreads"]["output"]["n"] == 46
    assert data["profile"]["tools"][0]["runs"] > 0


def test_show_draws_lanes_and_lists_every_call():
    text = shown("traces", "show", "library:review-patch", columns=110)
    lines = text.splitlines()
    assert lines[:3] == [
        "review-patch  (synthetic-review-patch)",
        "  synthetic-atlas 2.1.4   synthetic, shape only   synthetic-large",
        "  46 calls, 52 tool runs, 3 sub-agents, 11m40s long, 1.39M prompt tokens, 1.29M cached, 38.3% filler",
    ]
    assert sum(line.startswith("\u2514Task-") for line in lines) == 3
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("call ")) + 1 :]
    assert [int(line.split()[0]) for line in table] == list(range(46))
    assert "user 34s" in text


def test_show_json_has_the_session_its_lanes_and_its_calls():
    data = json.loads(shown("traces", "show", "library:review-patch", "--json"))
    assert set(data) == {"session", "threads", "lanes", "calls"}
    assert len(data["calls"]) == data["session"]["calls"] == 46
    assert [lane["name"] for lane in data["lanes"]] == ["main", "Task-1", "Task-2", "Task-3"]
    (spawned,) = data["calls"][3]["tools"]
    assert (spawned["name"], spawned["thread"]) == ("Task", 1)
    assert {s["state"] for lane in data["lanes"] for s in lane["stretches"]} == {
        "call", "tool", "human", "client", "subagent",
    }  # fmt: skip


def test_show_wants_one_session(tmp_path):
    said = one_sentence(windtunnel("traces", "show", "library:small"))
    assert "holds 6 sessions: give the file of one of them" in said
    two = tmp_path / "two.jsonl"
    one = encode_trace(read_trace(library.path("rename-flag")).traces[0])
    two.write_bytes(one + one)
    said = one_sentence(windtunnel("traces", "show", str(two)))
    assert "2 sessions in one file" in said
    assert "windtunnel import" in said


def test_fit_writes_what_fits(tmp_path):
    said = {"filter": "3 as they were, 3 left out", "scale": "3 as they were, 3 scaled"}
    for mode, written in (("filter", 3), ("scale", 6)):
        out = tmp_path / mode
        args = ("traces", "fit", "library:small", "--max-context", "24k", "--fit", mode, "--out", str(out), "--json")
        result = windtunnel(*args)
        data = json.loads(result.stdout)
        assert (result.returncode, len(data["sessions"]), len(list(out.iterdir()))) == (0, written, written)
        assert data["total"]["max_prompt_tokens"] < 24_576
        assert f"at most 24,576 tokens: {said[mode]}" in result.stderr


def test_fit_compacts_and_cuts_long_outputs(tmp_path):
    short = tmp_path / "short"
    windtunnel("traces", "fit", "library:flaky-test", "--max-context", "24k", "--fit", "compact", "--max-output", "500",
               "--out", str(short))  # fmt: skip
    (path,) = short.iterdir()
    trace = read_trace(path).traces[0]
    assert any(c.kind == "compaction" for c in trace.calls)
    assert max(c.usage.completion for c in trace.calls if c.kind != "compaction") == 500
    assert windtunnel("traces", "validate", str(short)).returncode == 0


def test_fit_that_leaves_nothing_and_flags_that_make_no_sense(tmp_path):
    out = str(tmp_path / "out")
    said = one_sentence(windtunnel("traces", "fit", "--max-context", "1k", "--out", out))
    assert "none of the 24 sessions fits 1,024 tokens by filter (the smallest needs 17,038)" in said
    assert not (tmp_path / "out").exists()
    assert "--max-context many" in one_sentence(windtunnel("traces", "fit", "--max-context", "many", "--out", out))
    assert "--out" in one_sentence(windtunnel("traces", "fit", "--max-context", "32k"))
    taken = tmp_path / "file"
    taken.write_text("")
    said = one_sentence(windtunnel("traces", "fit", "--max-context", "32k", "--out", str(taken)))
    assert "cannot write" in said


def test_synth_makes_sessions_like_the_given_ones(tmp_path):
    args = ("traces", "synth", "library:small", "--sessions", "12", "--seed", "5", "--out")
    text = shown(*args, str(tmp_path / "a"))
    assert text.splitlines()[0].endswith("of 6 given sessions and 12 made")
    assert max(map(len, text.splitlines())) <= 80
    data = json.loads(shown(*args, str(tmp_path / "b"), "--json"))
    assert data["made"]["sessions"] == 12
    assert data["given"]["sessions"] == 6
    first, second = (sorted(p.name for p in (tmp_path / name).iterdir()) for name in "ab")
    assert first == second
    assert len(first) == 12
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in first)
    result = windtunnel("traces", "validate", str(tmp_path / "a"))
    assert (result.returncode, result.stdout) == (0, "")
    assert "12 sessions" in result.stderr


def test_validate_tells_faults_with_their_lines(tmp_path):
    trace = read_trace(library.path("rename-flag")).traces[0]
    lines = encode_trace(trace).splitlines()
    at = next(i for i, line in enumerate(lines) if b'"type":"call"' in line and b'"id":4' in line)
    data = json.loads(lines[at])
    data["usage"]["cached"] = data["usage"]["prompt"] + 1
    lines[at] = json.dumps(data).encode()
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(lines))
    result = windtunnel("traces", "validate", str(path))
    assert result.returncode == 1
    assert result.stdout.startswith(f"{path}:{at + 1}: call 4 has ")
    assert result.stderr.strip() == "1 session, 9 calls in 1 file: 1 problem"
    found = json.loads(windtunnel("traces", "validate", str(path), "--json").stdout)
    assert [(p["file"], p["line"]) for p in found["problems"]] == [(str(path), at + 1)]
    assert "does not exist" in one_sentence(windtunnel("traces", "validate", str(tmp_path / "no")))


def test_import_of_a_folder_with_every_format(recorded):
    """Sessions of all importers in one table, and what could not be used with its file, line and reason."""
    result = windtunnel("import", str(recorded), "--json")
    data = json.loads(result.stdout)
    assert result.returncode == 0
    read = {s["source"].split()[0] for s in data["sessions"]}
    assert read >= {
        "claude-code", "codex", "weka", "mooncake", "opencode", "cline", "pi", "gemini-cli", "openhands", "swe-agent",
        "mini-swe-agent", "tracelab", "otel", "litellm", "har", "qwen-code", "atif",
    }  # fmt: skip
    assert all(set(KEYS) <= set(s) for s in data["sessions"])
    assert all(p["reason"] and p["file"].startswith(str(recorded)) for p in data["problems"])
    assert any(p["line"] == 110 and p["file"].endswith("derived-truncated-tail.jsonl") for p in data["problems"])


def test_the_import_table_says_what_is_guessed(recorded):
    lines = shown("import", str(recorded / "swe-agent"), str(recorded / "codex"), columns=140).splitlines()
    header = lines[0].split()
    assert header[-2:] == ["est.", "filler"]
    swe = [line.split() for line in lines if "swe-agent" in line]
    assert len(swe) == 3
    assert all("100%" in row for row in swe)
    assert lines[-2].startswith("est.: prompt or output length is a guess or unknown (30 of ")
