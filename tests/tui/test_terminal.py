"""In a real terminal (tmux): leaving, detaching, signals, and a terminal that is put back."""

import os
import shutil
import signal as signal_numbers
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_run import Fake

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PATIENCE_S = 15.0
MOUSE = ("mouse_any_flag", "mouse_all_flag", "mouse_standard_flag", "mouse_button_flag", "mouse_sgr_flag")


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
        shell = f"export COLUMNS=70 LINES=20; echo before; {command}; echo \"ended with $?\"; stty -a | grep -o ' -\\?icanon'; exec sleep 60"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", shell)

    def shows(self, text: str) -> bool:
        """Waits until the pane shows the text."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if text in self.tmux("capture-pane", "-p"):
                return True
            time.sleep(0.05)
        return False

    def drawn_at(self, width: int) -> bool:
        """Waits until the title ends where it does on a screen so wide."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if len(self.tmux("capture-pane", "-p").partition("\n")[0].rstrip()) == width - 1:
                return True
            time.sleep(0.05)
        return False

    def told(self, name: str) -> str:
        """What tmux knows of the pane: `alternate_on`, `cursor_flag`, ..."""
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def restored(self) -> None:
        """The terminal is what it was: main screen, cursor, no mouse, plain text, lines read as lines."""
        assert self.shows("before")
        assert self.shows(" icanon")
        assert self.told("alternate_on") == "0"
        assert self.told("cursor_flag") == "1"
        assert {self.told(name) for name in MOUSE} == {"0"}
        line = next(line for line in self.tmux("capture-pane", "-p", "-e").splitlines() if "ended with" in line)
        assert "\x1b" not in line

    def click(self, column: int, row: int) -> None:
        """A press and a release of the left button; from 0."""
        for letter in "Mm":
            self.tmux("send-keys", "-H", *(f"{b:x}" for b in f"\x1b[<0;{column + 1};{row + 1}{letter}".encode()))

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
    pane.restored()


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)])
def test_a_signal_puts_the_terminal_back(pane: Pane, live: Path, signal: str, code: int) -> None:
    pane.start(live, "--mode", "watch")
    assert pane.shows("8 agents")
    assert pane.told("alternate_on") == "1"
    assert "1" in {pane.told(name) for name in MOUSE}
    subprocess.run(["kill", f"-{signal}", str(pane.viewer())], check=True)
    assert pane.shows(f"ended with {code}")
    pane.restored()


WATCHER = """
import asyncio, sys
from pathlib import Path
from windtunnel.simulator.run.viewer import Viewer, keys_kept
async def main():
    viewer = await Viewer.start(Path(sys.argv[1]), exit_when_done=False)
    await viewer.wait()
with keys_kept():
    asyncio.run(main())
"""


def test_a_killed_run_takes_its_screen_away(pane: Pane, live: Path, tmp_path: Path) -> None:
    """From an interactive shell: it has the terminal back before the viewer can notice."""
    (tmp_path / "watcher.py").write_text(WATCHER)
    path = os.pathsep.join(p for p in sys.path if p)
    pane.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", f"PYTHONPATH='{path}' bash --norc -i")
    pane.tmux("send-keys", f"echo before; {sys.executable} {tmp_path}/watcher.py {live}", "Enter")
    assert pane.shows("8 agents")
    watcher = pane.viewer()
    viewer = int(subprocess.run(["pgrep", "-P", f"{watcher}"], capture_output=True, text=True, check=True).stdout)
    os.kill(watcher, signal_numbers.SIGKILL)
    assert pane.shows("the run has died: windtunnel view")
    end = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{viewer}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{viewer}").exists()
    pane.tmux("send-keys", "stty -a | grep -o ' -\\?icanon'; echo ended with $?", "Enter")
    pane.restored()


def test_a_run_killed_in_a_script_leaves_a_terminal_that_reads_lines(pane: Pane, live: Path, tmp_path: Path) -> None:
    """There nobody else puts back what the run had changed."""
    (tmp_path / "watcher.py").write_text(WATCHER)
    path = os.pathsep.join(p for p in sys.path if p)
    over = tmp_path / "over"
    script = f"{sys.executable} {tmp_path}/watcher.py {live}; until [ -e {over} ]; do sleep 0.05; done"
    script = (
        f"export PYTHONPATH='{path}'; echo before; {script}; echo \"ended with $?\"; stty -a | grep -o ' -\\?icanon'"
    )
    pane.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", f"{script}; exec sleep 60")
    assert pane.shows("8 agents")
    watcher = pane.viewer()
    viewer = int(subprocess.run(["pgrep", "-P", f"{watcher}"], capture_output=True, text=True, check=True).stdout)
    os.kill(watcher, signal_numbers.SIGKILL)
    end = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{viewer}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    over.touch()
    assert pane.shows("the run has died")
    pane.restored()


def test_a_terminal_that_is_closed_ends_the_viewer(pane: Pane, live: Path) -> None:
    pane.start(live, "--mode", "watch")
    assert pane.shows("8 agents")
    viewer = pane.viewer()
    pane.tmux("kill-session")
    end = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{viewer}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{viewer}").exists()


def test_sizes_the_mouse_and_the_keys_of_a_real_terminal(pane: Pane, tmp_path: Path) -> None:
    # Of a run that is over: beside a live one the viewer is nice, and slow where cores are short.
    pane.start(Fake(8, 30.0).write(tmp_path / "run", summary=True), "--mode", "view")
    assert pane.shows("8 agents")
    for size in ((60, 20), (39, 10), (200, 50), (100, 30)):
        pane.tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))
        assert pane.shows("too small") if size[0] < 40 else pane.drawn_at(size[0]), size
    rows = pane.tmux("capture-pane", "-p").splitlines()
    fourth = next(i for i, line in enumerate(rows) if line.lstrip().startswith("04 "))
    pane.click(10, fourth)
    pane.click(10, fourth)
    assert pane.shows("agent 04")
    pane.tmux("send-keys", "Escape")
    assert pane.shows("05 ")
    pane.tmux("send-keys", "C-p")
    assert pane.shows("type to filter")
    pane.tmux("send-keys", "-l", "light")
    assert pane.shows("1 of ")
    pane.tmux("send-keys", "Enter")
    assert pane.shows("theme light")
    pane.tmux("send-keys", "q")
    assert pane.shows("ended with 0")
    pane.restored()


def test_without_a_terminal_it_says_so(live: Path, pane: Pane) -> None:
    pane.start(live, "< /dev/null")
    assert pane.shows("needs a terminal")
    assert pane.shows("ended with 2")
    pane.restored()
