"""Made-up runs, each built once."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windtunnel.tui.follow import Follower
from windtunnel.tui.view import View

sys.path.insert(0, str(Path(__file__).parent))

from fake_clocks import Clocks
from fake_run import Fake


@pytest.fixture(scope="session")
def running() -> Fake:
    return Fake(32, 60.0)


@pytest.fixture(scope="session")
def failing() -> Fake:
    return Fake(32, 60.0, failures=0.06)


@pytest.fixture(scope="session")
def many() -> Fake:
    return Fake(256, 30.0)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def follow(clocks: Clocks) -> Iterator[Callable[..., Follower]]:
    """Opens followers on the clocks and closes them after the test."""
    opened: list[Follower] = []

    def open_(folder: Path, **options: object) -> Follower:
        follower = Follower.open(folder, lambda: clocks.wall, lambda: clocks.monotonic, **options)
        opened.append(follower)
        return follower

    yield open_
    for follower in opened:
        follower.close()


@pytest.fixture(scope="session")
def views(tmp_path_factory: pytest.TempPathFactory, running: Fake, failing: Fake, many: Fake) -> dict[str, View]:
    """A run in each condition, under a clock that stands still."""
    base, clocks = tmp_path_factory.mktemp("runs"), Clocks()

    def view(folder: Path, **options: object) -> View:
        follower = Follower.open(folder, lambda: clocks.wall, lambda: clocks.monotonic, **options)
        try:
            return follower.poll()
        finally:
            follower.close()

    folder = running.write(base / "run", summary=True)
    broken = failing.write(base / "broken", summary=True)
    killed = running.write(base / "killed", until=40.0)
    os.utime(killed / "events.jsonl", (clocks.wall - 75, clocks.wall - 75))
    os.utime(killed / "run.json", (clocks.wall - 75, clocks.wall - 75))
    return {
        "starting": view(folder, at_s=1.2),
        "running": view(folder, at_s=40.0),
        "failures": view(broken, at_s=40.0),
        "finished": view(folder),
        "invalid": view(broken),
        "died": view(killed),
        "many": view(many.write(base / "many"), at_s=25.0),
    }
