"""From an agent of the fold to its row on the screen; and of what no event tells, what can be worked out."""

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from windtunnel.agents.events import CallStart, EngineSample, WaitStart
from windtunnel.simulator.results.fold import Agent
from windtunnel.simulator.results.fold import Row as FoldRow
from windtunnel.tui.figures import whole
from windtunnel.tui.view import Doing, Row

NS = 1_000_000_000
AGE_STEP_S = 0.5
FRESH_NS = 5 * NS
"""An older scrape says nothing of now."""
BUSY = frozenset({"queue", "prefill", "decode"})
SENT = frozenset({"prefill", "decode"})
IN_QUEUE = "in the engine's queue"


class Planned(Protocol):
    """What calls and waits were planned to be, by agent and thread."""

    @property
    def calls(self) -> Mapping[tuple[int, int], CallStart]: ...

    @property
    def waits(self) -> Mapping[tuple[int, int], WaitStart]: ...


def in_engine_queue(agents: Iterable[Agent], scrape: EngineSample | None, now: int) -> frozenset[int]:
    """Agents whose calls without a token are all in the engine's queue.

    No event tells which these are. The engine says how many requests wait, and admits in the order of arrival: the
    newest so many of the calls without a token are taken. A preempted call waits, too, but has tokens: it is left out.
    """
    waiting = round(scrape.waiting or 0.0) if scrape is not None and now - scrape.t <= FRESH_NS else 0
    if waiting <= 0:
        return frozenset()
    sent = sorted((since, agent.row.agent) for agent in agents for since, _ in agent.sent())
    admitted = {agent for _, agent in sent[: max(0, len(sent) - waiting)]}
    return frozenset(agent for _, agent in sent[-waiting:]) - admitted


def row_of(row: FoldRow, plans: Planned, now: int, *, ended: bool, queued: bool = False) -> Row:
    """`queued`: its calls are in the engine's queue, as far as that can be told."""
    call = plans.calls.get((row.agent, row.thread))
    queued = queued and row.state == "prefill" and not ended
    waiting_for_first = row.state in {"queue", "prefill"} and call is not None and not ended
    ttft, about = row.ttft_s, False
    if waiting_for_first and call is not None:
        ttft = age((now - call.t_intended) / NS)
    elif row.state == "decode" and call is not None and row.first_t is not None and not ended:
        ttft, about = max(0.0, (row.first_t - call.t_intended) / NS), True
    return Row(
        agent=row.agent,
        state="queue" if queued else row.state,
        title=row.title,
        session=row.session,
        trace=row.trace,
        copy=row.copy,
        thread=row.thread,
        turn=row.turn,
        turns=row.turns,
        context=row.context_tokens or None,
        cached=row.cached_share,
        missed=row.missed_cache,
        miss_cause=row.miss_cause,
        cached_old=row.state in BUSY and not ended,
        ttft_s=ttft,
        ttft_open=waiting_for_first,
        ttft_about=about,
        rate=row.tok_s if row.state == "decode" and not ended else None,
        exact=row.exact,
        rates=row.trend,
        slow=row.paired_s / row.recorded_s if row.recorded_s > 0 else None,
        call_s=row.spent_s / row.timed_calls if row.timed_calls else None,
        subagents=max(0, row.live_threads - 1),
        mixed=row.subagent_calls > 0,
        doing=_doing(row, plans, now, ended=ended, queued=queued),
    )


def _doing(row: FoldRow, plans: Planned, now: int, *, ended: bool, queued: bool) -> Doing:
    key = row.agent, row.thread
    if row.state in BUSY:
        call = plans.calls.get(key)
        pinned = call.pinned_tokens or None if call is not None else None
        if row.state == "decode":
            return Doing(tokens=row.call_tokens, pinned=pinned, tail=row.tail)
        if queued:
            return Doing(text=IN_QUEUE)
        prompt = call.expected_prompt_tokens if call is not None else 0
        new = prompt - (call.expected_cached_tokens or 0) if call is not None else 0
        return Doing(text=f"{whole(new)} new tokens" if new > 0 else "")
    if row.state in {"tool", "wait"}:
        wait = plans.waits.get(key)
        if wait is None or (row.state == "wait" and not row.wait_cause):
            return Doing(label="between calls", elapsed_s=None)
        label = row.tool if row.state == "tool" else _cause(row.wait_cause)
        return Doing(
            label=label,
            elapsed_s=None if ended else age(row.waited_s(now)),
            planned_s=row.wait_planned_s,
            recorded_s=wait.recorded_s,
        )
    if row.state == "failed":
        return Doing(text=row.failure.replace("_", " "))
    return Doing(text="finished" if row.state == "done" else "")


def age(seconds: float) -> float:
    """In steps that an eye can follow; a row whose age did not take one is not drawn again."""
    return max(0.0, math.floor(seconds / AGE_STEP_S) * AGE_STEP_S)


def _cause(cause: str) -> str:
    return {"subagent": "for sub-agents", "start": "to start", "rate": "rate cap"}.get(cause, cause)
