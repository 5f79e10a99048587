"""The same request in several sessions: earlier states of one, copies, forks that begin with another's requests.

What such logs tell happened once. A session of which another one has everything is left out; of two that begin alike
and went on each for itself, the later begins with its own first request, whose prompt carries what both share.
"""

import os
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.importers.branching import below, with_same_fillers, without_calls
from windtunnel.traces.model import Block, Call, Problem, Trace

Key = tuple[object, ...]
"""What tells one request from every other: when its answer ended, its sizes, what was written."""


def without_copies(traces: Sequence[Trace]) -> tuple[list[Trace], list[Problem]]:
    """The sessions with each request once, in their order."""
    kept, problems = each_once(traces)
    return list(kept.values()), problems


def each_once(traces: Sequence[Trace]) -> tuple[dict[int, Trace], list[Problem]]:
    """The sessions that stay, by their place among the given ones; the first of equal sessions stays.

    Requests with known times are told by these: no two are answered in the same millisecond with the same sizes and
    text. Sessions without a clock of their own are copies only under one and the same id, and no common beginning of
    theirs is believed.
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
    problems = {at: _problem(traces[at], traces[holder]) for at, holder in holders.items()}
    kept: dict[int, Trace] = {at: trace for at, trace in enumerate(traces) if at not in holders}
    _leave_out_contained(kept, problems)
    _part(kept, problems)
    return kept, [problem for _, problem in sorted(problems.items())]


class _Made(Struct, frozen=True):
    """Where a request is known from."""

    session: int
    call: Call


def _leave_out_contained(kept: dict[int, Trace], problems: dict[int, Problem]) -> None:
    """Leave out each session of which another one has every request: a sub-agent's file beside its session."""
    keys = {at: [_told(trace, c) for c in trace.calls] for at, trace in kept.items() if _clocked(trace)}
    places: dict[Key, list[int]] = {}
    for at, its in keys.items():
        for key in its:
            if key is not None:
                places.setdefault(key, []).append(at)
    for at in sorted(keys, key=lambda i: (len(keys[i]), -i)):
        trace = kept[at]
        if None in keys[at] or not any(_written(trace, c) for c in trace.calls):
            continue
        there = [set(places[key]) for key in keys[at] if key is not None]
        whole = min((i for i in set.intersection(*there) - {at} if i in kept), default=None)
        if whole is not None:
            number = f"its {len(trace.calls)} calls are" if len(trace.calls) > 1 else "its call is"
            place = f"{number} in {_file(kept[whole])} too, and the session was left out"
            problems[at] = _left_out(trace, kept[whole], place)
            del kept[at]


def _part(kept: dict[int, Trace], problems: dict[int, Problem]) -> None:
    """Take from each session the requests that it begins with and that an earlier one made."""
    mains = {at: trace.calls_of(0) for at, trace in kept.items() if _clocked(trace)}
    ends = {at: [_clock(kept[at], c.end_s) or 0.0 for c in main] for at, main in mains.items()}
    made: dict[Key, list[_Made]] = {}
    whole: dict[int, Trace] = {}
    # of sessions that begin alike the one that went on first comes first, and next to it the one that shares most
    for at in sorted(ends, key=lambda i: (ends[i], i)):
        trace = whole[at] = kept[at]
        shared = _shared(trace, mains[at], made, whole)
        if shared:
            other = shared[0].session
            gone = _gone(trace, mains[at][: len(shared)], other, made)
            theirs = [m.call for m in shared]
            begins = len(theirs) == len(mains.get(other, ())) and theirs[0].id == mains[other][0].id
            if gone and not begins and any(c.thread == 0 and c.id not in gone for c in trace.calls):
                trace = whole[at] = _alike(trace, [c for c in mains[at] if c.id in gone], whole[other], theirs)
                kept[at] = without_calls(trace, gone)
                problems[at] = _parted(trace, len(gone), whole[other])
        for call in trace.calls:
            if (key := _told(trace, call)) is not None:
                made.setdefault(key, []).append(_Made(at, call))


def _alike(trace: Trace, gone: Sequence[Call], other: Trace, theirs: Sequence[Call]) -> Trace:
    """The trace with the other's stand-ins for missing text in what both share, the first prompts after it included."""
    mine, its = _after(trace, 0, gone[-1]), _after(other, theirs[0].thread, theirs[len(gone) - 1])
    cut, same = list(gone), list(theirs[: len(gone)])
    if mine is not None and its is not None:
        cut.append(replace(mine, output=None))
        same.append(replace(its, output=None))
    return with_same_fillers(trace, cut, other, same)


def _after(trace: Trace, thread: int, call: Call) -> Call | None:
    return next((c for c in trace.calls[call.id + 1 :] if c.thread == thread), None)


def _clocked(trace: Trace) -> bool:
    """Whether its times tell its requests from all others; those of made-up sessions do not."""
    known = trace.header.started_at is not None and not trace.header.synthetic
    return known and any(c.thread == 0 and c.end_s is not None for c in trace.calls)


def _told(trace: Trace, call: Call) -> Key | None:
    """What tells a request from those of all sessions; None without a time."""
    return None if call.end_s is None else (trace.header.agent, *_key(trace, call))


def _known(trace: Trace, call: Call, made: dict[Key, list[_Made]]) -> list[_Made]:
    key = _told(trace, call)
    return [] if key is None else made.get(key, [])


def _shared(trace: Trace, main: Sequence[Call], made: dict[Key, list[_Made]], whole: dict[int, Trace]) -> list[_Made]:
    """The first requests of a session as an earlier one made them, in one of its threads; of several the latest's."""
    best: list[_Made] = []
    for first in _known(trace, main[0], made):
        run = [first]
        for call in main[1:]:
            there = _known(trace, call, made)
            same = (m for m in there if (m.session, m.call.thread) == (first.session, first.call.thread))
            found = next(same, None)
            if found is None:
                break
            run.append(found)
        best = run if len(run) >= len(best) else best
    # sizes and times alone are no proof: a recording may have them in whole seconds
    return best if any(_written(whole[m.session], m.call) for m in best) else []


def _gone(trace: Trace, shared: Sequence[Call], other: int, made: dict[Key, list[_Made]]) -> set[int]:
    """The calls that are the other session's: the shared ones, and their sub-agents' where it has all of these.

    A sub-agent that only this session has needs the call that started it: what is shared ends before it.
    """
    lacks: set[int] = set()
    for call in trace.calls:
        if call.thread and all(m.session != other for m in _known(trace, call, made)):
            lacks.add(call.thread)
    most = len(shared)
    while most and below(trace, {c.id for c in shared[:most]}) & lacks:
        most -= 1
    first = {c.id for c in shared[:most]}
    under = below(trace, first)
    if most == len(trace.calls_of(0)):
        under |= {t.id for t in trace.threads[1:] if t.spawn_call is None and t.id not in lacks}
    return first | {c.id for c in trace.calls if c.thread in under}


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
    # the last answer may have been cut off in the part
    if calls and not _same_or_less(part, calls[-1], whole, longer[len(calls) - 1]):
        return False
    return all(_key(part, a) == _key(whole, b) for a, b in zip(calls[:-1], longer, strict=False))


def _same_or_less(part: Trace, call: Call, whole: Trace, other: Call) -> bool:
    """Whether two calls are one request, the first perhaps with less of its answer. A fork may ask the same again."""
    if _asked(part, call) != _asked(whole, other):
        return False
    less, more = _written(part, call), _written(whole, other)
    if len(less) > len(more) or any(a.digest != b.digest for a, b in zip(less[:-1], more, strict=False)):
        return False
    if not less or less[-1].digest == more[len(less) - 1].digest:
        return True
    said = less[-1].text
    return bool(said) and (more[len(less) - 1].text or "").startswith(said or "")


def _asked(trace: Trace, call: Call) -> Key:
    return (_clock(trace, call.start_s), call.usage.prompt, call.usage.cached)


def _written(trace: Trace, call: Call) -> list[Block]:
    """What a call's answer holds of text that the log has."""
    ids = () if call.output is None else trace.message_blocks(trace.messages[call.output])
    return [trace.blocks[b] for b in ids if not trace.blocks[b].filler]


def _key(trace: Trace, call: Call) -> Key:
    written = () if call.output is None else tuple(trace.message_blocks(trace.messages[call.output]))
    blocks = [trace.blocks[b] for b in written]
    # a stand-in for text that the log lacks is named after the session: its size must do, beside text that is there
    seen = any(not b.filler for b in blocks)
    digests = tuple(b.tokens if seen and b.filler else b.digest for b in blocks)
    return (_clock(trace, call.end_s), call.usage.prompt, call.usage.cached, digests)


def _clock(trace: Trace, seconds: float | None) -> float | None:
    return None if seconds is None else round((trace.header.started_at or 0.0) + seconds, 3)


def _problem(part: Trace, whole: Trace) -> Problem:
    same = len(part.calls) == len(whole.calls)
    what = "is a copy of" if same else f"is the beginning ({len(part.calls)} of {len(whole.calls)} calls) of"
    return _left_out(part, whole, f"the session {what} the one in {_file(whole)} and was left out")


def _left_out(part: Trace, whole: Trace, why: str) -> Problem:
    twice = part.header.id == whole.header.id and os.path.realpath(_file(part)) == os.path.realpath(_file(whole))
    return Problem(_file(part), None, f"the session {part.header.id} was read twice and is used once" if twice else why)


def _parted(part: Trace, number: int, other: Trace) -> Problem:
    many = number > 1
    what = f"the first {number} of {len(part.calls)} calls are" if many else f"the first of {len(part.calls)} calls is"
    return Problem(_file(part), None, f"{what} in {_file(other)} too and {'are' if many else 'is'} counted there only")


def _file(trace: Trace) -> str:
    """The log: importers put their name and the path into `source`."""
    return (trace.header.source or "").partition(" ")[2] or trace.header.id
