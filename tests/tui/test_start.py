"""The command: pictures without a terminal, and one sentence for what cannot work."""

import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from fake_run import Fake

from windtunnel.tui.__main__ import STARTING, begin
from windtunnel.tui.start import main
from windtunnel.tui.theme import ASCII, UNICODE, theme_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: Fake) -> Path:
    return running.write(tmp_path_factory.mktemp("start") / "run", summary=True)


def test_a_picture_holds_the_screen_and_loads_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "fleet.svg"
    assert main([str(folder), "--svg", str(out), "--size", "120x40", "--at", "40"]) == 0
    text = out.read_text()
    assert re.findall(r"https?://[^\"' )]+", text) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in text
    assert "url(" not in text
    root = ET.fromstring(text)
    words = " ".join(t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "32 agents" in words
    assert "EMULATED" in words
    width, height = (float(v) for v in root.attrib["viewBox"].split()[2:])
    assert width > 120 * 8
    assert height > 40 * 18


def test_a_picture_of_an_agent_after_keys(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "agent.svg"
    assert main([str(folder), "--svg", str(out), "--at", "40", "--agent", "3", "--keys", "right"]) == 0
    assert "agent 04" in out.read_text()


def test_what_is_no_run_exits_2_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--svg", str(tmp_path / "x.svg")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("windtunnel: ")
    assert said.count("\n") == 1
    assert str(tmp_path) in said


def test_no_terminal_exits_2_with_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 2
    said = capsys.readouterr().err
    assert "needs a terminal" in said
    assert said.count("\n") == 1


UNSEEN = [
    *(["--speed", text] for text in ("inf", "1e308", "nan", "-1", "10001", "x")),
    *(["--at", text] for text in ("inf", "1e300", "nan", "-1", "soon")),
]


@pytest.mark.parametrize("flags", UNSEEN)
def test_speeds_and_moments_that_no_run_has_are_refused(
    folder: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main([str(folder), *flags])
    assert error.value.code == 2
    assert f"{flags[1]}: give " in capsys.readouterr().err


def test_a_terminal_of_lines_only_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setenv("TERM", "dumb")
    assert main([str(folder)]) == 2
    assert "TERM=dumb" in said.getvalue()
    assert "--plain" in said.getvalue()
    assert said.getvalue().count("\n") == 1


def test_names_in_sentences_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "a\x1b]0;T\x07\nb\u202e")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert "\\u001b]0;T\\u0007 b\\u202e does not exist" in said


INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = ["windtunnel.tui", "run"]
runpy.run_module("windtunnel.tui", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["windtunnel.tui.start", "textual.app", "windtunnel.tui.screens.fleet"])
def test_an_interrupt_while_it_starts_is_no_traceback(module: str) -> None:
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() == "windtunnel: interrupted"


@pytest.mark.parametrize("flags", [["--size", "wide"], ["--size", "10x5"], ["--speed", "0"], ["--what"]])
def test_wrong_flags_exit_2(folder: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main([str(folder), *flags])
    assert error.value.code == 2
    assert capsys.readouterr().err


def test_the_theme_follows_the_terminal() -> None:
    assert theme_for({"TERM": "xterm-256color"}, "utf-8").glyphs is UNICODE
    assert theme_for({"TERM": "xterm-256color"}, "ascii").glyphs is ASCII
    assert theme_for({"TERM": "linux"}, "utf-8").glyphs is ASCII
    assert theme_for({"WINDTUNNEL_ASCII": "1"}, "utf-8").glyphs is ASCII
    assert theme_for({"NO_COLOR": "1"}, "utf-8").colour is False
    assert theme_for({"NO_COLOR": ""}, "utf-8").colour is True


def test_somebody_at_a_terminal_is_told_at_once_that_a_screen_will_come(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Terminal()
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setenv("TERM", "dumb")
    assert not begin(["run"])
    monkeypatch.setenv("TERM", "xterm")
    assert begin(["run", "--mode", "watch"])
    assert said.getvalue() == STARTING
    assert not begin(["run", "--svg=x.svg"])
    assert not begin(["--list"])
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert not begin(["run"])


def test_the_first_screen_waits_for_nothing_that_it_does_not_need() -> None:
    code = "import json, sys, windtunnel.tui.start; print(json.dumps(list(sys.modules)))"
    names = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert "windtunnel.tui.app" in names
    unneeded = {"windtunnel.traces.importers", "windtunnel.agents.recorder", "windtunnel.simulator.emulator", "aiohttp"}
    assert not names & (unneeded | {"windtunnel.simulator.run.run", "windtunnel.tui.web", "http.server"})
