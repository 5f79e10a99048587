"""Whatever a terminal sends, the viewer goes on: bytes that are no text, reports that mean nothing."""

import array
import fcntl
import os
import random
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_run import Fake
from textual import events

from windtunnel.tui.frugal import Keyboard
from windtunnel.tui.web import resize

PATIENCE_S = 15.0


class Typist:
    """A viewer on a pseudo terminal, and somebody who types."""

    def __init__(self, folder: Path) -> None:
        self.master, slave = os.openpty()
        resize(self.master, (100, 30))
        environ = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.viewer = subprocess.Popen(
            [sys.executable, "-m", "windtunnel.tui", str(folder), "--mode", "view"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.seen = b""

    def send(self, data: bytes) -> None:
        self.seen = b""
        os.write(self.master, data)

    def shows(self, text: bytes) -> bool:
        """Waits until it was drawn since something was sent last."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.seen and time.monotonic() < end:
            try:
                self.seen += os.read(self.master, 1 << 16)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        return text in self.seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fake(8, 30.0).write(tmp_path_factory.mktemp("typed") / "run", summary=True)


@pytest.fixture
def typist(folder: Path) -> Iterator[Typist]:
    typist = Typist(folder)
    yield typist
    if typist.viewer.poll() is None:
        typist.viewer.kill()
        typist.viewer.wait()
    os.close(typist.master)


def test_bytes_that_are_no_text_do_not_end_the_viewer(typist: Typist) -> None:
    assert typist.shows(b"8 agents")
    typist.send(b"\xff")
    typist.send(b"\x1b[M\xff\xff\xff")
    typist.send(b"\x1b[1;1:1u\x1b[9999999999u")
    typist.send(b"\x10")
    assert typist.shows(b"type to filter")
    typist.send(b"\x1b[200~lig\xe9\x1b[201~")
    assert typist.shows("lig\ufffd".encode())
    typist.send(b"zz")
    assert typist.shows("lig\ufffdzz".encode())
    assert typist.viewer.poll() is None


def keys(*parts: bytes) -> list[str]:
    keyboard = Keyboard()
    return [event.key for part in parts for event in keyboard.feed(part) if isinstance(event, events.Key)]


def test_what_is_good_around_it_stays() -> None:
    assert keys(b"a\xffb") == ["a", "replacement_character", "b"]
    assert keys(b"\xc3", b"\xa9x") == keys("éx".encode()) == ["é", "x"]
    # A report of the old kind takes its three bytes, and no key behind them.
    assert keys(b"\x1b[M\xff\xff\xffq") == ["q"]
    assert keys(b"j\x1b[1;1:1uk") == ["j", "k"]
    assert keys(b"j\x1b[9999999999uk") == ["j", "k"]
    assert keys(b"\x1b[48;2;0;0;0t\x1b[<0;5;5Mk") == ["k"]


def test_any_bytes_leave_it_reading() -> None:
    rng = random.Random(11)
    pieces = [b"\x1b[", b"\x1b[48;", b"\x1b[M", b"\x1b[<", b"\x1b[?", b"\x1b[200~", b"\x1b[201~", b"0;0;0t", b"1:1u"]
    pieces += [b"%d" % n for n in (0, 7, 10**12)] + [b":", b";", b"u", b"~", b"R", b"A", b"M", b"t", b"\xd9\xa3"]
    for _ in range(2000):
        keyboard = Keyboard()
        noise = b"".join(rng.choice((*pieces, rng.randbytes(2))) for _ in range(rng.randint(1, 12)))
        for _ in keyboard.feed(noise):
            pass
        # Closes a sequence and a paste that are open, and 40 characters are more than any report has.
        last = [*keyboard.feed(b"\x1b[201~" + b"z" * 40 + b"q")]
        assert isinstance(last[-1], events.Key), noise
        assert last[-1].key == "q", noise


LEAVING = """
import atexit, fcntl, runpy, select, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # its own terminal, as in a shell
import windtunnel.tui.start as start
start.main = lambda argv: select.select([0], [], []) and 7
atexit.register(print, "taken down")
sys.argv = ["windtunnel.tui", "run"]
runpy.run_module("windtunnel.tui", run_name="__main__")
"""


def test_what_is_typed_while_the_screen_goes_does_not_reach_the_shell() -> None:
    master, slave = os.openpty()
    path = os.pathsep.join(p for p in sys.path if p)
    viewer = subprocess.Popen(
        [sys.executable, "-c", LEAVING],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TERM": "xterm-256color", "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        os.write(master, b"rm -r it\n")
        assert viewer.wait(PATIENCE_S) == 7
        unread = array.array("i", [0])
        fcntl.ioctl(slave, termios.FIONREAD, unread)
        assert unread[0] == 0
        assert termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO
        # Nor does it take its time: it went without taking everything down first.
        assert b"taken down" not in os.read(master, 1 << 16)
    finally:
        viewer.kill()
        os.close(master)
        os.close(slave)
