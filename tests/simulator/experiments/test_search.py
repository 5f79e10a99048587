"""Where the edge is, with readings whose truth is known."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from windtunnel.simulator.experiments.search import Reading, Search, curve


def search(limit_of, **how):
    """`limit_of(seed)`: the largest number that this seed passes."""
    asked = []

    async def measure(agents, seed):
        asked.append((agents, seed))
        return Reading(agents=agents, seed=seed, met=agents <= limit_of(seed), slo_share=1.0 if agents < 9 else 0.5)

    first = how.pop("first", 8)
    edge = asyncio.run(Search(measure, **how).find(first))
    assert len(asked) == len(set(asked)) == len(edge.readings)
    return edge, asked


@pytest.mark.parametrize("first", [1, 8, 100, 5000])
@pytest.mark.parametrize("truth", [0, 1, 2, 17, 18, 63, 64, 1000])
def test_a_sharp_edge_is_found_from_anywhere(truth, first):
    edge, asked = search(lambda _: truth, first=first)
    assert (edge.agents, edge.low, edge.high, edge.capped) == (truth, truth, truth, False)
    assert len(asked) <= 2 * 12 + 6


def test_what_always_passes_is_capped():
    edge, _ = search(lambda _: 10**6, most=200)
    assert (edge.agents, edge.capped) == (200, True)


def test_the_interval_reaches_the_most_that_may_be_tried_where_a_seed_still_passes_it():
    edge, _ = search(lambda seed: (9, 9, 12)[seed], most=12)
    assert (edge.agents, edge.high, edge.capped) == (9, 12, False)


@pytest.mark.parametrize("limits", [(20, 18, 19), (10, 30, 19), (19, 19, 10), (30, 19, 12)])
def test_the_majority_of_seeds_decides_and_the_interval_holds_all(limits):
    edge, _ = search(lambda seed: limits[seed])
    assert edge.agents == sorted(limits)[1]
    assert (edge.low, edge.high) == (min(limits), max(limits))


@pytest.mark.parametrize("resolution", [0.0, 0.05, 0.25])
@pytest.mark.parametrize("limits", [(40, 22, 31), (200, 90, 140), (5, 60, 30), (100, 100, 61)])
def test_both_ends_of_the_interval_were_tried(limits, resolution):
    edge, asked = search(lambda seed: limits[seed], resolution=resolution, most=150)
    tried = {agents for agents, _ in asked}
    assert {edge.low, edge.agents, edge.high} <= tried
    met = {agents: [r.met for r in edge.readings if r.agents == agents] for agents in tried}
    assert all(met[edge.low])
    assert any(met[edge.high])
    assert not any(len(met[agents]) == 3 and all(met[agents]) for agents in tried if edge.low < agents <= edge.agents)
    assert not any(any(met[agents]) for agents in tried if agents > edge.high)


def test_a_number_that_a_seed_failed_is_above_the_interval_though_larger_ones_pass():
    async def measure(agents, seed):
        return Reading(agents=agents, seed=seed, met=agents <= 20 and (agents, seed) != (11, 0))

    edge = asyncio.run(Search(measure).find(11))
    assert (edge.agents, edge.low, edge.high) == (20, 10, 20)


def test_more_seeds_never_raise_the_lower_end():
    rng = np.random.default_rng(5)
    for _ in range(60):
        chance = rng.random((64, 8))

        async def measure(agents, seed, chance=chance):
            return Reading(agents=agents, seed=seed, met=bool(agents < 40 and chance[agents, seed] > agents / 40))

        edges = [asyncio.run(Search(measure, most=60, repeats=n).find(8)) for n in (1, 3, 5, 7)]
        for edge in edges:
            assert all(r.met for r in edge.readings if r.agents <= edge.low)
        # Among the readings that both made, one more seed can only take away.
        for fewer, more in pairwise(edges):
            failed = [r.agents for r in more.readings if not r.met and r in fewer.readings]
            assert more.low < min(failed, default=61)


def test_it_is_the_sweeps_number_when_every_run_is_noisy():
    rng = np.random.default_rng(3)
    for _ in range(40):
        truth = int(rng.integers(3, 200))
        limits = [max(0, round(truth + rng.normal(0, 1 + 0.03 * truth))) for _ in range(3)]
        edge, asked = search(lambda seed, limits=limits: limits[seed], first=int(rng.integers(1, 64)))
        sweep = max(n for n in range(300) if sum(n <= limit for limit in limits) >= 2)
        assert edge.agents == sweep
        assert len(asked) < 60


def test_a_coarse_resolution_asks_less():
    fine, many = search(lambda _: 777)
    coarse, few = search(lambda _: 777, resolution=0.05)
    assert fine.agents == 777
    assert 777 / 1.06 <= coarse.agents <= 777
    assert len(few) < len(many) - 3


def test_the_curve_is_the_mean_over_seeds():
    readings = [
        Reading(agents=4, seed=0, met=True, slo_share=1.0, output_tokens_per_s=10.0),
        Reading(agents=4, seed=1, met=False, slo_share=0.5, output_tokens_per_s=None, reasons=("trend",)),
        Reading(agents=5, seed=0, met=True, reasons=("trend",)),
    ]
    unknown = {"slo_share": None, "output_tokens_per_s": None, "kv_usage": None}
    assert curve(readings) == [
        {"agents": 4, "slo_share": 0.75, "output_tokens_per_s": 10.0, "kv_usage": None}
        | {"runs": 2, "counted": 2, "met": 1, "valid": 1, "not_valid": False},
        {"agents": 5} | unknown | {"runs": 1, "counted": 1, "met": 1, "valid": 0, "not_valid": True},
    ]
