"""Where a request belongs: its session, its thread, and the call it goes on from.

In this order: ids on the wire; the tool calls whose results it brings; the longest earlier prompt that it extends; an
earlier answer that it repeats; the longest prompt of a failed call that it extends; the tool call whose text stands in
its first message (then it is a sub-agent's first). A request of none of these begins a session. Connections say
nothing: some clients open one for each request.
"""

from typing import NamedTuple

from msgspec import Struct

from windtunnel.agents.recorder.asked import Answer, Request
from windtunnel.agents.recorder.book import Book
from windtunnel.agents.recorder.identity import Hints
from windtunnel.agents.recorder.model import RESTORED, Pool, Session, Spawner, Thread, Turn, chain
from windtunnel.agents.recorder.texts import (
    SHORTEST_PROMPT,
    argument_label,
    argument_texts,
    asks_summary,
    first_typed,
    since_answer,
    small_task,
    typed,
    visible,
)
from windtunnel.traces.importers.pieces import Draft
from windtunnel.traces.model import CallKind

MAIN = ""
KEPT_FRONTS = 200_000
TELLING = 20
"""Characters from which on equal words are no accident."""


class Place(Struct, frozen=True):
    turn: Turn
    retry: bool = False


class _Found(NamedTuple):
    session: Session
    thread: Thread


class Correlator:
    """All sessions of a recording. `place` takes requests in the order in which they came."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.sessions: dict[str, Session] = {}
        self._by_wire: dict[tuple[str, str], Session] = {}
        """(tag, id on the wire) to the session, sub-sessions of it included."""
        self._pools: dict[str, Pool] = {}
        """Pools of requests that name no session, by tag."""
        self._fronts: dict[tuple[str, bytes], None] = {}
        """Beginnings of all prompts: digest of the tools and chain hash of the messages, the oldest first."""

    def place(self, request: Request, hints: Hints, t: int) -> Place:
        """The new call of a request that came in whole at `t` (ns)."""
        hashes = chain(request.said)
        tip = hashes[-1] if hashes else b""
        session = self._named(hints, t)
        pool = session.pool if session is not None else self._pools.setdefault(hints.tag, Pool())
        key = hints.key
        failed = pool.failed.pop((key or MAIN, tip), None)
        if failed is not None:
            failed.start = t
            failed.thread.running[failed.id] = failed
            return Place(failed, retry=True)
        found = self._explicit(session, key, hints, request) or self._follow(session, pool, request, hashes)
        found = found or _by_failed(session, pool, key or MAIN, hashes)
        if found is None:
            found = self._beginning(session, pool, request, hints, t)
        session, thread = found
        turn = self._turn(session, thread, request, hints, t)
        turn.length, turn.tip = len(request.said), tip
        turn.repeated = self._repeated(request, hashes)
        session.with_tools = session.with_tools or request.schemas is not None
        return Place(turn)

    def _repeated(self, request: Request, hashes: list[bytes]) -> int | None:
        """Leading messages that began an earlier prompt of the recording too; None where not even the tools did."""
        tools = "" if request.schemas is None else request.schemas.piece.digest
        fronts = [(tools, h) for h in (*([b""] if tools else []), *hashes)]
        seen = next((n for n in range(len(fronts), 0, -1) if fronts[n - 1] in self._fronts), 0)
        for front in fronts:
            self._fronts.pop(front, None)
            self._fronts[front] = None
        while len(self._fronts) > KEPT_FRONTS:
            self._fronts.pop(next(iter(self._fronts)))
        return seen - bool(tools) if seen else None

    def known(self, name: str, tag: str, started: int) -> Session:
        """A session of an earlier recording; with or without an id of its own, its file does not say."""
        session = self._new_session(name, self._pools.setdefault(tag, Pool()), started)
        self._by_wire[tag, name] = session
        return session

    def restored(self, turn: Turn, said: str, output: Draft | None) -> None:
        """A call of an earlier recording."""
        turn.said = said
        self.ended(turn, Answer(output=output))

    def asks(self, turn: Turn, tool_call_id: str, name: str, arguments: str) -> None:
        """A tool call is complete, its answer perhaps not: clients start sub-agents while it still streams."""
        if tool_call_id not in turn.offered:
            turn.offered.add(tool_call_id)
            spawner = Spawner(turn, tool_call_id, argument_label(arguments) or name, tuple(argument_texts(arguments)))
            turn.session.pool.spawners.append(spawner)

    def adopt(self, turn: Turn, request: Request) -> None:
        """Look again for the tool call that started a sub-agent, before it is written down."""
        thread = turn.thread
        if thread.parent is None or thread.written or thread.tool_call_id is not None:
            return
        spawner = _spawner(turn.session.pool, request, strict=False)
        if spawner is not None and spawner.turn.thread is not thread:
            _take(thread, spawner)

    def ended(self, turn: Turn, answer: Answer) -> None:
        """A call is over and written."""
        for c in () if answer.output is None else answer.output.calls:
            self.asks(turn, c.id, c.name, c.arguments.text or "")
        thread, pool = turn.thread, turn.session.pool
        thread.running.pop(turn.id, None)
        thread.add(turn)
        pool.tips[turn.tip] = turn
        if turn.kind == "compaction":
            pool.compactions.append(turn)
        if turn.said:
            pool.outputs[turn.said] = turn
        for tool in turn.tools:
            pool.tools.setdefault(tool, []).append(turn)
        pool.forget_old()

    def failed(self, turn: Turn, key: str) -> None:
        """A call that may be tried again with the same body."""
        turn.thread.running.pop(turn.id, None)
        turn.session.pool.failed[key, turn.tip] = turn
        turn.session.pool.forget_old()
        if turn.kind != "auxiliary" and turn.end is not None:
            turn.thread.failed.append((turn.start, turn.end))

    def _named(self, hints: Hints, t: int) -> Session | None:
        """The session that the wire names: a sub-agent's own session id leads to its parent's."""
        if hints.session is None:
            return None
        wire = (hints.tag, hints.session)
        session = self._by_wire.get(wire)
        if session is None and hints.parent is not None:
            session = self._by_wire.get((hints.tag, hints.parent))
        if session is None:
            session = self._new_session(hints.session, Pool(), t)
        self._by_wire[wire] = session
        return session

    def _new_session(self, name: str, pool: Pool, t: int) -> Session:
        unique, n = name, 1
        while unique in self.sessions:
            n += 1
            unique = f"{name}-{n}"
        session = Session(unique, pool, agent=len(self.sessions), started=t, book=Book(unique))
        session.threads[MAIN] = Thread(MAIN, 0)
        self.sessions[unique] = session
        pool.sessions.append(session)
        return session

    def _explicit(self, session: Session | None, key: str | None, hints: Hints, request: Request) -> _Found | None:
        """The thread that the wire names."""
        if session is None or key is None:
            return None
        thread = session.threads.get(key) or self._renamed(session, key, request)
        if thread is None:
            parent = session.threads.get(hints.parent or MAIN) or session.threads[MAIN]
            spawner = _spawner(session.pool, request, strict=False)
            if spawner is not None and hints.parent is None:
                parent = spawner.turn.thread
            thread = _child(session, key, parent, spawner)
        return _Found(session, thread)

    def _renamed(self, session: Session, key: str, request: Request) -> Thread | None:
        """A sub-agent's thread that was restored: found by its words, from then on known by its key."""
        found = self._follow(session, session.pool, request, chain(request.said))
        if found is None or not found.thread.key.startswith(RESTORED):
            return None
        thread = session.threads.pop(found.thread.key)
        thread.key = key
        session.threads[key] = thread
        return thread

    def _follow(self, session: Session | None, pool: Pool, request: Request, hashes: list[bytes]) -> _Found | None:
        """The thread of the call that this one goes on from."""
        before = _by_tools(pool, request) or _by_prompt(pool, hashes) or _by_output(pool, request)
        before = before or _by_summary(pool, request)
        if before is None or (session is not None and before.session is not session):
            return None
        return _Found(before.session, before.thread)

    def _beginning(self, session: Session | None, pool: Pool, request: Request, hints: Hints, t: int) -> _Found:
        """A request that goes on from nothing: a sub-agent's first, an auxiliary one, a session's first."""
        small = small_task(request)
        spawner = None if small else _spawner(pool, request, strict=True)
        if spawner is not None:
            owner = spawner.turn.session
            return _Found(owner, _child(owner, f"{len(owner.threads)}:{spawner.tool_call_id}", None, spawner))
        if session is not None:
            return _Found(session, session.threads[MAIN])
        for known in reversed(pool.sessions):
            if _belongs(known, request, small=small):
                return _Found(known, known.threads[MAIN])
        name = hints.tag or f"{self._name}-{len(self.sessions) + 1}"
        session = self._new_session(name, pool, t)
        return _Found(session, session.threads[MAIN])

    def _turn(self, session: Session, thread: Thread, request: Request, hints: Hints, t: int) -> Turn:
        kind = _kind(session, thread, request, hints)
        if kind == "auxiliary" and not session.texts:
            session.texts = [visible(s.draft) for s in request.said if s.draft.role == "user"]
        if kind != "auxiliary" and not session.title:
            session.title = first_typed(request)
            session.texts = [session.title, *session.texts]
        if kind != "auxiliary":
            thread.begun += 1
            thread.last_begun = t
        turn = Turn(session.calls, session, thread, max(1, thread.begun), kind, start=t, asked_at=t)
        session.calls += 1
        thread.running[turn.id] = turn
        return turn


def _kind(session: Session, thread: Thread, request: Request, hints: Hints) -> CallKind:
    if hints.purpose is not None and "compact" in hints.purpose:
        return "compaction"
    if thread.turns and asks_summary(request) and len(request.said) > thread.turns[-1].length:
        return "compaction"
    first = thread.begun == 0
    if request.schemas is None and thread.id == 0 and (session.with_tools or first) and small_task(request):
        return "auxiliary"
    return "auxiliary" if hints.purpose is not None else "turn"


def _by_tools(pool: Pool, request: Request) -> Turn | None:
    """The call whose tools' results came last; where ids are not unique, the one whose words the request repeats."""
    newest = [d.tool_call_id for d in since_answer(request.said) if d.tool_call_id]
    prints = {s.print for s in request.said}
    for tool in reversed(newest):
        asked = pool.tools.get(tool, [])
        told = [t for t in asked if t.said in prints]
        if told or len(asked) == 1:
            return (told or asked)[-1]
    return None


def _by_prompt(pool: Pool, hashes: list[bytes]) -> Turn | None:
    """The call with the longest prompt that is a true beginning of this one."""
    for tip in reversed(hashes[:-1]):
        if tip in pool.tips:
            return pool.tips[tip]
    return None


def _by_failed(session: Session | None, pool: Pool, key: str, hashes: list[bytes]) -> _Found | None:
    """The thread of the call that failed with the longest prompt that is a true beginning of this one."""
    held = (pool.failed.get((key, tip)) for tip in reversed(hashes[:-1]))
    before = next((turn for turn in held if turn is not None), None)
    if before is None or (session is not None and before.session is not session):
        return None
    return _Found(before.session, before.thread)


def _by_output(pool: Pool, request: Request) -> Turn | None:
    """The latest answer that the request repeats."""
    for s in reversed(request.said):
        if s.draft.role == "assistant" and s.print in pool.outputs:
            return pool.outputs[s.print]
    return None


def _by_summary(pool: Pool, request: Request) -> Turn | None:
    """The compaction whose summary stands in the request's first words."""
    words = "\n".join(visible(s.draft) for s in request.said if s.draft.role == "user")
    told = (t for t in reversed(pool.compactions) if len(t.final) >= TELLING and t.final.strip() in words)
    return next(told, None)


def _spawner(pool: Pool, request: Request, *, strict: bool) -> Spawner | None:
    """The tool call that started a sub-agent: its prompt stands verbatim in the child's first words.

    Or the other way round, where a command line starts the child: the child's prompt stands in the arguments.
    `strict` where the request may as well be of no sub-agent: a file name that two prompts share is not enough.
    """
    users = [s.draft for s in request.said if s.draft.role == "user"]
    words = "\n".join(visible(d) for d in users)
    task = "\n".join(typed(d) for d in users).strip()
    least = max(TELLING, len(task) // 2) if strict else SHORTEST_PROMPT
    around = max(TELLING, SHORTEST_PROMPT)
    best: Spawner | None = None
    for spawner in pool.spawners:
        if spawner.taken or (best is not None and not best.answered):
            continue
        inside = any(len(text) >= least and text in words for text in spawner.texts)
        if inside or (len(task) >= around and any(task in text for text in spawner.texts)):
            best = spawner
    return best


def _child(session: Session, key: str, parent: Thread | None, spawner: Spawner | None) -> Thread:
    thread = Thread(key, len(session.threads), parent or session.threads[MAIN])
    if spawner is not None:
        _take(thread, spawner)
    elif thread.parent is not None:
        thread.spawn = thread.parent.last
    session.threads[key] = thread
    return thread


def _take(thread: Thread, spawner: Spawner) -> None:
    spawner.taken = True
    thread.parent = spawner.turn.thread
    thread.spawn = spawner.turn
    thread.tool_call_id = spawner.tool_call_id
    thread.name = spawner.name


def _belongs(session: Session, request: Request, *, small: bool) -> bool:
    """A title asked for beside a session without an id: one holds the other's words."""
    mine = [visible(s.draft) for s in request.said if s.draft.role == "user"]
    title = session.title
    if small:
        return len(title) >= SHORTEST_PROMPT and any(title in text for text in mine)
    first = first_typed(request)
    return not title and len(first) >= SHORTEST_PROMPT and any(first in text for text in session.texts)
