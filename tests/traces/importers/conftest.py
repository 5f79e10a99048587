"""Recorded sessions kept beside the repository, read in place; tests that need them skip where they are absent."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.importers import Imported, import_path

from . import claude_logs, codex_logs, weka_logs

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"

DIALECTS = {"aiperf": "mooncake-aiperf"}
"""Folders whose files cannot tell which dialect they are in."""


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder of recorded sessions."""
    if not (SHARED / "ground_truth.json").is_file():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    return SHARED


@pytest.fixture(scope="session")
def answers(recorded: Path) -> dict[str, dict[str, Any]]:
    """Independent counts for each recorded file, by its path."""
    value: dict[str, dict[str, Any]] = json.loads((recorded / "ground_truth.json").read_text())
    return value


@pytest.fixture(scope="session")
def imported(recorded: Path) -> Callable[[str], Imported]:
    """The import of a recorded file or folder by its path, each read once."""
    return cache(lambda name: import_path(recorded / name, DIALECTS.get(name.partition("/")[0])))


Json = dict[str, Any]


def lines(records: list[Json]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


@pytest.fixture
def claude_log() -> list[Json]:
    """A session of `claude_logs`."""
    return claude_logs.shop()


@pytest.fixture
def codex_log() -> list[Json]:
    """A session of `codex_logs`."""
    return codex_logs.shop()


@pytest.fixture
def weka_log() -> Json:
    """A trace of `weka_logs`."""
    return weka_logs.shop()
