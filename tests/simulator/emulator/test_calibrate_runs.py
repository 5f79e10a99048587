"""Runs of the emulator itself: their own constants suit them, changed ones come back, and what is no gain is refused."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.emulator import profile
from windtunnel.simulator.emulator.calibrate import Half
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.identity import gpu_of, model_of
from windtunnel.simulator.emulator.ranges import Range
from windtunnel.simulator.emulator.solve import solve
from windtunnel.simulator.emulator.validate import read, validate
from windtunnel.simulator.emulator.validate_command import NoGainError, calibrate_command
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load

GPU = """name = "My GPU"
capability = 9.0
memory_gib = 79.6
tbps = 2.0
bf16 = 500
"""
REACHED = """[reached]
hw = 0.6
request_ms = 30.0
"""


def ran(folder: Path, gpu: str, shape: str = "900x30", agents: int = 3) -> Path:
    flags = ["--virtual", "--shape", shape, "--agents", str(agents), "--calls", "40", "--no-text", "--engine"]
    config = config_of([*flags, f"emulator --gpu {gpu} --model llama-3.1-8b --max-model-len 8192"])
    virtual_run(config, load(config.traces), folder)
    return folder


def test_an_emulated_run_is_what_its_own_constants_give(tmp_path: Path) -> None:
    found = validate(*read([ran(tmp_path / "run", "h100")]))
    assert len(found.points) == 12
    assert max(abs(point.error) for point in found.points) < 0.01


def test_constants_of_an_own_gpu_come_back_in_a_profile_that_is_taken(tmp_path: Path) -> None:
    gpu, out = tmp_path / "gpu.toml", tmp_path / "p.toml"
    gpu.write_text(GPU + REACHED)
    loads = (("100x40", 1), ("900x30", 6), ("4000x30", 2))
    runs = [ran(tmp_path / shape, str(gpu), shape, agents) for shape, agents in loads]
    with pytest.raises(UsageError, match="GPU My GPU is not in the table of GPUs: give a file"):
        calibrate_command(runs, out, gpu=None, model=None)
    assert calibrate_command(runs, out, gpu=str(gpu), model=None) == 0
    fitted = profile.load(out)
    assert (fitted.gpu, fitted.source[0].run) == ("My GPU", "100x40 (emulated)")
    # From 15. Prompts of one length would not tell a request's fixed time from its prompt's.
    assert fitted.reached.request_ms == pytest.approx(30, rel=0.03)
    assert fitted.reached.hw == pytest.approx(0.6, rel=0.05)
    assert parse(["--gpu", str(gpu), "--profile", str(out)]).reached == fitted.reached
    for flags, why in (([], "give the GPU's file with --gpu"), (["--gpu", "h200"], "cannot be used with --gpu h200")):
        with pytest.raises(UsageError, match=why):
            parse(["--profile", str(out), *flags])


def test_a_fit_that_is_no_gain_is_written_by_force_only(tmp_path: Path) -> None:
    run, out = ran(tmp_path / "run", "h100"), tmp_path / "p.toml"
    with pytest.raises(NoGainError, match="nothing written"):
        calibrate_command([run], out, gpu=None, model=None)
    assert not out.exists()
    assert calibrate_command([run], out, gpu="NVIDIA H100 80GB", model="llama-3.1-8b", force=True) == 0
    assert profile.load(out).gpu == "h100"


@pytest.mark.parametrize(
    ("said", "given", "emulated", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "h100", False, "h100"),
        ("H100 SXM 80GB", "H100_SXM", True, "h100"),
        ("", "h200", False, "h200"),
        ("H100 SXM 80GB", "h200", True, None),
        ("NVIDIA Else 1", "h200", False, None),
    ],
)
def test_a_run_of_another_gpu_is_refused(said: str, given: str, emulated: bool, found: str | None) -> None:
    if found is not None:
        assert gpu_of("run", said, given, emulated=emulated) == found
        return
    with pytest.raises(UsageError, match=f"run is of {said}, which is not the GPU of --gpu {given}"):
        gpu_of("run", said, given, emulated=emulated)


def test_a_run_of_another_model_is_refused() -> None:
    assert model_of("run", ("own-name",), "llama-3.1-8b") == ("llama-3.1-8b", None)
    assert model_of("run", ("nvidia/Llama-3.1-8B-Instruct-FP8",), "llama-3.1-8b") == ("llama-3.1-8b", "fp8")
    with pytest.raises(UsageError, match="which is not the model of --model qwen3-32b"):
        model_of("run", ("meta-llama/Llama-3.1-8B",), "qwen3-32b")


def test_a_fit_stays_within_its_bounds() -> None:
    found = solve(lambda v: [20 * np.log(v["a"] / 50)], {"a": 1.0}, {"a": 3.0}, bounds={"a": Range(0, 10)})
    assert found["a"] == pytest.approx(10)
    written = replace(profile.load(Path("ladder")), reached=replace(profile.load(Path("ladder")).reached, hf=10.41))
    with pytest.raises(UsageError, match=r"reached\.hf is 10\.41"):
        profile.save(written, Path("/nowhere/p.toml"))


def test_each_run_is_halved_by_itself() -> None:
    assert [(Half.FIRST.of(count), Half.SECOND.of(count)) for count in (550, 34)] == [
        (slice(0, 275), slice(275, None)),
        (slice(0, 17), slice(17, None)),
    ]
