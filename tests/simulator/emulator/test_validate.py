"""Measured tables and runs: what is read of them, what is skipped and why, and how far the emulator is off."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.clients import CLIENTS, asks, counted, weights
from windtunnel.simulator.emulator.ladder import climb, factor, ladder
from windtunnel.simulator.emulator.measured import Closed, read_table
from windtunnel.simulator.emulator.measured_run import read_run
from windtunnel.simulator.emulator.names import gpu_key, model_key, quantization_of
from windtunnel.simulator.emulator.profile import Errors, Profile, Source, load, save
from windtunnel.simulator.emulator.reached import usual
from windtunnel.simulator.emulator.run_folder import read_run_folder
from windtunnel.simulator.emulator.shipped import shipped
from windtunnel.simulator.emulator.trial import Trial
from windtunnel.simulator.emulator.validate import read, validate, validate_split
from windtunnel.simulator.emulator.validate_command import source_of, validate_command
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load as load_traces

SHARED = Path(__file__).parents[4] / "shared" / "validation"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no measured runs beside the repository")
ROW = {
    "silicon_tpot_ms": "6.3",
    "silicon_ttft_ms": "80",
    "batch_size": "4",
    "osl": "128",
    "isl": "512",
    "precision": "fp8",
    "system": "h200_sxm",
    "model_path": "meta-llama/Llama-3.1-8B",
    "backend": "vllm",
    "id": "a",
}


def table(path: Path, *rows: dict[str, str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROW)
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow(ROW | {"id": f"row {number}"} | row)
    return path


def test_names_of_vendors_and_benchmarks() -> None:
    assert [gpu_key(name) for name in ("b200_sxm", "NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3")] == [
        "b200",
        "rtx-4090",
        "h100",
    ]
    assert gpu_key("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx-pro-6000"
    assert gpu_key("tpu_v7") is None
    assert model_key("nvidia/Llama-3.1-8B-Instruct-FP8") == ("llama-3.1-8b", "fp8")
    assert model_key("meta-llama/Llama-3.3-70B-Instruct") == ("llama-3.1-70b", None)
    assert model_key("someone/own-model-9B") == (None, None)
    assert [quantization_of(name) for name in ("nvfp4", "fp8_block", "int4_wo", "bf16")] == [
        "nvfp4",
        "fp8",
        "awq",
        None,
    ]
    with pytest.raises(UsageError, match="precision int3 is not modelled"):
        quantization_of("int3")


def test_rows_that_cannot_be_modelled_are_skipped_with_their_reason(tmp_path: Path) -> None:
    path = table(
        tmp_path / "rows.csv",
        {},
        {"backend": "trtllm"},
        {"system": "tpu_v7"},
        {"model_path": "someone/own"},
        {"precision": "int3"},
        {"batch_size": "0"},
        {"silicon_tpot_ms": "", "silicon_ttft_ms": ""},
        {"model_path": "meta-llama/Llama-3.1-70B", "precision": "bf16", "system": "l40s"},
        {"silicon_tpot_ms": ""},
        *({"silicon_tpot_ms": cell} for cell in ("nan", "-5", "0", "inf")),
        {"batch_size": "100000000"},
    )
    cases, skipped = read([path])
    found = validate(cases, skipped)
    assert [(point.id, point.metric) for point in found.points] == [
        ("row 0", "ttft_ms"),
        ("row 0", "tpot_ms"),
        ("row 8", "ttft_ms"),
        *((f"row {number}", "ttft_ms") for number in (9, 10, 11, 12)),
    ]
    assert {left.id: left.reason.split(":")[0] for left in found.skipped} == {
        "row 1": "backend trtllm is not emulated, only vllm.",
        "row 2": "GPU tpu_v7 is not in the table of GPUs.",
        "row 3": "model someone/own is not in the table of models.",
        "row 4": "precision int3 is not modelled",
        "row 5": "batch_size is no positive number",
        "row 6": "nothing was measured",
        "row 7": "No available memory for the cache blocks",
        **{f"row {number}": "silicon_tpot_ms is no positive number" for number in range(8, 13)},
        "row 13": "batch_size is 100000000",
    }


def test_a_table_without_rows_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no rows"):
        read([table(tmp_path / "t.csv")])


def test_a_table_needs_its_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,isl\na,1\n")
    with pytest.raises(UsageError, match=r"t\.csv has no column system"):
        read_table(tmp_path / "t.csv")


def test_flags_of_a_row_say_how_it_was_run(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", {"isl": "8192", "osl": "1024"}, {"isl": "2000", "osl": "100"})
    (scenario, other), _ = read_table(path)
    assert scenario.load == Closed("random", 4, 8192, 1024)
    assert other.load == Closed("repeated", 4, 2000, 100)
    assert "--no-enable-prefix-caching" in scenario.flags
    assert scenario.flags[scenario.flags.index("--kv-cache-dtype") + 1] == "fp8"
    assert "--kv-cache-dtype" not in other.flags


def test_clients_send_what_they_say() -> None:
    random = list(asks(CLIENTS["random"], 8, 1000, 100, 16))
    assert 800 <= min(len(ask.prompt) for ask in random) < max(len(ask.prompt) for ask in random) <= 1000
    assert weights(CLIENTS["random"], 8).sum() == pytest.approx(80)
    repeated = list(asks(CLIENTS["repeated"], 64, 320, 100, 16))
    assert counted(CLIENTS["repeated"], 64) == 640
    assert repeated[0].hashes == repeated[100].hashes != repeated[1].hashes
    first, later = list(asks(CLIENTS["agentic"], 2, 1600, 10, 16))[:3:2]
    assert first.output == 1
    assert later.hashes is not None
    assert first.hashes == later.hashes[:90]


def test_half_of_the_rows_is_fitted_and_the_other_half_reported(tmp_path: Path) -> None:
    rows = [{"batch_size": str(2**at), "silicon_tpot_ms": str(5 + at), "silicon_ttft_ms": ""} for at in range(4)]
    cases, skipped = read([table(tmp_path / "t.csv", *rows)])
    outside, inside = validate_split(cases, skipped, 0.5)
    assert [point.id for point in outside.points] == ["row 1", "row 3"]
    assert [point.id for point in inside.points] == ["row 0", "row 2"]
    table_row = validate(cases, skipped).points[1]
    assert abs(outside.points[0].error) < abs(table_row.error)


def test_validate_prints_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "t.csv", {}, {"backend": "sglang"})
    assert validate_command([path], calibrate_on=None, profile=None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"points", "skipped", "mean_abs_error", "median_abs_error"}
    assert set(told["points"][0]) == {"id", "metric", "measured", "emulated", "error"}
    one = told["points"][1]
    assert one["error"] == pytest.approx(one["emulated"] / one["measured"] - 1)
    assert told["skipped"] == [{"id": "row 1", "reason": "backend sglang is not emulated, only vllm."}]
    errors = [abs(point["error"]) for point in told["points"]]
    assert told["mean_abs_error"] == pytest.approx(np.mean(errors))
    assert validate_command([path], calibrate_on=None, profile=None, as_json=False) == 0
    assert "median |error|" in capsys.readouterr().out


def test_a_profile_is_read_as_it_was_written_and_used(tmp_path: Path) -> None:
    reached = replace(usual(989), hw=0.5)
    profile = Profile(
        gpu="h200",
        engine="vllm",
        reached=reached,
        error=Errors(0.01, 0.02, "by time", 0.3),
        source=(Source("run", "00ff", "llama-3.1-8b", 12),),
    )
    save(profile, tmp_path / "p.toml")
    loaded = load(tmp_path / "p.toml")
    assert loaded.label == "calibrated on run, error 2.0% held out"
    assert loaded == replace(profile, reached=replace(reached, fit=loaded.label))
    cases, skipped = read([table(tmp_path / "t.csv", {})])
    with_it, without = validate(cases, skipped, loaded), validate(cases, skipped)
    assert with_it.points[1].emulated > without.points[1].emulated
    (tmp_path / "other.toml").write_text("a = 1\n")
    with pytest.raises(UsageError, match="is no profile"):
        load(tmp_path / "other.toml")


def test_a_profile_of_an_emulated_run_says_so(tmp_path: Path) -> None:
    flags = ["--virtual", "--shape", "300x20", "--agents", "2", "--calls", "24", "--no-text", "--engine"]
    config = config_of([*flags, "emulator --gpu H200 --model llama-3.1-8b"])
    virtual_run(config, load_traces(config.traces), tmp_path / "run")
    source = source_of(tmp_path / "run", read_run_folder(tmp_path / "run"))
    assert source.run == "run (emulated)"
    assert source.calls > 10


def test_every_published_point_can_be_served_or_says_why_not() -> None:
    cases, skipped = shipped()
    assert {case.id.split()[0] for case in cases} | {left.id for left in skipped} == {
        *map(str, (1, 2, *range(5, 18), 22, 23, 24, 25, 26, 29))
    }
    for case in cases:
        Trial(case)
        assert case.source


def test_the_ladder_starts_where_it_was_measured_and_names_what_is_assumed() -> None:
    rungs = climb()
    assert rungs[0].emulated == pytest.approx(6058, rel=1e-3)
    assert factor() > 1
    assert [step.measured for step in rungs[1:-1]] == [None] * 4
    assert rungs[-1].measured == 11840
    print([round(step.emulated) for step in rungs])
    assert rungs[-1].emulated > rungs[0].emulated
    assert all(rung.mechanism and rung.source for rung in ladder().rung)


def test_what_is_usual_falls_with_the_size_of_a_gpu() -> None:
    assert usual(148).hf == 0.9
    assert usual(148).hf > usual(468).hf > usual(989).hf > usual(2250).hf > 0.5
    assert facts.gpu("rtx-5090").reached == usual(210)


@needs_shared
def test_a_recorded_run_is_within_one_per_cent_calibrated_and_twenty_before() -> None:
    case = read_run(SHARED / "rtx4090-llama-3.1-8b")
    trial = Trial(case)
    assert trial.settings.limits.num_gpu_blocks == 2588
    for reached, limit in ((None, 0.01), (usual(trial.settings.gpu.bf16), 0.20)):
        emulated = trial.emulated(reached)
        errors = {metric: value / case.measured[metric] - 1 for metric, value in emulated.items()}
        assert len(errors) == 12
        print({metric: f"{error:+.1%}" for metric, error in errors.items()})
        assert np.mean(np.abs(list(errors.values()))) <= limit


@needs_shared
def test_a_folder_without_blocks_or_with_a_fault_is_told(tmp_path: Path) -> None:
    run = SHARED / "rtx4090-llama-3.1-8b"
    for name in ("requests.csv", "meta.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert len(read_run(tmp_path).measured) == 12
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(UsageError, match="does not say of which GPU it is"):
        read_run(tmp_path)


@needs_shared
def test_rows_of_the_table_are_near_their_constants() -> None:
    cases, _ = read_table(SHARED / "single_gpu_vllm.csv")
    assert len(cases) == 56
    few = [
        case
        for case in cases
        if isinstance(case.load, Closed) and case.load.concurrency <= 4 and "8192x1024" in case.id
    ]
    found = validate(few, [])
    errors = [abs(point.error) for point in found.points if point.metric == "tpot_ms"]
    assert len(errors) >= 3
    assert np.median(errors) < 0.10


def test_what_ships_with_the_project_is_played_whole() -> None:
    """But for the largest. Points 1 and 2: TTFT under load, the errors of `docs/emulator.md`."""
    cases, skipped = shipped()
    found = validate([case for case in cases if not isinstance(case.load, Closed) or case.load.concurrency < 256], [])
    assert {point.id.split()[0] for point in found.points} == {case.id.split()[0] for case in cases}
    assert {one.id for one in skipped} == {"26"}
    errors = {(point.id, point.metric): point.error for point in found.points if point.id in ("1", "2")}
    assert len(errors) == 6
    assert max(map(abs, errors.values())) < 0.065
