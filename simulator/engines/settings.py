"""Resolved settings of an engine by dotted names: equal configurations have equal ones, whenever they were started."""

from collections.abc import Collection, Mapping
from typing import Any

MOST = 10**15
"""No count of tokens or blocks is larger."""


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
    """A number that a server told as a number or as text; None for anything else, and for one beyond all counts."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= MOST and not isinstance(value, bool) else None


def count(value: Any) -> int | None:
    """The same of what there is at least one of: a server that tells 0, or less, does not know."""
    number = integer(value)
    return number if number is not None and number > 0 else None


def flag(value: Any) -> bool | None:
    """True or False, told as such or as text."""
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
    return value if isinstance(value, bool) else None
