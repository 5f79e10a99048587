"""Experiment files to plans, and every way to write one wrongly."""

from pathlib import Path

import pytest

from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.experiments import statistics as st
from windtunnel.simulator.experiments.metrics import DEFAULT
from windtunnel.simulator.experiments.plan import MOST_BLOCKS, find, load, shipped
from windtunnel.simulator.run.virtual import emulator_flags
from windtunnel.traces.errors import UsageError

LADDER = """
name = "two rungs"
[workload]
shape = "512x512"
agents = 256
duration = "5m"
slo = "ttft_s.p90<3"
[engine]
command = "emulator --gpu H200 --max-num-seqs 256"
[[ladder]]
name = "drafts"
env = { OMP_NUM_THREADS = "1" }
set = { "--speculative-config" = { method = "mtp", num_speculative_tokens = 3 } }
why = "several tokens a step"
[[ladder]]
name = "half state"
set = { "--mamba-ssm-cache-dtype" = "float16" }
unset = ["--max-num-seqs"]
lossy = true
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "e.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_ladders_steps_stand_on_each_other(written):
    plan = load(written(LADDER))
    assert plan.name == "two rungs"
    assert plan.workload.traces == ("shape:512x512",)
    assert (plan.workload.agents, plan.workload.duration_s, plan.workload.slo) == (256, 300.0, "ttft_s.p90<3")
    assert [step.name for step in plan.steps] == ["base", "drafts", "half state"]
    assert [step.previous for step in plan.steps] == [None, 0, 1]
    drafts = """--speculative-config '{"method":"mtp","num_speculative_tokens":3}'"""
    assert [step.command for step in plan.steps] == [
        "emulator --gpu H200 --max-num-seqs 256",
        f"OMP_NUM_THREADS=1 emulator --gpu H200 --max-num-seqs 256 {drafts}",
        f"OMP_NUM_THREADS=1 emulator --gpu H200 {drafts} --mamba-ssm-cache-dtype float16",
    ]
    assert plan.steps[2].changes == ("--mamba-ssm-cache-dtype float16", "without --max-num-seqs")
    assert [step.lossy for step in plan.steps] == [False, False, True]
    assert plan.virtual
    assert (plan.least, plan.width, plan.matters, plan.interleaved) == (3, None, 0.05, True)


def test_the_budget_follows_from_the_noise_of_real_runs_the_effect_and_the_size_of_the_table(written):
    ladder = load(written(LADDER))
    two = load(written('[[variants]]\nname = "x"\nset = { "--a" = 1 }'))
    assert ladder.most == st.blocks_needed(st.RUN_NOISE, 0.05, 3 * len(DEFAULT))
    assert two.most == st.blocks_needed(st.RUN_NOISE, 0.05, len(DEFAULT))
    assert two.most <= ladder.most
    one = load(written('metrics = ["output_tokens_per_s"]\n[[variants]]\nname = "x"\nset = { "--a" = 1 }'))
    assert one.most < two.most
    wide = load(written('[blocks]\nmatters = "20%"\n[[variants]]\nname = "x"\nset = { "--a" = 1 }'))
    assert 3 <= wide.most < two.most
    fine = load(written('[blocks]\nmatters = "0.5%"\n[[variants]]\nname = "x"\nset = { "--a" = 1 }'))
    assert fine.most == MOST_BLOCKS
    said = load(written('[blocks]\nleast = 30\nwidth = "2%"\n[[variants]]\nname = "x"\nset = { "--a" = 1 }'))
    assert (said.least, said.most, said.width) == (30, 30, 0.02)


def test_variants_stand_side_by_side(written):
    plan = load(written(LADDER.replace("[[ladder]]", "[[variants]]")))
    assert [step.previous for step in plan.steps] == [None, 0, 0]
    assert plan.steps[2].command == "emulator --gpu H200 --mamba-ssm-cache-dtype float16"


def test_a_grid_is_all_combinations(written):
    plan = load(written('[engine]\ncommand = "vllm serve m --port {port}"\n[grid]\n"--a" = [1, 2]\n"--b" = ["x", "y"]'))
    assert [step.name for step in plan.steps] == ["base", "a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]
    assert plan.steps[3].command == "vllm serve m --port {port} --a 2 --b x"
    assert not plan.virtual


def test_steps_of_another_file_under_another_workload(written):
    written(LADDER, "steps.toml")
    plan = load(written('steps_from = "steps.toml"\n[workload]\nagents = 32'))
    assert [step.name for step in plan.steps] == ["base", "drafts", "half state"]
    assert (plan.workload.traces, plan.workload.agents) == (("library",), 32)


def test_a_running_server_beside_a_command(written):
    plan = load(written('[[variants]]\nname = "there"\ntarget = "http://gpu:8000"'))
    assert (plan.steps[1].command, plan.steps[1].target) == (None, "http://gpu:8000")
    assert not plan.virtual


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name =", "is no TOML"),
        ("[workload]\nagents = " + "[" * 2000, "is no TOML: it is nested too deep"),
        ("[workload]\nagents = " + "{a=" * 2000, "is no TOML: it is nested too deep"),
        ("[workload]\nagents = " + "9" * 5000, "is no TOML: it has a number of too many digits"),
        ('steps_from = "\\u0000"', r"steps_from is '\\x00', which is no file's name; correct it"),
        ("[workload]\nagent = 3", r"\[workload\] No such option '--agent'"),
        ('[workload]\nagents = "x"', r"\[workload\] Invalid value for '--agents'"),
        ('[workload]\ntraces = "a"\nshape = "5x5"', r"\[workload\] --shape 5x5 stands in place of traces"),
        ('[workload]\ntarget = "http://x"', "workload.target is not the workload's"),
        ("[workload]\nvirtual = false", "workload.virtual is not the workload's"),
        ('name = "nothing to compare"', "has one configuration, nothing to compare"),
        ("[workload]\nhelp = true", "No such option '--help'"),
        ('steps_from = "x.toml"\n[grid]\n"--a" = [1]', "steps_from brings the steps"),
        ('[[variants]]\nname = "x"\ntarget = "http://a"\nset = { "--a" = 1 }', "has a target, which runs already"),
        ('[engine]\ntarget = "http://a"\nenv = { A = "1" }', "take engine.env out"),
        ('[[ladder]]\nnam = "x"', r"unknown field `nam`, in ladder\[0\]"),
        ('[[ladder]]\nname = "x"\nset = { max = 3 }', "step 'x' sets 'max'; write it as a flag, --max"),
        ('[[ladder]]\nname = "a"\n[[variants]]\nname = "b"', "ladder and variants exclude each other"),
        ('[[ladder]]\nname = "base"', "two steps are named 'base'"),
        ("[engine]\ncommand = 3", "in engine.command"),
        ('[engine]\ncommand = "vllm serve \'m"', "the quotes do not match"),
        ('[engine]\ncommand = "vllm serve m --port {port}"\nvirtual = true', "engine.virtual is for the emulator only"),
        ('[engine]\ntarget = "http://x"\n[[ladder]]\nname = "a"\nset = { "--b" = 1 }', "a server known by its URL"),
        ("[blocks]\nleast = 2", "blocks.least must be 3"),
        ('[blocks]\nwidth = "wide"', "blocks.width wide: expected a share"),
        ('[blocks]\norder = "any"', "write interleaved or blocked"),
        ('steps_from = "none.toml"', "none.toml cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(written, text, said):
    path = written(text)
    with pytest.raises(UsageError, match=said) as caught:
        load(path)
    assert str(path.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_shipped_experiment_is_one_that_the_emulator_can_run():
    assert {"ladder-512", "ladder-agents", "prefix-cache", "batch-limits", "kv-dtype", "kv-offload"} < shipped().keys()
    for name in shipped():
        plan = load(find(Path(name)))
        assert plan.virtual
        assert len(plan.steps) > 1
        for step in plan.steps:
            environ, flags = emulator_flags(step.command)
            assert parse(flags, environ).ignored == (), (name, step.name)


def test_both_ladders_have_the_same_steps_but_not_the_same_work():
    calls, agents = (load(find(Path(name))) for name in ("ladder-512", "ladder-agents"))
    assert calls.steps == agents.steps
    assert (calls.workload.traces, calls.workload.agents) == (("shape:512x512",), 256)
    assert (agents.workload.traces, agents.workload.agents) == (("library",), 32)


def test_an_experiment_that_is_nowhere_names_the_shipped_ones():
    with pytest.raises(UsageError, match=r"nothing does not exist; .*ladder-512"):
        find(Path("nothing"))
