"""Runs side by side: the words of compare where it has one, and figures where it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from windtunnel.simulator.experiments import beside as side
from windtunnel.simulator.experiments.metrics import chosen
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.results.curves import Curves, mean_rates, pooled
from windtunnel.simulator.results.summary import summarise

METRICS = chosen(["output_tokens_per_s"])


def measured(name: str, rate: float, *, agents: int = 32, seqs: int = 256, valid: bool = True) -> Measured:
    run: dict[str, Any] = {
        "config": {"agents": agents, "traces": ["library"]},
        "traces": [{"fingerprint": "f"}],
        "seed": 0,
        "engine": {"name": "vllm", "version": "0.32.0", "model": "m", "resolved": {"a.max_num_seqs": seqs}},
    }
    summary = replace(
        summarise(run, []), valid=valid, output_tokens_per_s=rate, invalid_reasons=() if valid else ("trending",)
    )
    return Measured(Path("runs") / name, run, summary, {})


def test_two_configurations_with_a_run_each_give_the_ratio_that_compare_prints() -> None:
    found = side.beside([measured("a", 100.0), measured("b", 120.0, seqs=512)], METRICS)
    assert found.notices == ()
    base, other = found.outcome.steps
    assert base.metrics["output_tokens_per_s"].value == 100.0
    ratio = other.versus_previous["output_tokens_per_s"]
    assert (round(ratio.ratio or 0, 6), ratio.low, ratio.verdict, ratio.blocks) == (1.2, None, "too_noisy", 1)
    assert other.changes == ("a.max_num_seqs: 512",)


def test_runs_of_one_configuration_stand_each_for_itself_and_it_says_so() -> None:
    found = side.beside([measured("a", 100.0), measured("b", 120.0)], METRICS)
    assert found.notices == (side.SAME,)
    assert [s.metrics["output_tokens_per_s"].value for s in found.outcome.steps] == [100.0, 120.0]
    ratio = found.outcome.steps[1].versus_previous["output_tokens_per_s"]
    assert (round(ratio.ratio or 0, 6), ratio.verdict) == (1.2, "too_noisy")
    assert found.outcome.steps[1].notes == ()


def test_other_work_is_shown_and_named_where_compare_refuses() -> None:
    found = side.beside([measured("a", 100.0), measured("b", 120.0, agents=64)], METRICS)
    assert found.notices == ("other work than a, so no verdict: agents 32 against 64",)
    assert found.outcome.steps[1].versus_base["output_tokens_per_s"].verdict == "too_noisy"


def test_a_run_that_does_not_count_has_no_ratio_and_its_figure_is_told_apart() -> None:
    runs = [measured("a", 100.0), measured("b", 120.0, agents=64, valid=False)]
    found = side.beside(runs, METRICS)
    step = found.outcome.steps[1]
    assert step.metrics["output_tokens_per_s"].value is None
    assert step.versus_previous["output_tokens_per_s"].ratio is None
    assert step.invalid_runs == ("b: trending",)
    assert side.uncounted(found.runs[1], METRICS[0]) == 120.0


def test_what_differs_is_listed_with_everybodys_value() -> None:
    runs = [measured("a", 1.0), measured("b", 1.0, agents=64, seqs=512)]
    rows = side.differing([side.settings(m.run) for m in runs])
    assert rows == [("agents", ("32", "64")), ("a.max_num_seqs", ("256", "512"))]
    assert side.differing([side.settings(runs[0].run), {}]) == []


@pytest.mark.parametrize(("steps", "wanted"), [(4, [15.0, 15.0, 20.0, 20.0]), (2, [15.0, 20.0]), (1, [15.0])])
def test_rates_of_runs_of_different_lengths_are_the_mean_of_those_that_reach(steps: int, wanted: list[float]) -> None:
    one = Curves(1.0, np.array([10.0, 10.0]), None, {})
    two = Curves(1.0, np.array([20.0, 20.0, 20.0, 20.0]), None, {})
    assert mean_rates([one, two], 4.0, steps) == wanted


def test_what_the_emulator_does_not_model_differs_too() -> None:
    runs = [measured("a", 1.0).run, measured("b", 1.0).run]
    runs[1]["engine"]["emulation"] = {"ignored_flags": ["--cpu-offload-gb 40", "--trust-remote-code"]}
    assert side.differing([side.settings(run) for run in runs]) == [("not modelled", ("", "--cpu-offload-gb 40"))]


def test_finer_parts_than_the_runs_own_steps_take_what_holds_there() -> None:
    assert mean_rates([Curves(2.0, np.array([10.0, 30.0]), None, {})], 4.0, 4) == [10.0, 10.0, 30.0, 30.0]


def test_latencies_of_several_runs_are_pooled_in_order() -> None:
    runs = [Curves(1.0, np.zeros(1), None, {"ttft_s": np.array(v)}) for v in ([0.1, 0.9], [0.5])]
    assert pooled(runs, "ttft_s").tolist() == [0.1, 0.5, 0.9]


def test_tokens_that_are_made_of_as_many_blocks_are_no_difference() -> None:
    def told(blocks: str, tokens: str) -> dict[str, str]:
        made = {"kv_tokens": tokens, "cache_config.kv_cache_size_tokens": tokens, "model_config.max_model_len": "9"}
        return {"cache_config.num_gpu_blocks": blocks, **made, "scheduler_config.async_scheduling": tokens[:1]}

    same = side.differing([told("183867", "2351430"), told("183867", "3612446")])
    assert same == [("scheduler_config.async_scheduling", ("2", "3"))]
    other = side.differing([told("183867", "2351430"), told("190000", "3612446")])
    assert ("kv_tokens", ("2351430", "3612446")) in other
