"""Claude Code's OpenTelemetry events: `user_prompt`, `api_request`, `tool_result`, as they come, in order of time.

`api_request` and `tool_result` are written when the thing has ended; `duration_ms` says how long it took. Prompt
tokens are the uncached, the cached and the newly cached ones together. `query_source` tells the main agent, its
sub-agents (`agent:...`) and the requests that the client makes for itself apart. Texts of prompts are there only where
the user asked for them; tool results never.
"""

from collections.abc import Sequence

from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.otel_records import Signal
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, text_piece
from windtunnel.traces.importers.records import MOST_TOKENS, Notes, count, seconds, text
from windtunnel.traces.model import CallKind, digest_of

_MAIN = ("", "repl_main_thread", "sdk", "main")
_AGENT = "agent:"
_HIDDEN = "<REDACTED>"
CHARS_PER_TOKEN = 4.0
ARGUMENT_TOKENS = 40
"""Of a tool call whose arguments are not logged."""


class Events:
    def __init__(self, events: Sequence[Signal], notes: Notes) -> None:
        self.agent = "claude-code"
        self._notes = notes
        self._events = sorted(events, key=lambda e: e.end or 0.0)
        self._taken: set[str] = set()
        self._chats: dict[str, Conversation] = {}

    def read(self) -> list[Conversation]:
        self._chat("")
        tools = self._tools_of_requests()
        for at, event in enumerate(self._events):
            if event.end is None:
                self._notes.add(event.line, f"the event {event.name[:40]} has no usable time")
            if event.name == "user_prompt":
                self._prompt(event, at)
            elif event.name == "api_request":
                self._request(event, at, tools.get(at, []))
            elif event.name == "api_error":
                self._notes.add(event.line, "a request that failed is not part of the session")
            elif event.name == "subagent_completed":
                self._completed(event)
        return list(self._chats.values())

    def _chat(self, source: str) -> Conversation:
        chat = self._chats.get(source)
        if chat is None:
            thread = ThreadDraft(source or "main", parent="main" if source else None, background=bool(source))
            thread.name, thread.role = source or None, source or "main"
            chat = self._chats[source] = Conversation(thread, self._taken)
        return chat

    def _tools_of_requests(self) -> dict[int, list[Signal]]:
        """A tool belongs to the last request before it ended; events do not say which agent ran it."""
        out: dict[int, list[Signal]] = {}
        last: int | None = None
        for at, event in enumerate(self._events):
            if event.name == "api_request" and _kind(event) == "turn":
                last = at
            elif event.name == "tool_result":
                if last is None:
                    self._notes.add(event.line, "a tool ran before any request that is logged; left out")
                else:
                    out.setdefault(last, []).append(event)
        return out

    def _prompt(self, event: Signal, at: int) -> None:
        said = text(event.attributes.get("prompt"))
        pieces: tuple[Piece, ...] = ()
        if said and said != _HIDDEN:
            pieces = (text_piece(said),)
        else:
            length = _number(event.attributes.get("prompt_length"))
            tokens = round(length / CHARS_PER_TOKEN) if length else 0
            if 0 < tokens <= MOST_TOKENS:
                pieces = (Piece(digest_of("otel", event.session, "prompt", str(at)), "prose", tokens),)
        self._chat("").add(Draft("user", pieces), event.end, human=True)

    def _request(self, event: Signal, at: int, tools: Sequence[Signal]) -> None:
        figures, line = event.attributes, event.line
        fresh = self._count(event, "input_tokens")
        cached = self._count(event, "cache_read_tokens")
        created = self._count(event, "cache_creation_tokens")
        took = _number(figures.get("duration_ms"))
        start = event.end - took / 1000 if event.end is not None and took is not None else None
        prompt = (fresh or 0) + (cached or 0) + (created or 0)
        if not prompt:
            self._notes.add(line, "the request names no prompt tokens: its prompt size is estimated")
        source = text(figures.get("query_source"))
        chat = self._chat(source if source.startswith(_AGENT) else "")
        exchange = Exchange(
            key=f"event {at}",
            line=line or 0,
            prompt=prompt or None,
            cached=cached,
            created=created,
            completion=self._count(event, "output_tokens"),
            start=start,
            end=event.end,
            model=text(figures.get("model")) or None,
            kind=_kind(event),
            marks={} if start is None else {"start": "derived"},
        )
        calls = tuple(self._asked(tool, number, at) for number, tool in enumerate(tools))
        said = max(0, (exchange.completion or 0) - sum(c.arguments.tokens for c in calls))
        words = (Piece(digest_of("otel", event.session, "output", str(at)), "prose", said),) if said else ()
        chat.answer(exchange, Draft("assistant", words, calls=calls), event.end)
        for tool, call in zip(tools, calls, strict=True):
            length = _number(tool.attributes.get("duration_ms"))
            begun = tool.end - length / 1000 if tool.end is not None and length is not None else None
            failed = text(tool.attributes.get("success")) == "false" or tool.attributes.get("success") is False
            chat.result(call.id, (), tool.end, start=begun, error=failed)

    def _asked(self, tool: Signal, number: int, at: int) -> Asked:
        own = text(tool.attributes.get("tool_use_id")) or f"{tool.session}-{at}-{number}"
        name = text(tool.attributes.get("tool_name")) or "tool"
        written = text(tool.attributes.get("tool_input")) or text(tool.attributes.get("tool_parameters"))
        unknown = Piece(digest_of("otel", tool.session, "arguments", str(at), str(number)), "json", ARGUMENT_TOKENS)
        return Asked(own, name, text_piece(written) if written else unknown)

    def _completed(self, event: Signal) -> None:
        name = text(event.attributes.get("agent_type")) or "agent"
        if not any(name in text(e.attributes.get("query_source")) for e in self._events):
            self._notes.add(event.line, f"the sub-agent {name[:60]} ran, but none of its requests is logged")

    def _count(self, event: Signal, key: str) -> int | None:
        value = event.attributes.get(key)
        written = text(value)
        return count(int(written) if written.isdecimal() and len(written) < 20 else value, self._notes, event.line, key)


def _kind(event: Signal) -> CallKind:
    source = text(event.attributes.get("query_source"))
    if source in _MAIN or source.startswith(_AGENT):
        return "turn"
    return "compaction" if source == "compact" else "auxiliary"


def _number(value: object) -> float | None:
    """A number, also one that is written as text."""
    written = text(value)
    if written:
        try:
            value = float(written)
        except ValueError:
            return None
    return seconds(value, 1e12)
