"""One ended call as an agent's list of turns shows it: everything of its event but the arrivals of its chunks."""

from collections.abc import Sequence

from msgspec import Struct

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.ceiling import ceiling
from windtunnel.simulator.results.miss_words import in_short
from windtunnel.simulator.results.misses import CallCache

MISS_FLOOR = 256
MISS_SHARE = 0.05
"""A turn missed the cache when it missed more expected tokens than the floor and this share of its prompt."""


class Waited(Struct, frozen=True, gc=False):
    """A wait of a thread before a call."""

    cause: str
    label: str
    seconds: float
    recorded_s: float | None = None


class CallLine(Struct, frozen=True, gc=False):
    thread: int
    call: int
    turn: int
    turns: int
    kind: str
    t_start: int
    """Sent, or where it never was, intended; ns since the origin like the other times."""
    t_end: int
    t_intended: int
    t_sent: int | None
    t_first: int | None
    throttled_ns: int
    queued_s: float | None
    prefilled_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    missed_tokens: int | None
    """Expected in the cache and not found there; None where either is not known."""
    miss_cause: str
    """In short; empty when nothing worth a word was missed."""
    cache: CallCache | None
    reprefilled_tokens: int | None
    completion_tokens: int | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    waits: tuple[Waited, ...]
    """Of its thread before it, replayed."""
    recorded_latency_s: float | None
    failure: str | None
    cut: bool
    one_piece: bool = False
    """Answered whole and not streamed: when its first token came is not known."""

    @property
    def waited_s(self) -> float:
        return sum(wait.seconds for wait in self.waits)

    @property
    def wait_label(self) -> str:
        return (self.waits[-1].label or self.waits[-1].cause) if self.waits else ""

    def event(self, agent: int, session: str) -> CallEnd:
        """The event it was made of, without chunks."""
        return CallEnd(
            t=self.t_end,
            agent=agent,
            session=session,
            thread=self.thread,
            call=self.call,
            request_id="",
            t_intended=self.t_intended,
            t_sent=self.t_sent,
            t_first=self.t_first,
            t_last=self.t_end if self.one_piece else None,
            t_end=self.t_end,
            throttled_ns=self.throttled_ns,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            queued_s=self.queued_s,
            prefilled_s=self.prefilled_s,
            completion_tokens=self.completion_tokens,
            failure=self.failure,
            cut=self.cut,
        )


def line_of(event: CallEnd, counts: tuple[int, int], waits: Sequence[Waited], cache: CallCache | None) -> CallLine:
    """`counts`: the call's number in its thread, and how many that has. `cache`: what `misses` says."""
    missed = _missed(event)
    share = MISS_SHARE * (event.prompt_tokens or event.expected_prompt_tokens)
    notable = cache is not None and missed is not None and missed > max(MISS_FLOOR, share)
    return CallLine(
        thread=event.thread,
        call=event.call,
        turn=counts[0],
        turns=counts[1],
        kind=event.kind,
        t_start=event.t_sent if event.t_sent is not None else event.t_intended,
        t_end=of_call.ended_ns(event),
        t_intended=event.t_intended,
        t_sent=event.t_sent,
        t_first=event.t_first,
        throttled_ns=event.throttled_ns,
        queued_s=event.queued_s,
        prefilled_s=event.prefilled_s,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        missed_tokens=missed,
        miss_cause=in_short(cache.cause, cache.gap_s) if cache is not None and notable else "",
        cache=cache,
        reprefilled_tokens=event.reprefilled_tokens,
        completion_tokens=event.completion_tokens,
        ttft_s=of_call.ttft_s(event),
        tpot_s=of_call.tpot_s(event),
        e2e_s=of_call.e2e_s(event),
        waits=tuple(waits),
        recorded_latency_s=event.recorded_latency_s,
        failure=event.failure,
        cut=event.cut,
        one_piece=of_call.in_one_piece(event),
    )


def _missed(event: CallEnd) -> int | None:
    if event.cached_tokens is None or (most := ceiling(event)) is None:
        return None
    return max(0, most - event.cached_tokens)
