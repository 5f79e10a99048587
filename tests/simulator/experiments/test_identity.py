"""When two engines are one configuration: by what they tell, and by their commands where they do not tell it."""

from pathlib import Path
from typing import Any

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments.capacity import claimed
from windtunnel.simulator.experiments.digests import digest
from windtunnel.simulator.experiments.experiment import file_name
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.runs import differences, engine_identity, setting_differences

TOLD = {"server_info": True}


def vllm(command: str | None, *, seen: dict[str, bool] = TOLD, target: str = "http://a:1", **resolved: Any) -> str:
    return engine_identity(
        {
            "target": target,
            "config": {"engine": command},
            "engine": {
                "name": "vllm",
                "model": "m",
                "capabilities": seen,
                "resolved": {"cache_config.block_size": 16, **resolved},
            },
        }
    )


def test_equal_settings_are_one_configuration_whatever_its_port_and_flags() -> None:
    one = vllm("vllm serve m --port {port}")
    assert vllm("vllm serve m --max-num-seqs 256 --port {port}", target="http://a:2") == one
    assert vllm("vllm serve m --port {port}", **{"cache_config.num_gpu_blocks": 77}) == one
    assert vllm("vllm serve m --port {port}", **{"cache_config.block_size": 32}) != one


def test_the_environment_is_part_of_a_configuration() -> None:
    assert vllm("OMP_NUM_THREADS=2 vllm serve m") != vllm("OMP_NUM_THREADS=4 vllm serve m")


@pytest.mark.parametrize("flag", ["--num-gpu-blocks-override 20", "--kv-cache-memory-bytes=1000"])
def test_a_kv_cache_that_was_set_is_told_from_one_that_was_found(flag: str) -> None:
    assert vllm(f"vllm serve m {flag}") != vllm("vllm serve m")
    assert vllm(f"vllm serve m {flag} --port 1") == vllm(f"vllm serve m --port 2 {flag}")


def test_an_engine_that_tells_little_is_known_by_its_whole_command_or_its_url() -> None:
    seen = {"server_info": False}
    assert vllm("vllm serve m --max-num-seqs 8", seen=seen) != vllm("vllm serve m --max-num-seqs 9", seen=seen)
    assert vllm("vllm serve m", seen=seen, target="http://a:1") == vllm("vllm serve m", seen=seen, target="http://a:2")
    assert vllm(None, seen=seen, target="http://a:1") != vllm(None, seen=seen, target="http://a:2")


def test_a_path_that_is_no_utf_8_is_a_setting_like_any_other() -> None:
    one, other = (vllm(f"vllm serve /models/m{byte} --port 1", seen={}) for byte in ("\udcff", "\udcfe"))
    assert one != other
    assert one == vllm("vllm serve /models/m\udcff --port 1", seen={})
    told = {"target": None, "config": {"per_tool": {"m\udcff": 1}}, "engine": {"resolved": {"model": ["m\udcff"]}}}
    assert differences(told, {"config": {"per_tool": {"m": 1}}}) == ['per_tool {"m\\\\udcff":1} against {"m":1}']
    assert setting_differences({}, told) == ['model: ["m\\\\udcff"]']


def test_a_search_and_an_experiment_of_such_a_path_have_their_folders(tmp_path: Path) -> None:
    """Paths come in tuples here, and names of steps from a command line."""
    config = config_of(["/traces/\udcff", "--duration", "5"])
    for command in ("emulator --served-model-name \udcff", "emulator"):
        with claimed(tmp_path / file_name(command), config, Step(name="a", command=command)):
            pass
    assert len(list(tmp_path.glob("*/capacity.json"))) == 2
    assert file_name("8 bit \udcff") != file_name("8 bit \udcfe")


def test_digests_of_what_is_plain_are_as_they_were() -> None:
    assert digest({"b": ["ä", 1.5], "a": None}, 4) == "b0148222"
