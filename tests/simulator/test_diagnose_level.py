"""What breaks a service level may be something else than what takes most of the calls' time: `diagnose` says both."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from windtunnel.simulator.cli import cli
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.diagnose import Diagnosis, diagnose, lines
from windtunnel.simulator.experiments.capacity import DEFAULT_SLO
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.why_text import Paper
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.sources import load

MODEL = "--model qwen3-coder-30b-a3b --quantization fp8 --max-model-len 32768"
CODERS = ("library", "--max-context", "32k", "--fit", "scale", "--duration", "60", "--no-text")
ROOM = f"emulator --gpu H100 {MODEL} --kv-cache-memory-bytes 12g"
QUEUE = ("--shape", "500x100", "--pace", "none", "--duration", "60")


def made(folder: Path, words: tuple[str, ...], agents: int, engine: str, slo: str | None = None) -> Path:
    config = config_of([*words, "--agents", str(agents), *(() if slo is None else ("--slo", slo))])
    virtual_run(replace(config, engine=f"emulator --gpu H100 {MODEL} {engine}"), load(config.traces), folder)
    return folder


def text(folder: Path) -> str:
    found, summary, _ = diagnose(folder)
    return " ".join(" ".join(lines(found, summary, Paper(100, colour=False), 0)).split())


def test_decoding_takes_most_of_the_time_and_the_cache_breaks_the_level(tmp_path):
    folder = made(tmp_path / "run", CODERS, 6, "--kv-cache-memory-bytes 14g", "tpot_s.p90<0.015")
    found, summary, _ = diagnose(folder)
    assert found.bottleneck.kind == "decode"
    assert found.level is not None
    assert found.level.asked
    assert found.level.bottleneck.kind == "kv_capacity"
    assert found.level.lever == "--kv-cache-dtype fp8"
    at_level = diagnose(folder, level=True)[0]
    assert (at_level.bottleneck, at_level.lever, at_level.level) == (found.level.bottleneck, found.level.lever, None)
    said = text(folder)
    value = f"tpot_s.p90<0.015 ({summary.tpot_s.p90:.3g})"
    share = f"{found.level.bottleneck.share:.0%} of the time of the calls outside it"
    assert (
        f"its service level is broken, {value}, by KV capacity: {share}; try --kv-cache-dtype fp8 (may change" in said
    )


@pytest.mark.parametrize(("slo", "asked"), [(None, False), ("ttft_s.p90<5", True), ("ttft_s.p90<60", None)])
def test_a_run_without_a_level_is_held_against_the_one_that_capacity_takes(tmp_path, slo, asked):
    """`asked` is None where it meets its own, beyond the default one as it is."""
    folder = made(tmp_path / "run", QUEUE, 32, "--max-num-seqs 2", slo)
    found, summary, _ = diagnose(folder)
    assert summary.ttft_s.p90 > 5
    if asked is None:
        assert found.level is None
        assert "service level is broken" not in text(folder)
        return
    limit = slo or DEFAULT_SLO.partition(",")[0]
    assert [(c.condition, c.value) for c in found.level.broken] == [(limit, summary.ttft_s.p90)]
    assert (found.level.asked, found.level.bottleneck.kind) == (asked, "batch")
    whose = "its service level" if asked else "the default service level"
    share = f"{found.level.bottleneck.share:.0%} of the time of the calls outside it"
    assert f"{whose} is broken, {limit} ({summary.ttft_s.p90:.3g}), by the batch limit: {share}" in text(folder)


def test_inside_the_default_level_nothing_is_said_of_it(tmp_path):
    folder = made(tmp_path / "run", ("--shape", "100x2000", "--pace", "none", "--duration", "60"), 4, "")
    assert diagnose(folder)[0].level is None
    assert "service level" not in text(folder)


def test_the_json_has_what_breaks_it(tmp_path):
    folder = made(tmp_path / "run", QUEUE, 32, "--max-num-seqs 2")
    told = json.loads(CliRunner().invoke(cli, ["diagnose", str(folder), "--json"]).stdout)["level"]
    found = diagnose(folder)[0].level
    assert told["bottleneck"]["kind"] == "batch"
    assert told == json.loads(msgspec.json.encode(found))


def test_a_run_without_a_call_breaks_no_level(tmp_path):
    folder = made(tmp_path / "run", QUEUE, 32, "--max-num-seqs 2")
    events = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(e for e in events if not e.startswith(b'{"type":"call_end"')))
    assert diagnose(folder)[0].level is None


def against_level(folder: Path, words: tuple[str, ...], agents: int, engine: str) -> tuple[Diagnosis, Summary]:
    config = config_of([*words, "--agents", str(agents), "--slo", "tpot_s.p90<0.015"])
    virtual_run(replace(config, engine=engine), load(config.traces), folder)
    found, summary, _ = diagnose(folder, level=True)
    return found, summary


def test_evicted_prompts_that_hold_decoding_up_are_the_caches_limit_and_its_lever_carries_more(tmp_path):
    found, summary = against_level(tmp_path / "whole", CODERS, 8, ROOM)
    assert summary.slo is not None
    assert not summary.slo.met
    assert found.bottleneck.parts["held_up"] > 0.3
    assert found.bottleneck.kind == "kv_capacity"
    assert found.bottleneck.shares["kv_capacity"] > 0.5 > 0.1 > found.bottleneck.shares["prefill_compute"]
    assert found.lever == "--kv-cache-dtype fp8"
    _, pulled = against_level(tmp_path / "half", CODERS, 8, f"{ROOM} {found.lever}")
    assert pulled.slo is not None
    assert pulled.slo.met


def test_decoding_that_alone_is_well_inside_the_level_is_not_what_breaks_it(tmp_path):
    found, summary = against_level(tmp_path / "run", CODERS, 6, ROOM.replace("12g", "14g"))
    assert summary.slo is not None
    assert not summary.slo.met
    shares = found.bottleneck.shares
    assert shares["decode"] > shares["kv_capacity"] > shares["prefill_compute"]
    assert found.bottleneck.kind == "kv_capacity"
    assert found.bottleneck.share == pytest.approx(shares["kv_capacity"])


def test_new_prompts_that_hold_decoding_up_stay_prefill_compute(tmp_path):
    words = ("--shape", "24kx200", "--pace", "none", "--duration", "60", "--no-text")
    found, summary = against_level(tmp_path / "run", words, 3, f"emulator --gpu L40S {MODEL}")
    assert summary.slo is not None
    assert not summary.slo.met
    assert found.bottleneck.kind == "prefill_compute"
    assert found.bottleneck.shares.get("kv_capacity", 0.0) == 0.0
    assert found.lever == "--tensor-parallel-size 2"
