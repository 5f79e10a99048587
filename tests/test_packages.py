"""Packages are listed by hand: one that is forgotten is missing from every installed wheel and from no source folder."""

import tomllib
from pathlib import Path

from windtunnel.simulator.version import VERSION

ROOT = Path(__file__).parent.parent


def test_the_version_that_is_said_is_the_package_s() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_every_package_of_the_sources_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    rooms = ("traces", "agents", "simulator", "tui")
    found = {p.parent.relative_to(ROOT) for room in rooms for p in (ROOT / room).rglob("*.py")}
    data = {"windtunnel.experiments"}  # experiment files, no code
    assert sorted(listed) == sorted({*(".".join(("windtunnel", *path.parts)) for path in found), *data})
