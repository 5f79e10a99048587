"""Planting texts into a trace, and searching what is shared for them."""

import dataclasses
import json
import random
import re
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Union

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import fields, replace

from windtunnel.traces import known_names, model
from windtunnel.traces.known_names import LONG, is_public_model


def structs() -> dict[str, type[Struct]]:
    found = {n: v for n, v in vars(model).items() if isinstance(v, type) and issubclass(v, Struct) and v is not Struct}
    return {n: v for n, v in found.items() if v.__module__ == model.__name__ and n not in ("Trace", "Problem")}


@dataclasses.dataclass
class Planter:
    """Puts a text of its own into every place of a trace that can hold one."""

    draw: random.Random
    secrets: list[str] = dataclasses.field(default_factory=list)

    def secret(self) -> str:
        letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/ .é中"\\\n'
        text = "".join(self.draw.choices(letters, k=self.draw.randint(LONG, 60)))
        self.secrets.append(text)
        return text

    def value(self, held: Any, hint: Any) -> Any:
        """`held` with every string in it, and every string that could be in it, replaced."""
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin in (Union, types.UnionType):
            (inner,) = (p for p in parts if p is not type(None))
            return self.value(held, inner) if held is not None or inner is str else None
        if hint is str:
            return self.secret()
        if origin is tuple and parts == (str, ...):
            return (self.secret(), self.secret())
        if origin is tuple:
            return tuple(self.value(item, parts[0]) for item in held)
        if origin is dict:
            return {self.secret() if parts[0] is str else key: item for key, item in {"x": "derived", **held}.items()}
        if isinstance(hint, type) and issubclass(hint, Struct):
            return self.struct(held)
        assert origin is Literal or hint in (int, float, bool), f"no rule for planting into {hint}"
        return held

    def struct(self, held: Any) -> Any:
        hints = typing.get_type_hints(type(held))
        return replace(held, **{f.name: self.value(getattr(held, f.name), hints[f.name]) for f in fields(held)})


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for field in fields(value):
            yield from strings_of(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for item in pair for text in strings_of(item))
    elif isinstance(value, tuple | list):
        yield from (text for item in value for text in strings_of(item))


def format_words() -> set[str]:
    words = {"type", "true", "false", "null", model.SCHEMA, "other", known_names.OTHER_MEDIA, *model.KINDS}
    for struct in structs().values():
        words |= {f.name for f in fields(struct)} | {str(struct.__struct_config__.tag)}
    for literal in (model.Mark, model.Role, model.Cause, model.CallKind):
        words |= set(typing.get_args(literal))
    return words


ALLOWED = (
    format_words()
    | known_names.TOOLS
    | known_names.AGENTS
    | known_names.SOURCES
    | known_names.STOPS
    | known_names.EFFORTS
    | known_names.MEDIA
    | known_names.FIGURES
)
_TOKEN = re.compile(rb'"([^"\\]*)"|(?<=[:\[,])-?\d[\d.eE+-]*(?=[,\]}])')


def without_allowed(output: bytes) -> bytes:
    """The output with every allowed word and every number taken out, whole JSON values only."""

    def mask(found: re.Match[bytes]) -> bytes:
        text = found[1]
        if text is None:
            return b"\0"
        word = text.decode(errors="replace")
        version = len(word) < LONG and known_names.VERSION.fullmatch(word)
        return b'"\0"' if word in ALLOWED or is_public_model(word) or version else found[0]

    return _TOKEN.sub(mask, output)


def windows(data: bytes) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each run of `LONG` bytes; equal runs, equal numbers."""
    raw = np.frombuffer(data, dtype=np.uint8).astype(np.uint64)
    out = np.zeros(max(0, len(raw) - LONG + 1), dtype=np.uint64)
    for i in range(LONG):
        out = out * np.uint64(1_099_511_628_211) + raw[i : i + len(out)]
    return out


def leaked(output: bytes, inputs: Iterable[bytes]) -> list[bytes]:
    """Runs of `LONG` bytes of the inputs that stand in the output, allowed words apart."""
    masked = without_allowed(output)
    known = np.unique(windows(masked))
    bits = np.uint64((1 << 24) - 1)
    likely = np.zeros(1 << 24, dtype=bool)
    likely[known & bits] = True
    found = []
    for data in inputs:
        for start in range(0, len(data), 1 << 15):  # small enough for the processor's cache
            part = data[start : start + (1 << 15) + LONG - 1]
            numbers = windows(part)
            at = np.flatnonzero(likely[numbers & bits])
            same = known[np.minimum(np.searchsorted(known, numbers[at]), len(known) - 1)] == numbers[at]
            found += [part[i : i + LONG] for i in at[same].tolist()]
    return [run for run in found[:50] if run in masked]


def as_bytes(texts: Iterable[str]) -> list[bytes]:
    """Each text as it is, and as JSON writes it."""
    kept = [text for text in texts if len(text) >= LONG]
    return [
        b"\0".join(t.encode("utf-8", "replace") for t in kept),
        b"\0".join(json.dumps(t).encode() for t in kept),
        b"\0".join(msgspec.json.encode(t.encode("utf-8", "replace").decode()) for t in kept),
    ]
