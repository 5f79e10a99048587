"""mini-swe-agent trajectories (`*.traj.json`): the messages, each answer with the response it came in.

A bare list of messages, as tests keep them, has neither usage nor times: those are estimates and unknown.
"""

from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.chat_messages import draft_of, plain, take_usage
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Draft, ThreadDraft, Tool, title_of
from windtunnel.traces.importers.records import Notes, instant_s, items, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter
from windtunnel.traces.model import Header

NAME = "mini-swe-agent"
_TASK = "Please solve this issue:"
_SPOKEN = frozenset({"system", "user", "assistant", "tool", "developer"})

Json = dict[str, object]


def detect(path: Path, head: bytes) -> bool:
    """The names that its own fields have, or its file ending and messages."""
    if path.suffix != ".json":
        return False
    if b'"mini_version"' in head or b'"trajectory_format": "mini-swe-agent' in head:
        return True
    listed = b'"messages"' in head or head.lstrip()[:1] == b"["
    return path.name.endswith(".traj.json") and ((b'"role"' in head and listed) or not head.strip())


def read(path: Path) -> Imported:
    """One trajectory."""
    notes = Notes(str(path))
    value = read_document(path, notes, "messages", _is_message)
    if value is None and notes.all():
        return Imported((), notes.all())
    info = table(table(value).get("info"))
    messages = list(tables(value if isinstance(value, list) else table(value).get("messages")))
    run = Run(notes, text(table(table(info.get("config")).get("model")).get("model_name")))
    for message in messages:
        run.read(message)
    thread = run.writer.finish()
    if not thread.exchanges:
        notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), notes.all())
    header = Header(
        id=path.name.removesuffix(".json").removesuffix(".traj"),
        agent=NAME,
        agent_version=text(info.get("mini_version")) or None,
        models=tuple(dict.fromkeys(e.model for e in thread.exchanges if e.model)),
        source=f"{NAME} {path}",
        started_at=_began(thread),
        title=title_of(run.writer.prompt.partition(_TASK)[2]) or title_of(run.writer.prompt),
    )
    return Imported((assemble(header, [thread], Rules()),), notes.all())


def _is_message(value: dict[str, object]) -> bool:
    return "role" in value and "content" in value and "logprobs" not in value and "annotations" not in value


def _began(thread: ThreadDraft) -> float | None:
    times = [t for e in thread.exchanges for t in (e.start, e.end) if t is not None]
    return min(times, default=None)


class Run:
    def __init__(self, notes: Notes, model: str) -> None:
        self.writer = ThreadWriter("main")
        self._notes = notes
        self._model = model
        self._waiting: list[Tool] = []

    def read(self, message: Json) -> None:
        role = text(message.get("role"))
        extra = table(message.get("extra"))
        if role == "assistant":
            self._answer(message, extra)
        elif role in _SPOKEN:
            self._input(message, instant_s(extra.get("timestamp")))
        elif role != "exit":
            self._notes.add(None, "a message of no known role was left out")

    def _input(self, message: Json, when: float | None) -> None:
        draft = draft_of(message)
        if draft.role == "tool":
            self.writer.result(draft.tool_call_id or "", draft.pieces, when)
        elif draft.role == "user" and self._waiting:
            # an action written in the text has its result in the next message
            tool = self._waiting.pop(0)
            tool.end = when
            self.writer.came(Draft("user", draft.pieces, tool_call_id=tool.id), when)
        elif draft.role == "user" and not self.writer.thread.exchanges:
            self.writer.typed(draft, when)
        else:
            self.writer.came(draft, when)

    def _answer(self, message: Json, extra: Json) -> None:
        response = table(extra.get("response"))
        exchange = self.writer.request(0)
        exchange.output = draft_of(message)
        exchange.end = instant_s(extra.get("timestamp"))
        exchange.model = text(response.get("model")) or self._model or None
        choice = next(tables(response.get("choices")), {})
        exchange.stop = text(choice.get("finish_reason")) or None
        created = instant_s(response.get("created"))
        if exchange.start is None and len(self.writer.thread.exchanges) == 1 and created is not None:
            # whole seconds, by the server's clock
            exchange.start = created if exchange.end is None else min(created, exchange.end)
            exchange.marks["start"] = "estimated"
        if response:
            take_usage(exchange, table(response.get("usage")), self._notes, None)
        calls = [(c.id, c.name) for c in exchange.output.calls]
        if not calls and plain(message.get("content")):
            calls = [(f"step-{len(self.writer.tools)}-{i}", "bash") for i, _ in enumerate(items(extra.get("actions")))]
            self._waiting = []
        for tool_id, name in calls:
            tool = Tool(tool_id, name, start=exchange.end, mark="derived")
            if self.writer.asked(exchange, tool) and not exchange.output.calls:
                self._waiting.append(tool)
