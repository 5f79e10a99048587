"""What one run of a capacity search says: whether the level held, whether that can be told, and by how many calls."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from windtunnel.simulator.experiments.search import Edge, Reading
from windtunnel.simulator.results.cautions import FEWEST, SHARE_LEFT_OUT
from windtunnel.simulator.results.slo import MISSING, judged_value, undecided
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.validity import GONE, in_words

LET_END = "give a longer --duration, or --sessions or --calls, whose calls all end"
NOT_DECIDED = "whether {} holds is not decided: calls that had no end yet can turn it; " + LET_END


def reading_of(run: Mapping[str, Any], summary: Summary, agents: int, seed: int, out: Path) -> Reading:
    """`run`: its run.json."""
    slo = summary.slo
    reading = Reading(
        agents=agents,
        seed=seed,
        met=summary.status == "completed" and slo is not None and slo.met and "failures" not in summary.invalid_reasons,
        slo_share=None if slo is None else slo.share,
        output_tokens_per_s=summary.output_tokens_per_s,
        kv_usage=summary.engine.kv_usage,
        reasons=summary.invalid_reasons,
        run=str(out),
        calls_judged=None if slo is None else slo.calls_judged,
        calls_begun=summary.calls_begun,
        calls_unended=summary.calls_unended,
    )
    if summary.status == "completed" and not summary.window_s:
        return replace(reading, met=False, uncounted=_no_window(run, summary))
    if gone := [reason for reason in summary.invalid_reasons if reason in GONE]:
        return replace(reading, met=False, uncounted=in_words(gone[0]))
    open_ = undecided(slo)
    if open_ and summary.status == "completed" and "failures" not in summary.invalid_reasons:
        names = " and ".join(condition.condition for condition in open_)
        return replace(reading, met=False, uncounted=NOT_DECIDED.format(names))
    return reading


def _no_window(run: Mapping[str, Any], summary: Summary) -> str:
    """Why nothing was measured in a run that came to its end, and what to give."""
    config = run.get("config")
    config = config if isinstance(config, dict) else {}
    if config.get("duration_s") is None:
        return "the work was done before the warm-up was; give a --duration, or more --sessions or --calls"
    warmup = config.get("warmup")
    calls = warmup.get("calls") if isinstance(warmup, dict) else None
    if calls is None:
        return f"the warm-up did not end within {summary.duration_s:,.0f} s; give a shorter --warmup"
    each = f"not every agent had ended its first {count(calls, 'call')} within {summary.duration_s:,.0f} s"
    return f"{each}; give a warm-up in seconds, such as --warmup 300s"


def said(summary: Summary, reading: Reading) -> str:
    """A line of a search that goes on."""
    if reading.uncounted:
        return f"DOES NOT COUNT: {reading.uncounted}{_of(reading)}"
    if summary.slo is None or summary.status != "completed":
        return f"{summary.status} {summary.status_reason or ''}".strip()
    values = ", ".join(
        f"{condition.condition}: {judged_value(condition) or MISSING}" for condition in summary.slo.conditions
    )
    return f"{'inside' if reading.met else 'OUTSIDE'} ({values})"


def _of(reading: Reading) -> str:
    if not reading.calls_unended or reading.calls_begun is None:
        return ""
    return f" ({reading.calls_unended:,} of the {reading.calls_begun:,} calls begun had no end)"


def judged_by(edge: Edge) -> list[str]:
    """By how few calls the answer is, and how many had no end: those are mostly the long ones."""
    at = [reading for reading in edge.readings if reading.agents == edge.agents and not reading.uncounted]
    judged, begun, unended = (_sum(at, name) for name in ("calls_judged", "calls_begun", "calls_unended"))
    if not at or not judged or not begun:
        return []
    left_out = unended > SHARE_LEFT_OUT * begun
    if not left_out and judged >= FEWEST * len(at):
        return []
    text = f"at {count(edge.agents, 'agent')} {count(judged, 'call')} judged in {count(len(at), 'run')}"
    if unended:
        text += f", and {unended:,} of the {begun:,} begun in their windows had no end when the run did"
    return [f"{text}; {LET_END}" if left_out else text]


def _sum(readings: Sequence[Reading], name: str) -> int:
    return sum(getattr(reading, name) or 0 for reading in readings)
