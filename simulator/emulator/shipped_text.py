"""The data files beside this code: read by path, because `importlib.resources` is slow to load."""

from pathlib import Path

_HERE = Path(__file__).parent


def shipped_text(name: str) -> str:
    """The text of a file of this folder."""
    return (_HERE / name).read_text(encoding="utf-8")
