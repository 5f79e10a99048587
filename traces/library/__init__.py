"""The bundled sessions: synthetic and shape-only, so that a first run needs no recording. See README.md beside this."""

from pathlib import Path

FOLDER = Path(__file__).parent
SUFFIX = ".jsonl.zst"
SMALL = ("explain-regex", "rename-flag", "pin-dependency", "typo-in-docs", "fix-importer", "add-unit-test")
"""Sessions whose largest prompt is at most 32k tokens."""


def names() -> list[str]:
    """Names of the sessions, sorted."""
    return sorted(p.name.removesuffix(SUFFIX) for p in FOLDER.glob(f"*{SUFFIX}"))


def path(name: str) -> Path:
    """File of a session; KeyError when there is none of that name."""
    file = FOLDER / f"{name}{SUFFIX}"
    if name not in names():
        raise KeyError(name)
    return file


def groups() -> dict[str, list[str]]:
    """Named choices of sessions: `mixed` is all of them, `small` those of at most 32k tokens."""
    return {"mixed": names(), "small": list(SMALL)}
