"""The bars of an experiment's page: a ratio stands beside the figures that it is made of."""

import re

from msgspec.structs import replace

from windtunnel.simulator.experiments.outcome import Comparison, Figure, Outcome, StepOutcome
from windtunnel.simulator.experiments.table import PAIRED_ONLY
from windtunnel.simulator.report import charts

METRIC = "e2e_s.paired"


def step(name: str, value: float, versus: Comparison | None) -> StepOutcome:
    return StepOutcome(
        name=name,
        resolved={},
        runs=("r",),
        metrics={METRIC: Figure(value)},
        versus_previous={} if versus is None else {METRIC: versus},
        versus_base={},
        failed=None,
        notes=(),
    )


def ladder(versus: Comparison, metric: str = METRIC) -> list[tuple[float, str]]:
    """(y, words) of everything written in a ladder of two steps, the second one of 12.06 s, the first of 60 s."""
    steps = (step("base", 60.0, None), step("more", 12.06, versus))
    floor = {"noise_floor": {}, "drift": {}, "blocks": 5, "emulated": True, "matters": 0.05, "widest": None}
    drawn = charts.ladder(Outcome(experiment_dir=None, name="x", steps=steps, **floor), metric)
    height = float(re.search(r'viewBox="0 0 640 ([\d.]+)"', drawn)[1])
    said = [(float(y), words) for y, words in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)<', drawn)]
    assert max(y for y, _ in said) < height
    return said


FASTER = Comparison(ratio=0.225, low=0.2, high=0.25, verdict="better", blocks=5, base=53.6, other=12.06)


def test_a_paired_ratio_stands_under_the_two_figures_it_is_made_of():
    said = ladder(FASTER)
    words = [w for _, w in said]
    assert words == [
        "base", "60.00 s", "more", "12.06 s",
        "12.06 s against 53.60 s over the calls that both completed:", "-77.5% (-80.0% to -75.0%) better",
    ]  # fmt: skip
    # In lines of their own, and nothing of the next step among them.
    assert [round(y - said[2][0]) for y, _ in said[3:]] == [30, 45, 60]
    assert said[2][0] - said[1][0] > 30


def test_a_ratio_of_the_figures_that_are_shown_stands_beside_its_own():
    words = [w for _, w in ladder(replace(FASTER, base=60.0))]
    assert words == ["base", "60.00 s", "more", "12.06 s   -77.5% (-80.0% to -75.0%) better"]


def test_a_kept_outcome_that_does_not_tell_the_figures_says_what_the_ratio_is_over():
    words = [w for _, w in ladder(replace(FASTER, base=None, other=None))]
    assert words[3:] == ["12.06 s", f"{PAIRED_ONLY}:", "-77.5% (-80.0% to -75.0%) better"]
