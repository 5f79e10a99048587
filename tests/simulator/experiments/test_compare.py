"""`windtunnel compare` with the emulator on the virtual clock, and with folders that exist."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
name = "few at a time"
[workload]
shape = "2000x60"
agents = 8
duration = "20s"
ramp = 1
[engine]
command = "emulator --gpu H100 --model qwen3-coder-30b-a3b --max-model-len 8192"
[blocks]
most = 3
[[variants]]
name = "two at a time"
set = { "--max-num-seqs" = 2 }
[[variants]]
name = "as the base"
set = { "--max-num-seqs" = 1024 }
[[variants]]
name = "no room"
set = { "--gpu-memory-utilization" = 0.1 }
[[variants]]
name = "no such length"
set = { "--max-model-len" = 99999999 }
"""


def windtunnel(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windtunnel.simulator.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    (folder / "e.toml").write_text(FILE)
    ran = windtunnel("compare", folder / "e.toml", "--out", folder / "out", "--json")
    assert ran.returncode == 0, ran.stderr
    return folder, ran


def test_verdicts_of_a_batch_limit(done):
    _, ran = done
    outcome = json.loads(ran.stdout)
    base, two, same, none, longer = outcome["steps"]
    found = two["versus_base"]["output_tokens_per_s"]
    assert found["verdict"] == "worse"
    assert found["high"] < 0.9
    assert two["versus_base"]["ttft_s.p90"]["verdict"] == "worse"
    assert same["versus_base"]["output_tokens_per_s"]["verdict"] == "no_difference"
    assert same["notes"] == ["resolves to the same settings as base: one configuration"]
    assert none["failed"].startswith("No available memory for the cache blocks")
    assert longer["failed"].startswith("User-specified max_model_len (99999999) is greater")
    assert len(base["runs"]) == len(two["runs"]) == 3
    assert outcome["emulated"]


def test_started_again_it_runs_nothing_and_says_the_same(done):
    folder, ran = done
    again = windtunnel("compare", folder / "e.toml", "--out", folder / "out", "--json")
    assert again.stdout == ran.stdout
    assert "virtual time" not in again.stderr


def test_folders_that_exist_give_the_same_verdicts(done):
    _, ran = done
    steps = json.loads(ran.stdout)["steps"][:2]
    runs = [run for step in steps for run in step["runs"]]
    found = json.loads(windtunnel("compare", *runs, "--json").stdout)["steps"]
    assert found[1]["versus_base"]["output_tokens_per_s"] == steps[1]["versus_base"]["output_tokens_per_s"]
    text = windtunnel("compare", *runs, "--metric", "output_tokens_per_s", "--fail-if", "worse")
    assert text.returncode == 1
    assert "WORSE" in text.stdout
    assert "EMULATED, nothing of this is measured: vLLM 0.32.0's rules, H100" in text.stdout
    assert "times +-20%" in text.stdout
    assert "block-01/base" in text.stdout


@pytest.mark.parametrize("summed", [True, False])
def test_a_run_whose_events_cannot_all_be_read_does_not_count(done, tmp_path, summed):
    _, ran = done
    runs = json.loads(ran.stdout)["steps"][0]["runs"]
    broken = tmp_path / "broken"
    shutil.copytree(runs[0], broken)
    lines = (broken / "events.jsonl").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"call_end"' in line)
    lines[at] = lines[at].replace('"prompt_tokens":', '"prompt_tokens":-')
    (broken / "events.jsonl").write_text("\n".join(lines) + "\n")
    if not summed:
        (broken / "summary.json").unlink()
    found = windtunnel("compare", *runs[1:], broken)
    assert found.returncode == 0, found.stderr
    assert "not counted: broken: lines of its events could not be read" in " ".join(found.stdout.split())
    assert "3 blocks run, 2 count" in found.stdout


def test_other_workloads_are_refused_with_what_differs(done, tmp_path):
    folder, ran = done
    other = windtunnel(
        *("run", "--virtual", "--shape", "2000x60", "--agents", "4", "--duration", "20", "--out", tmp_path / "r"),
        *("--engine", "emulator --gpu H100 --model qwen3-coder-30b-a3b --max-model-len 8192"),
    )
    assert other.returncode == 0, other.stderr
    ran = windtunnel("compare", folder / "out" / "block-01" / "base", tmp_path / "r")
    assert ran.returncode == 2
    assert "another workload" in ran.stderr
    assert "agents 4 against 8" in ran.stderr or "agents 8 against 4" in ran.stderr


def test_a_dry_run_says_what_it_would_do(done):
    folder, _ = done
    ran = windtunnel("compare", folder / "e.toml", "--dry-run")
    assert ran.returncode == 0
    assert "5 configurations, 3 blocks of each" in ran.stdout
    assert "--max-num-seqs 2" in ran.stdout


def test_a_dry_run_says_it_in_json(done):
    folder, _ = done
    ran = windtunnel("compare", folder / "e.toml", "--dry-run", "--json")
    assert ran.returncode == 0
    said = json.loads(ran.stdout)
    assert [step["name"] for step in said["steps"]][:2] == ["base", "two at a time"]
    assert said["steps"][1]["changes"] == ["--max-num-seqs 2"]
    assert said["steps"][1]["previous"] == "base"
    assert said["steps"][1]["command"].endswith("--max-model-len 8192 --max-num-seqs 2")
    assert said["blocks"] == {"least": 3, "most": 3}
    assert said["metrics"][0] == "output_tokens_per_s"
    assert said["seconds"] == {"least": None, "most": None, "limit": None}
    (folder / "real.toml").write_text(FILE.replace("[engine]", "[engine]\nvirtual = false"))
    said = json.loads(windtunnel("compare", folder / "real.toml", "--dry-run", "--json").stdout)
    assert said["seconds"] == {"least": 1215.0, "most": 1215.0, "limit": None}  # 20 + 1 + 60 s, 5 steps, 3 blocks


@pytest.mark.parametrize("words", [["nothing.toml"], ["runs-of-nobody", "x"]])
def test_what_is_not_there_is_said_in_one_line(tmp_path, words):
    ran = windtunnel("compare", *[tmp_path / word for word in words])
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "Traceback" not in ran.stderr
