"""The facts of a finished run that its validity is judged by."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results.counters import Counters
from windtunnel.simulator.results.distribution import mean
from windtunnel.simulator.results.metrics import Value
from windtunnel.simulator.results.summary_model import Distribution
from windtunnel.simulator.results.tally import Tally, Window
from windtunnel.simulator.results.validity import (
    FOREIGN_FLOOR,
    FOREIGN_LIMIT,
    FOREIGN_WINDOW_LIMIT,
    GONE,
    ONLY_IN_WINDOW,
    Facts,
    harmful_throttles,
    is_recording,
    more_than,
    trends,
)

TREND_PARTS = 12
TREND_MIN_S = 30.0
"""Shorter windows hold too few calls for a trend to be told from noise."""
TREND_MIN_CALLS = 60
TREND_SHARE = 0.20
"""Of the window's mean throughput."""
TREND_KV = 0.10
"""Of the KV cache."""


def of_tally(tally: Tally, values: dict[str, Value], *, damaged: bool = False) -> Facts:
    """`values` are the metrics already computed from the same tally. `damaged`: lines are missing in it."""
    lag = values["client_lag_s"]
    gpu, over = tally.gpu_in_window(), _number(values["prompts_over"])
    return Facts(
        steady=_steady(tally),
        recording=is_recording(tally.run),
        client_lag_p99_s=lag.p99 if isinstance(lag, Distribution) else None,
        client_cpu=_number(values["client_cpu"]),
        agents=tally.agents,
        live_mean=_number(values["live_mean"]) if wants_every_agent(tally.run) else None,
        sessions_started=len(tally.sessions),
        sessions_failed=int(_number(values["sessions_failed"]) or 0),
        isolated=isolated(tally),
        cold_start=_cold_start(tally),
        foreign=_foreign_total(tally, values) or _foreign_in_window(tally),
        throttled=any(harmful_throttles(sample.throttle) for sample in gpu),
        other_processes=any(sample.other_processes for sample in gpu),
        trending=_trending(tally),
        emulator_late=_emulator_late(tally),
        prompts_off=None if over is None else abs(over),
        ending=ending(tally),
        damaged=damaged,
        gone=gone(None if tally.run_end is None else tally.run_end.reason),
        restarted=bool(tally.counters.restarts),
        notes=tuple(
            note.reason
            for note in tally.notes
            if note.reason is not None
            and (note.reason not in ONLY_IN_WINDOW or (tally.window is not None and tally.window.holds(note.t)))
        ),
    )


def _emulator_late(tally: Tally) -> float | None:
    inside = tally.inside
    return lateness(inside.grown("behind_s"), inside.grown("step_s"))


def lateness(behind_s: float | None, step_s: float | None) -> float | None:
    """Mean delay of an emulator's tokens as a share of a step; None where nothing was stepped."""
    return behind_s / step_s if behind_s is not None and step_s else None


def history_of(run: Mapping[str, Any]) -> str | None:
    """Which answers went back into the prompts. Runs that do not say so sent the generated ones as token ids."""
    config = run.get("config")
    asked = config.get("history") if isinstance(config, dict) else None
    said = run.get("history") or ("live" if run.get("route") == "tokens" else asked)
    return said if isinstance(said, str) else None


def _steady(tally: Tally) -> bool:
    """There is a window, and if calls began in it at least one of them was completed."""
    window = tally.window
    if window is None:
        return False
    begun = [call for call in tally.calls if window.holds(call.t_intended)]
    return not begun or any(of_call.completed(call) for call in begun)


def ending(tally: Tally) -> str | None:
    if tally.run_end is None:
        return "died"
    return "run_failed" if tally.run_end.status == "failed" else None


def gone(reason: str | None) -> str | None:
    """What a run lost, by the reason of its end."""
    return reason if reason in GONE else None


def _cold_start(tally: Tally) -> bool:
    window = tally.window
    if window is None or not fresh(tally.run, tally.engine[0] if tally.engine else None):
        return False
    return not any(of_call.completed(call) and of_call.ended_ns(call) <= window.start for call in tally.calls)


def command_of(run: Mapping[str, Any]) -> str | None:
    """How the engine was started, where the run started it."""
    config = run.get("config")
    command = config.get("engine") if isinstance(config, dict) else None
    return command if isinstance(command, str) else None


def fresh(run: dict[str, Any], baseline: EngineSample | None) -> bool:
    """Whether the engine had served nothing but probes before this run: it was started for it, or its counters say so.

    An emulator has nothing to warm up.
    """
    engine, config = run.get("engine"), run.get("config")
    if isinstance(engine, dict) and engine.get("emulated") is True:
        return False
    started = isinstance(config, dict) and config.get("engine") is not None
    counted = None if baseline is None else baseline.generation_tokens
    return started or (counted is not None and counted <= FOREIGN_FLOOR)


def _number(value: Value) -> float | None:
    return None if value is None or isinstance(value, Distribution) else value


def wants_every_agent(run: dict[str, Any]) -> bool:
    """Open arrivals leave lanes empty on purpose."""
    config = run.get("config")
    arrivals = config.get("arrivals") if isinstance(config, dict) else None
    return arrivals in {None, "lanes"}


def isolated(tally: Tally) -> bool:
    """Whether the engine's cache was cold for this run.

    Calls sent before the run's first token are scheduled in an order the client does not know; the first of them to be
    scheduled in a cold cache reports 0 cached tokens. Without any such figure an engine that confirmed its
    reset will do.
    """
    firsts = [call.t_first for call in tally.calls if call.t_first is not None]
    if not firsts:
        return True
    first = min(firsts)
    herd = [call for call in tally.calls if call.t_sent is not None and call.t_sent <= first]
    reported = [call.cached_tokens for call in herd if call.cached_tokens is not None]
    if reported:
        return min(reported) == 0
    return was_reset(tally.run)


def was_reset(run: dict[str, Any]) -> bool:
    """Whether the engine confirmed that its cache was emptied for this run."""
    isolation = run.get("isolation")
    return isinstance(isolation, dict) and isolation.get("reset") is True


def _foreign_total(tally: Tally, values: dict[str, Value]) -> bool:
    """In a drained run without failures the engine's counters grow by our sums and nothing more.

    Sessions that `--calls` cut between two calls do not matter. An engine that was restarted says nothing.
    """
    drained = tally.run_end is not None and tally.run_end.status == "completed"
    lost = any(_number(values[name]) for name in ("calls_cut", "failed_calls", "calls_without_usage"))
    grew = tally.counters
    if not drained or lost or len(tally.engine) < 2 or grew.restarts:
        return False
    return more_than(grew.grown("generation_tokens"), _number(values["output_tokens"]), FOREIGN_LIMIT) or more_than(
        grew.grown("prompt_tokens"), _number(values["prompt_tokens"]), FOREIGN_LIMIT
    )


def _foreign_in_window(tally: Tally) -> bool:
    """Where a run was cut: tokens the engine generated between two scrapes against those that arrived.

    Some engines count a request's tokens when it ends, so the tokens of the calls that ended must fall short too. How
    far calls without an end had come is known up to the last look at them, and only where the server tells counts.
    """
    samples, grew = tally.engine_in_window, tally.inside
    if tally.open_calls:
        seen = tally.unended.last if tally.unended.exact else None
        samples = [] if seen is None else [sample for sample in samples if sample.t <= seen]
        grew = Counters(samples)
    known = all(call.completion_tokens is not None for call in tally.window_calls)
    failed = any(call.failure is not None for call in tally.calls)  # a server may generate on after a stream broke
    if len(samples) < 2 or not known or failed or not tally.window_calls:
        return False
    between = Window(samples[0].t, samples[-1].t)
    ended = sum(of_call.output_tokens(call) or 0 for call in tally.calls if between.holds(of_call.ended_ns(call)))
    ours = max(tally.arrivals.inside(between), float(ended))
    return not grew.restarts and more_than(grew.grown("generation_tokens"), ours, FOREIGN_WINDOW_LIMIT)


def _trending(tally: Tally) -> bool:
    window = tally.window
    if window is None or window.seconds < TREND_MIN_S or len(tally.window_calls) < TREND_MIN_CALLS:
        return False
    edges = np.linspace(window.start, window.end, TREND_PARTS + 1)
    tokens = tally.arrivals.parts(edges.tolist())
    if trends(tokens, TREND_SHARE * sum(tokens) / TREND_PARTS):
        return True
    samples = [s for s in tally.engine_in_window if s.kv_usage is not None]
    usage = [mean(s.kv_usage for s in samples if low <= s.t < high) for low, high in pairwise(edges)]
    known = [value for value in usage if value is not None]
    return len(known) == TREND_PARTS and trends(known, TREND_KV)
