"""One call of a synthetic agent: what it costs, how long it takes, what the prompt cache answers."""

from msgspec import Struct

from windtunnel.traces.assembly import Assembly, Draft
from windtunnel.traces.behaviour import CACHE_LIFE_S, DECODE_PER_S, FIRST_TOKEN_S, PREFILL_PER_S, Client
from windtunnel.traces.model import CallKind, Usage
from windtunnel.traces.seeded import Stream


class Turn(Struct):
    """Where a thread stands: its next prompt and the clock."""

    client: Client
    thread: int
    tools: int
    messages: tuple[int, ...]
    base: int | None = None
    """Key of the last call, once there was one."""
    keep: int = 0
    warm: int = 0
    """Tokens of the next prompt that the server's cache holds."""
    front: int = 0
    """Tokens that sessions of the client share; other sessions keep them warm."""
    now: float = 0.0
    """When the next call starts, s."""
    end: float = 0.0
    """When the last call ended, s."""
    key: int = -1
    joins: tuple[int, ...] = ()

    def add(self, message: int) -> None:
        self.messages = (*self.messages, message)

    def restart(self, messages: tuple[int, ...], keep: int) -> None:
        """Go on from a rewritten context that shares its first `keep` messages with the last prompt."""
        self.messages = messages
        self.keep = keep
        self.warm = self.front


def send(
    made: Assembly, d: Stream, turn: Turn, output: int, *, reasoning: int, stop: str, kind: CallKind = "turn"
) -> None:
    """Record the call that answers `turn.messages` with `output`, and move the turn on behind it."""
    client = turn.client
    prompt = made.prompt_tokens(turn.messages, turn.tools)
    front = turn.front or turn.warm
    gap = turn.now - turn.end
    cached = turn.warm if turn.base is None or gap < CACHE_LIFE_S else front
    cached -= cached % client.cache_unit
    visible = made.prompt_tokens((output,), turn.tools) - made.prompt_tokens((), turn.tools)
    hidden = 0 if client.resends_reasoning else reasoning
    completion = visible + hidden
    latency = FIRST_TOKEN_S.draw(d) + (prompt - cached) / PREFILL_PER_S
    first = round(turn.now + latency, 3)
    end = round(first + completion / DECODE_PER_S.draw(d), 3)
    key = len(made.drafts)
    made.drafts.append(
        Draft(
            key=key,
            thread=turn.thread,
            messages=turn.messages,
            base=turn.base,
            keep=turn.keep,
            tools=turn.tools,
            start=turn.now,
            first=first,
            end=end,
            output=output,
            usage=Usage(prompt, cached, completion, reasoning or None),
            stop=stop,
            kind=kind,
            aborted=False,
            joins=turn.joins,
        )
    )
    turn.joins = ()
    turn.base = turn.key = key
    turn.keep = len(turn.messages)
    turn.messages = (*turn.messages, output)
    turn.warm = prompt
    turn.front = front
    turn.end = end
