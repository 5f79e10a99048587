"""Configurations that differ by a flag which the emulator does not model: figures, and no verdict."""

from collections.abc import Callable, Sequence

from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import NOT_TOLD, assess
from windtunnel.simulator.experiments.runs import Measured
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.table import render

Made = Callable[..., Measured]
SPEED = parse("output_tokens_per_s")
PIPELINE = "--pipeline-parallel-size 2"


def verdicts(steps: Sequence[StepRuns]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (
            *(one.get("output_tokens_per_s", NOT_TOLD).verdict for one in (s.versus_previous, s.versus_base)),
            s.notes,
        )
        for s in assess(steps, [SPEED], name="x").steps[1:]
    ]


def ignoring(made: Made, *flags: tuple[str, ...]) -> list[StepRuns]:
    """Each twice as fast as the one before."""
    return [
        StepRuns(
            name=f"s{i}",
            runs={
                b: made(f"s{i}", b, b * 9 + i, 100.0 * 2**i, virtual=True, emulated=True, ignored=own) for b in range(3)
            },
            previous=i - 1 if i else None,
        )
        for i, own in enumerate(flags)
    ]


def test_a_flag_that_the_emulator_does_not_model_has_no_verdict(made: Made) -> None:
    note = "no verdict: the emulator does not model {}"
    pipeline, offload = note.format("--pipeline-parallel-size"), note.format("--cpu-offload-gb")
    assert verdicts(ignoring(made, (), (PIPELINE,))) == [("too_noisy", "too_noisy", (pipeline,))]
    assert verdicts(ignoring(made, (PIPELINE,), ())) == [("too_noisy", "too_noisy", (pipeline,))]
    # Only against the base; then both have it.
    assert verdicts(ignoring(made, (), (PIPELINE,), (PIPELINE,)))[1] == ("better", "too_noisy", (pipeline,))
    both = verdicts(ignoring(made, (PIPELINE,), (PIPELINE,)))
    assert both == [("better", "better", (f"not modelled: {PIPELINE}",))]
    other = verdicts(ignoring(made, ("--cpu-offload-gb 20",), ("--cpu-offload-gb 40",)))
    assert other == [("too_noisy", "too_noisy", (offload,))]
    text = render(assess(ignoring(made, (), (PIPELINE,)), [SPEED], name="x"))
    assert "no verdict, see its note" in text
    assert f"note: {pipeline}" in text


def test_a_flag_that_can_change_nothing_measured_keeps_the_verdict(made: Made) -> None:
    flags = ("--trust-remote-code", "--reasoning-parser", "--no-enable-log-requests", "--api-key")
    assert verdicts(ignoring(made, (), flags)) == [("better", "better", ())]
