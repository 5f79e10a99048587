"""Command lines changed flag by flag."""

import pytest

from windtunnel.simulator.engines.command import changed, files_of, flags_of, join, split
from windtunnel.simulator.engines.launch import expand
from windtunnel.simulator.run.virtual import emulator_flags
from windtunnel.traces.errors import UsageError

SERVE = ["vllm", "serve", "some/model", "--max-num-seqs", "256", "--enforce-eager", "--port", "{port}"]


def test_environment_stands_in_front():
    env, words = split("OMP_NUM_THREADS=1 X='a b' vllm serve m --port {port}")
    assert env == {"OMP_NUM_THREADS": "1", "X": "a b"}
    assert words == ["vllm", "serve", "m", "--port", "{port}"]
    assert join(env, words) == "OMP_NUM_THREADS=1 X='a b' vllm serve m --port {port}"
    assert split(join(env, words)) == (env, words)


@pytest.mark.parametrize("bad", ["vllm 'serve", "", "A=1"])
def test_a_command_that_starts_nothing_is_refused(bad):
    with pytest.raises(UsageError):
        split(bad)


def test_a_flag_that_is_set_again_replaces_the_first_in_either_spelling():
    assert changed(SERVE, {"--max_num_seqs": 64}) == [
        *("vllm", "serve", "some/model", "--enforce-eager", "--port", "{port}", "--max_num_seqs", "64")
    ]
    assert changed(["x", "--a=1", "--b", "2"], {"--a": 3}) == ["x", "--b", "2", "--a", "3"]


def test_booleans_tables_and_lists():
    assert changed(["x", "--async-scheduling"], {"--async-scheduling": False}) == ["x", "--no-async-scheduling"]
    assert changed(["x", "--no-async-scheduling"], {"--async-scheduling": True}) == ["x", "--async-scheduling"]
    assert changed(["x", "--eager", "model"], {"--eager": True}) == ["x", "model", "--eager"]
    assert changed(["x"], {"--spec": {"method": "mtp", "n": 3}}) == ["x", "--spec", '{"method":"mtp","n":3}']
    assert changed(["x"], {"--names": ["a", "b"]}) == ["x", "--names", "a", "b"]


def test_what_is_taken_out_goes_with_its_values():
    assert changed(SERVE, {}, ["--max-num-seqs", "--enforce-eager"]) == [
        *("vllm", "serve", "some/model", "--port", "{port}")
    ]


def test_negative_numbers_are_values():
    assert changed(["x", "--n", "-1", "--m", "2"], {"--n": 5}) == ["x", "--m", "2", "--n", "5"]
    assert flags_of(["x", "--n", "-1", "--eager", "--m=2"]) == {"--n": "-1", "--eager": "", "--m": "2"}


def test_a_flag_is_the_same_in_every_spelling():
    short = {"-tp": "--tensor-parallel-size", "-q": "--quantization", "--tp": "--tensor-parallel-size"}
    wanted = {"--tensor-parallel-size": "2", "--quantization": "fp8"}
    for words in ("-tp 2 -q fp8", "-tp=2 -qfp8", "--tp 2 -q=fp8", "--tensor_parallel_size=2 --quantization fp8"):
        assert flags_of(words.split(), short) == wanted
    assert flags_of(["-tp", "2", "-np", "4", "--tp_size=1"]) == {"-tp": "2", "-np": "4", "--tp-size": "1"}
    assert flags_of(["--max-num-seqs", "4", "--max_num_seqs", "8"]) == {"--max-num-seqs": "8"}


def test_the_emulator_is_started_with_an_environment_too():
    words = split(expand("OMP_NUM_THREADS=1 emulator --gpu H100"))
    assert words[0] == {"OMP_NUM_THREADS": "1"}
    assert words[1][-5:] == ["engine", "--gpu", "H100", "--port", "{port}"]


def test_the_virtual_emulator_takes_an_environment_too():
    assert emulator_flags("OMP_NUM_THREADS=4 emulator --gpu H100 --port {port}") == (
        {"OMP_NUM_THREADS": "4"},
        ["--gpu", "H100", "--port", "0"],
    )
    with pytest.raises(UsageError, match="runs the emulator in this process"):
        emulator_flags("OMP_NUM_THREADS=4 vllm serve m")


def test_files_that_a_command_takes_settings_from(tmp_path):
    profile, folder = tmp_path / "p.toml", tmp_path / "model"
    folder.mkdir()
    profile.write_text("step_ms = 1")
    (folder / "config.json").write_text("{}")
    (folder / "weights.safetensors").write_text("x")
    words = [
        "emulator",
        "--profile",
        str(profile),
        f"--model={folder}",
        "--gpu",
        "H200",
        str(tmp_path / "gone.toml"),
        "",
    ]
    found = files_of(words)
    assert set(found) == {str(profile), str(folder)}
    assert files_of(words) == found
    (folder / "weights.safetensors").write_text("y")
    assert files_of(words) == found
    profile.write_text("step_ms = 2")
    changed_now = files_of(words)
    assert changed_now[str(profile)] != found[str(profile)]
    assert changed_now[str(folder)] == found[str(folder)]
    assert files_of(["python", "-m", "engine", "{port}", "a\0b"]) == {}
