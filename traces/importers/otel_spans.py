"""GenAI spans of one conversation become threads of exchanges.

`gen_ai.usage.input_tokens` includes what was cached (a source whose cached count is larger counted without it).
Messages are there only where the user let them be recorded; without them the tool spans tell what came in between.
"""

from collections.abc import Sequence

from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.otel_messages import Said, messages_of, schemas_of
from windtunnel.traces.importers.otel_records import Signal
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, Piece, ThreadDraft, text_piece
from windtunnel.traces.importers.records import Notes, count, dumps, items, text
from windtunnel.traces.model import digest_of

_REQUESTS = ("chat", "text_completion", "generate_content")
_TOOL, _AGENT = "execute_tool", "invoke_agent"


class Spans:
    def __init__(self, spans: Sequence[Signal], notes: Notes) -> None:
        self.agent = ""
        self._notes = notes
        self._spans = sorted(spans, key=lambda s: (s.start or s.end or 0.0, s.id))
        self._by_id = {s.id: s for s in self._spans if s.id}
        self._parents = {s.parent for s in self._spans}
        self._agents_of: dict[str, list[Signal]] = {}
        """Agent spans by the span above them."""
        for span in self._spans:
            if _op(span) == _AGENT:
                self._agents_of.setdefault(span.parent, []).append(span)
        self._taken: set[str] = set()
        self._chats: dict[str, Conversation] = {}
        self._inputs: dict[str, list[str]] = {}
        """Digests of the messages of each thread's last prompt."""
        self._roots: set[str] = set()

    def read(self) -> list[Conversation]:
        self._chat("main", None)
        requests: dict[str, list[Signal]] = {}
        tools: dict[str, list[Signal]] = {}
        for span in self._spans:
            if self._is_request(span):
                requests.setdefault(self._thread(span), []).append(span)
            elif _op(span) == _TOOL:
                tools.setdefault(self._thread(span), []).append(span)
        for key, asked in sorted(requests.items(), key=lambda item: item[0] != "main"):
            for span, ran in zip(asked, _following(asked, tools.get(key, [])), strict=True):
                self._request(span, key, ran)
        return list(self._chats.values())

    def _is_request(self, span: Signal) -> bool:
        if _op(span):
            return _op(span) in _REQUESTS
        return "gen_ai.usage.input_tokens" in span.attributes and span.id not in self._parents

    def _agents(self, span: Signal) -> list[Signal]:
        """The agent spans around a span, the innermost first."""
        out: list[Signal] = []
        seen = {span.id}
        above = self._by_id.get(span.parent)
        while above is not None and above.id not in seen:
            seen.add(above.id)
            if _op(above) == _AGENT:
                out.append(above)
            above = self._by_id.get(above.parent)
        return out

    def _thread(self, span: Signal) -> str:
        """An agent inside another one is a sub-agent; the outermost ones are the main agent's turns."""
        agents = self._agents(span)
        return agents[0].id if len(agents) > 1 else "main"

    def _chat(self, key: str, agent: Signal | None) -> Conversation:
        chat = self._chats.get(key)
        if chat is None:
            name = text(agent.attributes.get("gen_ai.agent.name")) if agent else ""
            thread = ThreadDraft(key, parent=None if key == "main" else "main", name=name or None)
            thread.role = "main" if key == "main" else name or "agent"
            chat = self._chats[key] = Conversation(thread, self._taken)
        return chat

    def _request(self, span: Signal, key: str, tools: Sequence[Signal]) -> None:
        agents = self._agents(span)
        chat = self._chat(key, agents[0] if agents else None)
        self.agent = self.agent or (text(agents[-1].attributes.get("gen_ai.agent.name")) if agents else "")
        said = messages_of(span.attributes.get("gen_ai.input.messages"))
        self._came(chat, key, span, agents, said)
        exchange = self._exchange(span)
        output = self._output(span, exchange, tools)
        chat.answer(exchange, output, span.end)
        for tool, call in zip(tools, self._matched(tools, output), strict=True):
            self._ran(chat, key, tool, call, recorded=bool(said))

    def _came(self, chat: Conversation, key: str, span: Signal, agents: Sequence[Signal], said: list[Said]) -> None:
        """What is new in the prompt: from its messages where they are recorded, else a person's turn begins."""
        root = agents[-1] if agents else None
        turn = key == "main" and root is not None and root.id not in self._roots
        if root is not None:
            self._roots.add(root.id)
        asked_at = root.start if turn and root is not None else span.start
        if not said:
            first = not chat.thread.exchanges
            if turn or (first and not chat.unanswered()):
                chat.add(Draft("user"), asked_at, human=key == "main")
            return
        held = self._inputs.get(key, [])
        same = next(
            (i for i, (a, b) in enumerate(zip(held, said, strict=False)) if a != b.digest), min(len(held), len(said))
        )
        new = said[same:]
        if same < len(held):
            chat.compacted([])
            new = [m for m in said if m.draft.role != "system"]
        elif held and new and new[0].draft.role == "assistant":
            new = new[1:]
        system = text_piece(_plain(span.attributes.get("gen_ai.system_instructions")))
        if not held and system.tokens and system.text:
            chat.add(Draft("system", (system,)), None)
        for message in new:
            human = message.draft.role == "user" and key == "main"
            chat.add(message.draft, asked_at if human else None, human=human)
        self._inputs[key] = [m.digest for m in said]

    def _exchange(self, span: Signal) -> Exchange:
        figures = span.attributes
        prompt = self._count(span, "gen_ai.usage.input_tokens")
        cached = self._count(span, "gen_ai.usage.cache_read.input_tokens")
        created = self._count(span, "gen_ai.usage.cache_creation.input_tokens")
        exchange = Exchange(
            key=span.id or f"span {span.line} {span.start}",
            line=span.line or 0,
            prompt=prompt or None,
            cached=cached,
            created=created,
            completion=self._count(span, "gen_ai.usage.output_tokens"),
            reasoning=self._count(span, "gen_ai.usage.reasoning.output_tokens"),
            start=span.start,
            end=span.end,
            model=text(figures.get("gen_ai.response.model")) or text(figures.get("gen_ai.request.model")) or None,
            stop=next((text(s) for s in items(figures.get("gen_ai.response.finish_reasons")) if text(s)), None),
            max_tokens=self._count(span, "gen_ai.request.max_tokens"),
            aborted=span.failed,
            schemas=schemas_of(figures.get("gen_ai.tool.definitions")),
        )
        if prompt is None:
            self._notes.add(span.line, "the request names no input tokens: its prompt size is estimated")
        elif cached is not None and cached > prompt:
            exchange.prompt = prompt + cached + (created or 0)
            exchange.marks["prompt"] = "derived"
        if exchange.reasoning is not None and exchange.completion is not None:
            exchange.reasoning = min(exchange.reasoning, exchange.completion)
        return exchange

    def _output(self, span: Signal, exchange: Exchange, tools: Sequence[Signal]) -> Draft:
        said = messages_of(span.attributes.get("gen_ai.output.messages"))
        if said:
            drafts = [m.draft for m in said]
            asked = [c for d in drafts for c in d.calls]
            known = {c.id for c in asked} | {c.name for c in asked}
            # a tool that ran was asked for, also where the message does not show it
            hidden = [_asked(tool, number) for number, tool in enumerate(tools)]
            return Draft(
                "assistant",
                tuple(p for d in drafts for p in d.pieces),
                tuple(p for d in drafts for p in d.reasoning),
                (*asked, *(c for c in hidden if c.id not in known and c.name not in known)),
            )
        calls = tuple(_asked(tool, number) for number, tool in enumerate(tools))
        rest = (exchange.completion or 0) - (exchange.reasoning or 0) - sum(c.arguments.tokens for c in calls)
        words = (Piece(digest_of("otel", span.session, span.id, "output"), "prose", rest),) if rest > 0 else ()
        return Draft("assistant", words, calls=calls)

    def _matched(self, tools: Sequence[Signal], output: Draft) -> list[str]:
        """The tool call of each tool span, by id, else by name in order."""
        open_calls = list(output.calls)
        out = []
        for number, tool in enumerate(tools):
            own = text(tool.attributes.get("gen_ai.tool.call.id"))
            name = text(tool.attributes.get("gen_ai.tool.name"))
            found = next((c for c in open_calls if c.id == own), None) or next(
                (c for c in open_calls if c.name == name), None
            )
            if found is not None:
                open_calls.remove(found)
            out.append(found.id if found is not None else _asked(tool, number).id)
        return out

    def _ran(self, chat: Conversation, key: str, tool: Signal, call: str, *, recorded: bool) -> None:
        result = _plain(tool.attributes.get("gen_ai.tool.call.result"))
        known = chat.tools.get(call)
        if recorded and known is not None:
            # the result comes with the next request's messages
            known.start, known.end, known.error = tool.start, tool.end, tool.failed
        else:
            known = chat.result(
                call, (text_piece(result),) if result else (), tool.end, start=tool.start, error=tool.failed
            )
        for agent in self._agents_of.get(tool.id, []) if tool.id else []:
            if known is not None and self._agents(agent):
                child = self._chat(agent.id, agent).thread
                child.parent, child.tool_call_id = key, known.id
                known.thread, known.blocking = agent.id, True
                chat.join(agent.id)

    def _count(self, span: Signal, key: str) -> int | None:
        return count(span.attributes.get(key), self._notes, span.line, key)


def _following(requests: Sequence[Signal], tools: Sequence[Signal]) -> list[list[Signal]]:
    """The tools that began after each request of a thread and before the next one; both are in order of time."""
    out: list[list[Signal]] = [[] for _ in requests]
    at = 0
    for tool in tools:
        begun = tool.start if tool.start is not None else tool.end
        while at + 1 < len(requests) and begun is not None and (requests[at + 1].start or 0.0) <= begun:
            at += 1
        if requests and begun is not None and begun >= (requests[at].start or 0.0):
            out[at].append(tool)
    return out


def _op(span: Signal) -> str:
    return text(span.attributes.get("gen_ai.operation.name"))


def _asked(tool: Signal, number: int) -> Asked:
    own = text(tool.attributes.get("gen_ai.tool.call.id")) or f"{tool.id}-{number}"
    arguments = _plain(tool.attributes.get("gen_ai.tool.call.arguments")) or "{}"
    return Asked(own, text(tool.attributes.get("gen_ai.tool.name")) or "tool", text_piece(arguments, "json"))


def _plain(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return dumps(value)
