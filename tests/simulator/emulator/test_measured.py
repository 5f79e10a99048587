"""Measured runs that say too little, or what the emulator cannot take over, are refused or named, never half read."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.measured import Case, Closed
from windtunnel.simulator.emulator.measured_run import read_run
from windtunnel.simulator.emulator.profile import Errors, Profile
from windtunnel.simulator.emulator.reached import usual
from windtunnel.simulator.emulator.run_folder import read_run_folder
from windtunnel.simulator.emulator.validate import read, validate
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load

HEAD = "request,arrival_s,input_tokens,output_tokens,first_token_s,last_token_s"
META = {"gpu": "H100", "model": "meta-llama/Llama-3.1-8B", "engine_kwargs": {}}


def recorded(folder: Path, *lines: str, head: str = HEAD, blocks: str = "", **kwargs: Any) -> Path:
    folder.mkdir()
    (folder / "requests.csv").write_text("\n".join([head, *lines]))
    (folder / "meta.json").write_text(json.dumps(META | {"engine_kwargs": kwargs}))
    if blocks:
        (folder / "blocks.jsonl").write_text(blocks)
    return folder


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("0,0,100,10,nan,2", "a figure that is no number"),
        ("0,inf,100,10,1,2", "a figure that is no number"),
        ("0,0,0,10,1,2", "no tokens in or out"),
        ("0,3,100,10,1,2", "do not follow each other"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"line 3.*{why}"):
        read_run(recorded(tmp_path / "r", "0,0,100,10,1,2", line))


def test_one_clock_for_all_requests(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", "0,0,100,10,1,2,0.1", "1,1,100,10,2,3,", head=HEAD + ",queued_s")
    with pytest.raises(UsageError, match="queued_s in some lines only"):
        read_run(folder)


def test_blocks_may_be_named_by_hashes_of_any_length(tmp_path: Path) -> None:
    same, other = 2**63 + 5, 7
    blocks = "\n".join(json.dumps({"request": n, "input_blocks": [same, other + n]}) for n in range(2))
    case = read_run(recorded(tmp_path / "r", "0,0,32,10,1,2", "1,1,32,10,2,3", blocks=blocks))
    one, two = (ask.prompt for ask in case.load.asks)  # type: ignore[union-attr]
    assert (one[:16] == two[:16]).all()
    assert not (one[16:] == two[16:]).any()


@pytest.mark.parametrize(
    "kwargs", [{"speculative_config": {"method": "ngram"}}, {"pipeline_parallel_size": 2}, {"data_parallel_size": 4}]
)
def test_arguments_that_are_not_taken_over_are_no_reason_to_go_on(tmp_path: Path, kwargs: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(kwargs))} is .* not modelled"):
        read_run(recorded(tmp_path / "r", "0,0,100,10,1,2", **kwargs))
    plain = {"pipeline_parallel_size": 1, "speculative_config": None, "enable_chunked_prefill": True}
    assert read_run(recorded(tmp_path / "plain", "0,0,100,10,1,2", **plain)).gpu == "h100"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("""--speculative-config '{"method":"ngram","num_speculative_tokens":2}'""", "speculated"),
        ("--num-gpu-blocks-override 520", "had preemptions"),
    ],
)
def test_runs_of_which_too_little_is_recorded_fit_nothing(tmp_path: Path, flags: str, why: str) -> None:
    config = config_of(["--shape", "2000x400", "--agents", "8", "--pace", "none", "--calls", "24", "--no-text"])
    engine = f"emulator --gpu H100 --model llama-3.1-8b --max-model-len 4096 {flags}"
    virtual_run(replace(config, engine=engine), load(config.traces), tmp_path / "r")
    with pytest.raises(UsageError, match=why):
        read_run_folder(tmp_path / "r")


def case(**how: Any) -> Case:
    flags = ("--gpu", "h100", "--model", "llama-3.1-8b", "--max-model-len", "4096")
    return Case(id="a", flags=flags, gpu="h100", model="llama-3.1-8b", **how)


def test_a_figure_that_cannot_be_emulated_is_among_what_was_skipped() -> None:
    one = case(load=Closed("repeated", 2, 500, 1), measured={"ttft_ms": 20.0, "tpot_ms": 5.0})
    found = validate([one], [])
    assert [point.metric for point in found.points] == ["ttft_ms"]
    assert [(left.id, left.reason.split()[0]) for left in found.skipped] == [("a", "tpot_ms")]


def test_a_profiles_figures_are_used_as_its_constants_are() -> None:
    one = case(load=Closed("repeated", 64, 500, 50), measured={"tpot_ms": 5.0})
    bare = Profile(gpu="h100", engine="vllm", reached=usual(facts.gpu("h100").bf16), error=Errors(0.1), source=())
    slow = Profile(
        gpu="h100",
        engine="vllm",
        reached=usual(facts.gpu("h100").bf16),
        error=Errors(0.1),
        source=(),
        figures={"cpu_step_ms": 90.0},
    )
    fast, late = (validate([one], [], profile).points[0].emulated for profile in (bare, slow))
    assert late > 2 * fast


def test_a_foreign_table_in_a_folder_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    recorded(tmp_path / "r", "0,0,100,10,1,2")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    cases, skipped = read([tmp_path])
    assert [found.id for found in cases] == ["r"]
    assert [(left.id, "has no column id" in left.reason) for left in skipped] == [("other.csv", True)]
    with pytest.raises(UsageError, match="has no column id"):
        read([tmp_path / "other.csv"])
