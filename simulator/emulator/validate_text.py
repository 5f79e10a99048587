"""A validation as text: every point, what was left out, and the errors by metric."""

import numpy as np

from windtunnel.simulator.emulator.ladder import climb, factor, if_synchronous, ladder, said, swings
from windtunnel.simulator.emulator.validate import Point, Validation


def print_validation(validation: Validation, fitted: Validation | None = None) -> None:
    """A table on stdout; with `fitted` the errors of the rows that the constants were fitted to as well."""
    width = max((len(_short(point.id)) for point in validation.points), default=0)
    for point in validation.points:
        print(
            f"{_short(point.id):{width}}  {point.metric:20} {_figure(point.measured):>10} "
            f"{_figure(point.emulated):>10} {point.error:+8.1%}"
        )
    for left in validation.skipped:
        print(f"{_short(left.id):{width}}  skipped: {left.reason}")
    for name, part in (("held out" if fitted else "all", validation), ("fitted", fitted)):
        if part is not None:
            _summary(name, part.points)


def print_ladder() -> None:
    """The rungs with their mechanisms, the prediction, and what it hangs on."""
    plan, rungs = ladder(), climb()
    print()
    print(
        f"Ladder (point 30): {plan.model} on {plan.gpu}, {plan.tokens_in}/{plan.tokens_out} tokens, "
        f"{plan.concurrency} streams, output tokens/s"
    )
    print(f"One factor on all times of a step, from the first rung alone: {factor():.3f}")
    before = rungs[0].emulated
    for number, step in enumerate(rungs):
        measured = f"measured {step.measured:,.0f}" if step.measured else "no figure published"
        print(f"{number}. {step.rung.name:34} {step.emulated:8,.0f}  x{step.emulated / before:.2f}  {measured}")
        print(f"     {step.rung.mechanism}")
        print(f"     {step.rung.source}")
        before = step.emulated
    last = rungs[-1]
    assert last.measured is not None
    print(f"The last rung is predicted {last.emulated / last.measured - 1:+.1%} off; nothing was fitted to it.")
    print(f"Had the first rung run without asynchronous scheduling, the last one would be {if_synchronous():,.0f}.")
    print("Figures it hangs on (most of them assumed), and the last rung with each of them lower and higher:")
    for swing in swings():
        print(
            f"  {swing.figure:17} {swing.value:6.4g}   {swing.low:6g}: {swing.at_low:7,.0f}   "
            f"{swing.high:6g}: {swing.at_high:7,.0f}   {said(swing.figure)}"
        )


def _summary(name: str, points: list[Point]) -> None:
    metrics = dict.fromkeys(point.metric for point in points)
    lines = [(metric, [abs(point.error) for point in points if point.metric == metric]) for metric in metrics]
    if len(metrics) > 1:
        lines.append(("all metrics", [abs(point.error) for point in points]))
    print()
    print(f"{name:20} {'points':>7} {'median |error|':>15} {'mean |error|':>13}")
    for metric, errors in lines:
        print(f"{metric:20} {len(errors):7d} {np.median(errors):15.1%} {np.mean(errors):13.1%}")


def _short(name: str) -> str:
    return name if len(name) <= 60 else "…" + name[-59:]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
