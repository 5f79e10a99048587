"""Starting the viewer: arguments, the terminal it needs, pictures without one."""

import argparse
import contextlib
import os
import re
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from windtunnel.simulator.opening import factor, kind_of, moment
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.run.viewer import SCREENLESS, again, dumb, leave_screen, say, terminal
from windtunnel.traces.errors import UsageError, WindtunnelError
from windtunnel.traces.outlet import one_line, safe_streams
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.palettes import NAMES
from windtunnel.tui.past import RUNS, Shelf, as_data
from windtunnel.tui.theme import theme_for
from windtunnel.tui.trips import Trips
from windtunnel.tui.widgets.shelf import as_text


def main(argv: Sequence[str]) -> int:
    """0: stop and keep, or closed; 3: detach; 2: wrong use; 128 + n: ended by signal n."""
    with safe_streams():
        arguments = _parser().parse_args(argv)
        try:
            return _run(arguments)
        except WindtunnelError as error:
            print(f"windtunnel: {one_line(str(error))}", file=sys.stderr)
            return error.exit_code


YIELDING = 19
"""Added niceness beside a live run: where cores are short the screen waits, and not what is measured.

Not for its first seconds: a screen that does not come looks like one that never will."""


def _run(arguments: argparse.Namespace) -> int:
    if arguments.web:
        return _web(arguments)
    if arguments.list:
        return _list(arguments.paths, as_json=arguments.json)
    paths: list[Path] = arguments.paths
    show = _picture if arguments.svg is not None else _watch
    first = opening(paths)
    if first is not None:
        if arguments.speed is not None or arguments.at is not None:
            raise UsageError("--speed and --at play one run again: give the folder of a run")
        return show(None, arguments, first)
    follower = Follower.open(
        paths[0],
        wall=time.time,
        monotonic=time.monotonic,
        speed=arguments.speed,
        at_s=arguments.at,
        whole=arguments.svg is not None,
    )
    try:
        return show(follower, arguments, None)
    finally:
        follower.close()


First = Callable[[Trips], Screen[Any]]


def opening(paths: Sequence[Path]) -> First | None:
    """Makes the screen that these paths ask for: past runs, or a comparison; None for one run, which is the fleet."""
    match kind_of(paths):
        case "runs":
            return lambda trips: trips.runs_of(paths[0] if paths else RUNS, nested=False)
        case "comparison":
            return lambda trips: trips.comparison_of(paths, nested=False)
        case _:
            return None


def _list(paths: Sequence[Path], *, as_json: bool) -> int:
    """Past runs as text or JSON, newest first."""
    shelf = Shelf(paths[0] if paths else RUNS, time.time, time.monotonic)
    shelf.look()
    entries = shelf.poll(float("inf"))
    if shelf.problem:
        raise UsageError(f"{shelf.problem}; give the folder of a run, or one with runs in it")
    try:
        print(as_data(entries) if as_json else as_text(entries, time.time(), sys.stdout.encoding), flush=True)
    except BrokenPipeError:
        # The reader went away (`| head`): there is nobody to tell, not even when Python flushes at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _web(arguments: argparse.Namespace) -> int:
    """A page for browsers: each starts a viewer with the same flags."""
    from windtunnel.tui.web import main as serve

    opening(arguments.paths)
    given = {"--theme": arguments.theme, "--speed": arguments.speed, "--at": arguments.at}
    flags = [part for name, value in given.items() if value is not None for part in (name, f"{value}")]
    return serve(arguments.paths, arguments.port, flags)


def _watch(follower: Follower | None, arguments: argparse.Namespace, first: First | None) -> int:
    if arguments.own_terminal:
        from windtunnel.tui.web import own_terminal

        own_terminal()
    if dumb():
        raise UsageError(SCREENLESS)
    if not terminal():
        raise UsageError("the viewer needs a terminal on stdin and stderr: use --svg FILE for a picture without one")
    for name in ("COLUMNS", "LINES"):
        # Exported ones would stand for the terminal's size, also after it has changed.
        os.environ.pop(name, None)
    app = Viewer(
        follower,
        theme_for(os.environ, sys.stderr.encoding, arguments.theme),
        arguments.mode,
        first=first,
        exit_when_done=arguments.exit_when_done,
        stamp=lambda: time.strftime("%Y%m%d-%H%M%S"),
    )
    live = follower is not None and state(follower.folder, time.time()) == "running"
    if hasattr(os, "nice") and (arguments.mode == "watch" or live):
        app.settled = lambda: os.nice(YIELDING)
    app.hear_signals = True
    parent = arguments.parent
    if parent is not None:
        app.orphaned = lambda: os.getppid() != parent
    try:
        code = app.run()
    except KeyboardInterrupt:
        leave_screen()
        raise
    if app.fault is not None:
        raise app.fault
    if parent is not None and os.getppid() != parent and follower is not None:
        _after_death(follower.folder.path)
    return code if code is not None else app.return_code or 1


def _after_death(folder: Path) -> None:
    """The run was killed: nobody else puts back what it changed about the terminal, or says what is left."""
    with contextlib.suppress(OSError, termios.error):
        fd = sys.stdin.fileno()
        if os.tcgetpgrp(fd) == os.getpgrp():  # else a shell has the terminal back, and set it as it likes it
            modes = termios.tcgetattr(fd)
            modes[3] |= termios.ECHO | termios.ICANON
            termios.tcsetattr(fd, termios.TCSADRAIN, modes)
    say(f"the run has died: {again(folder)} shows what it wrote")


def _picture(follower: Follower | None, arguments: argparse.Namespace, first: First | None) -> int:
    """Draws the screen at the asked size and writes it, without a terminal."""
    theme = theme_for(os.environ, "utf-8", arguments.theme)
    app = Viewer(follower, theme, "view", first=first, whole=True, tick_s=0)
    drawn: list[str] = []

    async def take(pilot: Pilot[object]) -> None:
        await pilot.pause()
        if arguments.agent is not None and follower is not None:
            follower.wait_for_trace(arguments.agent - 1)
            app.open_agent(arguments.agent - 1)
            await pilot.pause()
        if arguments.keys:
            await pilot.press(*arguments.keys.split())
            await pilot.pause()
        drawn.append(app.draw_svg())
        app.exit(0)

    app.run(headless=True, size=arguments.size, auto_pilot=take)
    if app.fault is not None:
        raise app.fault
    if not drawn:
        return app.return_code or 1
    try:
        arguments.svg.write_text(drawn[0], encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{arguments.svg} cannot be written ({error.strerror}): choose another file") from error
    return 0


def _path(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if not match or int(match[1]) < 40 or int(match[2]) < 12:
        raise argparse.ArgumentTypeError(f"{text}: expected COLUMNSxROWS from 40x12 on, such as 120x40")
    return int(match[1]), int(match[2])


def _speed(text: str) -> float:
    return _told(factor, text)


def _moment(text: str) -> float:
    return _told(moment, text)


def _told(read: Callable[[str], float], text: str) -> float:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m windtunnel.tui", description="Show a run folder, live or finished."
    )
    parser.add_argument("paths", type=_path, nargs="*", metavar="PATH", help="runs, an experiment, or a folder of runs")
    parser.add_argument("--list", action="store_true", help="print past runs instead of opening the screen")
    parser.add_argument("--json", action="store_true", help="with --list: as JSON")
    parser.add_argument(
        "--mode", choices=("watch", "view"), default="view", help="watch asks before leaving a live run"
    )
    parser.add_argument("--exit-when-done", action="store_true", help="close a few seconds after the run's end")
    parser.add_argument("--speed", type=_speed, help="play the recorded events again, this many times as fast")
    parser.add_argument("--at", type=_moment, metavar="S", help="show the run as it was S seconds after its start")
    parser.add_argument("--theme", choices=NAMES, help=f"colours; default WINDTUNNEL_THEME, else {NAMES[0]}")
    parser.add_argument("--web", action="store_true", help="serve it to this machine's browsers, a viewer for each")
    parser.add_argument("--port", type=int, default=0, help="with --web; default: any free one")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--own-terminal", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture of the screen and exit")
    parser.add_argument("--size", type=_size, default=(120, 40), help="of the picture, default 120x40")
    parser.add_argument("--agent", type=int, metavar="N", help="with --svg: open agent N")
    parser.add_argument("--keys", help="with --svg: keys to press first, separated by spaces")
    return parser
