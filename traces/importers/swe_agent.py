"""SWE-agent trajectories (`*.traj`), 0.7 to 1.1.

They hold the conversation and how long each action ran, no moments and at most totals of tokens: prompt and output
sizes are estimates from the text, scaled to the totals where there are some. Layouts: history only (demonstrations),
steps beside it, steps that carry the messages they sent (`query`), and several attempts in one file.
"""

from collections.abc import Sequence
from pathlib import Path

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.chat_messages import draft_of, plain
from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.fitting import share
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Asked, Draft, Exchange, ThreadDraft, Tool, title_of
from windtunnel.traces.importers.records import Notes, count, items, seconds, table, tables, text
from windtunnel.traces.importers.thread_writer import ThreadWriter
from windtunnel.traces.model import Header, Trace

NAME = "swe-agent"
SUFFIXES = (".traj",)
_TASK = "ISSUE:"

Json = dict[str, object]


def detect(path: Path, head: bytes) -> bool:
    """The file's ending, and a history or steps in its beginning."""
    kept = any(key in head for key in (b'"history"', b'"trajectory"', b'"attempts"'))
    return path.suffix == ".traj" and (kept or not head.strip())


def read(path: Path) -> Imported:
    """One trajectory; each attempt in it is a session."""
    notes = Notes(str(path))
    document = read_document(path, notes)
    if document is None and notes.all():
        return Imported((), notes.all())
    value = table(document)
    attempts = [a for a in tables(value.get("attempts")) if items(a.get("history"))] or [value]
    traces: list[Trace] = []
    for number, attempt in enumerate(attempts):
        thread = Conversation(attempt, notes).thread()
        if thread.exchanges:
            name = path.stem if len(attempts) == 1 else f"{path.stem}-attempt-{number + 1}"
            traces.append(assemble(_header(value, attempt, thread, path, name), [thread], Rules()))
    if not traces:
        notes.add(None, "holds no request to a model: nothing to replay")
    return Imported(tuple(traces), notes.all())


def _header(value: Json, attempt: Json, thread: ThreadDraft, path: Path, name: str) -> Header:
    info = table(attempt.get("info"))
    model = _model(value.get("replay_config"))
    typed = ["\n".join(p.text or "" for p in d.pieces) for d in thread.exchanges[0].fresh if d.role == "user"]
    said = next((t for t in typed if _TASK in t), typed[0] if typed else "")
    return Header(
        id=name,
        agent=NAME,
        agent_version=text(info.get("swe_agent_version")) or None,
        models=(model,) if model else (),
        source=f"{NAME} {path}",
        title=title_of(said.partition(_TASK)[2]) or title_of(said),
    )


def _model(config: object) -> str:
    return text(table(table(table(config).get("agent")).get("model")).get("name"))


class Conversation:
    """One attempt's history as a thread."""

    def __init__(self, attempt: Json, notes: Notes) -> None:
        self._notes = notes
        self._writer = ThreadWriter("main")
        self._steps = list(tables(attempt.get("trajectory")))
        self._history = list(tables(attempt.get("history")))
        self._stats = table(table(attempt.get("info")).get("model_stats"))
        self._context: list[Json] = []
        """Messages of the prompt so far."""
        self._waiting: list[Tool] = []
        self._answers = 0
        self._names: dict[str, str] = {}
        """Our id for a tool call's id: hand-edited demonstrations use one twice."""

    def thread(self) -> ThreadDraft:
        answers = sum(_is_answer(m) for m in self._history)
        if self._steps and len(self._steps) != answers:
            reason = f"{len(self._steps)} steps beside {answers} answers: the times of its actions cannot be told"
            self._notes.add(None, reason)
            self._steps = []
        for message in self._history:
            if _is_answer(message):
                self._answer(message)
            else:
                self._input(message)
            self._context.append(message)
        thread = self._writer.finish()
        _scale(thread.exchanges, self._stats, self._notes)
        return thread

    def _input(self, message: Json) -> None:
        draft = draft_of(message)
        ids = [self._names.get(i, i) for i in _result_ids(message)]
        first = not self._answers and message.get("role") == "user"
        if draft.role == "tool":
            self._writer.result(next(iter(ids), ""), draft.pieces, None)
            self._waiting = [t for t in self._waiting if t.id not in ids]
        elif draft.role == "user" and self._waiting:
            # an action written in the text has its result in the next message
            tool = self._waiting.pop(0)
            self._writer.came(Draft("user", draft.pieces, tool_call_id=tool.id), None)
        elif first and message.get("is_demo") is not True:
            self._writer.typed(draft, None)
        else:
            self._writer.came(draft, None)

    def _answer(self, message: Json) -> None:
        step = self._steps[self._answers] if self._answers < len(self._steps) else {}
        self._sent(list(tables(step.get("query"))))
        exchange = self._writer.request(0)
        exchange.output = self._renamed(draft_of(message))
        took = seconds(step.get("execution_time"))
        calls = [(c.id, c.name) for c in exchange.output.calls]
        action = text(message.get("action")).split()
        if not calls and action:
            calls = [(f"step-{self._answers}", action[0])]
        for number, (tool_id, name) in enumerate(calls):
            # a step's time is that of all its actions
            tool = Tool(tool_id, name, took=took if not number else 0.0 if took is not None else None)
            if self._writer.asked(exchange, tool):
                self._waiting.append(tool)
        self._answers += 1

    def _renamed(self, draft: Draft) -> Draft:
        calls: list[Asked] = []
        for call in draft.calls:
            self._names[call.id] = call.id if call.id not in self._writer.tools else f"{call.id}-{self._answers}"
            calls.append(Asked(self._names[call.id], call.name, call.arguments))
        return Draft(draft.role, draft.pieces, draft.reasoning, tuple(calls))

    def _sent(self, query: list[Json]) -> None:
        """The messages that a step says it sent, where a history processor made them others than the history."""
        if not query or not self._answers:
            return
        if [plain(m.get("content")) for m in query] != [plain(m.get("content")) for m in self._context]:
            front = int(query[0].get("role") == "system")
            self._writer.rewound([_as_sent(m) for m in query[front:]])
            self._waiting = []
        self._context = query


def _as_sent(message: Json) -> Draft:
    draft = draft_of(message)
    return Draft(draft.role, draft.pieces, draft.reasoning, draft.calls, next(iter(_result_ids(message)), None))


def _result_ids(message: Json) -> list[str]:
    """Tool calls that a message answers."""
    several = [i for i in items(message.get("tool_call_ids")) if isinstance(i, str)]
    one = text(message.get("tool_call_id"))
    return several or ([one] if one else [])


def _is_answer(message: Json) -> bool:
    return message.get("role") == "assistant" and message.get("is_demo") is not True


def _scale(exchanges: Sequence[Exchange], stats: Json, notes: Notes) -> None:
    """Estimates brought to the totals that the model's statistics name."""
    sent = count(stats.get("tokens_sent"), notes, None, "tokens_sent")
    received = count(stats.get("tokens_received"), notes, None, "tokens_received")
    if stats.get("api_calls") != len(exchanges):
        return
    if sent and sent >= len(exchanges):
        for exchange, prompt in zip(exchanges, share(sent, [e.prompt or 1 for e in exchanges]), strict=True):
            exchange.prompt = max(1, prompt)
    if received and received >= len(exchanges):
        for exchange, out in zip(exchanges, share(received, [e.completion or 1 for e in exchanges]), strict=True):
            exchange.completion = max(1, out)
