"""What a run without a screen says on stderr."""

import asyncio
import io
import os
import pty
import termios
import tty
from types import SimpleNamespace

from windtunnel.agents import events as ev
from windtunnel.simulator.run.viewer import PlainProgress, Viewer


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
