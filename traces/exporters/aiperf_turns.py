"""AIPerf's multi-turn conversations: a session a line, turns of text, the answers left to the server.

The text is regenerated from the blocks' digests, never the recorded one: equal beginnings stay equal, nothing readable
leaves, and its length in tokens is near the recorded one by the usual ratio of characters. A thread is a session of its
own; tools and system prompt are a leading system turn.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from windtunnel.traces.exporters.blocks import keeps_all
from windtunnel.traces.exporters.exported import Exported
from windtunnel.traces.exporters.mooncake import BEGINS_ANEW, pauses_of
from windtunnel.traces.model import Block, Call, Problem, Trace
from windtunnel.traces.text import Calibration, regenerate, stored

_EMPTY = "."
"""AIPerf wants text in every turn."""


def write(traces: Sequence[Trace]) -> Exported:
    problems: list[Problem] = []
    rows = [row for trace in traces for row in _Session(trace, problems).rows()]
    data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
    return Exported((data,), tuple(problems))


class _Session:
    def __init__(self, trace: Trace, problems: list[Problem]) -> None:
        self._trace = trace
        self._problems = problems
        self._pauses = pauses_of(trace)
        self._streams = {c.id: tuple(messages) for c, messages in trace.prompts()}
        self._calibration: Calibration = stored()
        self._texts: dict[int, str] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """The sessions of every thread; a prompt that does not extend the one before it begins another."""
        many = sum(1 for t in self._trace.threads if self._trace.calls_of(t.id)) > 1
        if many:
            self._problems.append(Problem(self._trace.header.id, None, "sub-agents become sessions of their own"))
        for thread in self._trace.threads:
            parts: list[list[dict[str, Any]]] = []
            before: Call | None = None
            for call in self._trace.calls_of(thread.id):
                if before is not None and keeps_all(call, before, self._streams):
                    parts[-1].append(self._next(call, before))
                else:
                    if before is not None:
                        self._problems.append(Problem(self._trace.header.id, call.id, BEGINS_ANEW))
                    parts.append(list(self._first(call)))
                before = call
            for number, turns in enumerate(parts):
                name = self._trace.header.id + (f"/{thread.id}" if thread.id else "") + (f"#{number}" if number else "")
                yield {"session_id": name, "turns": turns}

    def _first(self, call: Call) -> Iterator[dict[str, Any]]:
        messages = self._streams[call.id]
        front = 1 if messages and self._trace.messages[messages[0]].role == "system" else 0
        tools = () if call.tools is None else self._trace.toolsets[call.tools].blocks
        system = self._text([*tools, *self._blocks(messages[:front])])
        if system:
            yield {"role": "system", "text": system}
        yield self._turn(call, messages[front:], None)

    def _next(self, call: Call, before: Call) -> dict[str, Any]:
        answered = before.output is not None and call.append[:1] == (before.output,)
        return self._turn(call, call.append[1:] if answered else call.append, self._pauses.get(call.id))

    def _turn(self, call: Call, messages: Sequence[int], delay: float | None) -> dict[str, Any]:
        turn = {
            "text": self._text(self._blocks(messages)) or _EMPTY,
            "output_length": call.usage.completion or None,
            "delay": delay,
        }
        return {key: value for key, value in turn.items() if value is not None}

    def _blocks(self, messages: Sequence[int]) -> list[int]:
        return [b for m in messages for b in self._trace.message_blocks(self._trace.messages[m])]

    def _text(self, blocks: Sequence[int]) -> str:
        return "".join(self._regenerated(self._trace.blocks[b]) for b in blocks)

    def _regenerated(self, block: Block) -> str:
        said = self._texts.get(block.id)
        if said is None:
            said = self._texts[block.id] = regenerate(block.digest, block.kind, block.tokens, self._calibration)
        return said
