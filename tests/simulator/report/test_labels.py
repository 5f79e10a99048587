"""Points that lie near each other can be told apart."""

import re
from itertools import combinations

import numpy as np
import pytest

from windtunnel.simulator.experiments.outcome import Figure, Outcome, StepOutcome
from windtunnel.simulator.report import svg
from windtunnel.simulator.report.charts import agents_against_total
from windtunnel.simulator.report.labels import Box, grouped, leader, placed

X, Y = (58.0, 628.0), (20.0, 176.0)


@pytest.mark.parametrize("seed", range(5))
def test_no_label_lies_on_a_point_or_on_another_label(seed):
    rng = np.random.default_rng(seed)
    crowd = [Box(x, y, 8, 8) for x, y in zip(rng.uniform(250, 330, 12), rng.uniform(70, 130, 12), strict=True)]
    points = [crowd[group[0]] for group in grouped(crowd)]
    labels = placed(points, [Box(0, 0, 15, 11)] * len(points), X, Y, crowd)
    assert not [pair for pair in combinations(labels, 2) if pair[0].meets(pair[1])]
    assert not [(label, point) for label in labels for point in crowd if label.meets(point)]
    assert all(label.within(X, Y) for label in labels)


def test_a_label_beside_its_point_needs_no_line_and_one_farther_away_has_one_from_rim_to_rim():
    point = Box(100, 100, 8, 8)
    assert placed([point], [Box(0, 0, 10, 11)], X, Y, [point]) == [Box(pytest.approx(100), 88, 10, 11)]
    assert leader(point, Box(100, 88, 10, 11), [Box(100, 50, 8, 8)]) is None
    assert leader(point, Box(100, 88, 10, 11), [Box(100, 76, 8, 8)]) == pytest.approx((100, 96, 100, 93.5))
    assert leader(point, Box(140, 100, 10, 11), []) == pytest.approx((104, 100, 135, 100))
    assert leader(point, Box(100, 60, 90, 11), []) == pytest.approx((100, 96, 100, 65.5))


def test_points_on_each_other_are_together_and_a_chain_of_them_is_not():
    assert grouped([Box(x, 50, 8, 8) for x in (10, 100, 12, 17, 24, 100)]) == [[0, 2, 3], [1, 5], [4]]


def outcome(*figures: tuple[float, float]) -> Outcome:
    """Of steps by (tokens/s together, tokens/s of one stream)."""
    steps = tuple(
        StepOutcome(
            name=f"step <{number}>",
            resolved={},
            runs=("r",),
            metrics={"output_tokens_per_s": Figure(total), "tpot_s.p50": Figure(1 / each)},
            versus_previous={},
            versus_base={},
            failed=None,
            notes=(),
        )
        for number, (total, each) in enumerate(figures, start=1)
    )
    floor = {"noise_floor": {}, "drift": {}, "blocks": 3, "emulated": True, "matters": 0.05, "widest": None}
    return Outcome(experiment_dir=None, name="x", steps=steps, **floor)


def test_nearly_equal_steps_share_a_label_and_are_told_below():
    chart = agents_against_total(outcome((6000, 25), (12000, 50), (6010, 25.1), (5990, 24.9)))
    assert re.findall(r'class="dot-label"[^>]*>([^<]*)<', chart) == ["1, 3, 4", "2"]
    assert chart.count('class="dot"') == 4
    assert "<b>3</b> step &lt;3&gt;: 6,010 tokens/s together, 25.1 each" in chart
    places = [float(x) for x in re.findall(r'class="dot-label" x="([^"]*)"', chart)]
    x, _ = svg.plot_area(210.0, (0, 12000 * 1.08), (0, 1))
    assert places == pytest.approx([x(6000), x(12000)], abs=0.06)
