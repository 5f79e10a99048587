"""The bundled sessions, all shape-only: synthetic ones, so that a first run needs no recording, and real agents'.

See README.md beside this.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
SUFFIX = ".jsonl.zst"
RECORDED = "recorded-"
"""Begins the names of sessions of real agents."""
SMALL = ("explain-regex", "rename-flag", "pin-dependency", "typo-in-docs", "fix-importer", "add-unit-test")
"""Sessions whose largest prompt is at most 32k tokens."""


def names() -> list[str]:
    """Names of the synthetic sessions, sorted."""
    return [name for name in _all() if not name.startswith(RECORDED)]


def recorded() -> list[str]:
    """Names of the sessions of real agents, sorted."""
    return [name for name in _all() if name.startswith(RECORDED)]


def _all() -> list[str]:
    return sorted(p.name.removesuffix(SUFFIX) for p in FOLDER.glob(f"*{SUFFIX}"))


def path(name: str) -> Path:
    """File of a session; KeyError when there is none of that name."""
    file = FOLDER / f"{name}{SUFFIX}"
    if name not in _all():
        raise KeyError(name)
    return file


def groups() -> dict[str, list[str]]:
    """Named choices of sessions: `mixed` is all synthetic ones, `small` those of at most 32k tokens, `recorded` those
    of real agents.
    """
    return {"mixed": names(), "small": list(SMALL), "recorded": recorded()}
