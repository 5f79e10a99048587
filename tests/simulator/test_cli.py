"""The command line as a person meets it: one sentence for each wrong use, the right exit code, never a traceback."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from msgspec.structs import replace

from windtunnel.simulator import cli
from windtunnel.simulator.cli_options import THEMES
from windtunnel.traces import library
from windtunnel.traces.format import read_trace, write_trace
from windtunnel.tui.palettes import NAMES


def windtunnel(*args, timeout=60, cwd=None):
    """Run the command line in a process of its own, without a terminal."""
    command = [sys.executable, "-m", "windtunnel.simulator.cli", *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, cwd=cwd, stdin=subprocess.DEVNULL, check=False
    )


def one_sentence(result, code=2):
    assert result.returncode == code, result
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("windtunnel:")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


@pytest.mark.parametrize("option", ["--engine", "--model", "--target"])
def test_bytes_that_are_no_text_are_one_sentence(option):
    result = windtunnel("run", option, "x\udce9", "--calls", "1")
    assert f"{option} x\ufffd: it holds bytes that are no UTF-8" in one_sentence(result)


def test_a_host_that_cannot_be_one_is_one_sentence_wherever_it_is_given():
    for command in (["run", "--target"], ["doctor", "--target"], ["record", "--port", "0", "--upstream"]):
        assert "'a..b' cannot be a host's name" in one_sentence(windtunnel(*command, "http://a..b"))


LONG = "a" * 300
UNUSABLE = f"{LONG[:80]}... cannot be used (File name too long): give another path"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "--virtual", "--calls", "1", "--agents", "1", "--out", LONG], "choose another --out"),
        *(([command, LONG], UNUSABLE) for command in ("view", "report", "diagnose", "why", "cost")),
        (["compare", LONG, LONG], "cannot be used (File name too long)"),
        (["compare", LONG], UNUSABLE),
        (["traces", "show", LONG], "File name too long"),
        (["traces", "fit", LONG, "--max-context", "4k", "--out", LONG], "File name too long"),
        (["capacity", "--virtual", "--out", LONG], "give --out another folder"),
    ],
)
def test_a_path_that_no_file_system_takes_is_one_sentence(args, says, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["windtunnel", *args])
    with pytest.raises(SystemExit) as end:
        cli._main()
    said = capsys.readouterr().err.splitlines()[-1]
    assert (end.value.code, said.startswith("windtunnel: ")) == (2, True)
    assert says in said


def test_help_names_every_command():
    result = windtunnel("--help")
    assert result.returncode == 0
    for command in ("watch", "run", "view", "import", "traces", "engine", "doctor"):
        assert command in result.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "--agents", "0"], "--agents 0"),
        (["run", "--no-such-flag"], "--no-such-flag"),
        (["run", "--duration", "soon"], "--duration soon"),
        (["run", "--duration", "5", "--calls", "3"], "exclude each other"),
        (["run", "--max-context", "many"], "--max-context many"),
        (["run", "--warmup", "1.5"], "--warmup 1.5"),
        (["run", "--max-failures", "200%"], "--max-failures 200%"),
        (["run", "--tool-time", "fast"], "fast"),
        (["run", "--out", ""], "--out: it is empty"),
        (["run", "--engine", " "], "--engine: it is empty"),
        (["run", "--tool-time", "=x2"], "name is missing"),
        (["run", "--tool-time", "x" + "9" * 400], "x999"),
        (["run", "--human-time", ""], "no time setting"),
        (["run", "--agents", "99999999999999999999"], "at most 10000"),
        (["run", "--ramp", "nan"], "--ramp nan"),
        (["run", "--ramp", "inf"], "--ramp inf"),
        (["run", "--rate", "nan"], "--rate nan"),
        (["run", "--rate", "inf"], "--rate inf"),
        (["run", "--duration", "9" * 400], "--duration 999"),
        (["run", "--duration", "99999999h"], "--duration"),
        (["run", "--warmup", "999999999999s"], "--warmup"),
        (["run", "--max-context", "9" * 5000], "--max-context 999"),
        (["run", "--max-context", "999999999k"], "--max-context"),
        (["run", "--header", "A: b\r\nX: y"], "--header A"),
        (["run", "--header", "A b: c"], "'NAME: VALUE'"),
        (["run", "--api-key", "a\nb"], "--api-key"),
        (["run", "--slo", ""], "--slo"),
        (["run", "--pace", "hectic"], "hectic"),
        (["run", "--slo", "ttft<"], "ttft<"),
        (["run", "--rate", "0"], "--rate 0"),
        (["run", "--target", "http://x:1", "--engine", "y {port}"], "--target and --engine"),
        (["run", "--engine", "sleep 5"], "{port}"),
        (["run", "/no/such/trace.jsonl"], "/no/such/trace.jsonl"),
        (["run", "library:nothing-of-that-name"], "nothing-of-that-name"),
        (["run", "--target", "ftp://x"], "ftp://x"),
        (["view", "/no/such/run"], "/no/such/run"),
        (["fly"], "fly"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(args, says, tmp_path):
    assert says in one_sentence(windtunnel(*args, cwd=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_no_trace_and_an_empty_folder(tmp_path):
    junk = tmp_path / "notes.txt"
    junk.write_text("milk, bread\n")
    assert "notes.txt" in one_sentence(windtunnel("run", str(junk), cwd=tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "empty" in one_sentence(windtunnel("run", str(empty), cwd=tmp_path))


def test_a_url_nobody_listens_on(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for command in ("run", "doctor"):
        said = one_sentence(windtunnel(command, "--target", f"http://127.0.0.1:{port}", cwd=tmp_path))
        assert f"127.0.0.1:{port}" in said


def test_an_engine_command_that_exits_at_once(tmp_path):
    said = one_sentence(windtunnel("run", "--engine", "false {port}", cwd=tmp_path))
    assert "false" in said or "exit" in said


def test_a_port_in_use(tmp_path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        result = windtunnel("engine", "--port", str(port), cwd=tmp_path)
        assert result.returncode in (1, 2)
        assert str(port) in result.stderr
        assert "Traceback" not in result.stderr


def test_a_model_the_server_lacks(tmp_path):
    said = one_sentence(windtunnel("run", "--model", "gpt-nine", cwd=tmp_path))
    assert "gpt-nine" in said
    assert "serves" in said


def test_output_into_a_closed_pipe_is_no_error(tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "traces", "list"]
    process = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert b"Traceback" not in process.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_trouble(closed, tmp_path):
    code = f'exec "$0" -m windtunnel.simulator.cli run --target http://127.0.0.1:9 --calls 1 {closed}'
    result = subprocess.run(["sh", "-c", code, sys.executable], cwd=tmp_path, timeout=60, check=False)
    assert result.returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_full_disk_under_stdout_is_one_sentence(tmp_path):
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "traces", "list"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr == "windtunnel: cannot write the output (No space left on device): write it somewhere else\n"


def test_a_terminal_of_ascii_only():
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    code = "from windtunnel.simulator.cli import _open_streams; _open_streams(); print('a \\u00b7 b')"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, timeout=60, check=False)
    assert shown.stdout == b"a ? b\n"


def test_sessions_of_equal_ids_do_not_replace_each_other(tmp_path):
    """Two that differ; a copy is the same session."""
    for name in ("a", "copy"):
        shutil.copyfile(library.path("dark-theme"), tmp_path / f"{name}.jsonl.zst")
    (trace,) = read_trace(library.path("dark-theme")).traces
    first = replace(trace.calls[0], usage=replace(trace.calls[0].usage, cached=7))
    write_trace(replace(trace, calls=(first, *trace.calls[1:])), tmp_path / "b.jsonl")
    result = windtunnel("import", str(tmp_path), "--out", str(tmp_path / "out"))
    assert result.returncode == 0
    told = f"{tmp_path / 'copy.jsonl.zst'}: the session is a copy of the one in {tmp_path / 'a.jsonl.zst'} and was left out"
    assert told in result.stderr
    names = ["synthetic-dark-theme-2.jsonl.zst", "synthetic-dark-theme.jsonl.zst"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


@pytest.mark.parametrize("command", ["watch", "run", "view"])
def test_a_theme_that_there_is_not_is_named(command, tmp_path):
    assert "'--theme': 'pink'" in one_sentence(windtunnel(command, "--theme", "pink", cwd=tmp_path))


def test_watch_gives_its_theme_to_the_screen(monkeypatch):
    seen = {}
    monkeypatch.setenv("WINDTUNNEL_THEME", "dark")
    monkeypatch.setattr(cli, "_execute", lambda *_, **__: seen.update(os.environ) or 0)
    with pytest.raises(SystemExit):
        cli.cli.main(["watch", "--theme", "okabe-ito"], standalone_mode=False)
    assert seen["WINDTUNNEL_THEME"] == "okabe-ito"
    assert THEMES == NAMES
