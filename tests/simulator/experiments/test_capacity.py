"""`windtunnel capacity` on the emulator: the number that trying all numbers gives, as a sentence and as JSON."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.core import ParameterSource
from click.testing import CliRunner

from windtunnel.simulator.cli import run
from windtunnel.simulator.cli_capacity import capacity
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.backends import Virtual
from windtunnel.simulator.experiments.capacity_text import printed
from windtunnel.simulator.experiments.carried import Carries, Configuration, Versus
from windtunnel.simulator.experiments.configurations import asked
from windtunnel.simulator.experiments.plan import Step
from windtunnel.simulator.results.summary_model import SloResult, encode_summary
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.traces.errors import EngineError, UsageError
from windtunnel.traces.sources import load

WORKLOAD = ("--shape", "6000x80", "--duration", "60", "--ramp", "1", "--pace", "none", "--no-text")
ENGINE = "emulator --gpu L40S --model llama-3.1-8b --max-model-len 8192 --num-gpu-blocks-override 1600"
MOST = 8


def found(folder: Path, slo: str, *, first: int = 3) -> cap.Capacity:
    config = config_of([*WORKLOAD, "--slo", slo])
    loaded = load(config.traces)
    runner = Virtual(config, loaded, lambda _: None)
    readings = cap.Readings(runner, Step(name="engine", command=ENGINE), folder, 0, lambda _: None)
    edge = asyncio.run(cap.find(readings, first=first, most=MOST, repeats=1, resolution=0.0))
    answer = cap.answer(edge, slo=slo, pace="busy", emulated=readings.emulated, folder=folder)
    if not list(folder.glob("swept")):
        return answer

    async def sweep() -> int:
        met = [(await readings.measure(agents, 0)).met for agents in range(1, MOST + 1)]
        return met.index(False) if False in met else MOST

    assert answer.agents == asyncio.run(sweep())
    return answer


@pytest.mark.parametrize("slo", ["ttft_s.p90<3", "e2e_s.p90<7"])
def test_it_is_the_number_that_trying_all_numbers_gives(tmp_path, slo):
    (tmp_path / "swept").mkdir()
    answer = found(tmp_path, slo)
    assert 0 < answer.agents < MOST
    assert answer.low <= answer.agents <= answer.high
    assert answer.emulated
    assert answer.limit == "KV capacity"
    assert answer.lever == "--kv-cache-dtype fp8"
    assert answer.untried[:2] == ("--kv-cache-dtype fp8", "--quantization fp8")
    assert not any("parallel" in flags for flags in answer.untried), "what takes other hardware is not tried here"
    assert "may change what the model answers; the emulator expects no more than 25,600 tokens" in (
        answer.lever_note or ""
    )
    # Calls count from their start: the working set is seen to be too large, not only its queue.
    evidence = answer.evidence or ""
    assert f"at {answer.agents + 1} agents: the live sessions' contexts reach" in evidence
    assert "the cache holds 25,600" in evidence
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")}
    assert found(tmp_path, slo, first=9).agents == answer.agents
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/summary.json")} == before


def test_the_sentence():
    known = cap.Capacity(
        agents=18, low=17, high=19, limit="KV capacity", lever="--kv-cache-dtype fp8", points=[],
        slo="ttft_s.p90<3", capped=False, pace="busy", emulated=False, evidence=None, notes=(), runs="r",
    )  # fmt: skip
    assert cap.sentence(known) == (
        "18 busy agents (17 with every seed, 19 with at least one; for people at the recorded pace: --pace recorded) "
        "at ttft_s.p90<3; "
        "next limit KV capacity; try --kv-cache-dtype fp8."
    )


def test_where_not_even_one_meets_it_the_lever_is_named_too():
    known = cap.Capacity(
        agents=0, low=0, high=0, limit="a prefix cache without a hit", lever="--enable-prefix-caching", points=[],
        slo="ttft_s.p90<3", capped=False, pace="busy", emulated=False, evidence=None, notes=(), runs="r",
    )  # fmt: skip
    assert cap.sentence(known) == (
        "Not even one agent meets ttft_s.p90<3. Limit: a prefix cache without a hit; try --enable-prefix-caching."
    )


FP8, WEIGHTS, SHARE = "--kv-cache-dtype fp8", "--quantization fp8", "--gpu-memory-utilization 0.95"


def after(*tried: str, verdict: Carries = "more") -> cap.Capacity:
    """Of a search against whose limit three flags are known; `tried`: those that were searched after it."""
    first = Configuration(name="as asked", command="serve a", target=None, agents=1, low=1, high=2, folder=".")
    versus = Versus(ratio=4.0, low=2.0, high=5.0, verdict=verdict)
    known = cap.Capacity(
        agents=1, low=1, high=2, limit="KV capacity", lever=FP8, points=[], slo="ttft_s.p90<3", capped=False,
        pace="busy", emulated=False, evidence=None, notes=("before",), runs="r", untried=(FP8, WEIGHTS, SHARE),
    )  # fmt: skip
    rows = [
        Configuration(
            name=f"with {flags}", command=f"serve a {flags}", target=None, agents=4, low=4, high=5, tried=True,
            folder=f"try-{at}", versus_first=versus,
        )
        for at, flags in enumerate(tried)
    ]  # fmt: skip
    return known.beside((first, *rows) if rows else (), (), "r")


def test_levers_that_were_not_tried_are_named_and_how_to_ask_for_them():
    found = after(FP8)
    assert found.untried == (WEIGHTS, SHARE)
    said = (
        f"not tried: {WEIGHTS}; {SHARE}: one of them may carry more; leave --try out and ask for each with an "
        f'--engine of its own beside the plain one, --engine "..." --engine "... {WEIGHTS}"'
    )
    assert found.notes == ("before", said)
    assert f"\nnote: {said}\n" in printed(found)
    told = json.loads(printed(found, as_json=True))
    assert (told["untried"], told["notes"][-1]) == ([WEIGHTS, SHARE], said)
    again = msgspec.json.decode(msgspec.json.encode(found), type=cap.Capacity)
    assert (again.untried, again.notes) == (found.untried, found.notes), "read back it says so once"


def test_where_all_levers_were_tried_or_none_was_asked_for_nothing_is_missing():
    assert after(FP8, WEIGHTS, SHARE, verdict="no_difference_shown").untried == ()
    assert after(FP8, WEIGHTS, SHARE).notes == ("before",)
    assert after().untried == (FP8, WEIGHTS, SHARE)
    assert after().notes == ("before",)


def test_the_sentence_says_what_its_lever_costs():
    known = cap.Capacity(
        agents=18, low=18, high=18, limit="KV capacity", lever="--kv-cache-dtype fp8", lever_note="slower (+15%)",
        points=[], slo="ttft_s.p90<3", capped=False, pace="busy", emulated=True, evidence=None, notes=(),
        runs="r",
    )  # fmt: skip
    assert cap.sentence(known).endswith("; try --kv-cache-dtype fp8 (slower (+15%)).")


@pytest.mark.parametrize(
    ("pace", "says"),
    [
        ("busy", "18 busy agents (for people at the recorded pace: --pace recorded) at"),
        ("typical", "18 typical agents (for people at the recorded pace: --pace recorded) at"),
        ("recorded", "18 agents at"),
        ("none", "18 agents at"),
    ],
)
def test_busy_agents_are_no_number_of_people_and_it_says_how_to_ask_for_these(pace, says):
    known = cap.Capacity(
        agents=18, low=18, high=18, limit=None, lever=None, points=[], slo="ttft_s.p90<3", capped=False, pace=pace,
        emulated=False, evidence=None, notes=(), runs="r",
    )  # fmt: skip
    assert cap.sentence(known).startswith(says)
    assert "people" not in json.loads(printed(known, as_json=True))


def test_its_help_speaks_of_the_search_and_not_of_one_run():
    said = " ".join(CliRunner().invoke(capacity, ["--help"]).output.split())
    assert "Where the search begins." in said
    assert "--slo EXPR Service level to be met (default: ttft_s.p90<3,tpot_s.p90<0.05)." in said
    assert "Print the answer as JSON." in said
    assert "--virtual As always here with the emulator: on the virtual clock. Other engines are refused." in said
    assert "--no-text As always here: what the models write is not kept." in said
    for words in ("Print summary.json", "Sessions that run side by side", "Run folder"):
        assert words not in said
    assert cap.DEFAULT_SLO in said
    assert "Print summary.json" in " ".join(CliRunner().invoke(run, ["--help"]).output.split())


def test_each_flag_that_it_takes_stands_in_its_help():
    said = CliRunner().invoke(capacity, ["--help"]).output
    missing = [p.opts[0] for p in capacity.params if isinstance(p, click.Option) and p.opts[0] not in said.split()]
    assert missing == []


def test_virtual_is_the_same_question_and_another_engine_is_refused(tmp_path):
    folder = tmp_path / "o"
    words = ["--shape", "1000x20", "--duration", "2", "--ramp", "0", "--pace", "none", "--repeats", "1", "--most", "1"]
    words += ["--engine", ENGINE, "--agents", "1", "--out", str(folder), "--json"]
    for more in ([], ["--virtual"]):
        ran = CliRunner().invoke(capacity, [*words, *more])
        assert (ran.exit_code, ran.exception) == (0, None)
        assert json.loads(ran.stdout)["agents"] == 1
    assert json.loads((folder / "capacity.json").read_text())["workload"]["virtual"] is False
    for other in (["--engine", "vllm serve x --port {port}"], ["--target", "http://127.0.0.1:9"]):
        ran = CliRunner().invoke(capacity, ["--shape", "10x2", *other, "--virtual", "--out", str(tmp_path / "other")])
        assert isinstance(ran.exception, UsageError)
        assert "--virtual" in str(ran.exception)
    assert not (tmp_path / "other").exists()


def test_the_command_prints_the_contracts_json(tmp_path):
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "capacity", *WORKLOAD[:-1], "--engine", ENGINE]
    more = [
        "--slo",
        "ttft_s.p90<3",
        "--agents",
        "3",
        "--most",
        "8",
        "--repeats",
        "1",
        "--json",
        "--out",
        tmp_path / "o",
    ]
    ran = subprocess.run([*command, *map(str, more)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    assert {"agents", "low", "high", "limit", "lever", "points"} <= data.keys()
    assert "times +-" in data["emulation"]
    assert {"agents", "slo_share", "output_tokens_per_s", "kv_usage"} <= data["points"][0].keys()
    assert "OUTSIDE" in ran.stderr
    assert (tmp_path / "o" / "agents-0003-seed-0" / "summary.json").exists()
    assert json.loads((tmp_path / "o" / "answer.json").read_text()) == data


class StandIn:
    """Runs that come out as they are told to; `dies_at` agents the engine ends without having answered."""

    def __init__(self, made, reasons, *, dies_at: int = 10**9):
        self.made, self.reasons, self.dies_at = made, reasons, dies_at

    async def run(self, step: Step, seed: int, out: Path, *, agents: int | None = None) -> None:
        assert agents is not None
        measured = self.made("s", seed, 0, 100.0, reasons=self.reasons(agents))
        gone = agents >= self.dies_at
        slo = SloResult(conditions=(), met=agents <= 5, calls_inside=1, calls_judged=1, share=1.0)
        summary = msgspec.structs.replace(
            measured.summary, slo=slo, window_s=60.0, status="failed" if gone else "completed"
        )
        out.mkdir()
        (out / "run.json").write_bytes(msgspec.json.encode(measured.run))
        (out / "events.jsonl").write_bytes(b'{"type":"run_start","agents":1,"wall_clock":0.0,"t":0,"seq":1}\n')
        (out / "summary.json").write_bytes(encode_summary(summary))
        if gone:
            raise EngineError("the engine ended before it answered a call: out of memory")

    async def close(self) -> None:
        pass


def answered(tmp_path: Path, runner: StandIn, *, duration_s: float | None = None) -> cap.Capacity:
    readings = cap.Readings(runner, Step(name="engine", command="x"), tmp_path, 0, lambda _: None)
    edge = asyncio.run(cap.find(readings, first=4, most=64, repeats=1, resolution=0.0))
    return cap.answer(edge, slo="ttft_s.p90<3", pace="none", emulated=False, folder=tmp_path, duration_s=duration_s)


def test_where_the_client_gives_out_first_the_engine_may_carry_more(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda agents: ("client_lag",) if agents > 5 else ()))
    assert (answer.agents, answer.capped) == (5, True)
    assert cap.sentence(answer).startswith("At least 5 agents")
    assert answer.notes == ("from 6 agents on the client was late: those runs are not valid",)


def test_a_run_of_survivors_does_not_meet_the_level(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda agents: ("failures",) if agents > 3 else ()))
    assert (answer.agents, answer.capped) == (3, False)
    assert any("survivors look fast" in note for note in answer.notes)


def test_runs_that_never_became_steady_are_told_with_how_long_they_should_be(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda agents: ("trend",) if agents in (5, 6) else ()), duration_s=300.0)
    assert (answer.agents, answer.not_valid) == (5, 2)
    assert answer.notes[0] == (
        "2 of 4 runs are NOT VALID: in 2, throughput or the KV cache in use was still rising or falling in the window"
    )
    assert answer.notes[1] == (
        "the answer may be too high: from 5 agents on 1 of 1 run that met the level had not become steady and might "
        "have left it later; give --duration 10m, twice as long"
    )
    assert [(point["agents"], point["valid"], point["not_valid"]) for point in answer.points] == [
        (4, 1, False),
        (5, 0, True),
        (6, 0, True),
        (8, 1, False),
    ]
    text = printed(answer)
    assert (answer.not_steady, answer.deciding) == (1, 1)
    assert text.startswith("5 agents (not steady: may be too high, by 1 of 1 deciding run) at ")
    marked = [line.split()[0] for line in text.splitlines() if line.endswith("NOT VALID")]
    assert marked == ["5", "6"]


def test_a_trend_below_the_answer_or_of_runs_outside_the_level_does_not_make_it_too_high(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda agents: ("trend",) if agents in (4, 6) else ()))
    assert len(answer.notes) == 1
    assert answer.notes[0].startswith("2 of 4 runs are NOT VALID: in 2, throughput")


def test_where_the_runs_have_no_length_they_are_to_go_on_for_longer(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda _: ("trend",)))
    assert answer.notes[1].endswith("; let the runs go on for longer, twice as long")


def test_an_engine_that_dies_of_a_number_does_not_carry_it(tmp_path, made):
    answer = answered(tmp_path, StandIn(made, lambda _: (), dies_at=3))
    assert answer.agents == 2


def test_what_a_kill_left_before_a_run_had_begun_is_moved_aside(tmp_path, made):
    left = tmp_path / "agents-0004-seed-0"
    left.mkdir()
    (left / "events.jsonl").write_bytes(b"")
    assert answered(tmp_path, StandIn(made, lambda _: ())).agents == 5
    assert (left / "summary.json").exists()
    assert (tmp_path / "agents-0004-seed-0.left-1" / "events.jsonl").exists()


def claim(folder: Path, config, step: Step) -> None:
    with cap.claimed(folder, config, step):
        pass


def test_a_search_is_not_gone_on_with_where_the_profile_was_changed(tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text("step_ms = 1.0")
    step, config = Step(name="engine", command=f"{ENGINE} --profile={profile}"), config_of(WORKLOAD)
    claim(tmp_path / "o", config, step)
    (tmp_path / "o" / "agents-0001-seed-0").mkdir()
    (tmp_path / "o" / "agents-0001-seed-0" / "run.json").write_text("{}")
    claim(tmp_path / "o", config, step)
    profile.write_text("step_ms = 20.0")
    with pytest.raises(UsageError, match="another engine, workload or level"):
        claim(tmp_path / "o", config, step)


def test_a_folder_with_runs_of_another_level_is_refused(tmp_path):
    step = Step(name="engine", command=ENGINE)
    claim(tmp_path / "o", config_of([*WORKLOAD, "--slo", "ttft_s.p90<3"]), step)
    claim(tmp_path / "o", config_of([*WORKLOAD, "--slo", "ttft_s.p90<3", "--agents", "9", "--seed", "4"]), step)
    (tmp_path / "o" / "agents-0001-seed-0").mkdir()
    (tmp_path / "o" / "agents-0001-seed-0" / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="another engine, workload or level"):
        claim(tmp_path / "o", config_of([*WORKLOAD, "--slo", "ttft_s.p90<4"]), step)
    with pytest.raises(UsageError, match="another engine, workload or level"):
        claim(tmp_path / "o", config_of([*WORKLOAD, "--slo", "ttft_s.p90<3"]), Step(name="e", command="emulator"))


def settled(*words: str, engine: tuple[str, ...] = ("emulator",)) -> RunConfig:
    """The workload that the command makes of its flags."""
    context = capacity.make_context("capacity", [*words, *(w for e in engine for w in ("--engine", e))])
    flags = {key: value for key, value in context.params.items() if key != "as_json"}
    named = {key for key in flags if context.get_parameter_source(key) is ParameterSource.COMMANDLINE}
    return asked(flags, named, default_slo=cap.DEFAULT_SLO).workload


def test_windows_are_long_where_only_the_emulator_is_asked():
    vllm = "vllm serve m --port {port}"
    assert settled("library").duration_s == 1200.0
    assert settled("library", engine=("emulator", "emulator --gpu H200")).duration_s == 1200.0
    assert settled("library", "--duration", "5m").duration_s == 300.0
    assert settled("library", "--sessions", "4").duration_s is None
    assert settled("library", engine=(vllm,)).duration_s == 300.0
    assert settled("library", engine=("emulator", vllm)).duration_s == 300.0
    said = " ".join(CliRunner().invoke(capacity, ["--help"]).output.split())
    assert "(default 1200 on the emulator alone, else 300)" in said


def test_an_experiment_keeps_the_window_that_stands_in_it(tmp_path):
    file = tmp_path / "e.toml"
    steps = '[engine]\nname = "a"\ncommand = "emulator"\n[[variants]]\nname = "b"\nset = { "--max-num-seqs" = 9 }\n'
    for workload, duration_s in (('duration = "5m"', 300.0), ("sessions = 3", None), ("agents = 4", 1200.0)):
        file.write_text(f"[workload]\n{workload}\n{steps}")
        assert settled(str(file), engine=()).duration_s == duration_s
    real = steps.replace("[[variants]]", "virtual = false\n[[variants]]")
    file.write_text(f"[workload]\nagents = 4\n{real}")
    assert settled(str(file), engine=()).duration_s == 300.0


@pytest.mark.parametrize(
    ("words", "warmup"),
    [
        ([], Warmup(calls=2)),
        (["--pace", "typical"], Warmup(calls=2)),
        (["--pace", "recorded"], Warmup(calls=None, seconds=300.0)),
        (["--human-time", "x2"], Warmup(calls=None, seconds=300.0)),
        (["--pace", "recorded", "--human-time", "<=10", "--tool-time", "none"], Warmup(calls=2)),
        (["--pace", "recorded", "--warmup", "3"], Warmup(calls=3)),
        (["--pace", "recorded", "--warmup", "30s"], Warmup(calls=None, seconds=30.0)),
    ],
)
def test_a_warm_up_does_not_wait_for_humans(words, warmup):
    assert settled("library", *words).warmup == warmup
