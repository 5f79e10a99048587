"""What a whole stream said."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from windtunnel.agents.failures import Failure

CountedBy = Literal["token_ids", "usage_deltas", "usage_spread", "chunks"]


class Parsed(Struct, frozen=True):
    """A whole stream. Times are ns of the client's clock, None where it never happened; counts None if not reported."""

    t_first: int | None = None
    """First token of any kind."""
    t_first_visible: int | None = None
    """First token of content (not reasoning, not a tool call)."""
    t_first_tool: int | None = None
    t_last: int | None = None
    """Last arrival that carried tokens."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    """As reported; the number of token ids where only those came."""
    reasoning_tokens: int | None = None
    usage_reported: bool = False
    queued_s: float | None = None
    """In the engine's queue, as the server told."""
    prefilled_s: float | None = None
    """From scheduling to the first token, as the server told."""
    finish: str | None = None
    failure: str | None = None
    detail: str | None = None
    text: str = ""
    reasoning: str = ""
    more_text: tuple[str, ...] = ()
    """What follows `text`, where the whole is so long that it was not joined."""
    more_reasoning: tuple[str, ...] = ()
    tool_calls: tuple[tuple[str, str, str], ...] = ()
    """(id, name, arguments)."""
    token_ids: Sequence[int] = ()
    prompt_token_ids_seen: bool = False
    chunk_t: Sequence[int] = ()
    """Arrivals that carried tokens, ns."""
    chunk_n: Sequence[int] = ()
    """Tokens of each arrival; the sum is `completion_tokens` unless `counted_by` is `chunks`."""
    counted_by: CountedBy = "chunks"
    ended: bool = False
    """[DONE] was seen."""

    @property
    def whole_text(self) -> str:
        return "".join((self.text, *self.more_text))

    @property
    def whole_reasoning(self) -> str:
        return "".join((self.reasoning, *self.more_reasoning))


def check_length(parsed: Parsed, pinned: int) -> str | None:
    """`wrong_length` if another number of tokens came than was pinned; None where the server reported no number."""
    got = parsed.completion_tokens
    return Failure.WRONG_LENGTH.value if pinned and got is not None and got != pinned else None
