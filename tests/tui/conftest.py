"""Made-up runs, each built once."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windtunnel.tui.follow import Follower

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
