"""What is held of the sessions being recorded: enough to tell where the next request belongs."""

from collections import deque
from hashlib import blake2b

from msgspec import Struct, field

from windtunnel.agents.recorder.asked import Said
from windtunnel.agents.recorder.book import Book
from windtunnel.traces.model import CallKind

KEPT_TURNS = 12
KEPT_SPAWNERS = 64
KEPT_ENDS = 4096
RESTORED = "restored:"
"""Start of the key of a sub-agent's thread that was read from a file: its key on the wire is not known."""


class Spawner(Struct, eq=False):
    """A tool call that may start a sub-agent: its texts may stand in a child's first prompt."""

    turn: "Turn"
    tool_call_id: str
    name: str
    """A name for the sub-agent: from the arguments, else the tool's."""
    texts: tuple[str, ...]
    taken: bool = False
    answered: bool = False


class Turn(Struct, eq=False):
    """One call. Times are ns of CLOCK_MONOTONIC."""

    id: int
    """In the trace."""
    session: "Session"
    thread: "Thread"
    number: int
    """In its thread, from 1."""
    kind: CallKind
    start: int
    asked_at: int
    """Start of the first attempt, where others failed before this one."""
    end: int | None = None
    length: int = 0
    """Messages of the prompt."""
    repeated: int | None = None
    """How many of them began an earlier prompt of the recording, after the same tools; None: not even the tools did."""
    tip: bytes = b""
    """Chain hash of the prompt."""
    said: str = ""
    """Print of the output."""
    final: str = ""
    """Text of an output without tool calls."""
    tools: dict[str, str] = {}
    """Tool calls of the output: id to name."""
    offered: set[str] = set()
    """Tool calls that are known as possible spawners."""
    messages: tuple[int, ...] = ()
    toolset: int | None = None
    before: "Turn | None" = None
    """The turn of this thread that ended last when this one began."""
    answers: tuple[str, ...] = ()
    """Tool calls of `before` whose results this one brings."""
    stated_s: float | None = None
    """How long the one tool that ran before says it took."""
    joins: tuple["Thread", ...] = ()
    human: bool = False
    """A person's words came with it."""
    failed: tuple[tuple[int, int], ...] = ()
    """Start and end (ns) of the thread's requests since `before` that failed and were not sent again as they were."""


class Thread(Struct, eq=False):
    """The main agent, or a sub-agent."""

    key: str
    id: int
    parent: "Thread | None" = None
    spawn: Turn | None = None
    tool_call_id: str | None = None
    name: str | None = None
    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=KEPT_TURNS))
    """Ended ones, the oldest first."""
    running: dict[int, Turn] = {}
    begun: int = 0
    """Turns begun so far."""
    last_begun: int = 0
    """ns; start of the latest turn."""
    joined: bool = False
    written: bool = False
    failed: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_TURNS))
    """Start and end of the requests that failed, the latest ones."""

    def add(self, turn: Turn) -> None:
        """A turn that ended. One that others are no longer built on keeps only what finds it again."""
        if len(self.turns) == KEPT_TURNS:
            old = self.turns[0]
            old.messages = ()
            if old.kind != "compaction":  # its summary is looked for later
                old.final = ""
        self.turns.append(turn)
        turn.before, turn.joins = None, ()  # a chain through all turns would keep every one of them

    @property
    def last(self) -> Turn | None:
        """The latest turn that ended, auxiliary requests apart."""
        return next((t for t in reversed(self.turns) if t.kind != "auxiliary"), None)

    @property
    def over(self) -> bool:
        """It has said its last word, as far as can be told."""
        return self.last is not None and not self.running and not self.last.tools


class Pool(Struct, eq=False):
    """Where a request's predecessors are looked for: one session's calls, or those of all that name none."""

    tips: dict[bytes, Turn] = {}
    """Chain hash of a prompt to the latest call that had it."""
    tools: dict[str, list[Turn]] = {}
    """Tool-call id to the calls whose output asked for it."""
    outputs: dict[str, Turn] = {}
    """Print of an output to the latest call that wrote it."""
    spawners: deque[Spawner] = field(default_factory=lambda: deque(maxlen=KEPT_SPAWNERS))
    compactions: deque[Turn] = field(default_factory=lambda: deque(maxlen=KEPT_SPAWNERS))
    """Calls that wrote a summary."""
    failed: dict[tuple[str, bytes], Turn] = {}
    """(thread's key, chain hash) to a call that failed and may be tried again."""
    sessions: deque["Session"] = field(default_factory=lambda: deque(maxlen=KEPT_SPAWNERS))

    def forget_old(self) -> None:
        for held in (self.tips, self.tools, self.outputs, self.failed):
            while len(held) > KEPT_ENDS:
                held.pop(next(iter(held)))  # type: ignore[call-overload]


class Session(Struct, eq=False):
    id: str
    pool: Pool
    agent: int
    """Lane on the screen."""
    started: int
    """ns; start of its first request."""
    book: Book
    client: str = ""
    version: str | None = None
    title: str = ""
    model: str | None = None
    tag: str = ""
    threads: dict[str, Thread] = {}
    calls: int = 0
    """Call ids given out."""
    with_tools: bool = False
    """Some request offered tools: one that does not is no turn."""
    shown: bool = False
    """The screen knows of it."""
    texts: list[str] = []
    """What a person typed first, and the prompts of auxiliary requests before that."""


def chain(asked: list[Said]) -> list[bytes]:
    """A hash for each beginning of a prompt."""
    held, out = b"", []
    for s in asked:
        held = blake2b(held + s.print.encode(), digest_size=16).digest()
        out.append(held)
    return out
