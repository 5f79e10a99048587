"""What a stream of server-sent events said: text, token counts and the times that matter.

Fed with the pieces that `client` noted, off its read path, as often as a viewer wants to see progress. An event gets
the arrival time of the piece that completed it. Bytes become text only when an event is whole, so a character or a line
ending may be split anywhere.

Tokens of an arrival, best source first: the token ids in it, the growth of a usage report in it, one per chunk that
carries text. In the last case the final usage report, if there is one, is spread over the chunks.
"""

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from windtunnel.agents.failures import Failure
from windtunnel.agents.http import message_of, shorten
from windtunnel.agents.sse_lines import Events
from windtunnel.agents.sse_long import Cut, LongLine
from windtunnel.agents.sse_repeat import Shape, learn
from windtunnel.agents.sse_result import CountedBy, Parsed, check_length
from windtunnel.agents.sse_shapes import (
    ABSENT,
    Choice,
    Chunk,
    Delta,
    ToolDelta,
    Usage,
    believed,
    decode,
    decode_strictly,
    has_ids,
    prefilled_s,
    queued_s,
)
from windtunnel.agents.sse_text import JOIN_AT, TAIL_CHARS, Text, join, whole

__all__ = ["TAIL_CHARS", "CountedBy", "Parsed", "Parser", "check_length", "parse"]
_LEARN_EVERY = 16
"""Events decoded from one attempt to learn what the next ones look like to another."""
_MOST_MISSES = 4


class Parser:
    """Incremental. `keep_text=False` keeps no text beyond `tail`."""

    def __init__(self, *, keep_text: bool = True) -> None:
        self.tokens_so_far = 0
        """Output tokens as far as they can be told now: exact with token ids, text chunks otherwise."""
        self.ended = False
        self._keep_text = keep_text
        self.used: list[bytes] = []
        """Of a long line that is parsed: whoever parses in steps frees them in steps."""
        self._events = Events(keep_text=keep_text)
        self._cuts: Mapping[str, Cut] = {}
        """In a long event: texts that stand apart from it, by their names in it."""
        self._bytes_seen = False
        self._any_event = False
        self._recent: list[str] = []
        """What the tail is made of."""
        self._text = Text()
        self._reasoning = Text()
        self._tools: dict[int, _Tool] = {}
        self._token_ids = array("i")
        self._prompt_ids = False
        self._t = array("q")
        self._n = array("i")
        self._t_first_visible: int | None = None
        self._t_first_tool: int | None = None
        self._usage: Usage | None = None
        self._usage_completion = 0
        self._usage_grew = False
        self._cache_n: int | None = None
        self._queued_s: float | None = None
        self._prefilled_s: float | None = None
        self._finish: str | None = None
        self._failure: str | None = None
        self._detail: str | None = None
        self._shape: Shape | None = None
        self._misses = 0
        """Events in a row that were not of the shape."""
        self._learn_in = 1

    @property
    def tail(self) -> str:
        """The last characters generated, of any kind: up to 200."""
        join(self._recent, TAIL_CHARS)
        return whole(self._recent[0])

    @property
    def counts(self) -> bool:
        """The server says how many tokens there are, so that `tokens_so_far` is exact."""
        return bool(self._token_ids) or self._usage_grew

    @property
    def chunks(self) -> int:
        """Arrivals that brought something."""
        return len(self._t)

    @property
    def characters(self) -> int | None:
        """Of all that was said; None where it is not kept. Takes as long as there is text."""
        texts = (self._text, self._reasoning, *(tool.arguments for tool in self._tools.values()))
        return sum(text.length() for text in texts) if self._keep_text else None

    @property
    def finished(self) -> bool:
        """A finish reason came."""
        return self._finish is not None

    @property
    def broke_off(self) -> str | None:
        """What the server said instead of going on; None where it said nothing of the kind."""
        return self._detail if self._failure == Failure.ERROR_EVENT else None

    def feed_all(self, pieces: list[tuple[int, bytes]]) -> None:
        """Parse what arrived, in order: the same as `feed` for each piece; cheaper where events repeat themselves."""
        number, count = 0, len(pieces)
        while number < count:
            number += self._take(pieces, number)
            if number < count:
                self.feed(*pieces[number])
                number += 1

    def _take(self, pieces: list[tuple[int, bytes]], first: int) -> int:
        """How many events from `first` on only repeat the ones before; they are dealt with."""
        shape = self._shape
        if shape is None or not self._events.clean or shape.counts != self._usage_grew:
            return 0
        taken = shape.take(pieces, first, self._usage_completion)
        if taken is None:
            self._misses += 1
            if self._misses > _MOST_MISSES:
                self._shape = None
            return 0
        self._misses = 0
        if shape.visible and self._t_first_visible is None:
            self._t_first_visible = pieces[first][0]
        self._keep(taken.text, self._text if shape.visible else self._reasoning)
        self._t.extend([t_ns for t_ns, _ in pieces[first : first + taken.events]])
        self._n.extend(taken.tokens)
        self.tokens_so_far += sum(taken.tokens)
        if shape.usage is not None:
            self._usage = shape.usage
            self._usage_completion = shape.usage.completion_tokens or 0
        return taken.events

    def feed(self, t_ns: int, data: bytes) -> None:
        """Parse what arrived at `t_ns`."""
        if self._events.clean and data.startswith(b"data: {") and data.endswith(b"\n\n"):
            # Nearly always this is one event; where it is more, decoding fails and the lines are cut properly.
            try:
                chunk = decode_strictly(data[6:])
            except (msgspec.DecodeError, RecursionError):
                pass
            else:
                self._chunk(t_ns, chunk)
                self._learn_in -= 1
                if not self._learn_in:
                    self._learn_in = _LEARN_EVERY
                    self._learn(data, chunk)
                return
        self._bytes_seen = True
        for payload in self._events.feed(data):
            self._event(t_ns, payload)

    def finish(self, stream_failure: str | None = None, detail: str | None = None) -> Parsed:
        """The result, given how the transport ended. What the stream itself said about a failure goes first."""
        if not self.ended and self._failure is None and (rest := self._events.rest()) == b"[DONE]":
            self._event(self._t[-1] if self._t else 0, rest)
        failure, detail = self._verdict(stream_failure, detail)
        usage = self._usage
        completion = usage.completion_tokens if usage else None
        if completion is None and self._token_ids:
            completion = len(self._token_ids)
        counts, counted_by = self._spread(completion)
        text, more_text = self._text.parts()
        reasoning, more_reasoning = self._reasoning.parts()
        return Parsed(
            t_first=self._t[0] if self._t else None,
            t_first_visible=self._t_first_visible,
            t_first_tool=self._t_first_tool,
            t_last=self._t[-1] if self._t else None,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=self._cached(),
            completion_tokens=completion,
            reasoning_tokens=usage.reasoning if usage else None,
            usage_reported=usage is not None,
            queued_s=self._queued_s,
            prefilled_s=self._prefilled_s,
            finish=self._finish,
            failure=failure,
            detail=detail,
            text=text,
            reasoning=reasoning,
            more_text=more_text,
            more_reasoning=more_reasoning,
            tool_calls=tuple((tool.id, tool.name, tool.arguments.whole()) for _, tool in sorted(self._tools.items())),
            token_ids=self._token_ids,
            prompt_token_ids_seen=self._prompt_ids,
            chunk_t=self._t,
            chunk_n=counts,
            counted_by=counted_by,
            ended=self.ended,
        )

    def _learn(self, data: bytes, chunk: Chunk) -> None:
        """The shape of an event that brought tokens, unless token ids do the counting."""
        if not self._n:
            self._learn_in = 1
        elif self._shape is None and not self._token_ids:
            self._shape = learn(data, chunk)
            self._misses = 0

    def _keep(self, text: str, texts: Text) -> None:
        cut = self._cuts.get(text) if self._cuts else None
        if cut is not None:
            self._recent.append(cut.tail)
            texts.add_long(cut.parts, halves=cut.odd)
            return
        self._recent.append(text if len(text) <= TAIL_CHARS else text[-TAIL_CHARS:])
        if len(self._recent) >= JOIN_AT:
            join(self._recent, TAIL_CHARS)
        if self._keep_text:
            texts.add(text)

    def _event(self, t_ns: int, payload: bytes | LongLine) -> None:
        if payload == b"[DONE]":
            self._any_event = True
            self.ended = True
            return
        begin = payload if isinstance(payload, bytes) else payload.begin
        try:
            chunk, self._cuts = (decode(payload), {}) if isinstance(payload, bytes) else payload.decode()
        except (msgspec.DecodeError, ValueError) as error:
            self._any_event = True
            self._fail(Failure.MALFORMED_STREAM, f"{error}: {begin[:200].decode('utf-8', 'replace')}")
        else:
            self._chunk(t_ns, chunk)
            self._cuts = {}
        if not isinstance(payload, bytes):
            self.used = payload.give_up()

    def _chunk(self, t_ns: int, chunk: Chunk) -> None:
        self._any_event = True
        if chunk.error is not None or chunk.object == "error":
            said = message_of(chunk.error) if chunk.error is not None else chunk.message
            self._fail(Failure.ERROR_EVENT, said or str(chunk.error))
            return
        if chunk.prompt_token_ids is not ABSENT and has_ids(chunk.prompt_token_ids):
            self._prompt_ids = True
        usage = chunk.usage
        if chunk.choices:
            for choice in chunk.choices:
                if choice.index == 0:
                    self._choice(t_ns, choice, usage)
        if usage is not None:
            self._usage = usage
        if chunk.metrics is not None:
            self._queued_s, self._prefilled_s = queued_s(chunk.metrics), prefilled_s(chunk.metrics)
        if chunk.timings is not None and chunk.timings.cache_n is not None:
            self._cache_n = chunk.timings.cache_n

    def _choice(self, t_ns: int, choice: Choice, usage: Usage | None) -> None:
        carries = False
        delta = choice.delta
        text = choice.text if delta is None else delta.content
        if text:
            carries = True
            if self._t_first_visible is None:
                self._t_first_visible = t_ns
            self._keep(text, self._text)
        if (
            delta is not None
            and (delta.tool_calls or delta.reasoning or delta.reasoning_content)
            and self._beyond_content(t_ns, delta)
        ):
            carries = True
        if choice.prompt_token_ids is not ABSENT and has_ids(choice.prompt_token_ids):
            self._prompt_ids = True
        if choice.finish_reason:
            self._finish = choice.finish_reason
            if choice.finish_reason in {"error", "abort"}:
                self._fail(Failure.ERROR_EVENT, f"finish_reason {choice.finish_reason}")
        tokens = 1 if carries else 0
        if choice.token_ids:
            try:
                self._token_ids.extend(choice.token_ids)
            except OverflowError:
                self._fail(Failure.MALFORMED_STREAM, "a token id is out of range")
            tokens = len(choice.token_ids)
        elif self._token_ids:
            tokens = 0
        elif usage is not None and (total := usage.completion_tokens) is not None:
            if self._usage_grew and total > self._usage_completion:
                tokens = total - self._usage_completion
                self._usage_completion = total
            else:
                tokens = self._growth(total, carries=carries, first=not self._n)
        elif self._usage_grew:
            tokens = 0
        if carries or tokens:
            self._t.append(t_ns)
            self._n.append(tokens)
            self.tokens_so_far += tokens

    def _growth(self, total: int, *, carries: bool, first: bool) -> int:
        """Tokens since the last report; a report that comes only once, at the end, says nothing about its own chunk."""
        grown = total - self._usage_completion
        self._usage_completion = total
        if self._usage is None and not first:
            return 1 if carries else 0
        if grown > 0:
            self._usage_grew = True
        return max(grown, 0)

    def _beyond_content(self, t_ns: int, delta: Delta) -> bool:
        """Reasoning and tool calls of a delta; whether there were any."""
        reasoning = delta.reasoning or delta.reasoning_content
        if reasoning:
            self._keep(reasoning, self._reasoning)
        if not delta.tool_calls:
            return bool(reasoning)
        if self._t_first_tool is None:
            self._t_first_tool = t_ns
        for part in delta.tool_calls:
            self._tool(part)
        return True

    def _tool(self, part: ToolDelta) -> None:
        index = part.index if part.index is not None else len(self._tools) - (0 if part.id else 1)
        tool = self._tools.setdefault(max(index, 0), _Tool())
        if part.id:
            tool.id = part.id
        if part.function is None:
            return
        if part.function.name:
            tool.name += part.function.name
            self._recent.append(part.function.name[-TAIL_CHARS:])
        if part.function.arguments:
            self._keep(part.function.arguments, tool.arguments)

    def _fail(self, failure: Failure, detail: str) -> None:
        if self._failure is None:
            self._failure = failure.value
            self._detail = shorten(detail)

    def _verdict(self, stream_failure: str | None, detail: str | None) -> tuple[str | None, str | None]:
        if self._failure == Failure.ERROR_EVENT:
            return self._failure, self._detail
        if stream_failure is not None and not self.ended:
            return stream_failure, detail
        if self._failure is not None:
            return self._failure, self._detail
        if not self._any_event and self._bytes_seen:
            return Failure.NOT_SSE.value, None
        if not self.ended:
            return Failure.NO_END_MARKER.value, None
        if self._finish is None:
            return Failure.NO_FINISH_REASON.value, None
        return None, None

    def _cached(self) -> int | None:
        if self._usage is not None and self._usage.cached is not None:
            return self._usage.cached
        return believed(self._cache_n)

    def _spread(self, completion: int | None) -> tuple[Sequence[int], CountedBy]:
        chunks = len(self._n)
        if self._token_ids:
            return self._n, "token_ids"
        if completion is None or not chunks:
            return self._n, "chunks"
        if self._usage_grew and sum(self._n) == completion:
            return self._n, "usage_deltas"
        edges = [
            -(-completion * i // chunks) for i in range(chunks + 1)
        ]  # rounded up: an engine's last chunk is the short one
        return array("i", [b - a for a, b in pairwise(edges)]), "usage_spread"


class _Tool:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = Text()


def parse(pieces: Sequence[tuple[int, bytes]], stream_failure: str | None = None, detail: str | None = None) -> Parsed:
    """A whole stream at once."""
    parser = Parser()
    for t_ns, data in pieces:
        parser.feed(t_ns, data)
    return parser.finish(stream_failure, detail)
