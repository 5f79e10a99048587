"""Service levels: conditions on percentiles, and the share of calls that stayed inside."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.cautions import SHARE_LEFT_OUT
from windtunnel.simulator.results.distribution import distribution
from windtunnel.simulator.results.figures import makespans_s
from windtunnel.simulator.results.metrics import METRICS, Value
from windtunnel.simulator.results.summary_model import STATISTICS, Distribution, SloCondition, SloResult
from windtunnel.simulator.results.tally import Tally
from windtunnel.traces.errors import UsageError

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PER_CALL: dict[str, Callable[[CallEnd], float | None]] = {
    "ttft_s": of_call.ttft_s,
    "ttft_visible_s": of_call.ttft_visible_s,
    "ttft_tool_s": of_call.ttft_tool_s,
    "tpot_s": of_call.tpot_s,
    "e2e_s": of_call.e2e_s,
}
_DISTRIBUTIONS = frozenset(name for name, metric in METRICS.items() if metric.distribution)
_NEVER_ZERO = frozenset({*_PER_CALL, "makespan_s"})
ENDLESS = 1e12
"""Seconds that a call without an end may still take."""
MISSING = "not reported"
_CONDITION = re.compile(r"\s*(\w+)(?:\.(\w+))?\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*")


class Condition(Struct, frozen=True):
    text: str
    metric: str
    statistic: str | None
    relation: str
    limit: float

    def holds(self, value: float) -> bool:
        return _OPERATORS[self.relation](value, self.limit)


def parse(text: str) -> tuple[Condition, ...]:
    """`ttft_s.p90<3,tpot_s.p90<0.05`."""
    return tuple(_parse_one(part.strip()) for part in text.split(",") if part.strip())


def asked(text: str) -> tuple[Condition, ...]:
    """The same of what a run is asked for: what no run can meet, none is begun for. No figure is below zero."""
    conditions = parse(text)
    for condition in conditions:
        relation, limit = condition.relation, condition.limit
        if not math.isfinite(limit):
            raise UsageError(f"the limit of '{condition.text}' is no finite number: write it like ttft_s.p90<3")
        zero = limit == 0 and (relation == "<" or (relation == "<=" and condition.metric in _NEVER_ZERO))
        if zero or (limit < 0 and relation in ("<", "<=")):
            above = "greater than zero" if relation == "<" or condition.metric in _NEVER_ZERO else "of zero or more"
            raise UsageError(f"'{condition.text}' can never be met: give a limit {above}")
    return conditions


def _parse_one(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is no condition: write it like ttft_s.p90<3")
    metric, statistic, relation, number = match.groups()
    if metric not in METRICS:
        raise UsageError(f"'{metric}' in '{text}' is no metric: known are {', '.join(METRICS)}")
    if (metric in _DISTRIBUTIONS) != (statistic is not None):
        raise UsageError(
            f"'{text}' needs one of {', '.join(STATISTICS)} after the metric's name, like ttft_s.p90<3"
            if statistic is None
            else f"'{metric}' in '{text}' is a single number: leave out '.{statistic}'"
        )
    if statistic is not None and statistic not in STATISTICS:
        raise UsageError(f"'.{statistic}' in '{text}' is none of {', '.join(STATISTICS)}")
    try:
        return Condition(text, metric, statistic, relation, float(number))
    except ValueError:
        raise UsageError(f"'{number}' in '{text}' is no number") from None


def judge(conditions: Sequence[Condition], tally: Tally, values: Mapping[str, Value]) -> SloResult | None:
    """None without conditions. A call whose figure does not exist (one chunk: no time per token) is not outside.

    A call that had no end yet counts as far as it had come: see `SoFar`.
    """
    if not conditions:
        return None
    unended = _unended(tally)
    results = tuple(_judge_one(condition, values[condition.metric], tally, unended) for condition in conditions)
    limits = [c for c in conditions if c.metric in _PER_CALL]
    judged = inside = undecided = 0
    sessions: dict[str, bool] = {}
    for call in tally.calls:
        if limits and tally.window is not None and not call.cut and tally.window.holds(call.t_intended):
            held = of_call.completed(call) and all(_inside(limit, call) for limit in limits)
            judged += 1
            inside += held
            sessions[call.session] = sessions.get(call.session, True) and held
    for one in unended if limits else ():
        verdicts = [one.so_far[limit.metric].verdict(limit) for limit in limits]
        if None in verdicts and False not in verdicts:
            undecided += 1
            continue
        judged += 1
        inside += all(verdicts)
        sessions[one.session] = sessions.get(one.session, True) and all(verdicts)
    return SloResult(
        conditions=results,
        met=all(result.met is True for result in results),
        calls_inside=inside,
        calls_judged=judged,
        share=inside / judged if judged else None,
        sessions_inside=sum(sessions.values()),
        sessions_judged=len(sessions),
        calls_undecided=undecided or UNSET,
    )


def outside(conditions: Sequence[Condition], calls: Sequence[CallEnd]) -> list[CallEnd]:
    """The calls that are beyond one of the per-call limits."""
    limits = [condition for condition in conditions if condition.metric in _PER_CALL]
    return [call for call in calls if not all(_inside(limit, call) for limit in limits)]


def _inside(limit: Condition, call: CallEnd) -> bool:
    value = _PER_CALL[limit.metric](call)
    return value is None or limit.holds(value)


def _judge_one(condition: Condition, value: Value, tally: Tally, unended: Sequence["_Unended"]) -> SloCondition:
    number = getattr(value, condition.statistic or "") if isinstance(value, Distribution) else value
    ended, so_far = _both(condition.metric, tally, unended)
    alone = None if number is None else condition.holds(number)
    if not so_far:
        return SloCondition(condition=condition.text, value=number, met=alone)
    ended += [one.least for one in so_far if one.known]
    sure = [one.least for one in so_far if one.sure and not one.known]
    every = [one.least for one in so_far if not one.known]
    least = _statistic(condition, ended + every)
    ways = [least, _statistic(condition, ended + sure)]
    if condition.statistic != "mean" or len(every) > SHARE_LEFT_OUT * (len(ended) + len(every)):
        ways += [_statistic(condition, ended + [ENDLESS] * len(open_)) for open_ in (every, sure)]
    verdicts = {None if way is None else condition.holds(way) for way in ways}
    met = verdicts.pop() if len(verdicts) == 1 else None
    if met == alone:
        return SloCondition(condition=condition.text, value=number, met=met)
    return SloCondition(
        condition=condition.text,
        value=number,
        met=met,
        unended=len(so_far),
        undecided=len(every),
        at_least=least,
    )


def _both(metric: str, tally: Tally, unended: Sequence["_Unended"]) -> tuple[list[float], list["SoFar"]]:
    """A figure of calls, or of sessions, that ended, and of those that did not; nothing of what has no length."""
    if metric == "makespan_s":
        whole = [s for s in tally.sessions.values() if s.start.first_turn == 0 and tally.window is not None]
        cut = [s for s in whole if s.end is None or s.end.status == "cut"]
        return makespans_s(tally), [SoFar((tally.end_t - session.start.t) / of_call.NS) for session in cut]
    if (figure := _PER_CALL.get(metric)) is None:
        return [], []
    ended = [value for call in tally.window_calls if (value := figure(call)) is not None]
    return ended, [one.so_far[metric] for one in unended]


def _statistic(condition: Condition, values: Sequence[float]) -> float | None:
    found = distribution(values)
    return None if found is None else getattr(found, condition.statistic or "")


class SoFar(Struct, frozen=True):
    """What is known of a figure of a call without an end: its time goes on, so it is this or more.

    The time per token of an answer that was cut is that of the tokens it had, or what it must at least become.
    """

    least: float
    known: bool = False
    """It is this."""
    sure: bool = True
    """It will have one: an answer may have nothing visible, or come in one chunk."""

    def verdict(self, limit: Condition) -> bool | None:
        now = limit.holds(self.least)
        if self.known:
            return now
        same = now == limit.holds(ENDLESS) and (now or self.sure)
        return now if same else None


class _Unended(Struct, frozen=True):
    session: str
    so_far: dict[str, SoFar]
    """By metric."""


def _unended(tally: Tally) -> list[_Unended]:
    """The calls that began in the window and were cut, or never ended."""
    window = tally.window
    if window is None:
        return []
    found = [_Unended(c.session, _of_cut(c)) for c in tally.calls if c.cut and window.holds(c.t_intended)]
    for start in tally.open_calls.values():
        if window.holds(start.t_intended):
            so_far = {name: SoFar(0.0, sure=name == "ttft_s") for name in _PER_CALL}
            so_far["e2e_s"] = SoFar((tally.end_t - start.t) / of_call.NS)
            found.append(_Unended(start.session, so_far))
    return found


def _of_cut(call: CallEnd) -> dict[str, SoFar]:
    passed = of_call.since_start_s(call, of_call.ended_ns(call)) or 0.0
    found = {"e2e_s": SoFar(passed), "tpot_s": _pace(call)}
    for name in ("ttft_s", "ttft_visible_s", "ttft_tool_s"):
        came = _PER_CALL[name](call)
        found[name] = SoFar(passed, sure=name == "ttft_s") if came is None else SoFar(came, known=True)
    return found


def _pace(call: CallEnd) -> SoFar:
    had = replace(call, completion_tokens=of_call.output_tokens(call))
    pace = of_call.tpot_s(had)
    if pace is None or call.t_first is None:
        return SoFar(0.0, sure=False)
    planned = call.pinned_tokens - 1
    must = (of_call.ended_ns(call) - call.t_first) / of_call.NS / planned if planned > 0 else 0.0
    return SoFar(max(pace, must), known=True)


def undecided(found: SloResult | None) -> list[SloCondition]:
    """Conditions that calls without an end may still turn, where none is broken already."""
    if found is None or any(condition.met is False for condition in found.conditions):
        return []
    return [condition for condition in found.conditions if condition.met is None and condition.undecided]


def judged_value(condition: SloCondition) -> str:
    """What a verdict is by, where it is known: with calls without an end where these give another one than `value`."""
    if isinstance(condition.at_least, float):
        return f"{condition.at_least:.3g} with calls that had no end yet"
    return "" if condition.value is None else f"{condition.value:.3g}"


def told(condition: SloCondition) -> str:
    """`ttft_s.p90<3: 2.1, met`; where calls without an end make the verdict, how."""
    value = MISSING if condition.value is None else f"{condition.value:.4g}"
    verdict = {True: "met", False: "not met", None: "unknown"}[condition.met]
    if condition.undecided is UNSET:
        return f"{condition.condition}: {value}, {verdict}"
    return f"{condition.condition}: {value} of those that ended, {_turned(condition, verdict)}"


def _turned(condition: SloCondition, verdict: str) -> str:
    """What calls without an end make of the verdict."""
    of = "session" if condition.condition.startswith("makespan_s") else "call"
    if condition.met is None:
        them = f"1 {of}" if condition.undecided == 1 else f"{condition.undecided} {of}s"
        return f"not decided: {them} without an end can turn it"
    least = "at least " if condition.undecided else ""
    return f"{verdict}: {least}{condition.at_least:.4g} with the {condition.unended} without an end"
