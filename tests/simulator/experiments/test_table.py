"""What a table and a page say of an outcome: figures, what ratios are made of, and why a word is not said."""

from collections.abc import Callable
from math import exp

import msgspec
import pytest

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import Comparison, Outcome, assess
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.statistics import Verdict
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.table import change, markdown, render
from windtunnel.simulator.report.page import of_experiments

Made = Callable[..., Measured]
SPEED = parse("output_tokens_per_s")


@pytest.fixture
def further(made: Made) -> Outcome:
    """`b` is twice as fast and got to one more call, a long one."""
    short = {("s1", 0): 1.0, ("s1", 1): 2.0}
    long = {("s1", 0): 0.5, ("s1", 1): 1.0, ("s2", 0): 100.0}
    a = {b: made("a", b, 2 * b, 10, e2e=short) for b in range(3)}
    b = {b: made("b", b, 2 * b + 1, 10, e2e=long) for b in range(3)}
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    return assess(steps, [SPEED, parse("e2e_s.paired")], name="x")


def test_a_ratio_stands_beside_the_figures_that_it_is_made_of(further: Outcome) -> None:
    found = further.steps[1].versus_previous["e2e_s.paired"]
    assert (found.base, found.other) == (pytest.approx(1.5), pytest.approx(0.75))
    lines = [line.strip() for line in render(further).splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("e2e_s.paired") and "33.83 s" in line)
    assert lines[at + 1] == "750.0 ms against 1.50 s over the calls that both completed"
    assert lines[at + 2] == "-50.0% better"
    assert "750.0 ms against 1.50 s over the calls that both completed: -50.0% better" in markdown(further)
    page = of_experiments([further], {})
    assert "<small>750.0 ms against 1.50 s over the calls that both completed</small>" in page
    assert sum("against 1" in line for line in lines) == 1, "speeds are those that are shown"


def test_of_an_older_outcome_it_is_said_that_the_figures_are_of_other_calls(further: Outcome) -> None:
    old = msgspec.json.decode(msgspec.json.encode(further))
    for kind in ("versus_previous", "versus_base"):
        for found in old["steps"][1][kind].values():
            del found["base"], found["other"]
    said = "the ratio is over the calls that both completed, the figures over all"
    assert render(msgspec.convert(old, Outcome)).count(said) == 1


def test_the_figures_of_two_configurations_are_those_of_the_blocks_of_both(made: Made) -> None:
    speeds = (100.0, 200.0, 400.0, 5000.0)
    a = {b: made("a", b, 2 * b, speed) for b, speed in enumerate(speeds)}
    b = {b: made("b", b, 2 * b + 1, speed * 2) for b, speed in enumerate(speeds[:3])}
    b[3] = made("b", 3, 7, 10.0, reasons=("trend",))
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    text = render(assess(steps, [SPEED], name="x"))
    assert "400 against 200 over the blocks where both count" in text
    assert "without the steady drift" not in text


def test_means_are_those_of_ratios_with_two_blocks_as_well(made: Made) -> None:
    a = {b: made("a", b, 2 * b, speed) for b, speed in enumerate((100.0, 400.0))}
    b = {b: made("b", b, 2 * b + 1, speed) for b, speed in enumerate((400.0, 400.0))}
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    outcome = assess(steps, [SPEED], name="x")
    assert [round(step.metrics[str(SPEED)].value or 0, 6) for step in outcome.steps] == [200.0, 400.0]
    assert outcome.steps[1].versus_base[str(SPEED)].ratio == pytest.approx(2.0)
    assert "against 2" not in render(outcome)


def test_a_ratio_without_the_drift_says_so(made: Made) -> None:
    rows = [
        [(0, 1.0), (1, 1.3)],
        [(3, 1.0), (2, 1.3)],
        [(4, 1.0), (5, 1.3)],
        [(7, 1.0), (6, 1.3)],
        [(8, 1.0), (9, 1.3)],
    ]
    steps = [
        StepRuns(
            name=f"s{i}",
            runs={
                b: made(f"s{i}", b, row[i][0], 1000 * row[i][1] * exp(0.05 * row[i][0])) for b, row in enumerate(rows)
            },
            previous=0 if i else None,
        )
        for i in range(2)
    ]
    outcome = assess(steps, [SPEED], name="x")
    found = outcome.steps[1].versus_base[str(SPEED)]
    assert found.ratio == pytest.approx(1.3)
    assert (found.other or 0) / (found.base or 1) == pytest.approx(1.3 * exp(0.01))
    assert "ratios are without the steady drift from run to run" in render(outcome)
    assert "ratios are without the steady drift from run to run" in of_experiments([outcome], {})


def compared(low: float, high: float, verdict: Verdict, table: int | None = 14) -> Comparison:
    return Comparison(ratio=(low * high) ** 0.5, low=low, high=high, verdict=verdict, blocks=4, table=table)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (compared(1.2, 1.4, "too_noisy"), "clear alone, not among all 14"),
        (compared(0.2, 0.4, "too_noisy"), "clear alone, not among all 14"),
        (compared(0.2, 0.4, "too_noisy", table=None), "clear alone, not among all figures"),
        (compared(0.9, 1.4, "too_noisy"), "too noisy to say"),
        (compared(1.2, 1.4, "too_noisy", table=0), "no verdict, see its note"),
        (compared(1.01, 1.03, "no_difference"), "too small to matter"),
        (compared(0.99, 1.03, "no_difference"), "no difference"),
        (compared(1.2, 1.4, "better"), "better"),
    ],
)
def test_a_verdict_fits_the_interval_beside_it(found: Comparison, says: str) -> None:
    assert change(found).partition(") ")[2] == says


def test_what_is_clear_alone_and_not_in_the_table_says_so_and_what_helps(made: Made) -> None:
    a = {b: made("a", b, 2 * b, 100.0) for b in range(3)}
    b = {b: made("b", b, 2 * b + 1, speed) for b, speed in enumerate((300.0, 400.0, 500.0))}
    metrics = [SPEED, *(parse(f"ttft_s.{part}") for part in ("p50", "p90", "p99"))]
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    outcome = assess(steps, metrics, name="x")
    found = outcome.steps[1].versus_base[str(SPEED)]
    assert (found.verdict, found.table) == ("too_noisy", 4)
    assert (found.low or 0) > 1
    for text in (render(outcome), markdown(outcome), of_experiments([outcome], {})):
        assert "clear alone, not among all 4" in text
        assert "more blocks tell" in text.replace("\n  ", " ")
        assert "too noisy to say" not in text.replace("the verdicts (better, WORSE, no difference, too noisy", "")


def test_verdicts_that_are_taken_away_say_where_the_reason_stands(made: Made) -> None:
    a = {block: made("a", block, block, 1000 + block) for block in range(4)}
    b = {block: made("b", block, 10 + block, 2000 + block) for block in range(4)}
    outcome = assess([StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)], [SPEED], name="x")
    text = render(outcome)
    assert "no verdict, see its note" in text
    assert "note: no verdict: the runs were not interleaved" in text
    assert "clear alone" not in text


def test_a_noise_floor_of_which_nothing_follows_is_no_figure(made: Made) -> None:
    rows = [(100.0, 100.0), (100.0, 300.0), (100.0, 30.0)]
    runs = [{b: made(f"s{i}", b, 2 * b + i, row[i]) for b, row in enumerate(rows)} for i in range(2)]
    outcome = assess(
        [StepRuns(name=f"s{i}", runs=r, previous=0 if i else None) for i, r in enumerate(runs)], [SPEED], name="x"
    )
    floor = outcome.noise_floor[str(SPEED)]
    assert floor is not None
    assert floor.half_width > 1.0
    for text in (render(outcome), of_experiments([outcome], {})):
        assert "no noise floor, for it is above 100% with so few blocks: output_tokens_per_s" in text
        assert f"{floor.half_width:.1%}" not in text


def test_runs_that_do_not_count_say_why_in_words(made: Made) -> None:
    a = {b: made("a", b, 2 * b, 100.0) for b in range(3)}
    b = {b: made("b", b, 2 * b + 1, 100.0) for b in range(2)} | {2: made("b", 2, 5, 1.0, reasons=("trend", "odd_one"))}
    outcome = assess([StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)], [SPEED], name="x")
    said = "throughput or the KV cache in use was still rising or falling in the window; odd one"
    assert f"not counted: 2-b: {said}" in " ".join(render(outcome).split())
    assert f"- b, not counted: 2-b: {said}" in markdown(outcome)
    assert f"<li>b, not counted: 2-b: {said}</li>" in of_experiments([outcome], {})
    assert outcome.steps[1].invalid_runs == ("2-b: trend, odd_one",)
