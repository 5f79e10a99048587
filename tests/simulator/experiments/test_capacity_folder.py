"""A capacity search's folder: its answer stands in it, and who takes it for a run is told what it is."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from windtunnel.simulator.cli_report import report
from windtunnel.simulator.diagnose import diagnose
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.capacity_text import printed
from windtunnel.simulator.experiments.carried import Configuration, versus
from windtunnel.simulator.experiments.kept import read_outcome
from windtunnel.simulator.report.write import write_calls
from windtunnel.simulator.results import searched
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.why import explain
from windtunnel.traces.errors import UsageError

POINT = {
    "agents": 12, "slo_share": 0.964, "output_tokens_per_s": 331.0, "kv_usage": 0.735,
    "runs": 3, "met": 3, "valid": 2, "not_valid": False,
}  # fmt: skip
FOUND = cap.Capacity(
    agents=12, low=12, high=15, limit="KV capacity", lever="--kv-cache-dtype fp8", points=[POINT],
    slo="ttft_s.p90<3", capped=False, pace="busy", emulated=True, emulation="times +-20%", evidence="at 13 agents: full",
    notes=("8 of 15 runs are NOT VALID",), not_valid=8, beyond="agents-0013-seed-0", runs="runs/elsewhere",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that has ended, with two runs in it."""
    made = tmp_path / "search"
    for run in ("agents-0013-seed-0", "agents-0032-seed-0"):
        (made / run).mkdir(parents=True)
        (made / run / "run.json").write_text("{}")
    (made / searched.PLAN_FILE).write_text('{"work": "0"}')
    cap.keep(FOUND, made)
    return made


def asked(folder: Path) -> list[str]:
    """What each command says that wants a run or an experiment."""
    said = []
    for ask in (diagnose, RunFolder.open, read_outcome, lambda f: explain([str(f)], limit=1, width=80, as_json=False)):
        with pytest.raises(UsageError) as error:
            ask(folder)
        said.append(str(error.value))
    with pytest.raises(UsageError) as error:
        write_calls([folder], folder / "calls.csv")
    return [*said, str(error.value)]


def test_report_prints_the_answer_again_wherever_the_folder_lies(folder):
    moved = folder.rename(folder.with_name("moved"))
    ran = CliRunner().invoke(report, [str(moved)])
    assert ran.exit_code == 0
    assert ran.output == printed(FOUND).replace("runs/elsewhere", str(moved))
    assert ran.output.startswith(
        "12 busy agents (12 with every seed, 15 with at least one; for people at the recorded pace: --pace recorded)"
    )
    assert "      12    3 of 3    2 of 3         96.4%        331    73.5%\n" in ran.output
    assert [path.name for path in moved.iterdir() if path.suffix == ".html"] == []
    assert json.loads((moved / "answer.json").read_text())["limit"] == "KV capacity"


def test_it_has_no_page(folder):
    ran = CliRunner().invoke(report, [str(folder), "--out", str(folder / "page.html")])
    assert isinstance(ran.exception, UsageError)
    assert "which has no page: leave out --out and --open" in str(ran.exception)


def test_the_others_say_what_it_is_and_name_what_prints_it_and_the_run_that_tells(folder):
    expected = (
        f"{folder} is a capacity search and no run: `windtunnel report {folder}` prints its answer; "
        f"for a run give one of those in it, such as {folder / 'agents-0013-seed-0'}"
    )
    assert set(asked(folder)) == {expected}


def test_without_an_answer_they_name_the_command_that_goes_on(folder):
    (folder / "answer.json").unlink()
    for said in asked(folder):
        assert "it has no answer.json yet, and the command that began it prints its answer when given --out" in said
        assert said.endswith(f"such as {folder / 'agents-0032-seed-0'}")
    with pytest.raises(UsageError, match=r"a capacity search without an answer: it has no answer\.json yet"):
        cap.kept(folder)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"agents": "many"}'])
def test_an_answer_that_cannot_be_read_is_told_with_what_to_do(folder, damage):
    (folder / "answer.json").write_text(damage)
    with pytest.raises(UsageError, match=r"cannot be read .*prints its answer when given --out"):
        cap.kept(folder)
    assert searched.in_short(folder) == ""
    assert "is a capacity search and no run" in (searched.instead(folder) or "")


def test_in_short_it_is_the_number_its_range_and_its_limit(folder):
    assert searched.in_short(folder) == "12 agents (12 to 15), next limit KV capacity"


def test_of_several_configurations_the_most_stands_beside_the_first_and_a_run_of_the_first_is_named(tmp_path):
    folder = tmp_path / "search"
    for run in ("search-a/agents-0013-seed-0", "search-b/agents-0032-seed-0"):
        (folder / run).mkdir(parents=True)
        (folder / run / "run.json").write_text("{}")
    (folder / searched.PLAN_FILE).write_text('{"work": "0"}')
    first = Configuration(name="a", command="x", target=None, agents=12, low=12, high=15, folder="search-a")
    other = Configuration(
        name="with fp8", command="y", target=None, agents=17, low=16, high=17, folder="search-b",
        versus_first=versus(first, replace(first, agents=17, low=16, high=17), None),
    )  # fmt: skip
    cap.keep(replace(FOUND, configurations=(first, other, replace(first, name="c", agents=None))), folder)
    assert searched.in_short(folder) == "12 agents (12 to 15), next limit KV capacity; 17 with fp8"
    assert (searched.instead(folder) or "").endswith(f"such as {folder / 'search-a' / 'agents-0013-seed-0'}")
    cap.keep(replace(FOUND, configurations=(first, replace(other, name="8 bit"))), folder)
    assert searched.in_short(folder) == "12 agents (12 to 15), next limit KV capacity; 8 bit: 17"
    cap.keep(replace(FOUND, configurations=(first,)), folder)
    assert searched.in_short(folder) == "12 agents (12 to 15), next limit KV capacity"


def test_another_folder_is_none(tmp_path):
    assert searched.instead(tmp_path) is None
    with pytest.raises(UsageError, match=r"is no run folder: it has no run\.json"):
        RunFolder.open(tmp_path)
