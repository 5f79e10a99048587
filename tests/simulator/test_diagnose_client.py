"""A client that was late makes a run's times doubtful. It is what holds a run back only where it takes the time."""

import json
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.diagnose import diagnose, lines
from windtunnel.simulator.results.bottleneck import find, late_client
from windtunnel.simulator.results.breakdown import CallTime, Part
from windtunnel.simulator.results.summary_model import Distribution, EngineSummary, Summary
from windtunnel.simulator.results.why_text import Paper
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.sources import load

S = 1_000_000_000
LAG = Distribution(n=1277, mean=0.0005, p50=0.000228, p90=0.0007, p95=0.0018, p99=0.0051102, max=0.0465)
ENGINE = "emulator --gpu H100 --model qwen3-coder-30b-a3b --quantization fp8 --max-model-len 32768"
WORKERS = "--workers 2 (a flag of windtunnel)"


def summed(*reasons: str, cpu: float | None = None, stolen: float | None = None) -> Summary:
    whole = {field.name: None for field in fields(Summary)}
    whole |= {"invalid_reasons": reasons, "engine": EngineSummary(), "failures": {}}
    whole |= {"client_lag_s": LAG, "client_cpu": cpu, "host_stolen": stolen}
    return Summary(**whole)


def spent(**parts: float) -> CallTime:
    return CallTime("s", 0, 0, 0, 0.0, tuple(Part(name, seconds, "measured") for name, seconds in parts.items()))


def found(summary: Summary, samples: tuple[EngineSample, ...] = (), **parts: float):
    return find(summary, [spent(**parts)], samples, working_set=None, settings={})


@pytest.mark.parametrize("reasons", [("client_lag", "emulator_late"), ("client_cpu",), ("client_lag", "client_cpu")])
def test_the_limit_is_what_takes_the_time_however_late_the_client_was(reasons):
    neck = found(summed(*reasons), client=0.01, decode=7.52, prefill_new=2.47)
    assert (neck.kind, neck.share) == ("decode", pytest.approx(0.752))
    neck = found(summed(*reasons), client=6.0, decode=4.0)
    assert (neck.kind, neck.share) == ("client", pytest.approx(0.6))
    assert neck.evidence == ("60% of the calls' time passes before the client sends them",)


@pytest.mark.parametrize(
    ("name", "share", "said"),
    [
        ("first_token", 0.004, False),
        ("first_token", 0.006, True),
        ("one_piece", 0.004, False),
        ("one_piece", 0.006, True),
    ],
)
def test_of_no_time_at_all_nothing_is_said(name, share, said):
    samples = tuple(EngineSample(t=t * S, scrape_ms=1, waiting=0) for t in range(4))
    neck = found(summed(), samples, decode=1 - share, **{name: share})
    assert neck.kind == "decode"
    assert any("of the calls' time" in text for text in neck.evidence) is said
    assert not any("of 0% of" in text for text in neck.evidence)


def test_what_had_to_make_room_is_told_from_a_percent_on():
    neck = find(
        summed(), [spent(queue=8.0)], [EngineSample(t=0, scrape_ms=1, waiting=3, kv_usage=0.97)], working_set=None,
        settings={}, evicted=0.004,
    )  # fmt: skip
    assert neck.kind == "kv_capacity"
    assert not any(text.startswith("0% of the prompt tokens") for text in neck.evidence)


def test_a_late_client_that_did_little_itself_was_held_up_by_others():
    assert late_client(summed("trend", cpu=0.05)) == ""
    assert late_client(summed("client_lag", cpu=0.055)) == (
        "the client was late, by 0.228 ms at p50 and 5.11 ms at p99 (the limit is 5 ms): single times may be too long "
        "by as much; it used 6% of a core itself: the machine was busy with others"
    )
    assert late_client(summed("client_lag", cpu=0.055, stolen=0.031)).endswith(
        "the machine was busy with others (the host took 3.1% of the cores' time)"
    )
    assert late_client(summed("client_lag")).endswith("by as much; what held it up is not known")


def test_a_busy_client_held_itself_up():
    assert late_client(summed("client_lag", "client_cpu", cpu=0.83)).endswith(
        "it used 83% of a core itself, above the limit of 70%"
    )
    assert late_client(replace(summed("client_cpu", cpu=0.83), client_lag_s=None)) == (
        "the client was late: single times may be too long; it used 83% of a core itself, above the limit of 70%"
    )


def made(folder: Path, *words: str) -> Path:
    config = config_of([*words, "--pace", "none", "--duration", "60", "--agents", "4"])
    virtual_run(replace(config, engine=ENGINE), load(config.traces), folder)
    return folder


def late(folder: Path, cpu: float, *reasons: str) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"invalid_reasons": list(reasons), "valid": False, "client_cpu": cpu}
    summary["client_lag_s"] = {name: getattr(LAG, name) for name in LAG.__struct_fields__}
    (folder / "summary.json").write_text(json.dumps(summary))


def text(folder: Path) -> str:
    found, summary, _ = diagnose(folder)
    return "\n".join(lines(found, summary, Paper(2000, colour=False), 0))


def test_workers_are_named_only_where_the_client_is_busy_itself(tmp_path):
    folder = made(tmp_path / "run", "--shape", "100x2000")
    late(folder, 0.055, "client_lag")
    said = text(folder)
    assert said.startswith("Decode bandwidth holds this run back: ")
    assert "the client was late, by 0.228 ms at p50 and 5.11 ms at p99" in said
    assert "the machine was busy with others" in " ".join(said.split())
    assert "the run is not valid: client_lag" in said
    assert "--workers" not in said
    late(folder, 0.83, "client_lag", "client_cpu")
    said = text(folder)
    assert said.startswith("Decode bandwidth holds this run back: ")
    assert f"above the limit of 70%; try {WORKERS}" in said
    assert json.loads((folder / "run.json").read_text())["config"].get("workers") in (None, 1)
    run = json.loads((folder / "run.json").read_text())
    run["config"]["workers"] = 2
    (folder / "run.json").write_text(json.dumps(run))
    assert "above the limit of 70%; try a client on another machine" in text(folder)


@pytest.mark.parametrize(("cpu", "lever"), [(0.055, "a client on another machine"), (0.83, WORKERS)])
def test_a_client_that_takes_most_of_the_time_gets_workers_only_where_it_is_busy(tmp_path, cpu, lever):
    folder = made(tmp_path / "run", "--shape", "500x50", "--rate", "1")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    for event in events:
        event.pop("throttled_ns", None)  # the same wait, but not for a rate
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    late(folder, cpu, "client_lag")
    found, _, _ = diagnose(folder)
    assert (found.bottleneck.kind, found.lever) == ("client", lever)
