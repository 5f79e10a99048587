"""Calibration by truth: runs emulated with constants that the fit does not know, and what it predicts afterwards."""

import numpy as np
import pytest
from msgspec.structs import replace

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.calibrate import calibrate, fit
from windtunnel.simulator.emulator.measured import Case, Closed, Open
from windtunnel.simulator.emulator.reached import Reached, usual
from windtunnel.simulator.emulator.replay import NS, Ask
from windtunnel.simulator.emulator.solve import solve
from windtunnel.simulator.emulator.steptime import StepTime
from windtunnel.simulator.emulator.trial import Trial, statistics

HIDDEN = Reached(hw=0.7, hf=0.5, hk=0.75, ha=0.5, step_ms=0.8, seq_us=40, layer_us=30, request_ms=0, prompt_us=0)
FLAGS = ("--gpu", "h200", "--model", "llama-3.1-8b", "--max-model-len", "16384", "--max-num-seqs", "128")


def poisson(count: int, rate: float) -> list[Ask]:
    rng = np.random.Generator(np.random.Philox(key=3))
    times = np.cumsum(rng.exponential(1 / rate, count)) * NS
    prompts, outputs = rng.integers(200, 6000, count), rng.integers(20, 200, count)
    return [
        Ask(np.full(prompt, number, dtype=np.uint32), int(output), at=int(at))
        for number, (prompt, output, at) in enumerate(zip(prompts, outputs, times, strict=True))
    ]


def recorded(asks: list[Ask], model_flags: tuple[str, ...] = FLAGS) -> Case:
    case = Case(
        id="truth",
        flags=model_flags,
        load=Open(asks),
        measured={},
        gpu="h200",
        model="llama-3.1-8b",
        client_side=False,
    )
    seen = Trial(case).played(HIDDEN)
    return replace(case, seen=seen, measured=statistics(seen))


def test_constants_come_back_from_a_recorded_run() -> None:
    case = recorded(poisson(50, 4.5))
    fitted = calibrate([case])
    assert fitted.held_out is not None
    assert fitted.before is not None
    print(f"before {fitted.before:.1%}, in sample {fitted.in_sample:.1%}, held out {fitted.held_out:.1%}")
    assert fitted.before > 0.10
    assert fitted.in_sample < 0.02
    assert fitted.held_out < 0.03
    gpu, settings = facts.gpu("h200"), Trial(case).settings
    truth = StepTime(gpu, settings.model, settings.mode, reached=HIDDEN)
    found = StepTime(gpu, settings.model, settings.mode, reached=fitted.reached)
    for step in ((8, 8, 24_000), (24, 24, 72_000), (1, 4096, 4096)):
        print(step, f"{found.seconds(*step) / truth.seconds(*step) - 1:+.1%}")
        assert found.seconds(*step) == pytest.approx(truth.seconds(*step), rel=0.04)


def test_constants_come_back_from_rows_of_a_table() -> None:
    """Two models at several concurrencies: rows that the fit has not seen are predicted."""
    rows = [
        Case(
            id=f"{model} {concurrency} {tokens_in}",
            flags=("--gpu", "h200", "--model", model, "--max-model-len", "8192", "--no-enable-prefix-caching"),
            load=Closed("random", concurrency, tokens_in, 64),
            measured={"ttft_ms": 1.0, "tpot_ms": 1.0},
            gpu="h200",
            model=model,
        )
        for model in ("llama-3.1-8b", "qwen3-32b")
        for concurrency, tokens_in in ((2, 256), (8, 2048), (16, 512), (4, 4096))
    ]
    hidden = replace(HIDDEN, request_ms=12.0)
    rows = [replace(row, measured=Trial(row).emulated(hidden)) for row in rows]
    reached = fit([Trial(row) for row in rows[::2]], usual(facts.gpu("h200").bf16))
    errors = [
        value / row.measured[metric] - 1 for row in rows[1::2] for metric, value in Trial(row).emulated(reached).items()
    ]
    print([f"{error:+.1%}" for error in errors])
    assert np.median(np.abs(errors)) < 0.05
    assert max(map(abs, errors)) < 0.15


def test_a_frozen_schedule_has_the_times_of_the_replay_it_came_from() -> None:
    case = recorded(poisson(40, 6.0))
    trial = Trial(case)
    before = trial.played(HIDDEN)
    trial.freeze(HIDDEN)
    frozen = trial.played(HIDDEN)
    assert np.abs(frozen.first - before.first).max() < 1000
    assert np.abs(frozen.last - before.last).max() < 1000
    slower = replace(HIDDEN, hw=HIDDEN.hw / 2, hf=HIDDEN.hf / 2)
    assert trial.played(slower).ttft_s.mean() > 1.3 * frozen.ttft_s.mean()
    trial.thaw()
    assert trial.played(slower).ttft_s.mean() > frozen.ttft_s.mean()


def test_what_data_do_not_speak_of_stays_at_its_prior() -> None:
    found = solve(lambda v: [10 * np.log(v["a"] / 2.0)], {"a": 1.0, "b": 5.0}, {"a": 1.0, "b": 1.0})
    assert found["a"] == pytest.approx(2.0, rel=0.02)
    assert found["b"] == pytest.approx(5.0)


def test_one_outlier_among_many_does_not_bend_the_fit() -> None:
    def residuals(values: dict[str, float]) -> list[float]:
        return [float(np.log(values["a"] / seen)) / 0.05 for seen in (2.0, 2.02, 1.98, 2.01, 1.99, 9.0)]

    assert solve(residuals, {"a": 1.0}, {"a": 10.0})["a"] == pytest.approx(2.0, rel=0.02)
