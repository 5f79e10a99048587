"""The same session twice: a folder may hold an earlier state of it, a copy, or a fork that begins with all of it.

What such a copy tells happened once. It is left out, and said, where another session holds everything that it does.
"""

from collections.abc import Sequence

from windtunnel.traces.model import Call, Problem, Trace

Key = tuple[object, ...]
"""What tells one request from every other: when its answer ended, its sizes, what was written."""


def without_copies(traces: Sequence[Trace]) -> tuple[list[Trace], list[Problem]]:
    """The sessions that are no beginning of another one, in their order; the first of equal ones stays.

    Requests with known times are told by these: no two are answered in the same millisecond with the same sizes and
    text. Sessions without a clock of their own are copies only under one and the same id.
    """
    groups: dict[Key, list[int]] = {}
    for at, trace in enumerate(traces):
        if trace.calls:
            groups.setdefault(_group(trace), []).append(at)
    holders: dict[int, int] = {}
    for group in groups.values():
        # the longest first: it can only be a copy of one before it
        order = sorted(group, key=lambda i: (-len(traces[i].calls), i))
        for place, at in enumerate(order[1:], start=1):
            holder = next((i for i in order[:place] if i not in holders and _holds(traces[i], traces[at])), None)
            if holder is not None:
                holders[at] = holder
    kept = [trace for at, trace in enumerate(traces) if at not in holders]
    return kept, [_problem(traces[at], traces[holder]) for at, holder in sorted(holders.items())]


def _group(trace: Trace) -> Key:
    """Copies agree in it: the format and, without a clock, the id; else when the session's first event was."""
    began = trace.header.started_at
    return (trace.header.agent, trace.header.id if began is None else round(began, 3))


def _holds(whole: Trace, part: Trace) -> bool:
    """Whether every thread of `part` is the beginning of a thread of `whole`, the main thread of the main one."""
    theirs = [whole.calls_of(t.id) for t in whole.threads]
    ours = [part.calls_of(t.id) for t in part.threads]
    if not _begins(whole, theirs[0], part, ours[0]):
        return False
    return all(any(_begins(whole, t, part, calls) for t in theirs[1:]) for calls in ours[1:] if calls)


def _begins(whole: Trace, longer: Sequence[Call], part: Trace, calls: Sequence[Call]) -> bool:
    if len(calls) > len(longer):
        return False
    # the last answer may have been cut off in the part: what it was asked tells it
    if calls and _asked(part, calls[-1]) != _asked(whole, longer[len(calls) - 1]):
        return False
    return all(_key(part, a) == _key(whole, b) for a, b in zip(calls[:-1], longer, strict=False))


def _asked(trace: Trace, call: Call) -> Key:
    return (_clock(trace, call.start_s), call.usage.prompt, call.usage.cached)


def _key(trace: Trace, call: Call) -> Key:
    written = () if call.output is None else tuple(trace.message_blocks(trace.messages[call.output]))
    digests = tuple(trace.blocks[b].digest for b in written)
    return (_clock(trace, call.end_s), call.usage.prompt, call.usage.cached, digests)


def _clock(trace: Trace, seconds: float | None) -> float | None:
    return None if seconds is None else round((trace.header.started_at or 0.0) + seconds, 3)


def _problem(part: Trace, whole: Trace) -> Problem:
    same = len(part.calls) == len(whole.calls)
    what = "is a copy of" if same else f"is the beginning ({len(part.calls)} of {len(whole.calls)} calls) of"
    place = f"the session {what} the one in {_file(whole)} and was left out"
    return Problem(_file(part), None, place)


def _file(trace: Trace) -> str:
    """The log: importers put their name and the path into `source`."""
    return (trace.header.source or "").partition(" ")[2] or trace.header.id
