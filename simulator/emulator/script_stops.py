"""Where stop strings and stop tokens end an answer, and what a stream may show before.

Rules of vllm/v1/engine/detokenizer.py and v1/core/sched/utils.py. What the emulated model says is known before it says
it, so an answer that will be stopped is a shorter answer from its beginning on; vLLM finds a stop string outside of
its scheduler and lets the model run on for a step or two.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.ask import Ask
from windtunnel.simulator.emulator.request import Script
from windtunnel.simulator.emulator.script_calls import CallScript

_CHUNK = 256
"""Tokens that are looked at first; twice as many each time after."""


class Texts(Protocol):
    def text(self, token: int) -> str:
        """What one token adds to a text."""
        ...


class Stops(Struct, frozen=True):
    """What ends an answer of one request."""

    strings: Sequence[str]
    ids: frozenset[int]
    included: bool
    """Whether what ended it is part of its text."""
    least: int
    """Tokens in which nothing ends it."""

    def cut(self, call: CallScript) -> bool:
        """Whether a tool call would not come whole."""
        ids = call.tokens(0, len(call) - 1)
        return any(string in call.text for string in self.strings) or not self.ids.isdisjoint(ids)


class End(Struct, frozen=True):
    """An answer that is stopped, or of which text is held back meanwhile."""

    tokens: int
    reason: str | int | None
    """The string or the token that stopped it; None where it ends as it would have."""
    text: str
    lengths: list[int]
    """Of the model's text after each number of tokens, in characters."""
    held: int
    """So many characters a stream stays behind: they may begin a stop string."""


def stops_of(ask: Ask, least: int, end: int) -> Stops | None:
    """None where the request has none. `end`: the model's own stop token; an answer that ends with it just ends."""
    if not ask.stop and not ask.stop_token_ids:
        return None
    strings = [ask.stop] if isinstance(ask.stop, str) else ask.stop or []
    ids = frozenset(ask.stop_token_ids or ()) - {end}
    return Stops(strings, ids, included=ask.include_stop_str_in_output, least=least)


def ended(script: Script, most: int, pieces: Texts, stops: Stops) -> End | None:
    """How an answer of `most` tokens ends; None where the stops change nothing about it."""
    text, lengths, size = "", [0], _CHUNK
    held = 0 if stops.included else max(map(len, stops.strings), default=1) - 1
    while len(lengths) <= most:
        begin = len(lengths) - 1
        tokens = script.tokens(begin, min(most, begin + size))
        size *= 2
        stopped = _stop_token(tokens, stops, begin)
        last = None if stopped is None else tokens[stopped]
        new = [pieces.text(token) for token in tokens[: None if stopped is None else stopped + 1]]
        if last is not None and not stops.included:
            new[-1] = ""
        for piece in new:
            lengths.append(lengths[-1] + len(piece))
        text += "".join(new)
        found = _stop_string(text, stops, lengths[min(max(begin, stops.least), len(lengths) - 1)])
        if found is not None:
            string, start, stop = found
            count = bisect_left(lengths, stop)
            return End(count, string, text[: stop if stops.included else start], lengths, held)
        if last is not None:
            return End(len(lengths) - 1, last, text, lengths, held)
    return End(most, None, text, lengths, held) if held else None


def _stop_token(tokens: Sequence[int], stops: Stops, begin: int) -> int | None:
    """Place of the first stop token; the first `least` tokens of an answer are none."""
    if not stops.ids:
        return None
    fresh = range(max(0, stops.least - begin), len(tokens))
    return next((at for at in fresh if tokens[at] in stops.ids), None)


def _stop_string(text: str, stops: Stops, known: int) -> tuple[str, int, int] | None:
    """The stop string that is complete first beyond the first `known` characters, where it begins and ends."""
    best: tuple[str, int, int] | None = None
    for string in stops.strings:
        start = text.find(string, max(0, known + 1 - len(string)))
        if start >= 0 and (best is None or start + len(string) < best[2]):
            best = string, start, start + len(string)
    return best


class Held:
    """One stream's text: as `Pieces`, but behind the model by what may begin a stop string."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._count = 0
        self._sent = 0

    def of(self, tokens: Sequence[int]) -> bytes:
        """JSON text, without quotes, that comes with the next tokens."""
        self._count += len(tokens)
        end, sent = self._end, self._sent
        stop = len(end.text)
        if self._count < end.tokens:
            stop = max(sent, min(stop, end.lengths[self._count] - end.held))
        self._sent = stop
        return msgspec.json.encode(end.text[sent:stop])[1:-1]
