"""`windtunnel capacity` of several configurations, and with `--try`: the same sessions, each search in its folder."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from windtunnel.simulator.cli_capacity import capacity
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.cli_report import report
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.capacity_text import printed
from windtunnel.simulator.experiments.configurations import NAMED
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.experiments.searching import RUNS_ALREADY, Beside, Question
from windtunnel.simulator.experiments.tries import Tries, Try
from windtunnel.simulator.results.summary_model import SloResult, encode_summary
from windtunnel.traces.errors import EngineError, UsageError

WORKLOAD = [
    "--shape",
    "1000x150",
    "--duration",
    "60",
    "--warmup",
    "1",
    "--ramp",
    "0",
    "--pace",
    "none",
    "--slo",
    "ttft_s.p90<1",
]
ENGINE = "emulator --gpu L40S --model llama-3.1-8b --max-model-len 4000"
SMALL, LARGE = (f"{ENGINE} --num-gpu-blocks-override {blocks}" for blocks in (256, 400))
FILE = f"""
name = "room"
[workload]
shape = "1000x150"
duration = "60s"
warmup = "1"
ramp = 0
pace = "none"
slo = "ttft_s.p90<1"
[engine]
name = "small"
command = "{SMALL}"
[[variants]]
name = "large"
set = {{ "--num-gpu-blocks-override" = 400 }}
lossy = true
"""


def asked(*words: str | Path):
    ran = CliRunner().invoke(capacity, [*map(str, words), "--most", "8"])
    assert ran.exception is None, ran.exception
    return ran


def made(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("summary.json"))}


def test_two_engines_and_a_twin_are_asked_the_same_and_the_folder_goes_on(tmp_path):
    words = [*WORKLOAD, "--engine", f"small: {SMALL}", "--engine", f"large: {LARGE}"]
    words += ["--engine", f"same: {SMALL} --kv-cache-dtype auto", "--engine", f"{ENGINE} --no-such", "--agents", "3"]
    ran = asked(*words, "--json", "--out", tmp_path / "o")
    data = json.loads(ran.stdout)
    small, large, same, none = data["configurations"]
    assert [row["name"] for row in data["configurations"]] == ["small", "large", "same", "engine 4"]
    assert (data["agents"], data["low"], data["high"]) == (small["agents"], small["low"], small["high"])
    assert large["low"] > small["high"]
    assert large["versus_first"]["verdict"] == "more"
    assert large["versus_first"]["ratio"] == large["agents"] / small["agents"]
    assert large["limit"] is not None
    assert same["same_as"] == "small"
    assert "--no-such" in none["failed"]
    assert (small["versus_first"], same["versus_first"], none["agents"]) == (None, None, None)
    at = next(point for point in data["points"] if point["agents"] == small["agents"])
    assert (small["output_tokens_per_s"], small["kv_usage"]) == (at["output_tokens_per_s"], at["kv_usage"])
    runs = made(tmp_path / "o")
    seeds = [
        {run.split("/")[1][-6:] for run in runs if run.startswith(f"search-{name}/")} for name in ("small", "large")
    ]
    assert seeds == [{"seed-0", "seed-1", "seed-2"}] * 2
    assert sorted(path.name for path in (tmp_path / "o").glob("search-*")) == ["search-large", "search-small"]
    assert json.loads((tmp_path / "o" / "answer.json").read_text()) == data
    assert json.loads((tmp_path / "o" / "search-large" / "answer.json").read_text())["agents"] == large["agents"]
    again = asked(*words, "--json", "--out", tmp_path / "o")
    assert json.loads(again.stdout) == data
    assert made(tmp_path / "o") == runs
    told = CliRunner().invoke(report, [str(tmp_path / "o")]).output
    assert told.startswith(f"small: {small['agents']} agents")
    assert "carries more" in told
    other = CliRunner().invoke(capacity, [*words, "--slo", "ttft_s.p90<2", "--out", str(tmp_path / "o")])
    assert isinstance(other.exception, UsageError)
    assert "another workload or level" in str(other.exception)


def test_an_experiment_as_compare_takes_it(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    ran = asked(tmp_path / "e.toml", "--repeats", "1", "--agents", "4", "--json", "--out", tmp_path / "o")
    data = json.loads(ran.stdout)
    assert [row["name"] for row in data["configurations"]] == ["small", "large"]
    assert data["slo"] == "ttft_s.p90<1"
    large = data["configurations"][1]
    assert large["lossy"] is True
    assert large["versus_first"]["verdict"] == "no_verdict"  # of one seed
    assert "fewer than 3 seeds" in large["versus_first"]["why"]
    changed = asked(
        tmp_path / "e.toml",
        "--repeats",
        "1",
        "--slo",
        "ttft_s.p90<9",
        "--duration",
        "9",
        "--json",
        "--out",
        tmp_path / "p",
    )
    run = json.loads(next((tmp_path / "p").rglob("run.json")).read_text())
    assert (run["config"]["duration_s"], run["config"]["pace"]) == (9.0, "none")
    assert json.loads(changed.stdout)["slo"] == "ttft_s.p90<9"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["e.toml", "--engine", "emulator"], "--engine: the engines stand in e.toml"),
        (["e.toml", "--target", "http://127.0.0.1:9"], "--target: the engines stand in e.toml"),
        (["nothing.toml"], "nothing.toml does not exist; give an experiment file, or one of batch-limits"),
        (["--engine", "emulator", "--engine", "emulator --gpu H200", "--try"], "--try is for one configuration"),
        (["--engine", "a: emulator", "--engine", "a: emulator --gpu H200"], "two are named 'a'"),
        (["--engine", "16 bit: "], "16 bit: has a name and no command"),
        (["--engine", " "], "--engine: it is empty"),
        (["--engine", "emulator", "--target", "http://127.0.0.1:9"], "--target and --engine exclude each other"),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.toml").write_text(FILE)
    ran = CliRunner().invoke(capacity, words)
    assert isinstance(ran.exception, UsageError)
    assert says in str(ran.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["e.toml"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("8 bit: vllm serve m --port {port}", "8 bit"),
        ("vllm serve m --port {port}", None),
        ("A=http://x: vllm serve m", None),
        ("vllm serve m --config x: y", None),
        ("""vllm serve m -sc '{"method": "ngram"}'""", None),
        ("C:\\\\vllm.exe serve", None),
    ],
)
def test_a_name_stands_in_front_of_a_command(text, name):
    found = NAMED.fullmatch(text)
    assert (found and found["name"]) == name


def test_the_lever_is_tried_and_what_it_carries_is_said(tmp_path):
    words = [*WORKLOAD, "--engine", f"{ENGINE} --max-num-seqs 2", "--agents", "3"]
    plain = json.loads(asked(*words, "--json", "--out", tmp_path / "o").stdout)
    assert plain["configurations"] == []
    assert plain["lever"] == "a higher --max-num-seqs"
    before = made(tmp_path / "o")
    ran = asked(*words, "--try", "--out", tmp_path / "o")
    base, tried = json.loads((tmp_path / "o" / "answer.json").read_text())["configurations"]
    assert (base["agents"], base["folder"], base["tried"]) == (plain["agents"], ".", False)
    assert (tried["name"], tried["folder"]) == ("with --max-num-seqs 4", "try-max-num-seqs-4-4818")
    assert tried["command"] == f"{ENGINE} --max-num-seqs 4"
    assert tried["versus_first"]["verdict"] == "more"
    assert tried["low"] > base["high"]
    after = made(tmp_path / "o")
    assert {run: after[run] for run in before} == before  # what was known is not run again
    assert ran.stdout.splitlines()[1].startswith(
        f"{base['agents']} -> {tried['agents']} agents with --max-num-seqs 4: "
    )
    assert ran.stdout.splitlines()[1].endswith(", carries more")
    assert "\ntrying --max-num-seqs 4: seconds for each run, on the virtual clock\n" in ran.stderr


class Machine:
    """Engines in real time, each of which carries what it is told to; the first one something else after a while."""

    def __init__(self, made, carries: dict[str, int], *, later: int | None = None) -> None:
        self.made, self.carries, self.later = made, carries, later
        self.order: list[str] = []

    async def identity(self, step: Step) -> str | None:
        if step.name == "dead":
            raise EngineError("no GPU")
        return None

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None:
        assert agents is not None
        edge = self.carries[step.name]
        if self.later is not None and step.name == "a" and "b" in self.order:
            edge = self.later
        self.order.append(step.name)
        measured = self.made(step.name, seed, 0, 100.0, settings={"x.name": step.name})
        slo = SloResult(conditions=(), met=agents <= edge, calls_inside=1, calls_judged=1, share=1.0)
        out.mkdir()
        (out / "run.json").write_bytes(msgspec.json.encode(measured.run))
        (out / "events.jsonl").write_bytes(b'{"type":"run_start","agents":1,"wall_clock":0.0,"t":0,"seq":1}\n')
        (out / "summary.json").write_bytes(
            encode_summary(msgspec.structs.replace(measured.summary, slo=slo, window_s=60.0))
        )

    async def close(self) -> None:
        pass


def beside(tmp_path: Path, machine: Machine, *names: str) -> cap.Capacity:
    steps = [Step(name=name, command=f"serve {name} --port {{port}}", previous=0) for name in names]
    return asyncio.run(asking(tmp_path, machine).of(steps))


def asking(tmp_path: Path, machine: Machine) -> Beside:
    config = config_of(["--shape", "10x2", "--slo", "ttft_s.p90<3"])
    question = Question(workload=config, most=64, repeats=3, resolution=0.0)
    return Beside(question, tmp_path, lambda _: machine, lambda _: None, first=8)


@pytest.mark.parametrize(
    ("step", "carries", "says"),
    [
        (
            Step(name="a", command=None, target="http://127.0.0.1:9"),
            10,
            RUNS_ALREADY.format("other flags"),
        ),
        (Step(name="a", command="serve a"), 10, "nothing is tried: nothing tells what stops it"),
        (
            Step(name="a", command="serve a"),
            64,
            "nothing is tried: the level held at the most that was tried; give a higher --most",
        ),
    ],
)
def test_where_nothing_can_be_tried_it_is_said_why(tmp_path, made, step, carries, says):
    answer = asyncio.run(asking(tmp_path, Machine(made, {"a": carries})).trying(step))
    assert (answer.agents, answer.notes[-1]) == (carries, says)
    assert [row.name for row in answer.configurations] == ["a"]
    told = printed(answer)
    assert f"\nnote: {says}\n" in told
    assert ("configuration" in told, told.startswith("a: ")) == (False, False)


def test_in_real_time_the_first_is_looked_at_once_more_after_the_others(tmp_path, made):
    machine = Machine(made, {"a": 10, "b": 14})
    first, other, dead = beside(tmp_path, machine, "a", "b", "dead").configurations
    assert (first.again, other.again) == ((10, 10, 10), None)
    assert other.versus_first is not None
    assert other.versus_first.verdict == "more"
    assert dead.failed == "no GPU"
    at = machine.order.index("b")
    assert set(machine.order[:at]) == {"a"}
    assert machine.order[machine.order.index("a", at) :] == ["a"] * 6  # both sides of the edge, three seeds
    assert (tmp_path / "search-a" / "again-after-1" / "agents-0010-seed-2" / "summary.json").exists()


def test_a_machine_that_has_become_faster_meanwhile_is_no_better_configuration(tmp_path, made):
    first, other = beside(tmp_path, Machine(made, {"a": 10, "b": 14}, later=15), "a", "b").configurations
    assert first.again == (15, 15, 15)
    assert other.versus_first is not None
    assert other.versus_first.verdict == "no_difference_shown"
    assert other.versus_first.low == 14 / 15


def test_where_none_starts_the_command_fails_with_the_first_ones_reason(tmp_path, made):
    with pytest.raises(EngineError, match="none of them started; dead: no GPU"):
        beside(tmp_path, Machine(made, {}), "dead")


@pytest.mark.parametrize(
    ("virtual", "each_s", "says"),
    [
        (True, 1.0, "6 s to 2 minutes each (6 to 36 runs; where more agents are carried each takes longer)"),
        (False, 100.0, "10 minutes to 60 minutes each (6 to 36 runs)"),
    ],
)
def test_how_long_trying_takes_is_a_range(tmp_path, made, virtual, each_s, says):
    asked_ = asking(tmp_path, Machine(made, {"a": 10}))
    asyncio.run(asked_._one(Step(name="a", command="serve a"), tmp_path, first=True))
    base = asked_._searched[0]
    readings = tuple((base.edge.readings * 12)[:12])
    run = cap.replace(base.one.runs[0], run={"virtual": virtual})
    one = cap.replace(base.one, runs={0: run})
    base = cap.replace(base, each_s=each_s, one=one, edge=cap.replace(base.edge, readings=readings))
    lever = Try(Step(name="with --x", command="serve a --x"), "--x")
    assert asked_._announced(Tries((lever,), ()), base).startswith(f"trying --x: {says}")
