"""Claude Code's OpenTelemetry events: `user_prompt`, `api_request`, `tool_result`, as they come, in order of time.

`api_request` and `tool_result` are written when the thing has ended; `duration_ms` says how long it took. Prompt
tokens are the uncached, the cached and the newly cached ones together. `query_source` tells the main agent, its
sub-agents (`agent:...`) and the requests that the client makes for itself apart. Texts of prompts are there only where
the user asked for them; tool results never.
"""

from bisect import bisect_right
from collections.abc import Sequence

from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.otel_records import Signal
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, text_piece
from windtunnel.traces.importers.records import MOST_TOKENS, Notes, count, seconds, text
from windtunnel.traces.model import CallKind, digest_of

_MAIN = ("", "repl_main_thread", "sdk", "main")
_AGENT, _COMPACT = "agent:", "compact"
_HIDDEN = "<REDACTED>"
_STARTS_AGENTS = ("Task", "Agent")
CHARS_PER_TOKEN = 4.0
SLACK_S = 0.05
"""A tool's event may say that it began a little before the answer had ended."""
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
        self._link()
        return list(self._chats.values())

    def _link(self) -> None:
        """A sub-agent belongs to the first run of a tool that starts one, not yet taken, during which it began."""
        runs = [t for t in self._chats[""].tools.values() if t.name in _STARTS_AGENTS]
        for chat in list(self._chats.values())[1:]:
            first = next((e.start or e.end for e in chat.thread.exchanges), None)
            for run in runs:
                inside = first is not None and run.start is not None and run.end is not None
                if inside and run.thread is None and (run.start or 0.0) <= (first or 0.0) <= (run.end or 0.0):
                    run.thread, run.blocking = chat.thread.key, True
                    chat.thread.tool_call_id, chat.thread.background = run.id, False
                    answered = (
                        e for e in self._chats[""].thread.exchanges if (e.start or e.end or 0.0) >= (run.end or 0.0)
                    )
                    after = next(answered, None)
                    if after is not None:
                        after.joins.append(chat.thread.key)
                    break

    def _chat(self, source: str) -> Conversation:
        chat = self._chats.get(source)
        if chat is None:
            thread = ThreadDraft(source or "main", parent="main" if source else None, background=bool(source))
            thread.name, thread.role = source or None, source or "main"
            chat = self._chats[source] = Conversation(thread, self._taken)
        return chat

    def _tools_of_requests(self) -> dict[int, list[Signal]]:
        """A tool belongs to the last answer before it began; events do not say which agent ran it."""
        turns = [at for at, e in enumerate(self._events) if e.name == "api_request" and _kind(e) == "turn"]
        ends = [self._events[at].end or 0.0 for at in turns]
        out: dict[int, list[Signal]] = {}
        for event in self._events:
            if event.name == "tool_result":
                begun = _began(event)
                number = bisect_right(ends, (event.end if begun is None else begun + SLACK_S) or 0.0) - 1
                if number < 0:
                    self._notes.add(event.line, "a tool ran before any request that is logged; left out")
                else:
                    out.setdefault(turns[number], []).append(event)
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
        start = _began(event)
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
        if exchange.kind == "auxiliary":
            # what the client asks for itself (a title, a suggestion) has a prompt of its own
            exchange.aside, exchange.output = True, Draft("assistant", words) if words else None
            chat.thread.exchanges.append(exchange)
            return
        chat.answer(exchange, Draft("assistant", words, calls=calls), event.end)
        for tool, call in zip(tools, calls, strict=True):
            begun = _began(tool)
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


def _began(event: Signal) -> float | None:
    took = _number(event.attributes.get("duration_ms"))
    return None if event.end is None or took is None else event.end - took / 1000


def _kind(event: Signal) -> CallKind:
    source = text(event.attributes.get("query_source"))
    if source in _MAIN or source.startswith(_AGENT):
        return "turn"
    return "compaction" if source == _COMPACT else "auxiliary"


def _number(value: object) -> float | None:
    """A number, also one that is written as text."""
    written = text(value)
    if written:
        try:
            value = float(written)
        except ValueError:
            return None
    return seconds(value, 1e12)
