"""What the readers of event streams have in common: texts by index, times of tokens, the tail for the screen."""

from collections import deque
from typing import Any

from windtunnel.agents.recorder.asked import Answer, Clean, asked, decode_event, decode_object
from windtunnel.agents.sse_lines import Events
from windtunnel.traces.importers.pieces import Asked, Draft, Piece, text_piece

TAIL_CHARS = 200


class Part:
    """One block of an answer: text, reasoning or a tool call."""

    __slots__ = ("call_id", "kind", "name", "texts")

    def __init__(self, kind: str, call_id: str = "", name: str = "") -> None:
        self.kind = kind
        self.call_id = call_id
        self.name = name
        self.texts: list[str] = []


class StreamReader:
    """Events to parts. A subclass says what an event means in `_event`, and what a whole answer does in `_whole`."""

    def __init__(self, content_type: str) -> None:
        self.tokens_so_far = 0
        self.ended = False
        self.answer = Answer()
        self.parts: dict[Any, Part] = {}
        self._plain = bytearray()
        self._streams = "event-stream" in content_type
        self._events = Events()
        self._recent: deque[str] = deque(maxlen=64)

    @property
    def tail(self) -> str:
        return "".join(self._recent)[-TAIL_CHARS:]

    def calls(self) -> list[tuple[str, str, str]]:
        whole = [(p.call_id, p.name, "".join(p.texts)) for p in self.parts.values() if p.kind == "call"]
        return [part for part in whole if part[2].endswith("}")]

    def feed(self, t_ns: int, data: bytes) -> None:
        if not self._streams:
            self._plain += data
            if self.answer.t_first is None and data:
                self.answer.t_first = self.answer.t_first_visible = t_ns
            self.answer.t_last = t_ns
            return
        for payload in self._events.feed(data):
            event = decode_event(payload if isinstance(payload, bytes) else payload.plain())
            if event:
                self._event(t_ns, event)

    def finish(self, clean: Clean) -> Answer:
        answer = self.answer
        if not self._streams:
            value = decode_object(bytes(self._plain))
            if value:
                self._whole(value)
                self.ended = answer.failure is None
        answer.ended = self.ended
        answer.output = self._draft(clean)
        return answer

    def _event(self, t_ns: int, event: dict[str, Any]) -> None:
        raise NotImplementedError

    def _whole(self, value: dict[str, Any]) -> None:
        raise NotImplementedError

    def grew(self, t_ns: int, key: Any, kind: str, text: str) -> None:
        """Text came for a block."""
        part = self.parts.get(key)
        if part is None:
            part = self.parts[key] = Part(kind)
        part.texts.append(text)
        answer = self.answer
        if answer.t_first is None:
            answer.t_first = t_ns
        if part.kind == "text" and answer.t_first_visible is None:
            answer.t_first_visible = t_ns
        if part.kind == "call" and answer.t_first_tool is None:
            answer.t_first_tool = t_ns
        answer.t_last = t_ns
        answer.chunk_t.append(t_ns)
        answer.chunk_n.append(1)
        self.tokens_so_far += 1
        self._recent.append(text[-TAIL_CHARS:])

    def _draft(self, clean: Clean) -> Draft | None:
        pieces: list[Piece] = []
        reasoning: list[Piece] = []
        calls: list[Asked] = []
        for part in self.parts.values():
            text = "".join(part.texts)
            if part.kind == "call":
                calls.append(asked(part.call_id, part.name, text or "{}", clean))
            elif text:
                (reasoning if part.kind == "reasoning" else pieces).append(text_piece(clean(text)))
        if not (pieces or reasoning or calls):
            return None
        return Draft("assistant", tuple(pieces), tuple(reasoning), tuple(calls))
