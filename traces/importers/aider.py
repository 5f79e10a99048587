"""Aider's chat history (`.aider.chat.history.md`): what was typed and answered, as Markdown. A weak source.

`# aider chat started at TIME` begins a run, `#### ` lines were typed, `> ` lines are the program's own, the rest is the
model's. Token counts stand in `> Tokens: 4.6k sent, 210 received.` lines, rounded to two digits; where there is none
they are estimates. Nothing tells when a request was made, what else was in the prompt (repository map, files), or how
long anything took.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from windtunnel.traces.importers.assemble import Rules, assemble
from windtunnel.traces.importers.conversation import Conversation
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.pieces import Draft, Exchange, ThreadDraft, text_piece, title_of
from windtunnel.traces.importers.records import Notes, count, instant, read_bytes
from windtunnel.traces.model import Header, Trace

__all__ = ["NAME", "SUFFIXES", "detect", "read"]

NAME = "aider"
SUFFIXES = (".aider.chat.history.md",)
_RUN = "# aider chat started at "
_TYPED = "#### "
_TOKENS = re.compile(r"> Tokens: ([\d.,]+[kM]?) sent(.{0,80}?), ([\d.,]+[kM]?) received")
_HIT = re.compile(r"([\d.,]+[kM]?) cache hit")
_MODEL = re.compile(r"> (?:Main model|Model): (\S{1,200})")
_VERSION = re.compile(r"> Aider v([\w.]{1,40})")
_SCALE = {"k": 1_000, "M": 1_000_000}
_ASKING = ("/ask", "/code", "/architect", "/context")
"""Commands that send what follows them to the model; others do not."""
WEAK = "weak source: no times, prompts without what Aider adds to them, token counts rounded or estimated"


def detect(path: Path, head: bytes) -> bool:
    return path.name.endswith(SUFFIXES) or (path.suffix == ".md" and _RUN.encode() in head[:2_000])


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    lines = read_bytes(path, notes).decode("utf-8", "replace").split("\n")
    runs = list(_runs(lines))
    traces = [t for n, run in enumerate(runs, 1) if (t := _trace(run, n, path, notes)) is not None]
    if not traces:
        typed = sum(line.startswith(_TYPED) for line in lines)
        notes.add(None, f"{len(runs)} runs with {typed} typed lines hold no answer of a model: nothing to replay")
    return Imported(tuple(traces), notes.all())


class Run(Struct):
    """Lines of one run of the program, numbered from 1."""

    started: str
    lines: list[tuple[int, str]] = []


def _runs(lines: list[str]) -> Iterator[Run]:
    run: Run | None = None
    for number, line in enumerate(lines, start=1):
        if line.startswith(_RUN):
            if run is not None:
                yield run
            run = Run(line.removeprefix(_RUN).strip())
        elif run is not None:
            run.lines.append((number, line.rstrip()))
    if run is not None:
        yield run


class _Reader:
    def __init__(self, notes: Notes) -> None:
        self.chat = Conversation(ThreadDraft("main"), set())
        self.model: str | None = None
        self.version: str | None = None
        self._notes = notes
        self._typed: list[str] = []
        self._said: list[str] = []
        self._line = 0

    def take(self, number: int, line: str) -> None:
        if line.startswith(_TYPED):
            if self._said:
                self._answer(number, None)
            self._typed.append(line.removeprefix(_TYPED).strip())
            return
        self._asked()
        if line.startswith(">"):
            if (tokens := _TOKENS.match(line)) is not None:
                self._answer(number, tokens)
            elif (model := _MODEL.match(line)) is not None:
                self.model = model[1]
            elif (version := _VERSION.match(line)) is not None:
                self.version = version[1]
        elif line.strip() or self._said:
            self._said.append(line)

    def finish(self) -> None:
        self._asked()
        self._answer(0, None)

    def _asked(self) -> None:
        """What was typed in one go; a command goes to the program and not to the model."""
        typed, self._typed = "\n".join(self._typed).strip(), []
        if typed and not (typed.startswith("/") and not typed.startswith(_ASKING)):
            self.chat.add(Draft("user", (text_piece(typed),)), None, human=True)

    def _answer(self, number: int, tokens: re.Match[str] | None) -> None:
        said, self._said = "\n".join(self._said).strip(), []
        if tokens is None and not said:
            return
        exchange = Exchange(key=f"line {number or 'end'}", line=number, model=self.model)
        if tokens is not None:
            hit = _HIT.search(tokens[2])
            exchange.prompt = self._number(tokens[1], number, "sent")
            exchange.cached = self._number(hit[1], number, "cache hit") if hit else None
            exchange.completion = self._number(tokens[3], number, "received")
            exchange.marks |= {"prompt": "estimated", "completion": "estimated"}
            if exchange.prompt is not None and exchange.cached is not None:
                exchange.cached = min(exchange.cached, exchange.prompt)
                exchange.marks["cached"] = "estimated"
        self.chat.answer(exchange, Draft("assistant", (text_piece(said),) if said else ()))

    def _number(self, written: str, line: int, what: str) -> int | None:
        try:
            value = float(written.rstrip("kM").replace(",", "")) * _SCALE.get(written[-1:], 1)
        except ValueError:
            value = -1.0
        return count(round(value) if value < 1e15 else value, self._notes, line, what) or None


def _trace(run: Run, number: int, path: Path, notes: Notes) -> Trace | None:
    reader = _Reader(notes)
    for at, line in run.lines:
        reader.take(at, line)
    reader.finish()
    thread = reader.chat.thread
    if not thread.exchanges:
        return None
    header = Header(
        id=f"{path.name.removesuffix('.md').lstrip('.')}-{number}",
        agent=NAME,
        agent_version=reader.version,
        models=tuple(dict.fromkeys(e.model for e in thread.exchanges if e.model)),
        source=f"{NAME} {path}",
        started_at=instant(run.started),
        title=title_of(reader.chat.prompt),
        notes=(WEAK,),
    )
    return assemble(header, [thread], Rules(exact_cache=False))
