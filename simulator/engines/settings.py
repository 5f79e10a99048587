"""Resolved settings of an engine by dotted names: equal configurations have equal ones, whenever they were started."""

from collections.abc import Collection, Mapping
from typing import Any


def dotted(section: str, settings: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    """`section.name` -> value, sorted, nested ones too; null and empty ones and names with a part of `without` go."""
    flat: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if not any(part in str(key) for part in without):
                    walk(f"{name}.{key}", inner)
        elif value is not None and value not in ([], ""):
            flat[name] = value

    walk(section, dict(settings))
    return dict(sorted(flat.items()))


def integer(value: Any) -> int | None:
    """A number that a server told as a number or as text; None for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def flag(value: Any) -> bool | None:
    """True or False, told as such or as text."""
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
    return value if isinstance(value, bool) else None
