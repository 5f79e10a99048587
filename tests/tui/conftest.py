"""Made-up runs, each built once."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windtunnel.tui.follow import Follower
from windtunnel.tui.view import View

sys.path.insert(0, str(Path(__file__).parent))

import fake_shelf
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


@pytest.fixture(scope="session")
def small() -> Fake:
    return Fake(6, 40.0)


@pytest.fixture(scope="module")
def root(small: Fake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of past runs and of an experiment."""
    folder = fake_shelf.shelf(small, tmp_path_factory.mktemp("shelf") / "runs")
    fake_shelf.experiment(small, folder / "ladder", blocks=3)
    return folder


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

    def written(name: str, fake: Fake, until: float | None, ago: float = 0.0, *, summary: bool = False) -> Path:
        """The folder as it stood on disk `ago` seconds after its last line."""
        folder = fake.write(base / name, until=until, summary=summary)
        for file in folder.iterdir():
            os.utime(file, (clocks.wall - ago, clocks.wall - ago))
        return folder

    return {
        "starting": view(written("starting", running, 1.2)),
        "running": view(written("running", running, 40.0)),
        "failures": view(written("failures", failing, 40.0)),
        "finished": view(written("finished", running, None, summary=True)),
        "invalid": view(written("invalid", failing, None, summary=True)),
        "died": view(written("died", running, 40.0, ago=75.0)),
        "many": view(written("many", many, 25.0)),
    }
