"""The figures on the screen of a finished run are those of its `summary.json`, each of them, read from the screen."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from windtunnel.agents.events import Phase
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.working_set import working_set
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.simulator.run.virtual import VirtualRun
from windtunnel.traces.sources import load
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.theme import UNICODE, Theme
from windtunnel.tui.widgets.digits import read

ENGINE = "emulator --gpu H100 --model llama-3.1-8b --max-model-len 40000 --num-gpu-blocks-override 5000"
"""Its cache is too small for eight agents: they wait, are preempted, and miss what they had sent before."""
TRACES = [f"library:{name}" for name in ("fix-importer", "typo-in-docs", "add-unit-test", "explain-regex")]
WARMUP_S, WINDOW_S = 5.0, 60.0
NUMBER = re.compile(r"\d[\d,:]*(?:\.\d+)?[kMG]?%?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fleet that has to share a small cache, on the virtual clock."""
    path = tmp_path_factory.mktemp("end") / "run"
    given = {"agents": 8, "duration_s": WINDOW_S, "ramp_s": 2.0, "warmup": Warmup(seconds=WARMUP_S), "engine": ENGINE}
    VirtualRun(RunConfig(**given, virtual=True, fit="filter").checked(), load(TRACES), path).run()
    return path


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "summary.json").read_text())
    assert found["sessions_completed"]
    assert found["engine"]["preemptions"]
    assert found["calls_unended"] > 0.05 * found["calls_begun"]
    assert found["cache_hit_ratio"] < found["expected_cache_hit_ratio"] - 0.1
    return found


async def shown(folder: Path, size: tuple[int, int]) -> list[str]:
    follower = Follower.open(folder, lambda: 0.0, lambda: 0.0)
    try:
        app = Viewer(follower, Theme(), "view", tick_s=0)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            return [strip.text for strip in app.screen._compositor.render_strips()]
    finally:
        follower.close()


def numbers(text: str) -> list[str]:
    return NUMBER.findall(text)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def percent(share: float, digits: int = 1) -> str:
    return f"{math.floor(share * 10 ** (digits + 2) + 0.5) / 10**digits:.{digits}f}%"


def thousands(value: float) -> str:
    return f"{value / 1000:.1f}k" if value < 99_950 else f"{value / 1000:.0f}k"


def result(summary: dict[str, Any]) -> list[str]:
    """The two lines of results."""
    ttft, tpot = summary["ttft_s"], summary["tpot_s"]
    return [
        "50",
        "90",
        f"{ttft['p50']:.2f}",
        f"{ttft['p90']:.2f}",
        "50",
        "90",
        f"{tpot['p50'] * 1000:.2f}",
        f"{tpot['p90'] * 1000:.2f}",
        f"{summary['calls_unended']}",
        f"{summary['calls_begun']}",
        f"{summary['session_equivalents_per_hour']:.1f}",
        f"{summary['calls']}",
        f"{summary['failed_calls']}",
        f"{summary['calls_cut']}",
        f"{summary['output_tokens']:,}",
        f"{summary['prompt_tokens']:,}",
        clock(summary["window_s"]),
    ]


def working_set_mean(folder: Path, summary: dict[str, Any]) -> float:
    """Of the window, as a percentage of the cache."""
    run = RunFolder.open(folder)
    start = next(e.t for e in run.events() if isinstance(e, Phase) and e.phase == "steady") / 1e9
    held = working_set(run.events(), start + WINDOW_S, round((start + WINDOW_S) * 20))
    inside = [tokens for second, tokens in held if second >= start]
    return 100 * sum(inside) / len(inside) / summary["engine"]["kv_tokens"]


def check_engine(line: str, folder: Path, summary: dict[str, Any], *, expected: bool) -> None:
    said = summary["engine"]
    usage, held, *others = numbers(line)
    assert usage == percent(said["kv_usage"], 0)
    # The screen's mean is made of looks four times a second.
    assert float(held.removesuffix("%")) == pytest.approx(working_set_mean(folder, summary), abs=1.5)
    assert others[: 5 if expected else 4] == [
        f"{said['running']:.1f}",
        f"{said['waiting']:.1f}",
        percent(said["hit_ratio"]),
        *([percent(summary["expected_cache_hit_ratio"])] if expected else []),
        f"{said['preemptions']:.0f}",
    ]


async def test_side_by_side_at_120_columns(folder: Path, summary: dict[str, Any]) -> None:
    lines = await shown(folder, (120, 22))
    assert numbers(lines[0])[0] == str(summary["agents"])
    assert numbers(lines[1]) == [
        clock(summary["duration_s"]),
        thousands(summary["prompt_tokens_per_s"]),
        percent(summary["cache_hit_ratio"]),
        percent(summary["expected_cache_hit_ratio"]),
        *(str(summary[f"sessions_{how}"]) for how in ("completed", "failed", "cut")),
    ]
    first = next(y for y, line in enumerate(lines) if line.startswith(" TTFT"))
    assert numbers(lines[first] + lines[first + 1]) == result(summary)
    strip = lines[first + 2 : first + 5]
    assert read([line[:21] for line in strip], UNICODE) == f"{summary['output_tokens_per_s']:.0f}"
    assert [numbers(line)[-1] for line in strip] == [
        f"{summary[name]:.1f}" for name in ("in_flight_mean", "in_tool_mean", "waiting_mean")
    ]
    below = next(line for line in lines if line.lstrip().startswith("KV avg"))
    check_engine(below, folder, summary, expected=False)


async def test_at_200_columns(folder: Path, summary: dict[str, Any]) -> None:
    lines = await shown(folder, (200, 60))
    side = {line[:30].strip(): line[30:44].strip() for line in lines if re.match(r" [a-z].*\S", line[:30])}
    assert side["cached"] == percent(summary["cache_hit_ratio"])
    assert side["could be cached"] == percent(summary["expected_cache_hit_ratio"])
    assert side["prompt tok/s"] == thousands(summary["prompt_tokens_per_s"])
    assert side["in flight, mean"] == f"{summary['in_flight_mean']:.1f}"
    assert side["in tool, mean"] == f"{summary['in_tool_mean']:.1f}"
    assert side["waiting, mean"] == f"{summary['waiting_mean']:.1f}"
    assert side["calls"] == str(summary["calls"])
    assert [side[name] for name in ("sessions done", "failed", "cut")] == [
        str(summary[f"sessions_{how}"]) for how in ("completed", "failed", "cut")
    ]
    output = next(line for line in lines if "output tok/s" in line)
    assert numbers(output)[0] == f"{summary['output_tokens_per_s']:,.0f}"
    below = next(line for line in lines if line.lstrip().startswith("KV avg"))
    check_engine(below, folder, summary, expected=True)


async def test_at_80_columns(folder: Path, summary: dict[str, Any]) -> None:
    lines = await shown(folder, (80, 24))
    assert numbers(lines[1])[:3] == [
        clock(summary["duration_s"]),
        thousands(summary["prompt_tokens_per_s"]),
        percent(summary["cache_hit_ratio"]),
    ]
    assert numbers(lines[1])[3:] == [str(summary["agents"]), f"{summary['in_flight_mean']:.1f}"]
    first = next(y for y, line in enumerate(lines) if line.startswith(" TTFT"))
    assert sorted(numbers("".join(lines[first : first + 3]))) == sorted(result(summary))
    assert (
        read([line[:18] for line in lines[first + 3 : first + 6]], UNICODE) == f"{summary['output_tokens_per_s']:.0f}"
    )
    ended = next(line for line in lines if line.lstrip().startswith("ended"))
    assert numbers(ended) == [str(summary[f"sessions_{how}"]) for how in ("completed", "failed", "cut")]
