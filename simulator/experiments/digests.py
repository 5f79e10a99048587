"""Digests of settings, and their text: the same for equal ones, whatever bytes the paths and words in them hold."""

from hashlib import blake2b
from typing import Any

import msgspec


def digest(value: Any, size: int) -> str:
    """`2 * size` hex digits; the order of keys does not count."""
    return blake2b(_sorted(value), digest_size=size).hexdigest()


def text(value: Any) -> str:
    """A setting for people: JSON, a text as it is."""
    return value if isinstance(value, str) else _sorted(value).decode()


def _sorted(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        return msgspec.json.encode(_told_apart(msgspec.to_builtins(value)), order="sorted")


def _told_apart(value: Any) -> Any:
    """Bytes that are no UTF-8 (Python keeps them as lone surrogates) as their escapes: two names stay two."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_told_apart(k): _told_apart(v) for k, v in value.items()}
    return [_told_apart(v) for v in value] if isinstance(value, (list, tuple)) else value
