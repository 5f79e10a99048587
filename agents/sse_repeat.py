"""Streams repeat themselves: from one event to the next only the text differs, and two counters go on.

Decoding such an event costs several times what comparing it costs. So the shape of a decoded event is kept: the bytes
before its text, and behind them a pattern in which only counters may differ. Many events in a row that are of one shape
are then taken together: their texts are decoded once, as one string. Whatever does not fit, to the byte, is decoded as
ever; a shape that stopped fitting costs a comparison and never a wrong result.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from windtunnel.agents.reads import TEXT, alike, pattern_of
from windtunnel.agents.sse_shapes import Choice, Chunk, Usage, has_ids

_NUMBER = re.compile(rb'"([a-z_]*tokens)": ?(\d+)')
"""A counter: all other digits are taken as they stand."""
_MOST_PATTERNS = 32
"""A server that says something else behind each text is not worth learning from."""

_decode_text = msgspec.json.Decoder(str).decode


class Taken(Struct, frozen=True, gc=False):
    """Events that were of one shape."""

    events: int
    text: str
    tokens: Sequence[int]
    """Of each event."""


class Shape:
    """What the events of a stream look like, learned from one of them."""

    __slots__ = ("_before", "_completion", "_fixed", "_literals", "usage", "visible")

    def __init__(
        self,
        before: bytes,
        literals: tuple[bytes, ...],
        fixed: tuple[bytes | None, ...],
        completion: int,
        usage: Usage | None,
        *,
        visible: bool,
    ) -> None:
        self._before = before
        self._literals = literals
        """Behind the text, with a number between any two of them."""
        self._fixed = fixed
        """Of these numbers those that may not differ."""
        self._completion = completion
        """Which of them are the completion tokens, which grow; -1: none."""
        self.usage = usage
        """As the events report it; its completion tokens are those of the last event taken."""
        self.visible = visible
        """The text is content; else reasoning."""

    @property
    def counts(self) -> bool:
        """The events tell how many tokens there are."""
        return self._completion >= 0

    def take(self, pieces: list[tuple[int, bytes]], first: int, before: int) -> Taken | None:
        """The events from `first` on, as far as they are of this shape; None where not even one is.

        Each piece must be one whole event. `before`: completion tokens of the event before; each must bring some.
        """
        found = alike(pieces, first, self._before, self._literals, self._fixed, self._completion, before)
        if found is None:
            return None
        inside, tokens, total = found
        try:
            text = _decode_text(inside)
        except msgspec.DecodeError:
            return None  # text that is no UTF-8, or half of a pair
        if self.usage is not None and self._completion >= 0:
            self.usage.completion_tokens = total
        return Taken(len(tokens), text, tokens)


class Pattern:
    """What stands behind the text, counters aside: a server's streams have one, whatever they are about."""

    __slots__ = ("_completion", "_fixed", "_literals", "_member", "_visible")

    def __init__(self, member: bytes, literals: tuple[bytes, ...], names: Sequence[bytes], *, visible: bool) -> None:
        """`member`: the bytes before the text, from its name on. `names`: of the counters between the `literals`."""
        self._member = member
        self._literals = literals
        self._fixed = [name not in (b"completion_tokens", b"total_tokens") for name in names]
        self._completion = names.index(b"completion_tokens") if b"completion_tokens" in names else -1
        self._visible = visible

    def shape(self, data: bytes, field: str, text: str, usage: Usage | None) -> Shape | None:
        """Of a stream with this event, if it ends like this and says this text and this many tokens."""
        start = data.find(self._member) + len(self._member)
        match = pattern_of(self._literals).fullmatch
        found = match(data, start) if _members(data, field) == [self._member] else None
        if found is None or not _means(found[1], text):
            return None
        numbers = found.groups()[1:]
        told, completion = None if usage is None else usage.completion_tokens, self._completion
        if (completion < 0) != (told is None) or (usage is not None and told is None):
            return None
        if completion >= 0 and int(numbers[completion]) != told:
            return None
        fixed = tuple(number if held else None for number, held in zip(numbers, self._fixed, strict=True))
        own = None if usage is None else msgspec.structs.replace(usage)
        return Shape(data[:start], self._literals, fixed, completion, own, visible=self._visible)


_patterns: dict[tuple[str, bytes, tuple[bytes, ...]], Pattern] = {}
"""By the member with the text, how it is written, and what follows. Compiling one takes longer than decoding a hundred
events.
"""


def learn(data: bytes, chunk: Chunk) -> Shape | None:
    """From the bytes of an event (`data: ` and the blank line included) and what was decoded from them.

    None where the event says more than a text and counters, or where it is not certain which bytes these are.
    """
    if not _plain(chunk) or not chunk.choices:
        return None
    field, text = _said(chunk.choices[0])
    if not text:
        return None
    for (of, _, _), known in _patterns.items():
        if of == field and (shape := known.shape(data, field, text, chunk.usage)) is not None:
            return shape
    pattern = _pattern(data, field, text)
    return None if pattern is None else pattern.shape(data, field, text, chunk.usage)


def _pattern(data: bytes, field: str, text: str) -> Pattern | None:
    """One that is not known yet, from an event."""
    members = _members(data, field)
    inside = _INSIDE.match(data, data.find(members[0]) + len(members[0])) if len(members) == 1 else None
    if inside is None or not _means(inside[0], text):
        return None
    end = inside.end()
    counters = list(_NUMBER.finditer(data, end))
    names = [counter[1] for counter in counters]
    if len(set(names)) < len(names):
        return None
    edges = [end, *(edge for counter in counters for edge in counter.span(2)), len(data)]
    literals = tuple(data[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    key = (field, members[0], literals)
    if key not in _patterns and len(_patterns) < _MOST_PATTERNS:
        _patterns[key] = Pattern(members[0], literals, names, visible=field in ("content", "text"))
    return _patterns.get(key)


def _members(data: bytes, field: str) -> list[bytes]:
    """Where texts of this name begin, up to their first quote."""
    return re.findall(rb'"%b": ?"' % field.encode(), data)


def _means(inside: bytes, text: str) -> bool:
    """Whether these bytes of a JSON string are this text."""
    try:
        return _decode_text(b'"%b"' % inside) == text
    except msgspec.DecodeError:
        return False


def _plain(chunk: Chunk) -> bool:
    """Nothing but one choice and, perhaps, usage."""
    if chunk.error is not None or chunk.object == "error" or chunk.timings is not None or chunk.metrics is not None:
        return False
    return len(chunk.choices or ()) == 1 and not has_ids(chunk.prompt_token_ids)


def _said(choice: Choice) -> tuple[str, str]:
    """The only thing that a choice says and the JSON member it is in; no text where it says more, or something else."""
    delta = choice.delta
    if choice.index != 0 or choice.finish_reason or choice.token_ids or has_ids(choice.prompt_token_ids):
        return "", ""
    if delta is None:
        return "text", choice.text or ""
    if delta.tool_calls:
        return "", ""
    texts = (
        ("content", delta.content),
        ("reasoning", delta.reasoning),
        ("reasoning_content", delta.reasoning_content),
    )
    said = [(name, text) for name, text in texts if text]
    return said[0] if len(said) == 1 else ("", "")


_INSIDE = re.compile(TEXT)
