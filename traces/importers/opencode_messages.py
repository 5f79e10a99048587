"""Messages of an opencode session become one thread of exchanges.

A request's start is not stored: a message is created up to several seconds earlier, before local work on snapshots.
Its end is not the message's `completed`, which includes the tools: it is where the first tool starts or, without tools,
where the last text ends.
"""

from msgspec.structs import replace

from windtunnel.traces.importers.conversation import STOPS, Conversation
from windtunnel.traces.importers.opencode_store import Message, Stored
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, media_piece, text_piece
from windtunnel.traces.importers.records import Notes, count, dumps, instant_ms, table, tables, text

_TASK = "task"
"""The tool that starts a sub-agent."""
_CLEARED = (text_piece("[Old tool result content cleared]"),)
"""What stands in later prompts for a result that was cleared to save room."""


class Reader:
    def __init__(self, stored: Stored, taken: set[str], *, alone: bool) -> None:
        """`taken`: tool-call ids of the trace; `alone`: not a sub-agent of another session in it."""
        self.notes = Notes(str(stored.file))
        self.thread = ThreadDraft(stored.id)
        self.talk = Conversation(self.thread, taken)
        self.spawned: dict[str, str] = {}
        """Tool-call ids by the session that they started."""
        self.providers: set[str] = set()
        self._stored = stored
        self._main = alone
        self._sent: list[tuple[str, Draft]] = []
        """What prompts hold since the last compaction, each with its message's id."""
        self._tail = ""
        """The message from which a compaction keeps the history as it was."""
        self._cleared: list[tuple[float, str]] = []
        """When a tool's result was taken out of later prompts, and its call."""
        if not alone:
            self.thread.parent = stored.parent
            self.thread.name = stored.title.partition(" (@")[0] or None
            self.thread.role = "agent"

    def read_all(self) -> None:
        for message in self._stored.messages:
            role = message.info.get("role")
            if role == "user":
                self._user(message)
            elif role == "assistant":
                self._answer(message)
            else:
                self.notes.add(None, f"message {message.id} has no known role and was left out")

    def _user(self, message: Message) -> None:
        when = instant_ms(table(message.info.get("time")).get("created"))
        self.talk.saw(when)
        system = text(message.info.get("system"))
        if system and not self.thread.exchanges:
            self._add(message, Draft("system", (text_piece(system),)), when)
        for part in message.parts:
            if part.get("type") == "compaction":
                self._tail = text(part.get("tail_start_id"))
        typed: list[Piece] = []
        added: list[Piece] = []
        for part in message.parts:
            if part.get("ignored") is True:
                continue
            (added if part.get("synthetic") is True else typed).extend(_pieces(part))
        if typed:
            self._add(message, Draft("user", (*typed, *added)), when, human=self._main)
        elif added:
            self._add(message, Draft("user", tuple(added)), when)

    def _add(self, message: Message, draft: Draft, when: float | None, *, human: bool = False) -> None:
        self._sent.append((message.id, draft))
        self.talk.add(draft, when, human=human)

    def _answer(self, message: Message) -> None:
        info = message.info
        created, completed = (instant_ms(table(info.get("time")).get(k)) for k in ("created", "completed"))
        if created is None:
            self.notes.add(None, f"message {message.id} has no usable time: waits around it are not known")
        tools = [p for p in message.parts if p.get("type") == "tool"]
        failed = bool(table(info.get("error")))
        exchange = Exchange(
            key=message.id,
            start=created,
            end=_end(message, tools) or (completed if failed or not tools else None),
            model=text(info.get("modelID")) or None,
            stop=STOPS.get(text(info.get("finish")), text(info.get("finish"))) or None,
            effort=text(info.get("variant")) or None,
            aborted=failed,
        )
        if info.get("mode") == "compaction" or info.get("summary") is True:
            # asked of an agent with a system prompt of its own and no tools
            exchange.kind, exchange.aside = "compaction", True
        if created is not None:
            exchange.marks["start"] = "derived"
        if exchange.end is not None:
            exchange.marks["end"] = "derived"
        self._usage(exchange, message)
        self.providers.add(text(info.get("providerID")))
        if self.thread.role == "agent":
            self.thread.role = text(info.get("agent")) or text(info.get("mode")) or "agent"
        if not exchange.aside:
            self._clear(created)
        self.talk.answer(exchange, _output(message.parts))
        if exchange.aside and failed:
            self.talk.again(exchange.fresh)
        elif exchange.aside:
            self._compacted(message, exchange)
        elif exchange.output is not None:
            self._sent.append((message.id, exchange.output))
        for part in tools:
            self._ran(message, part)

    def _compacted(self, message: Message, exchange: Exchange) -> None:
        """The summary stands for the history, but for a tail that the request for it may name."""
        summary = Draft("assistant", () if exchange.output is None else exchange.output.pieces)
        at = next((i for i, (own, _) in enumerate(self._sent) if own == self._tail), len(self._sent))
        self._sent = [(message.id, summary), *self._sent[at:]]
        self._tail = ""
        self.talk.compacted([d for _, d in self._sent])

    def _clear(self, now: float | None) -> None:
        """Old results that the client has cleared by now: the prompt differs from the first of them on."""
        due = {call for when, call in self._cleared if now is not None and when <= now}
        if not due:
            return
        self._cleared = [c for c in self._cleared if c[1] not in due]
        self._sent = [(own, replace(d, pieces=_CLEARED) if d.tool_call_id in due else d) for own, d in self._sent]
        self.talk.compacted([d for _, d in self._sent])

    def _usage(self, exchange: Exchange, message: Message) -> None:
        steps = [p for p in message.parts if p.get("type") == "step-finish"]
        if len(steps) > 1:
            self.notes.add(None, f"message {message.id} holds {len(steps)} steps: they count as one request")
        tokens = table(message.info.get("tokens"))
        if not any(tokens.get(k) for k in ("input", "output", "cache")) and steps:
            tokens = table(steps[-1].get("tokens"))
        cache = table(tokens.get("cache"))
        fresh, output, thought = (
            count(tokens.get(k), self.notes, None, f"{k} of message {message.id}")
            for k in ("input", "output", "reasoning")
        )
        cached, created = (
            count(cache.get(k), self.notes, None, f"cache {k} of message {message.id}") for k in ("read", "write")
        )
        prompt = (fresh or 0) + (cached or 0) + (created or 0)
        if fresh is None or not prompt:
            if not exchange.aborted:
                self.notes.add(None, f"message {message.id} has no usage: its prompt size is estimated")
            return
        exchange.prompt, exchange.cached = prompt, cached
        exchange.created = created if text(message.info.get("providerID")) == "anthropic" else None
        if output is not None:
            exchange.completion, exchange.reasoning = output + (thought or 0), thought

    def _ran(self, message: Message, part: dict[str, object]) -> None:
        state = table(part.get("state"))
        time = table(state.get("time"))
        error = state.get("status") == "error"
        said = text(state.get("error")) if error else text(state.get("output"))
        pieces = [text_piece(said)] if said else []
        for attached in tables(state.get("attachments")):
            pieces += _pieces(attached)
        tool = self.talk.result(
            text(part.get("callID")),
            pieces,
            instant_ms(time.get("end")),
            name=text(part.get("tool")),
            start=instant_ms(time.get("start")),
            error=error,
        )
        self._sent.append((message.id, self.talk.unanswered()[-1]))
        cleared = instant_ms(time.get("compacted"))
        if tool is not None and cleared is not None:
            self._cleared.append((cleared, tool.id))
        child = text(table(state.get("metadata")).get("sessionId"))
        if tool is not None and child and part.get("tool") == _TASK:
            tool.thread, tool.blocking = child, True
            self.spawned[child] = tool.id
            self.talk.join(child)


def _end(message: Message, tools: list[dict[str, object]]) -> float | None:
    starts = [instant_ms(table(table(p.get("state")).get("time")).get("start")) for p in tools]
    if known := [t for t in starts if t is not None]:
        return min(known)
    ends = [
        instant_ms(table(p.get("time")).get("end")) for p in message.parts if p.get("type") in ("text", "reasoning")
    ]
    return max((t for t in ends if t is not None), default=None)


def _output(parts: list[dict[str, object]]) -> Draft:
    pieces: list[Piece] = []
    reasoning: list[Piece] = []
    calls: list[Asked] = []
    for part in parts:
        kind, said = part.get("type"), text(part.get("text"))
        if kind == "text" and said and part.get("synthetic") is not True:
            pieces.append(text_piece(said))
        elif kind == "reasoning" and said:
            reasoning.append(text_piece(said))
        elif kind == "tool":
            arguments = text_piece(dumps(table(part.get("state")).get("input") or {}), "json")
            calls.append(Asked(text(part.get("callID")), text(part.get("tool")) or "tool", arguments))
    return Draft("assistant", tuple(pieces), tuple(reasoning), tuple(calls))


def _pieces(part: dict[str, object]) -> list[Piece]:
    """What a part of a user's message, or an attachment, puts into the prompt."""
    kind = part.get("type")
    if kind == "text" and text(part.get("text")):
        return [text_piece(text(part.get("text")))]
    if kind == "subtask" and text(part.get("prompt")):
        return [text_piece(text(part.get("prompt")))]
    media = text(part.get("mime"))
    # text files and folders follow as synthetic text
    if kind == "file" and media and not media.startswith("text/") and media != "application/x-directory":
        return [media_piece(media, text(part.get("url")).partition(",")[2] or text(part.get("url")))]
    return []
