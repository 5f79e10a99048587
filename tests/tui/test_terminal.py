"""In a real terminal (tmux): leaving, detaching, signals, and a terminal that is put back."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_run import Fake

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PATIENCE_S = 15.0


class Pane:
    """One tmux server with one pane that runs the viewer in a shell."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)

    def tmux(self, *args: str) -> str:
        done = subprocess.run(["tmux", "-S", self.socket, *args], capture_output=True, text=True, check=False)
        return done.stdout

    def start(self, folder: Path, *flags: str) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        command = f"PYTHONPATH='{path}' {sys.executable} -m windtunnel.tui {folder} {' '.join(flags)}"
        shell = f"echo before; {command}; echo \"ended with $?\"; stty -a | grep -o ' -\\?icanon'; exec sleep 60"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", shell)

    def shows(self, text: str) -> bool:
        """Waits until the pane shows the text."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if text in self.tmux("capture-pane", "-p"):
                return True
            time.sleep(0.05)
        return False

    def viewer(self) -> int:
        """Process id of the viewer: the child of the pane's shell."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        return int(subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout.split()[0])


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    pane = Pane(tmp_path / "tmux")
    yield pane
    pane.tmux("kill-server")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose run is alive for as long as the tests are."""
    fake = Fake(8, 30.0)
    fake.alive = True
    return fake.write(tmp_path_factory.mktemp("terminal") / "run", until=25.0)


@pytest.mark.parametrize(("keys", "code"), [(["q", "s"], 0), (["q", "d"], 3)])
def test_stop_and_detach(pane: Pane, live: Path, keys: list[str], code: int) -> None:
    pane.start(live, "--mode", "watch")
    assert pane.shows("8 agents")
    pane.tmux("send-keys", keys[0])
    assert pane.shows("still going on")
    pane.tmux("resize-window", "-x", "80", "-y", "24")
    pane.tmux("send-keys", keys[1])
    assert pane.shows(f"ended with {code}")
    # The terminal is what it was: the main screen, and lines read as lines.
    assert pane.shows("before")
    assert pane.shows(" icanon")


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("HUP", 129)])
def test_a_signal_puts_the_terminal_back(pane: Pane, live: Path, signal: str, code: int) -> None:
    pane.start(live, "--mode", "watch")
    assert pane.shows("8 agents")
    subprocess.run(["kill", f"-{signal}", str(pane.viewer())], check=True)
    assert pane.shows(f"ended with {code}")
    assert pane.shows("before")
    assert pane.shows(" icanon")
