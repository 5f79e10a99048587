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
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert str(tmp_path) in said


def test_no_terminal_exits_2_with_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 2
    said = capsys.readouterr().err
    assert "needs a terminal" in said
    assert said.count("\n") == 1


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_somebody_at_a_terminal_is_told_at_once_that_a_screen_will_come(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Terminal()
    monkeypatch.setattr("sys.stderr", said)
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
