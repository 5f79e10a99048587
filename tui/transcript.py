"""One agent's session as something to read: what it was sent, what it wrote, which tools ran.

Sent text comes from the trace, written text from the run's `text.jsonl`. A shape-only trace has no text: its shape is
shown, and said to be that.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from windtunnel.simulator.results.store import TextLine
from windtunnel.traces.model import Block, Call, Message, Trace
from windtunnel.tui.figures import count
from windtunnel.tui.view import Row


class Turn(Struct, frozen=True):
    """One call of a session and the wait before it. Seconds; None where it has not happened or was not reported."""

    thread: int
    call: int
    turn: int = 0
    turns: int = 0
    done: bool = False
    prompt: int | None = None
    cached: int | None = None
    missed: int | None = None
    """Prompt tokens that an earlier prompt of the run held and the engine did not find."""
    miss_cause: str = ""
    completion: int | None = None
    """Output tokens; so far, while it runs."""
    exact: bool = True
    """False: `completion` is an estimate, shown with ~."""
    pinned: int = 0
    """Output tokens it will have; 0 when not known."""
    tail: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None
    recorded_s: float | None = None
    waited_s: float = 0.0
    wait_label: str = ""
    failure: str | None = None
    detail: str = ""
    cut: bool = False

    @property
    def new(self) -> int | None:
        if self.prompt is None or self.cached is None:
            return None
        return max(0, self.prompt - self.cached - (self.missed or 0))

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
    if first and trace.header.shape_only:
        yield Entry(
            "note", "a shape-only trace: its text was never recorded, only lengths and what repeats", quiet=True
        )
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
        yield Entry(message.role, head, *_text(trace, message))


def _text(trace: Trace, message: Message) -> tuple[str, bool]:
    """A message's text where it was recorded, else its shape."""
    blocks = [trace.blocks[b] for b in message.blocks]
    texts = [b.text for b in blocks if b.text is not None]
    if texts:
        return "".join(texts), False
    return shape(blocks), True


def shape(blocks: list[Block]) -> str:
    """`2.1k code + 300 filler`: what a block list without text is made of."""
    sums: dict[str, int] = {}
    for block in blocks:
        name = block.media or ("filler" if block.filler else block.kind)
        sums[name] = sums.get(name, 0) + block.tokens
    return " + ".join(f"{count(n)} {name}" for name, n in sums.items())


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
            yield Entry(
                "call",
                f"{made.name}  (recorded)",
                block.text or f"{count(block.tokens)} tokens of arguments",
                block.text is None,
            )
