"""What a run without a screen says on stderr."""

import asyncio
import io
import os
import pty
import select
import subprocess
import sys
import termios
import tty
from pathlib import Path
from types import SimpleNamespace

import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.run.viewer import PlainProgress, Viewer, again, fitting


def test_the_first_failure_of_each_name_is_told_with_what_the_server_said():
    said = io.StringIO()
    progress = PlainProgress(said, agents=2)
    for call, (failure, detail) in enumerate(
        [("http_401", "no \x1b[31mkey"), ("http_401", "again"), ("read_timeout", None)]
    ):
        progress(
            ev.CallEnd(
                t=1,
                agent=1,
                session="s",
                thread=0,
                call=call,
                request_id="r",
                t_intended=0,
                failure=failure,
                detail=detail,
            )
        )
    assert said.getvalue().splitlines() == [
        "failed: http_401 (no [31mkey), agent 1, session s, call 0; more of these are only counted",
        "failed: read_timeout, agent 1, session s, call 2; more of these are only counted",
    ]


def test_a_screen_hides_them():
    said = io.StringIO()
    progress = PlainProgress(said, agents=1)
    progress.enabled = False
    progress(ev.CallEnd(t=1, agent=0, session="s", thread=0, call=0, request_id="r", t_intended=0, failure="http_500"))
    assert said.getvalue() == ""


def test_a_closed_terminal_does_not_end_the_run():
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

    progress = PlainProgress(Gone(), agents=1)
    progress(ev.Note(t=0, level="warning", text="x"))
    progress(ev.Progress(t=1, output_tokens=0, prompt_tokens=0, in_flight=0, in_tool=0, waiting=0))


async def test_after_a_killed_viewer_the_terminal_takes_keys_again(monkeypatch):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    said = io.StringIO()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=lambda: theirs))
    monkeypatch.setattr("sys.stderr", said)
    viewer = Viewer(await asyncio.create_subprocess_exec("sleep", "100"), before)
    tty.setraw(theirs)
    viewer._process.kill()
    assert await viewer.wait() == -9
    assert termios.tcgetattr(theirs)[:4] == before[:4]
    assert "\x1b[?1049l" in said.getvalue()
    os.close(ours)
    os.close(theirs)


PARTS = (("12.0 s", 0), ("1,000 tok/s", 1), ("in tool 3", 3), ("failed 0", 2))


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (80, "12.0 s  1,000 tok/s  in tool 3  failed 0"),
        (40, "12.0 s  1,000 tok/s  in tool 3  failed 0"),
        (39, "12.0 s  1,000 tok/s  failed 0"),
        (28, "12.0 s  1,000 tok/s"),
        (3, "12.0 s"),
    ],
)
def test_a_line_keeps_what_matters_most(width, said):
    assert fitting(PARTS, width) == said


def test_lines_fit_the_terminal():
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with os.fdopen(theirs, "w") as terminal:
        progress = PlainProgress(terminal, agents=256, clock="emulated ")
        progress(ev.Progress(t=10**9, output_tokens=9, prompt_tokens=0, in_flight=200, in_tool=40, waiting=16))
        line = os.read(ours, 1000).decode().rstrip()
    os.close(ours)
    assert len(line) < 80
    assert "in flight 200" in line
    assert line.endswith("  done 0, failed 0")


def test_the_way_back_can_be_pasted():
    assert again(Path("runs/x")) == "windtunnel view runs/x"
    assert again(Path("my runs/x")) == "windtunnel view 'my runs/x'"


TYPING = """
import fcntl, os, select, sys, termios
from windtunnel.simulator.run.viewer import keys_kept
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
with keys_kept():
    os.write(1, b"type")
    assert select.select([0], [], [], 10)[0]
modes = termios.tcgetattr(0)[3]
sys.exit(bool(select.select([0], [], [], 0)[0]) or not modes & termios.ECHO or not modes & termios.ICANON)
"""


def test_keys_that_nobody_read_do_not_reach_the_shell():
    # What a program leaves unread in its terminal is what a shell would read next.
    ours, theirs = pty.openpty()
    path = os.pathsep.join(part for part in sys.path if part)
    command = [sys.executable, "-c", TYPING]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, start_new_session=True, env={**os.environ, "PYTHONPATH": path}
    ) as child:
        shown = os.read(ours, 100)
        os.write(ours, b"qq")
        assert child.wait(timeout=10) == 0
    assert shown == b"type"
    assert not select.select([ours], [], [], 0)[0], "the keys were echoed"
    os.close(ours)
    os.close(theirs)
