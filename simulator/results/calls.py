"""What one finished call says: its times and when its tokens arrived.

Chunks are not tokens. Every figure here counts tokens where tokens are meant and arrivals where arrivals are meant.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windtunnel.agents.events import CallEnd

NS = 1_000_000_000

Times = NDArray[np.int64]
Counts = NDArray[np.float64]
_NO_TIMES: Times = np.empty(0, dtype=np.int64)
_NO_COUNTS: Counts = np.empty(0, dtype=np.float64)


def completed(call: CallEnd) -> bool:
    return call.failure is None and not call.cut


def never_sent(call: CallEnd) -> bool:
    """The run ended while it waited for the request-rate cap or a connection: the engine knows nothing of it."""
    return call.cut and call.t_sent is None


def start_ns(call: CallEnd) -> int:
    """When the session wanted it sent, without the wait for the request-rate cap."""
    return call.t_intended + call.throttled_ns


def since_start_s(call: CallEnd, t: int | None) -> float | None:
    return None if t is None else (t - start_ns(call)) / NS


def in_one_piece(call: CallEnd) -> bool:
    """Answered whole and not streamed: no time but its end is known, and that is written as its first token's, too.

    Of an answer of one token the end is that token's time.
    """
    whole = call.t_first is not None and call.t_first == call.t_last == call.t_end and not call.chunks.us
    return whole and call.completion_tokens != 1


def first_ns(call: CallEnd) -> int | None:
    """When its first token came; None also where nobody can know."""
    return None if in_one_piece(call) else call.t_first


def ttft_s(call: CallEnd) -> float | None:
    return since_start_s(call, first_ns(call))


def ttft_visible_s(call: CallEnd) -> float | None:
    return None if in_one_piece(call) else since_start_s(call, call.t_first_visible)


def ttft_tool_s(call: CallEnd) -> float | None:
    return None if in_one_piece(call) else since_start_s(call, call.t_first_tool)


def e2e_s(call: CallEnd) -> float | None:
    return since_start_s(call, call.t_end)


def front_s(call: CallEnd) -> float:
    """Seconds until the first token that were neither queue nor prefill: HTTP, tokenizing. 0 where not told."""
    if call.queued_s is None or call.prefilled_s is None or call.t_sent is None or call.t_first is None:
        return 0.0
    return max(0.0, (call.t_first - call.t_sent) / NS - call.queued_s - call.prefilled_s)


def ended_ns(call: CallEnd) -> int:
    return call.t_end if call.t_end is not None else call.t


def token_chunks(call: CallEnd) -> tuple[Times, Counts]:
    """Arrival (ns since the origin) and tokens of each chunk that carried tokens.

    Where only the total is known it is spread evenly over the chunks; where nothing is known the counts are empty.
    """
    if not call.chunks.us or call.t_sent is None:
        if call.completion_tokens and call.t_last is not None:
            return np.array([call.t_last], dtype=np.int64), np.array([call.completion_tokens], dtype=np.float64)
        return _NO_TIMES, _NO_COUNTS
    times = _since_the_one_before(call.chunks.us).cumsum()
    times *= 1000
    times += call.t_sent
    if len(call.chunks.n) == len(call.chunks.us):
        if _single(call):  # as a rule, and then nothing has to be converted
            counts, total = np.ones(len(times)), float(len(times))
        else:
            counts = np.array(call.chunks.n, dtype=np.float64)
            carrying = counts > 0
            times, counts = times[carrying], counts[carrying]
            total = float(counts.sum())
        if call.completion_tokens is not None and total not in {0.0, float(call.completion_tokens)}:
            counts *= call.completion_tokens / total
        return times, counts
    if call.completion_tokens is None:
        return times, _NO_COUNTS
    return times, np.full(len(times), call.completion_tokens / len(times))


def _since_the_one_before(us: Sequence[int]) -> Times:
    return np.frombuffer(us, dtype=np.int64) if isinstance(us, array) else np.array(us, dtype=np.int64)


def _single(call: CallEnd) -> bool:
    """Each chunk carried one token."""
    return len(call.chunks.us) == len(call.chunks.n) == call.chunks.n.count(1)


def output_tokens(call: CallEnd) -> int | None:
    """What the server reported; of a call that was cut or failed before it did, the tokens that arrived."""
    if call.completion_tokens is not None:
        return call.completion_tokens
    if not completed(call) and len(call.chunks.n) == len(call.chunks.us):
        return sum(call.chunks.n)
    return None


def prompt_tokens(call: CallEnd) -> int | None:
    """What the server reported; of a call that was cut or failed after its first token, what was expected. A recorder
    expects nothing: it is written as 0, and unknown.
    """
    if call.prompt_tokens is not None:
        return call.prompt_tokens
    if not completed(call) and call.t_first is not None:
        return call.expected_prompt_tokens or None
    return None


def tpot_s(call: CallEnd) -> float | None:
    """Time per output token after the first chunk's tokens; None for a call that came in one chunk."""
    if call.t_first is None or call.t_last is None or call.t_last <= call.t_first or call.completion_tokens is None:
        return None
    first = next((n for n in call.chunks.n if n > 0), 1)
    later = call.completion_tokens - first
    return (call.t_last - call.t_first) / NS / later if later > 0 else None


def gaps_s(*calls: CallEnd) -> Counts:
    """Gaps between the arrivals of token-carrying chunks of each call, one call after the other."""
    gaps = [_gaps_ns(call) for call in calls]
    return np.concatenate(gaps) / NS if gaps else _NO_COUNTS


def _gaps_ns(call: CallEnd) -> Times:
    if call.t_sent is not None and _single(call) and call.completion_tokens in {None, len(call.chunks.us)}:
        return _since_the_one_before(call.chunks.us)[1:] * 1000
    times, _ = token_chunks(call)
    return times[1:] - times[:-1]
