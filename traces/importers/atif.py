"""ATIF trajectories (Agent Trajectory Interchange Format, `ATIF-v1.x`): one JSON document of steps.

A step of the agent is a request to a model; its `observation` is what its tools answered. A step's time is when its
output began to arrive: neither the request's start nor the tools' times are told, so that waits for tools are unknown
unless a tool's result tells how long it took. Sub-agents are steps marked as a sidechain (as Harbor writes them),
trajectories embedded in the document, or files beside it that a result refers to. `prompt_tokens` include what was
cached.
"""

from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.claude_parts import judge_completion
from windtunnel.traces.importers.conversation import Conversation, link_by_prompt
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import (
    Asked,
    Draft,
    Exchange,
    Piece,
    ThreadDraft,
    ToolSchemas,
    media_piece,
    text_piece,
    title_of,
)
from windtunnel.traces.importers.records import Notes, count, dumps, instant, items, seconds, table, tables, text
from windtunnel.traces.model import Header

__all__ = ["NAME", "detect", "read"]

NAME = "atif"
CLAUDE_CODE = "claude-code"
MAIN = "main"


def detect(path: Path, head: bytes) -> bool:
    return path.suffix == ".json" and b'"schema_version"' in head[:2_000] and b'"ATIF-' in head[:2_000]


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    value = table(read_document(path, notes, "steps", _is_step))
    if not value:
        if not notes.all():
            notes.add(None, "is not a JSON object: nothing could be read")
        return Imported((), notes.all())
    session = Session(notes)
    session.take(value, MAIN, path, cut=bool(notes.all()))
    threads = [c.thread for c in session.chats.values() if c.thread.exchanges or c.thread.key == MAIN]
    if not any(t.exchanges for t in threads):
        notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), notes.all())
    if not threads[0].exchanges:
        notes.add(None, "the main agent made no request: its sub-agents' steps are taken as they are")
        threads = threads[1:]
        threads[0].parent = None
    link_by_prompt(threads)
    agent = table(value.get("agent"))
    name = text(agent.get("name")) or "unknown"
    header = Header(
        id=text(value.get("session_id")) or text(value.get("trajectory_id")) or path.stem,
        agent=name,
        agent_version=text(agent.get("version")) or None,
        models=tuple(dict.fromkeys(e.model for t in threads for e in t.exchanges if e.model)),
        source=f"{NAME} {path}",
        started_at=min((c.first for c in session.chats.values() if c.first is not None), default=None),
        title=title_of(session.chats[MAIN].prompt),
    )
    return Imported((assemble(header, threads, Rules(exact_cache=name == CLAUDE_CODE)),), notes.all())


def _is_step(value: dict[str, object]) -> bool:
    return "step_id" in value and "source" in value


class Owner(Struct, frozen=True):
    """What a trajectory says of all its steps."""

    key: str
    model: str | None
    schemas: ToolSchemas | None
    claude: bool


class Session:
    """The threads of a trajectory: the main one first."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.chats: dict[str, Conversation] = {}
        self._taken: set[str] = set()
        self._sessions: set[str] = set()

    def take(self, value: dict[str, object], key: str, path: Path, *, cut: bool = False) -> None:
        """A trajectory document and, after it, those of its sub-agents. `cut`: the document's end is lost."""
        agent = table(value.get("agent"))
        named = text(agent.get("name"))
        owner = Owner(key, text(agent.get("model_name")) or None, _schemas(agent), named == CLAUDE_CODE)
        self._chat(key, named if key != MAIN else None)
        self._sessions.update(filter(None, (text(value.get("session_id")), text(value.get("trajectory_id")))))
        if not isinstance(value.get("steps"), list):
            self.notes.add(None, "the trajectory has no list of steps")
        steps = items(value.get("steps"))
        for number, item in enumerate(steps, start=1):
            step = table(item)
            if cut and number == len(steps) and "metrics" not in step:
                self.notes.add(None, f"step {number} is cut off and was left out")
            elif step:
                self._step(step, number, owner, path)
            else:
                self.notes.add(None, f"step {number} is not an object and was left out")
        for inner in tables(value.get("subagent_trajectories")):
            own = text(inner.get("trajectory_id")) or text(inner.get("session_id"))
            if own and own not in self._sessions:
                self.take(inner, own, path)

    def _chat(self, key: str, name: str | None = None) -> Conversation:
        chat = self.chats.get(key)
        if chat is None:
            thread = ThreadDraft(key, parent=None if key == MAIN else MAIN, name=name)
            thread.role = "main" if key == MAIN else name or "agent"
            chat = self.chats[key] = Conversation(thread, self._taken)
        return chat

    def _step(self, step: dict[str, object], number: int, owner: Owner, path: Path) -> None:
        extra = table(step.get("extra"))
        key = owner.key
        if extra.get("is_sidechain") is True:
            key = text(extra.get("agent_id")) or "sidechain"
        chat = self._chat(key)
        when = instant(step.get("timestamp"))
        if when is None:
            self.notes.add(None, f"step {number} has no usable timestamp: waits around it are not known")
        source = text(step.get("source"))
        said = _pieces(step.get("message"))
        copied = step.get("is_copied_context") is True or step.get("llm_call_count") == 0
        if source == "agent" and not copied:
            self._request(chat, step, owner, when, f"step {number}")
        elif source == "agent":
            chat.add(Draft("assistant", tuple(said), calls=tuple(_asked(step))), when)
        elif source in ("user", "system"):
            human = source == "user" and key == MAIN and not copied
            chat.add(Draft("user" if source == "user" else "system", tuple(said)), when, human=human)
        else:
            self.notes.add(None, f"step {number} comes from {source[:40]!r}, which is no source; left out")
            return
        for result in tables(table(step.get("observation")).get("results")):
            self._result(chat, result, path)

    def _request(
        self, chat: Conversation, step: dict[str, object], owner: Owner, when: float | None, where: str
    ) -> None:
        metrics = table(step.get("metrics"))
        more = table(metrics.get("extra"))
        calls = step.get("llm_call_count")
        if isinstance(calls, int) and calls > 1:
            self.notes.add(None, f"{where} stands for {min(calls, 10**6)} requests and is read as one")
        exchange = Exchange(
            key=where,
            prompt=count(metrics.get("prompt_tokens"), self.notes, None, f"{where}: prompt_tokens") or None,
            cached=count(metrics.get("cached_tokens"), self.notes, None, f"{where}: cached_tokens"),
            created=count(more.get("cache_creation_input_tokens"), self.notes, None, f"{where}: cache creation"),
            completion=count(metrics.get("completion_tokens"), self.notes, None, f"{where}: completion_tokens"),
            reasoning=count(more.get("reasoning_tokens"), self.notes, None, f"{where}: reasoning_tokens"),
            end=when,
            model=text(step.get("model_name")) or owner.model,
            effort=text(step.get("reasoning_effort")) or None,
            stop=text(table(step.get("extra")).get("stop_reason")) or None,
            schemas=owner.schemas,
            marks={"end": "derived"} if when is not None else {},
        )
        if exchange.prompt is None:
            self.notes.add(None, f"{where} has no prompt_tokens: its prompt size is estimated")
        if exchange.cached is not None and exchange.prompt is not None:
            exchange.cached = min(exchange.cached, exchange.prompt)
        thought = text(step.get("reasoning_content"))
        output = Draft(
            "assistant",
            tuple(_pieces(step.get("message"))),
            (text_piece(thought),) if thought else (),
            tuple(_asked(step)),
        )
        chat.answer(exchange, output)
        if owner.claude:
            judge_completion(exchange)

    def _result(self, chat: Conversation, result: dict[str, object], path: Path) -> None:
        pieces = _pieces(result.get("content"))
        called = text(result.get("source_call_id"))
        extra = table(result.get("extra"))
        if not called:
            chat.add(Draft("user", tuple(pieces)), None)
            return
        tool = chat.result(called, pieces, None, error=extra.get("tool_result_is_error") is True)
        if tool is None:
            return
        told = table(table(extra.get("tool_result_metadata")).get("tool_use_result"))
        tool.took = _took(told)
        child = text(told.get("agentId"))
        for reference in _references(result.get("subagent_trajectory_ref")):
            child = self._referred(reference, path) or child
        if child:
            tool.thread = child
            tool.blocking = told.get("status") != "async_launched"
            if tool.blocking:
                chat.join(child)
            self._chat(child).thread.tool_call_id = tool.id
            self._chat(child).thread.parent = chat.thread.key

    def _referred(self, reference: dict[str, object], path: Path) -> str:
        """Key of a sub-agent's trajectory; one in a file beside this one is read."""
        own = text(reference.get("trajectory_id")) or text(reference.get("session_id"))
        name = text(reference.get("trajectory_path")).replace("\\", "/").rpartition("/")[2]
        beside = path.parent / name if name and len(name) < 200 and "\0" not in name else None
        if not own or own in self._sessions or beside is None:
            return own
        if not beside.is_file() or beside == path:
            self.notes.add(None, f"the sub-agent's trajectory {name[:100]} is not beside this file")
            return own
        notes = Notes(str(beside))
        value = table(read_document(beside, notes))
        for problem in notes.all():
            self.notes.add(problem.line, f"{name}: {problem.reason}")
        if value:
            self.take(value, own, beside, cut=bool(notes.all()))
        return own


def _references(value: object) -> list[dict[str, object]]:
    return list(tables(value)) or ([table(value)] if isinstance(value, dict) else [])


def _took(told: dict[str, object]) -> float | None:
    """How long a tool ran, as Claude Code's own result records say it."""
    length = seconds(told.get("durationSeconds"))
    for key in ("durationMs", "totalDurationMs"):
        ms = seconds(told.get(key), 1e12)
        length = ms / 1000 if length is None and ms is not None else length
    return length


def _asked(step: dict[str, object]) -> list[Asked]:
    return [
        Asked(
            text(call.get("tool_call_id")), text(call.get("function_name")) or "tool", _arguments(call.get("arguments"))
        )
        for call in tables(step.get("tool_calls"))
    ]


def _arguments(value: object) -> Piece:
    return text_piece(value if isinstance(value, str) else dumps(value if value is not None else {}))


def _pieces(content: object) -> list[Piece]:
    """A message or result: text, or parts of text and images (given by their path)."""
    if isinstance(content, str):
        return [text_piece(content)] if content else []
    out: list[Piece] = []
    for part in tables(content):
        source = table(part.get("source"))
        if text(part.get("text")):
            out.append(text_piece(text(part.get("text"))))
        elif source:
            out.append(media_piece(text(source.get("media_type")) or "image/unknown", text(source.get("path"))))
    return out


def _schemas(agent: dict[str, object]) -> ToolSchemas | None:
    listed = [t for t in tables(agent.get("tool_definitions")) if t]
    names = tuple(text(table(t.get("function")).get("name")) or text(t.get("name")) for t in listed)
    return ToolSchemas(names, text_piece(dumps(listed), "json")) if listed else None
