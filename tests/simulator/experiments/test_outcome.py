"""From runs to figures and verdicts, and what takes a verdict away."""

from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path

import msgspec
import numpy as np
import pytest

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import Outcome, assess, told
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.statistics import order
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.table import blocks, markdown, render
from windtunnel.simulator.results.summary_model import Distribution
from windtunnel.traces.errors import UsageError

Made = Callable[..., Measured]
SPEED, TTFT = parse("output_tokens_per_s"), parse("ttft_s.p50")


def ladder(
    made: Made, factors: Sequence[float], blocks: int = 4, noise: float = 0.004, **how: object
) -> list[StepRuns]:
    rng = np.random.default_rng(5)
    found: list[dict[int, Measured]] = [{} for _ in factors]
    place = 0
    for block in range(blocks):
        for step in order(len(factors), block):
            speed = 1000 * factors[step] * exp(rng.normal(0, noise))
            found[step][block] = made(f"s{step}", block, place, speed, **how)
            place += 1
    return [StepRuns(name=f"s{i}", runs=r, previous=i - 1 if i else None) for i, r in enumerate(found)]


def test_each_step_against_the_one_before_and_the_base(made: Made) -> None:
    outcome = assess(ladder(made, [1.0, 1.3, 1.04]), [SPEED, TTFT], name="x")
    base, second, third = outcome.steps
    assert base.versus_base == base.versus_previous == {}
    assert base.metrics["output_tokens_per_s"].value == pytest.approx(1000, rel=0.01)
    assert second.versus_previous["output_tokens_per_s"].ratio == pytest.approx(1.3, rel=0.01)
    assert second.versus_previous["output_tokens_per_s"].verdict == "better"
    assert second.versus_previous["ttft_s.p50"].verdict == "better"
    assert third.versus_previous["output_tokens_per_s"].verdict == "worse"
    assert third.versus_previous["output_tokens_per_s"].ratio == pytest.approx(0.8, rel=0.01)
    assert third.versus_base["output_tokens_per_s"].ratio == pytest.approx(1.04, rel=0.01)
    assert third.versus_base["ttft_s.p50"].verdict == "better"
    assert (outcome.blocks, third.previous) == (4, "s1")
    floor = outcome.noise_floor["output_tokens_per_s"]
    assert floor is not None
    assert floor.noise == pytest.approx(0.004, rel=0.6)


def test_the_json_is_that_of_the_contract(made: Made) -> None:
    data = msgspec.to_builtins(assess(ladder(made, [1.0, 1.3]), [SPEED], name="x", experiment_dir="/e"))
    assert {"experiment_dir", "steps", "noise_floor"} <= data.keys()
    step = data["steps"][1]
    assert {"name", "resolved", "runs", "metrics", "versus_previous", "versus_base", "failed", "notes"} <= step.keys()
    assert step["metrics"]["output_tokens_per_s"].keys() == {"value", "low", "high"}
    assert {"ratio", "low", "high", "verdict"} <= step["versus_base"]["output_tokens_per_s"].keys()
    assert list(step["runs"]) == [f"/runs/{block}-s1" for block in range(4)]


def test_runs_that_are_not_valid_do_not_count_and_are_named(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3], blocks=5)
    spoiled = dict(steps[1].runs) | {2: made("s1", 2, 5, 5.0, reasons=("foreign_load",))}
    outcome = assess([steps[0], msgspec.structs.replace(steps[1], runs=spoiled)], [SPEED], name="x")
    found = outcome.steps[1]
    assert found.versus_base["output_tokens_per_s"].blocks == 4
    assert found.versus_base["output_tokens_per_s"].ratio == pytest.approx(1.3, rel=0.01)
    assert found.invalid_runs == ("2-s1: foreign_load",)


def test_runs_of_an_experiment_are_named_by_block_and_step_once(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3], blocks=4)
    spoiled = {
        b: msgspec.structs.replace(made("s1", b, 2 * b, 5.0, reasons=("client_lag",)), path=Path(f"/e/block-0{b}/fast"))
        for b in (1, 2)
    }
    found = assess([steps[0], msgspec.structs.replace(steps[1], runs=dict(steps[1].runs) | spoiled)], [SPEED], name="x")
    assert found.steps[1].invalid_runs == ("block-01/fast: client_lag", "block-02/fast: client_lag")


def test_a_run_that_goes_on_has_figures_and_no_verdict(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3])
    live = dict(steps[1].runs) | {3: msgspec.structs.replace(steps[1].runs[3], live=True)}
    found = assess([steps[0], msgspec.structs.replace(steps[1], runs=live)], [SPEED], name="x").steps[1]
    compared = found.versus_base["output_tokens_per_s"]
    assert (round(compared.ratio or 0, 1), compared.verdict, compared.blocks) == (1.3, "too_noisy", 4)
    assert found.notes == ("3-s1 is still going on: its figures so far, and no verdict",)


def test_the_same_settings_under_two_names_are_one_configuration(made: Made) -> None:
    runs = {block: made("same", block, block, 1000 + 300 * block) for block in range(3)}
    steps = [StepRuns(name="a", runs=runs), StepRuns(name="b", runs=runs, previous=0)]
    outcome = assess(steps, [SPEED, parse("client_cpu")], name="x")
    assert outcome.steps[1].versus_base["output_tokens_per_s"].verdict == "no_difference"
    assert outcome.steps[1].versus_base["client_cpu"].ratio is None, "what nobody measured is not equal"
    assert outcome.steps[1].notes == ("resolves to the same settings as a: one configuration",)


def test_one_after_the_other_is_too_noisy_whatever_the_figures(made: Made) -> None:
    a = {block: made("a", block, block, 1000 + block) for block in range(4)}
    b = {block: made("b", block, 10 + block, 2000 + block) for block in range(4)}
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    found = assess(steps, [SPEED], name="x").steps[1]
    assert found.versus_base["output_tokens_per_s"].verdict == "too_noisy"
    assert found.versus_base["output_tokens_per_s"].ratio == pytest.approx(2.0, rel=0.01)
    assert "not interleaved" in found.notes[0]
    virtual = [
        {k: made(n, k, at + k, s + k, virtual=True) for k in range(4)} for n, at, s in (("a", 0, 1e3), ("b", 9, 2e3))
    ]
    steps = [StepRuns(name="a", runs=virtual[0]), StepRuns(name="b", runs=virtual[1], previous=0)]
    assert assess(steps, [SPEED], name="x").steps[1].versus_base["output_tokens_per_s"].verdict == "better"


@pytest.mark.parametrize(
    ("settings", "emulated", "verdict"),
    [
        ({"speculative_config.method": "mtp"}, False, "too_noisy"),
        (
            {"speculative_config.method": "mtp", "speculative_config.rejection_sample_method": "synthetic"},
            False,
            "better",
        ),
        ({"speculative_config.method": "mtp"}, True, "better"),
    ],
)
def test_speculation_on_forced_text_has_no_verdict(made: Made, settings: dict, emulated: bool, verdict: str) -> None:
    steps = ladder(made, [1.0], emulated=emulated)
    other = ladder(made, [1.0, 1.4], settings=settings, emulated=emulated)[1]
    found = assess([steps[0], msgspec.structs.replace(other, previous=0)], [SPEED], name="x").steps[1]
    assert found.versus_base["output_tokens_per_s"].verdict == verdict
    assert bool(found.notes) == (verdict == "too_noisy" or emulated)


def test_lossy_steps_and_other_models_carry_their_words(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3])
    other = {b: made("s1", b, 100 + b, 1300.0, model="other") for b in range(4)}
    lossy = msgspec.structs.replace(steps[1], lossy=True)
    assert assess([steps[0], lossy], [SPEED], name="x").steps[1].notes == ("faster, quality not checked",)
    slower = [steps[1], msgspec.structs.replace(steps[0], lossy=True, previous=0)]
    assert assess(slower, [SPEED], name="x").steps[1].notes == (
        "quality not checked: it may change what the model answers",
    )
    changed = msgspec.structs.replace(steps[1], runs=other)
    assert "speed only" in assess([steps[0], changed], [SPEED], name="x").steps[1].notes[-1]


@pytest.mark.parametrize(
    ("worse", "note"),
    [
        (False, "faster, quality not checked"),
        (True, "better in part, quality not checked"),
    ],
)
def test_a_lossy_step_is_faster_only_where_nothing_is_worse(made: Made, worse: bool, note: str) -> None:
    steps = ladder(made, [1.0, 1.3])
    runs = dict(steps[1].runs)
    if worse:
        runs = {
            b: msgspec.structs.replace(
                run, summary=msgspec.structs.replace(run.summary, ttft_s=Distribution(9, *[9.0] * 5))
            )
            for b, run in runs.items()
        }
    steps[1] = msgspec.structs.replace(steps[1], runs=runs, lossy=True)
    assert assess(steps, [SPEED, TTFT], name="x").steps[1].notes == (note,)


def test_paired_means_are_over_the_calls_that_both_made(made: Made) -> None:
    short = {("s1", 0): 1.0, ("s1", 1): 2.0}
    long = {("s1", 0): 0.5, ("s1", 1): 1.0, ("s2", 0): 100.0}
    a = {b: made("a", b, 2 * b, 10, e2e=short) for b in range(3)}
    b = {b: made("b", b, 2 * b + 1, 10, e2e=long) for b in range(3)}
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    found = assess(steps, [parse("e2e_s.paired")], name="x").steps[1]
    assert found.versus_base["e2e_s.paired"].ratio == pytest.approx(0.5)


def test_a_step_that_did_not_start_is_shown_with_its_reason(made: Made) -> None:
    steps = [*ladder(made, [1.0, 1.2]), StepRuns(name="s2", runs={}, previous=1, failed="no memory for the KV cache")]
    outcome = assess(steps, [SPEED], name="x")
    assert outcome.steps[2].metrics["output_tokens_per_s"].value is None
    assert outcome.steps[2].versus_base["output_tokens_per_s"].verdict == "too_noisy"
    text = render(outcome)
    assert "did not start: no memory for the KV cache" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "+20" in text
    assert "| s2 | did not start: no memory for the KV cache |" in markdown(outcome)


@pytest.mark.parametrize("bad", ["ttft_s", "nothing", "output_tokens_per_s.p50", "ttft_s.p42", "itl_s.paired"])
def test_metrics_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(UsageError, match=bad.partition(".")[0]):
        parse(bad)


def test_speculation_on_the_models_own_words_keeps_its_verdict(made: Made) -> None:
    settings = {"speculative_config.method": "ngram"}
    base = ladder(made, [1.0])[0]
    for shape_only, verdict in ((False, "better"), (True, "too_noisy")):
        other = ladder(made, [1.0, 1.4], settings=settings, config={"lengths": "natural"})[1]
        for run in other.runs.values():
            run.run["traces"] = [{"fingerprint": "f1", "shape_only": shape_only}]
        found = assess([base, msgspec.structs.replace(other, previous=0)], [SPEED], name="x").steps[1]
        assert found.versus_base["output_tokens_per_s"].verdict == verdict


def test_it_is_not_narrow_while_a_step_lacks_runs_that_count(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3, 1.3], blocks=3)
    assert (assess(steps, [SPEED], name="x").widest or 1) < 0.1
    spoiled = dict(steps[2].runs) | {0: made("s2", 0, 2, 5.0, reasons=("foreign_load",))}
    short = [*steps[:2], msgspec.structs.replace(steps[2], runs=spoiled)]
    assert assess(short, [SPEED], name="x").widest is None
    gone = [*steps[:2], msgspec.structs.replace(steps[2], runs={}, failed="no memory")]
    assert (assess(gone, [SPEED], name="x").widest or 1) < 0.1


def test_other_sessions_are_no_comparison(made: Made) -> None:
    steps = ladder(made, [1.0, 1.4])
    for run in steps[1].runs.values():
        run.run["traces"] = [{"fingerprint": "another"}]
    found = assess(steps, [SPEED], name="x").steps[1]
    assert found.versus_base["output_tokens_per_s"].verdict == "too_noisy"
    assert "other sessions" in found.notes[0]


def test_a_step_after_a_lossy_one_is_lossy_against_the_base(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3, 1.6])
    steps[1] = msgspec.structs.replace(steps[1], lossy=True)
    found = assess(steps, [SPEED], name="x")
    assert found.steps[2].notes == ("faster, quality not checked",)
    assert found.steps[0].notes == ()


@pytest.mark.parametrize(
    ("settings", "lossy"),
    [
        ({"cache_config.cache_dtype": "fp8_e4m3"}, True),
        ({"cache_config.cache_dtype": "auto"}, False),
        ({"model_config.quantization": "awq"}, True),
        ({"model_config.dtype": "torch.float16"}, False),
        ({"cache_config.mamba_ssm_cache_dtype": "float16"}, True),
    ],
)
def test_a_coarser_precision_is_lossy_whether_the_file_says_so_or_not(
    made: Made, settings: dict[str, str], lossy: bool
) -> None:
    base = ladder(made, [1.0], settings={"model_config.dtype": "torch.bfloat16"})
    steps = [base[0], ladder(made, [1.0, 1.4], settings=settings)[1]]
    assert assess(steps, [SPEED], name="x").steps[1].notes == (("faster, quality not checked",) if lossy else ())


def test_speculation_that_the_engine_names_in_its_own_way_has_no_verdict_either(made: Made) -> None:
    steps = ladder(made, [1.0, 1.4])
    for run in steps[1].runs.values():
        run.run["engine"]["speculation"] = "eagle"
    assert assess(steps, [SPEED], name="x").steps[1].versus_base["output_tokens_per_s"].verdict == "too_noisy"


def test_no_ratio_is_made_of_the_blocks_that_happen_not_to_be_zero(made: Made) -> None:
    steps = ladder(made, [1.0, 1.3], blocks=5)
    zero = dict(steps[1].runs) | {2: made("s1", 2, 5, 1e-9)}
    zero[2] = msgspec.structs.replace(
        zero[2], summary=msgspec.structs.replace(zero[2].summary, output_tokens_per_s=0.0)
    )
    outcome = assess([steps[0], msgspec.structs.replace(steps[1], runs=zero)], [SPEED], name="x")
    found = outcome.steps[1].versus_base["output_tokens_per_s"]
    assert (found.ratio, found.verdict) == (None, "too_noisy")
    assert "no ratio: it was zero" in render(outcome)


def test_rounding_is_no_difference_where_blocks_have_no_noise(made: Made) -> None:
    a = {b: made("a", b, 2 * b, 1000.0 + 7 * b, virtual=True) for b in range(3)}
    b = {b: made("b", b, 2 * b + 1, (1000.0 + 7 * b) * (1 - 3e-9), virtual=True) for b in range(3)}
    steps = [StepRuns(name="a", runs=a), StepRuns(name="b", runs=b, previous=0)]
    assert assess(steps, [SPEED], name="x").steps[1].versus_base["output_tokens_per_s"].verdict == "no_difference"


def test_virtual_runs_have_no_drift(made: Made) -> None:
    assert assess(ladder(made, [1.0, 1.2]), [SPEED], name="x").drift["output_tokens_per_s"] is not None
    assert assess(ladder(made, [1.0, 1.2], virtual=True), [SPEED], name="x").drift == {"output_tokens_per_s": None}


def test_a_default_metric_stays_only_where_two_runs_of_a_block_report_it(made):
    metrics = (SPEED, parse("makespan_s.p50"))

    def steps(*reporting):
        return [
            StepRuns(
                name=name,
                runs={
                    b: msgspec.structs.replace(
                        run, summary=msgspec.structs.replace(run.summary, makespan_s=Distribution(10, *[4.0] * 5))
                    )
                    if (name, b) in reporting
                    else run
                    for b in range(3)
                    for run in [made(name, b, 2 * b, 100.0)]
                },
            )
            for name in ("base", "other")
        ]

    assert told(metrics, steps()) == metrics[:1]
    assert told(metrics, steps(("base", 0), ("base", 1), ("other", 2))) == metrics[:1]
    assert told(metrics, steps(("base", 1), ("other", 1))) == metrics
    assert told(metrics, []) == metrics


@pytest.mark.parametrize(
    ("ran", "disturbed", "said"),
    [
        (0, [], "no block run yet"),
        (1, [], "1 block, it counts"),
        (1, [(0, 0), (1, 0)], "1 block run, none counts"),
        (3, [], "3 blocks, all count"),
        (5, [(0, 1), (1, 1), (0, 4), (1, 4)], "5 blocks run, 3 count"),
        (4, [(0, 1), (1, 2), (0, 3), (1, 3)], "4 blocks run, 1 counts whole, 2 in part"),
        (2, [(0, 0), (1, 1)], "2 blocks run, none counts whole, 2 in part"),
    ],
)
def test_how_many_blocks_were_run_and_how_many_of_them_count(
    made: Made, ran: int, disturbed: list[tuple[int, int]], said: str
) -> None:
    runs = [
        {b: made(f"s{i}", b, b, 100.0, reasons=("client_lag",) if (i, b) in disturbed else ()) for b in range(ran)}
        for i in range(2)
    ]
    steps = [StepRuns(name=f"s{i}", runs=r, previous=0 if i else None) for i, r in enumerate(runs)]
    failed = StepRuns(name="s2", runs={}, previous=0, failed="no memory is left")
    outcome = assess([*steps, failed], [SPEED], name="x")
    assert render(outcome).split("\n")[0] == f"x: 3 configurations, {said}"
    old = msgspec.json.decode(msgspec.json.encode(outcome))
    del old["blocks_run"], old["blocks_whole"]
    assert blocks(msgspec.convert(old, Outcome)) == f"{outcome.blocks} block{'' if outcome.blocks == 1 else 's'}"


def test_too_few_blocks_that_count_are_told_from_noise(made: Made) -> None:
    steps = ladder(made, [1.0, 25.0], blocks=3)
    spoilt = steps[1].runs[1]
    runs = {**steps[1].runs, 1: made("s1", 1, 2, 25000.0, reasons=("trend",))}
    assert spoilt.summary.valid
    outcome = assess([steps[0], msgspec.structs.replace(steps[1], runs=runs)], [SPEED], name="x")
    assert outcome.steps[1].versus_base["output_tokens_per_s"].verdict == "too_noisy"
    for text in (render(outcome), markdown(outcome)):
        assert "too few blocks count: 2 of 3" in text
        assert "too noisy" not in text
    noisy = assess(ladder(made, [1.0, 1.01], noise=0.2), [SPEED], name="x")
    assert "too noisy to say" in render(noisy)
