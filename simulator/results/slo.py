"""Service levels: conditions on percentiles, and the share of calls that stayed inside."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results import calls as of_call
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
    """None without conditions. A call whose figure does not exist (one chunk: no time per token) is not outside."""
    if not conditions:
        return None
    results = tuple(_judge_one(condition, values[condition.metric]) for condition in conditions)
    limits = [c for c in conditions if c.metric in _PER_CALL]
    judged = inside = 0
    sessions: dict[str, bool] = {}
    for call in tally.calls:
        if limits and tally.window is not None and not call.cut and tally.window.holds(call.t_intended):
            held = of_call.completed(call) and all(_inside(limit, call) for limit in limits)
            judged += 1
            inside += held
            sessions[call.session] = sessions.get(call.session, True) and held
    return SloResult(
        conditions=results,
        met=all(result.met is True for result in results),
        calls_inside=inside,
        calls_judged=judged,
        share=inside / judged if judged else None,
        sessions_inside=sum(sessions.values()),
        sessions_judged=len(sessions),
    )


def outside(conditions: Sequence[Condition], calls: Sequence[CallEnd]) -> list[CallEnd]:
    """The calls that are beyond one of the per-call limits."""
    limits = [condition for condition in conditions if condition.metric in _PER_CALL]
    return [call for call in calls if not all(_inside(limit, call) for limit in limits)]


def _inside(limit: Condition, call: CallEnd) -> bool:
    value = _PER_CALL[limit.metric](call)
    return value is None or limit.holds(value)


def _judge_one(condition: Condition, value: Value) -> SloCondition:
    number = getattr(value, condition.statistic or "") if isinstance(value, Distribution) else value
    met = None if number is None else condition.holds(number)
    return SloCondition(condition=condition.text, value=number, met=met)
