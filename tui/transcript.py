"""One agent's session as something to read: what it was sent, what it wrote, which tools ran.

Sent text comes from the trace, written text from the run's `text.jsonl`. A shape-only trace has no text: its shape is
shown, and said to be that.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from windtunnel.simulator.results.breakdown import Part
from windtunnel.simulator.results.call_lines import Waited
from windtunnel.simulator.results.store import TextLine
from windtunnel.traces.model import Block, Call, Trace
from windtunnel.tui.figures import count
from windtunnel.tui.view import Row


class Turn(Struct, frozen=True):
    """One call of a session and the wait before it. Seconds; None where it has not happened or was not reported."""

    thread: int
    call: int
    turn: int = 0
    turns: int = 0
    done: bool = False
    start: int = 0
    """Ms since the run's origin, like `end`."""
    end: int | None = None
    prompt: int | None = None
    cached: int | None = None
    missed: int | None = None
    """Prompt tokens that an earlier prompt of the run held and the engine did not find."""
    miss_cause: str = ""
    """In short, where enough was missed to be worth a word."""
    cause: str = ""
    """In words, however little was missed."""
    lost: int = 0
    """Prompt tokens behind a change of the history, which would have been found without it."""
    culprit: str = ""
    """What that change was."""
    again: int = 0
    """Generated tokens of the call before that this prompt carries as other bytes."""
    completion: int | None = None
    """Output tokens; so far, while it runs."""
    exact: bool = True
    """False: `completion` is an estimate, shown with ~."""
    pinned: int = 0
    """Output tokens it will have; 0 when not known."""
    tail: str = ""
    """What it has written so far, as far as it was seen."""
    ttft_s: float | None = None
    ttft_about: bool = False
    """Worked out from what was seen of a running call four times a second: shown with ~."""
    tpot_s: float | None = None
    latency_s: float | None = None
    recorded_s: float | None = None
    parts: tuple[Part, ...] = ()
    """Where its time went."""
    waits: tuple[Waited, ...] = ()
    """Of its thread before it."""
    then: tuple[Waited, ...] = ()
    """Of its thread after it, while no other call of it has been sent; the last one may go on."""
    slower: float | None = None
    """Its time against the same call's when its session has the engine to itself."""
    failure: str | None = None
    detail: str = ""
    cut: bool = False

    @property
    def new(self) -> int | None:
        if self.prompt is None or self.cached is None:
            return None
        return max(0, self.prompt - self.cached - (self.missed or 0) - self.lost)

    @property
    def key(self) -> tuple[int, int]:
        return self.thread, self.call


class Entry(Struct, frozen=True):
    """A paragraph of the transcript."""

    who: str
    """system, user, tool, agent, think, call, note."""
    head: str
    """What stands on its first line."""
    text: str = ""
    quiet: bool = False
    """A remark about the text, not text."""
    shape: tuple[tuple[str, int], ...] = ()
    """Of text that was never recorded: (what, tokens)."""


class ThreadLane(Struct, frozen=True):
    """The main agent or a sub-agent, over time."""

    thread: int
    name: str
    depth: int
    """0 for the main agent, 1 for its sub-agents, and so on."""
    starts: tuple[int, ...] = ()
    """Ms since the run's origin, like `ends`."""
    ends: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    """Of `lanes.STATES`."""
    untold: tuple[tuple[int, int], ...] = ()
    """When it waited for a first token, and nobody knows whether in the queue."""


class Story(Struct, frozen=True):
    """What the agent screen shows."""

    row: Row
    session: str = ""
    title: str = ""
    trace_id: str = ""
    turns: tuple[Turn, ...] = ()
    trace: Trace | None = None
    trace_note: str = ""
    """Why there is no trace to read from."""
    written: Mapping[tuple[int, int], TextLine] = {}
    """By (thread, call): what the model wrote in this run."""
    text_kept: bool = True
    """False with `--no-text`."""
    began: int = 0
    """When the run began; ms since its origin, like all that follow."""
    since: int = 0
    """When the session began."""
    until: int = 0
    """When it ended; now, while it goes on."""
    over: bool = False
    lanes: tuple[ThreadLane, ...] = ()
    number: int = 1
    """Which of the agent's sessions it is."""
    sessions: int = 1
    beheaded: bool = False
    """Its first calls are not kept any more."""
    recording: bool = False
    slower: float | None = None
    """All its calls' time against that of the same calls when the session has the engine to itself."""

    @property
    def replayed(self) -> bool:
        """Whether there are recorded times to compare with."""
        return any(turn.recorded_s is not None for turn in self.turns)

    def depth(self, thread: int) -> int:
        """How far below the main agent a thread is."""
        return next((lane.depth for lane in self.lanes if lane.thread == thread), min(1, thread))

    def named(self, thread: int) -> str:
        return next((lane.name for lane in self.lanes if lane.thread == thread), "")


def entries(story: Story, turn: Turn) -> Iterator[Entry]:
    """The paragraphs of one turn, in the order of events."""
    trace = story.trace
    call = trace.calls[turn.call] if trace is not None and turn.call < len(trace.calls) else None
    if trace is not None and call is not None:
        yield from _sent(trace, call, turn is story.turns[0])
    elif turn is story.turns[0] and story.trace_note:
        yield Entry("note", story.trace_note, quiet=True)
    yield from _written(story, turn, call)


def _sent(trace: Trace, call: Call, first: bool) -> Iterator[Entry]:
    """What this call's prompt has that the one before had not."""
    output = trace.calls[call.base].output if call.base is not None else None
    if first and call.base is not None:
        yield Entry("note", f"the replay joins here: {call.keep} earlier messages are in the prompt", quiet=True)
    if call.base is None and call.tools is not None:
        tools = trace.toolsets[call.tools]
        yield Entry(
            "system",
            f"{len(tools.names)} tools, {count(trace.toolset_tokens(call.tools))} tokens",
            ", ".join(tools.names),
        )
    names = (
        {c.id: c.name for m in trace.messages for c in m.tool_calls}
        if any(trace.messages[m].role == "tool" for m in call.append)
        else {}
    )
    for message_id in call.append:
        message = trace.messages[message_id]
        if message_id == output or message.role == "assistant":
            continue
        head = f"{count(trace.message_tokens(message_id))} tokens"
        if message.role == "tool":
            head = f"{message.name or names.get(message.tool_call_id or '', 'result')}  {head}"
        blocks = [trace.blocks[b] for b in message.blocks]
        texts = [b.text for b in blocks if b.text is not None]
        if texts:
            yield Entry(message.role, head, "".join(texts))
        else:
            yield Entry(message.role, head, quiet=True, shape=shape(blocks))


def shape(blocks: Sequence[Block]) -> tuple[tuple[str, int], ...]:
    """`(code, 2100), (filler, 300)`: what blocks without text are made of, in the order of the prompt."""
    sums: dict[str, int] = {}
    for block in blocks:
        name = block.media or ("filler" if block.filler else block.kind)
        sums[name] = sums.get(name, 0) + block.tokens
    return tuple(sums.items())


def _written(story: Story, turn: Turn, call: Call | None) -> Iterator[Entry]:
    """What the model wrote, from this run; the recorded tool calls tell what the session did next."""
    line = story.written.get(turn.key) if turn.done else None
    size = f"{count(turn.completion)} tokens" if turn.completion is not None else ""
    if line is not None:
        if line.reasoning:
            yield Entry("think", "", line.reasoning)
        yield Entry("agent", size, line.text)
        for asked in line.tool_calls:
            yield Entry("call", str(asked.get("name", "")), str(asked.get("arguments", "")))
    elif not turn.done:
        of = f" of {turn.pinned}" if turn.pinned else ""
        yield Entry("agent", f"{turn.completion or 0}{of} tokens", turn.tail)
    elif not turn.failure and not turn.cut:
        why = "its text was not kept (--no-text)" if not story.text_kept else ""
        yield Entry("agent", size, why, quiet=True)
    if turn.failure:
        yield Entry("failed", turn.failure.replace("_", " "), turn.detail)
    elif turn.cut:
        yield Entry("cut", "stopped by the end of the run")
    went_on = turn.done and not turn.failure and not turn.cut
    if went_on and call is not None and story.trace is not None and call.output is not None:
        for made in story.trace.messages[call.output].tool_calls:
            if line is not None and line.tool_calls:
                break
            block = story.trace.blocks[made.arguments]
            text = block.text or f"{count(block.tokens)} tokens of arguments"
            yield Entry("call", f"{made.name}  (recorded)", text, block.text is None)
