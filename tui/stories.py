"""One agent's session as the screen wants it: from the fold's lines, the trace, and the text that was kept."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.simulator.results.breakdown import break_down
from windtunnel.simulator.results.call_lines import CallLine, Waited
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.fold_rows import Activity, Agent, PastSession
from windtunnel.simulator.results.lanes import MS
from windtunnel.simulator.results.miss_words import in_short, said
from windtunnel.simulator.results.misses import CallCache, diverged, settings
from windtunnel.simulator.results.slowdown import Work
from windtunnel.simulator.results.store import TEXT_FILE, RunFolder
from windtunnel.simulator.results.validity import is_recording
from windtunnel.traces.breakers import Break
from windtunnel.traces.culprits import CULPRITS
from windtunnel.traces.model import Trace
from windtunnel.tui.alone import times
from windtunnel.tui.rows import BUSY, age
from windtunnel.tui.snapshot import Plans
from windtunnel.tui.texts import Texts, Traces
from windtunnel.tui.transcript import Story, ThreadLane, Turn
from windtunnel.tui.view import Row, View
from windtunnel.tui.window import seen, under_way

KEPT_CHARS = 20_000
"""Of a running call's text."""
LEAST = 12
"""Characters that two tails must share to be the same text."""


class Asked(Struct, frozen=True):
    """Whose story: an agent's present session, or the one that it had at a moment (ms since the run's origin)."""

    agent: int
    at: int | None = None


class Stories:
    """Keeps what a session's ended turns came to, and the text of its running calls as far as it was seen."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.texts = Texts(folder.path / TEXT_FILE)
        self.traces = Traces()
        self._alone: Future[Mapping[Work, float]] | None = None
        self._turns: dict[tuple[int, int, int], Turn] = {}
        self._key: tuple[object, ...] = ()
        self._tails: dict[tuple[int, int], str] = {}

    def story(
        self, fold: Fold, plans: Plans, view: View, details: Mapping[tuple[str, int], str], asked: Asked
    ) -> Story:
        row = next((r for r in view.rows if r.agent == asked.agent), Row(agent=asked.agent))
        if asked.agent >= len(fold.agents):
            return Story(row=row)
        agent = fold.agents[asked.agent]
        number, told = session_at(agent, asked.at)
        present = told.until is None
        trace, note = self.traces.get(self.folder, told.trace)
        breaks = self.traces.breaks(trace)
        lines = lines_of(agent, told)
        turns = self._ended(lines, told, fold, breaks, details)
        if present:
            turns += self._running(agent, plans)
            turns = waiting(turns, agent, fold.t) if agent.live else turns
        over = not present or not agent.live
        until = (told.until if told.until is not None else fold.t if agent.live else ended_at(agent, fold)) // MS
        full = len(agent.calls) == agent.calls.maxlen
        return Story(
            row=row if present else past_row(asked.agent, told, lines),
            session=told.session,
            title=told.title,
            trace_id=told.trace,
            turns=tuple(turns),
            trace=trace,
            trace_note=note,
            written=self.texts.of(told.session),
            text_kept=self.texts.path.exists(),
            began=fold.started_t // MS,
            since=told.since // MS,
            until=until,
            over=over,
            lanes=thread_lanes(agent, plans, told.since // MS, until if over else until + 1, fold.t // MS, trace),
            number=number,
            sessions=len(agent.sessions) + (1 if agent.present.session else 0),
            beheaded=full and agent.calls[0].t_intended >= told.since,
            recording=is_recording(fold.run),
            slower=slower(turns),
        )

    def _ended(
        self,
        lines: Sequence[CallLine],
        told: PastSession,
        fold: Fold,
        breaks: Mapping[int, Break],
        details: Mapping[tuple[str, int], str],
    ) -> list[Turn]:
        alone = self.alone()
        off = fold.misses.off(over=fold.ended)
        key = told.session, id(fold), len(breaks), len(alone), off
        if key != self._key:
            self._turns.clear()
            self._tails.clear()
            self._key = key
        prompts = {line.call: line.prompt_tokens for line in lines}
        unit = settings(fold.run)[0]
        out: list[Turn] = []
        for line in lines:
            name = line.thread, line.call, line.t_end
            turn = self._turns.get(name)
            if turn is None:
                lost = lost_to_change(line, breaks, prompts, unit)
                turn = self._turns[name] = ended_turn(line, told, fold, lost, details, alone, off=off)
            out.append(turn)
        return out

    def _running(self, agent: Agent, plans: Plans) -> list[Turn]:
        under_way = [a for a in agent.activities.values() if a.state in BUSY]
        keys = {(a.thread, a.call) for a in under_way}
        for key in self._tails.keys() - keys:
            del self._tails[key]
        out = []
        for activity in sorted(under_way, key=lambda a: a.since):
            key = activity.thread, activity.call
            text = self._tails[key] = joined_tail(self._tails.get(key, ""), activity.tail)
            plan = plans.calls.get((agent.row.agent, activity.thread))
            start = plan.t_intended if plan is not None else activity.since
            pinned = plan.pinned_tokens if plan is not None else 0
            out.append(running_turn(activity, text, start, pinned, agent.waited(activity.thread)))
        return out

    def alone(self) -> Mapping[Work, float]:
        """How long calls take alone; nothing until that has been found out."""
        if self._alone is None:
            self._alone = self.traces.beside().submit(times, self.folder)
        return self._alone.result() if self._alone.done() and self._alone.exception() is None else {}

    def wait(self, fold: Fold, agent: int) -> None:
        """Blocks until the agent's trace has been read: for pictures."""
        if agent < len(fold.agents):
            trace = fold.agents[agent].row.trace
            self.traces.wait(self.folder, trace)
            self.traces.breaks(self.traces.get(self.folder, trace)[0], wait=True)
            self.alone()
            if self._alone is not None:
                self._alone.exception()

    def close(self) -> None:
        self.texts.close()
        self.traces.close()


def session_at(agent: Agent, at: int | None) -> tuple[int, PastSession]:
    """The session that an agent had at a moment (None: has now), and which of its sessions that is, from 1."""
    known = [*agent.sessions, agent.present]
    number = len(known)
    if at is not None:
        number = max((i for i, told in enumerate(known, 1) if told.since // MS <= at), default=1)
    return number, known[number - 1]


def lines_of(agent: Agent, told: PastSession) -> list[CallLine]:
    """The ended calls of a session that are still kept."""
    return [
        line
        for line in agent.calls
        if line.t_end >= told.since
        and line.t_intended >= told.since
        and (told.until is None or line.t_end <= told.until)
    ]


def ended_at(agent: Agent, fold: Fold) -> int:
    """When an agent's last session ended; ns."""
    return agent.row.since_t if not agent.live and agent.row.session else fold.t


def past_row(number: int, told: PastSession, lines: Sequence[CallLine]) -> Row:
    """A session that is over, as a row of the fleet."""
    last = next((line for line in reversed(lines) if line.thread == 0), None)
    share = last.cached_tokens / last.prompt_tokens if last and last.cached_tokens and last.prompt_tokens else None
    return Row(
        agent=number,
        state=told.state,
        title=told.title,
        session=told.session,
        trace=told.trace,
        copy=told.copy,
        turn=last.turn if last is not None else 0,
        turns=told.turns,
        context=(last.prompt_tokens or 0) + (last.completion_tokens or 0) if last is not None else None,
        cached=share,
        ttft_s=last.ttft_s if last is not None else None,
    )


def lost_to_change(
    line: CallLine, breaks: Mapping[int, Break], prompts: Mapping[int, int | None], unit: int
) -> tuple[int, str]:
    """Tokens that a change of the history cost a call, and what it was."""
    found = breaks.get(line.call)
    before = prompts.get(found.against) if found is not None else None
    if found is None or before is None or line.cache is None:
        return 0, ""
    lost = diverged(before, line.cache.prompt, line.cache.cached + line.cache.missed, unit)
    return lost, CULPRITS[found.culprit] if lost else ""


def ended_turn(
    line: CallLine,
    told: PastSession,
    fold: Fold,
    lost: tuple[int, str],
    details: Mapping[tuple[str, int], str],
    alone: Mapping[Work, float],
    *,
    off: bool,
) -> Turn:
    """`off`: nothing was ever found in the cache, also not by the calls after this one."""
    event = line.event(0, told.session)
    cache = line.cache
    if off and cache is not None and cache.missed:
        cache = replace(cache, cause="caching_off")
    caches: dict[tuple[str, int], CallCache] = {} if cache is None else {(told.session, line.call): cache}
    times = break_down([event], fold.engine.queue, caches)
    usual = alone.get((told.trace, line.call))
    return Turn(
        thread=line.thread,
        call=line.call,
        turn=line.turn,
        turns=line.turns,
        done=True,
        start=line.t_start // MS,
        end=line.t_end // MS,
        prompt=line.prompt_tokens,
        cached=line.cached_tokens,
        missed=line.missed_tokens,
        miss_cause=in_short(cache.cause, cache.gap_s) if cache is not None and line.miss_cause else "",
        cause=said(cache.cause, cache.gap_s) if cache is not None else "",
        lost=lost[0],
        culprit=lost[1],
        again=line.reprefilled_tokens or 0,
        completion=line.completion_tokens,
        ttft_s=line.ttft_s,
        tpot_s=line.tpot_s,
        latency_s=line.e2e_s,
        recorded_s=line.recorded_latency_s,
        parts=times[0].parts if times else (),
        waits=line.waits,
        slower=line.e2e_s / usual if usual and line.e2e_s is not None and not line.failure and not line.cut else None,
        failure=line.failure,
        detail=details.get((told.session, line.call), ""),
        cut=line.cut,
    )


def waiting(turns: Sequence[Turn], agent: Agent, now: int) -> list[Turn]:
    """The latest turn of each thread between two calls, with what its thread has done since: nobody has to wait for
    the end of the next call to see it.
    """
    out, told = list(turns), set()
    for i in range(len(out) - 1, -1, -1):
        turn = out[i]
        if turn.thread in told:
            continue
        told.add(turn.thread)
        waits = agent.waited(turn.thread)
        doing = agent.activities.get(turn.thread)
        if doing is not None and doing.cause:
            waits += (Waited(doing.cause, doing.label, age((now - doing.since) / NS), doing.recorded_s),)
        if turn.done and waits:
            out[i] = replace(turn, then=waits)
    return out


def running_turn(activity: Activity, text: str, start: int, pinned: int, waits: tuple[Waited, ...] = ()) -> Turn:
    """`start`: ns since the origin."""
    first = activity.first_t if activity.state == "decode" else None
    return Turn(
        thread=activity.thread,
        call=activity.call,
        turn=activity.turn,
        turns=activity.turns,
        start=start // MS,
        prompt=activity.prompt,
        ttft_s=max(0.0, (first - start) / NS) if first is not None else None,
        ttft_about=first is not None,
        completion=activity.tokens,
        exact=activity.exact,
        pinned=pinned,
        tail=text,
        waits=waits,
    )


def joined_tail(text: str, tail: str) -> str:
    """What was seen of a text and its latest end, joined where they overlap; a gap is an ellipsis."""
    if not tail or text.endswith(tail):
        return text
    if not text:
        return tail
    for length in range(min(len(text), len(tail)), min(LEAST, len(text)) - 1, -1):
        if text.endswith(tail[:length]):
            return (text + tail[length:])[-KEPT_CHARS:]
    return f"{text} … {tail}"[-KEPT_CHARS:]


def thread_lanes(
    agent: Agent, plans: Plans, since: int, until: int, now: int, trace: Trace | None
) -> tuple[ThreadLane, ...]:
    """What each thread of a session did. Ms since the run's origin."""
    out = []
    far = seen(agent)
    for thread in sorted({0, *agent.lane.threads(since, until)}):
        found = agent.lane.within(since, until, now, far, thread)
        starts, ends, ranks = (numbers.tolist() for numbers in found)
        ends = [min(end, until) for end in ends]
        untold = (*plans.untold.spans(agent.row.agent, since, thread), *under_way(agent, plans, now, thread))
        out.append(ThreadLane(thread, *placed(thread, trace), tuple(starts), tuple(ends), tuple(ranks), untold))
    return tuple(nested(out, trace))


def placed(thread: int, trace: Trace | None) -> tuple[str, int]:
    """A thread's name, and how far below the main agent it is."""
    if trace is None or thread >= len(trace.threads):
        return "", min(1, thread)
    depth, at, passed = 0, trace.threads[thread].parent, {thread}
    while at is not None and at not in passed and at < len(trace.threads):
        passed.add(at)
        depth += 1
        at = trace.threads[at].parent
    return trace.threads[thread].name or "", max(depth, min(1, thread))


def nested(lanes: Iterable[ThreadLane], trace: Trace | None) -> list[ThreadLane]:
    """Each sub-agent below the one that started it."""
    by_thread = {lane.thread: lane for lane in lanes}

    def path(thread: int) -> tuple[int, ...]:
        way, at = [thread], thread
        while trace is not None and at < len(trace.threads) and (parent := trace.threads[at].parent) is not None:
            if parent in way:
                break
            way.append(parent)
            at = parent
        return tuple(reversed(way)) if trace is not None else (0, thread) if thread else (0,)

    return [by_thread[thread] for thread in sorted(by_thread, key=path)]


def slower(turns: Sequence[Turn]) -> float | None:
    """All calls' time against their time alone, over the calls where both are known."""
    pairs = [(t.latency_s, t.latency_s / t.slower) for t in turns if t.slower and t.latency_s is not None]
    usual = sum(alone for _, alone in pairs)
    return sum(ours for ours, _ in pairs) / usual if usual else None
