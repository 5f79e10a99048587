"""The published figures that ship with the project, as cases."""

import shlex
import tomllib
from itertools import pairwise

import msgspec
import numpy as np
from msgspec import Struct

from windtunnel.simulator.emulator.ladder import climb
from windtunnel.simulator.emulator.measured import Case, Cases, Closed, Open, Skipped
from windtunnel.simulator.emulator.names import gpu_key, model_key
from windtunnel.simulator.emulator.profile import Profile
from windtunnel.simulator.emulator.replay import NS, Ask
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.simulator.emulator.validate import Point, Validation, summed, validate

_SHARES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_CHAT_IN = (262, 363, 434, 521, 621, 731, 833, 1017, 1214, 1460, 1748, 2765, 3998)
_CHAT_OUT = (512, 530, 550, 574, 592, 632, 699, 751, 768, 770, 773, 784, 1021)
"""Lengths of 300 conversations, tokens, at these shares of them (the run behind point 1)."""


class _Chat(Struct, frozen=True, forbid_unknown_fields=True):
    requests: int
    rate: float
    """Requests a second, Poisson."""


class _Point(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    flags: str
    measured: dict[str, float]
    source: str
    client: str = ""
    concurrency: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    chat: _Chat | None = None
    note: str = ""


class _Points(Struct, frozen=True, forbid_unknown_fields=True):
    point: list[_Point]
    skipped: list[Skipped]


def shipped() -> Cases:
    text = shipped_text("points.toml")
    points = msgspec.convert(tomllib.loads(text), _Points)
    return [_case(point) for point in points.point], points.skipped


def validate_shipped(profile: Profile | None = None) -> Validation:
    """All of them, and the last rung of the ladder, which is predicted from the first."""
    cases, skipped = shipped()
    found = validate(cases, skipped, profile)
    top = climb()[-1]
    assert top.measured is not None
    error = top.emulated / top.measured - 1
    return summed([*found.points, Point("30", "output_tokens_per_s", top.measured, top.emulated, error)], found.skipped)


def _case(point: _Point) -> Case:
    flags = tuple(shlex.split(point.flags)) if '"' not in point.flags else tuple(point.flags.split())
    named = dict(pairwise(flags))
    load = (
        Open(_chat(point.chat))
        if point.chat is not None
        else Closed(point.client, point.concurrency, point.tokens_in, point.tokens_out)
    )
    return Case(
        id=point.id,
        flags=flags,
        load=load,
        measured=point.measured,
        gpu=gpu_key(named["--gpu"]) or named["--gpu"],
        model=model_key(named["--model"])[0] or named["--model"],
        source=point.source,
        client_side=point.chat is None,
    )


def _chat(chat: _Chat) -> list[Ask]:
    """Lengths and gaps cover their distributions evenly, in a fixed random order."""
    rng = np.random.Generator(np.random.Philox(key=1))
    places = (np.arange(chat.requests) + 0.5) / chat.requests
    prompts, outputs = (
        rng.permutation(np.interp(places, _SHARES, table)).astype(int).tolist() for table in (_CHAT_IN, _CHAT_OUT)
    )
    times = np.cumsum(rng.permutation(-np.log1p(-places) / chat.rate))
    return [
        Ask(np.full(prompt, number, dtype=np.uint32), output, at=round(at * NS))
        for number, (prompt, output, at) in enumerate(zip(prompts, outputs, times.tolist(), strict=True))
    ]
