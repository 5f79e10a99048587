"""The summary for people: plain text, 80 columns, the answer first. What was not reported says so."""

import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.agents.failures import explain
from windtunnel.simulator.results import emulation
from windtunnel.simulator.results.cautions import by_progress, cautions, restarted
from windtunnel.simulator.results.metrics import METRICS
from windtunnel.simulator.results.slo import told
from windtunnel.simulator.results.summary_model import Distribution, SloResult, Summary, comparable
from windtunnel.simulator.results.validity import in_words
from windtunnel.traces.outlet import safe, shown

WIDTH = 80
MISSING = "not reported"
INTERRUPTED_EARLY = "interrupted in warm-up: nothing was measured"
_LATENCIES = ("ttft_s", "ttft_visible_s", "ttft_tool_s", "tpot_s", "itl_s", "e2e_s", "tool_wait_s", "makespan_s")
_LABEL = 14
_OFFLOADS = ("cache_config.kv_offloading_size", "offload_config.kv_offload_blocks", "kv_transfer_config.kv_connector")
"""Settings of vLLM and its emulator with which the GPU's cache is not the only one: others' hits are counted apart."""
_NOT_SET = ("none", "null", "false", "0", "0.0", "")
_OF_REPLAYS = ("work", "sessions")
"""Rows that say nothing about a recording."""


def render_summary(summary: Summary, *, running: bool = False) -> str:
    """Lines of at most 80 columns, ending with a line end. `running`: of a run that has no end because it goes on."""
    sections = (
        _headline(summary),
        _validity(summary, running=running),
        *(
            (_throughput(summary), _latencies(summary, running=running), [*_client(summary), *_engine(summary)])
            if summary.window_s
            else (_unmeasured(summary),)
        ),
        _failures(summary),
        _slo(summary.slo if summary.window_s else None),
        [f"run folder    {summary.run_dir}"] if summary.run_dir else [],
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _headline(summary: Summary) -> list[str]:
    flight = "" if summary.in_flight_mean is None else f", {summary.in_flight_mean:.1f} in flight"
    if summary.kind == "recording":
        lines = [f"recording of {count(summary.agents, 'session')}{flight}"]
    else:
        lines = [f"{count(summary.agents, 'agent')}{flight}"]
    engine = summary.engine
    parts = [shown(part) for part in (engine.name, engine.version, engine.model) if part]
    lines.append(" · ".join(parts) if parts else "engine not named")
    if summary.emulated:
        told = emulation.in_words(summary.engine.emulation)
        lines += _wrapped(f"EMULATED, not measured{': ' if told else ''}{told}", "")
    if summary.virtual:
        lines.append("VIRTUAL: sessions and emulator ran on a virtual clock, nothing was timed")
    return [line[:WIDTH] for line in lines]


def _validity(summary: Summary, *, running: bool) -> list[str]:
    if running:
        told = by_progress(summary)
        return ["still running: these are the figures so far", *(_wrapped(told, "  - ") if told else ())]
    why = "" if summary.status_reason in {None, summary.status} else f" ({summary.status_reason})"
    ending = f"{summary.status}{why}"
    reasons = summary.invalid_reasons
    if summary.status == "interrupted" and not summary.window_s:
        # That says already why there is no window.
        lines = [INTERRUPTED_EARLY]
        reasons = tuple(reason for reason in reasons if reason != "no_steady_state")
    elif summary.kind == "recording":
        lines = [f"{ending}{'' if summary.valid else '; NOT WHOLE:'}"]
    else:
        lines = [f"{ending}; {'valid' if summary.valid else 'NOT VALID:'}"]
    for reason in reasons:
        when = f" (at {restarted(summary)})" if reason == "engine_restarted" else ""
        lines += _wrapped(f"{reason}: {in_words(reason)}{when}", "  - ")
    return lines


def _unmeasured(summary: Summary) -> list[str]:
    """What there is of a run without a window: its counts, and the engine's own."""
    tokens = [
        marked(summary, f"{value:,} {what}")
        for value, what in (
            (summary.output_tokens, "out"),
            (summary.prompt_tokens, "prompt"),
        )
        if value is not None
    ]
    if summary.cached_tokens is not None:
        tokens.append(_cached(summary))
    grew = summary.engine_delta
    engine = [
        f"{value:,.0f} {what}"
        for value, what in (
            (grew.requests_finished, "requests finished"),
            (grew.prompt_tokens, "prompt tokens"),
            (grew.generation_tokens, "generated"),
            (grew.preemptions, "preemptions"),
        )
        if value is not None
    ]
    if grew.prefix_queries and grew.prefix_hits is not None:
        engine.append(f"{_hits(summary)} {percent(grew.prefix_hits / grew.prefix_queries)}")
    rows = [("sessions", _sessions(summary)), ("calls", _calls(summary)), ("tokens", tokens), ("engine", engine)]
    if summary.kind == "recording":
        rows = [row for row in rows if row[0] not in _OF_REPLAYS]
    lines = [f"of the whole {summary.duration_s:.1f} s"]
    return lines + [line for label, parts in rows if parts for line in _wrapped("   ".join(parts), label.ljust(_LABEL))]


def _sessions(summary: Summary) -> list[str]:
    return [
        f"{summary.sessions_started:,} started",
        f"{summary.sessions_completed:,} completed",
        f"{summary.sessions_failed:,} failed",
        f"{summary.sessions_cut:,} cut",
        f"of {count(summary.distinct_traces, 'trace')}",
    ]


def _calls(summary: Summary) -> list[str]:
    calls = [f"{summary.calls:,} started", f"{summary.failed_calls:,} failed", f"{summary.calls_cut:,} cut"]
    if summary.calls_without_usage:
        calls.append(f"{summary.calls_without_usage:,} without usage")
    return calls


def _throughput(summary: Summary) -> list[str]:
    rates = [
        marked(summary, _figure(summary.output_tokens_per_s, "tokens/s out")),
        marked(summary, _figure(summary.prompt_tokens_per_s, "tokens/s in")),
        f"window {summary.window_s:.1f} s of {summary.duration_s:.1f} s",
    ]
    agents = [
        _figure(summary.in_tool_mean, "in tool"),
        _figure(summary.waiting_mean, "waiting"),
        f"duty cycle {percent(summary.duty_cycle)}",
    ]
    cache = [f"{percent(summary.cache_hit_ratio)} hit", _ceiling(summary.expected_cache_hit_ratio)]
    if summary.reprefilled_tokens:
        cache.append(f"{summary.reprefilled_tokens:,} generated tokens sent back as other text")
    tokens = [
        marked(summary, _figure(summary.output_tokens, "out")),
        marked(summary, _figure(summary.prompt_tokens, "prompt")),
        _cached(summary),
    ]
    if summary.prompts_over is not None and abs(summary.prompts_over) >= 0.005:
        than = "longer" if summary.prompts_over > 0 else "shorter"
        tokens.append(f"prompts {percent(abs(summary.prompts_over))} {than} than recorded")
    work = [
        _figure(summary.sessions_per_hour, "sessions/h"),
        _figure(summary.session_equivalents_per_hour, "session equivalents/h"),
    ]
    stall = summary.stall_s_per_agent
    rows = [
        ("throughput", rates),
        ("agents", agents),
        ("cache", cache),
        ("work", work),
        ("stall", [MISSING if stall is None else f"{stall:.1f} s before first tokens, mean per agent"]),
        ("sessions", _sessions(summary)),
        ("calls", _calls(summary)),
        ("tokens", tokens),
    ]
    if summary.kind == "recording":
        rows = [row for row in rows if row[0] not in _OF_REPLAYS]
    if summary.lengths_from:
        models = [summary.lengths_from] if isinstance(summary.lengths_from, str) else summary.lengths_from
        names, own = ", ".join(map(shown, models)), summary.lengths == "natural"
        rows.append(
            ("lengths from", [f"{names} (prompts); answers are as long as the engine made them" if own else names])
        )
    return [line for label, parts in rows for line in _wrapped("   ".join(parts), label.ljust(_LABEL))]


def marked(summary: Summary, figure: str) -> str:
    """A figure made of counts of tokens: with ~ where some are what the run's progress told."""
    return f"~{figure}" if summary.output_tokens_by_progress and figure[:1].isdigit() else figure


def _cached(summary: Summary) -> str:
    """Cached tokens, of those prompts of which they are known where these are not all."""
    cached, known = summary.cached_tokens, summary.cache_known_prompt_tokens
    if cached is None or known is None or known == summary.prompt_tokens:
        return _figure(cached, "cached")
    return f"{cached:,} of {known:,} cached"


def _ceiling(expected: float | None) -> str:
    """What could be in the cache. That cannot be more than the prompts, unless the server counts them otherwise."""
    if not comparable(expected):
        return "could be: not comparable, the server counts prompts too low"
    return f"could be {percent(expected)}"


def _latencies(summary: Summary, *, running: bool) -> list[str]:
    """`running`: calls under way are no reason for concern."""
    lines = ["latency".ljust(_LABEL) + "".join(f"{head:>11}" for head in ("n", "mean", "p50", "p90", "p99", "max"))]
    lags = [name for name in ("client_lag_s", "dispatch_s", "throttled_s") if getattr(summary, name) is not None]
    for name in (*_LATENCIES, *lags):
        value: Distribution | None = getattr(summary, name)
        label = METRICS[name].header.ljust(_LABEL)
        if value is None:
            if name not in {"ttft_tool_s", "makespan_s"}:
                lines.append(label + f"{'none':>11}")
            continue
        fine = value.p50 < 0.1
        numbers = (value.mean, value.p50, value.p90, value.p99, value.max)
        digits = 2 if not fine or value.max < 0.1 else 1 if value.max < 1 else 0
        cells = "".join(f"{seconds(number, fine, digits):>11}" for number in numbers)
        lines.append(label + f"{value.n:>11,}" + cells)
    if not running:
        lines += [line for said in cautions(summary) for line in _wrapped(said, "  - ")]
    return lines


def _client(summary: Summary) -> list[str]:
    """What the client itself was like in the window: its lateness stands among the latencies."""
    cpu, blocked = summary.client_cpu, summary.blocked_max
    if cpu is None and blocked is None:
        return []
    parts = [_figure(summary.live_mean, f"of {count(summary.agents, 'agent')} live")]
    if cpu is not None:
        parts.append(f"CPU {percent(cpu)} of a core")
    if blocked is not None:
        parts.append(f"at most {count(blocked, 'socket')} blocked" if blocked else "no socket blocked")
    if summary.host_stolen is not None and summary.host_stolen >= 0.0005:
        parts.append(f"the host took {percent(summary.host_stolen)} of the cores' time")
    return _wrapped("   ".join(parts), "client".ljust(_LABEL))


def _engine(summary: Summary) -> list[str]:
    engine, gpu = summary.engine, summary.gpu
    parts = [
        _figure(engine.running, "running"),
        _figure(engine.waiting, "waiting"),
        f"KV use {percent(engine.kv_usage)}",
        f"{_hits(summary)} {percent(engine.hit_ratio)}",
        _figure(engine.preemptions, "preemptions"),
    ]
    if engine.acceptance_length is not None:
        parts.append(f"acceptance length {engine.acceptance_length:.2f}")
    lines = _wrapped("   ".join(parts), "engine".ljust(_LABEL))
    if gpu is not None:
        watts = MISSING if gpu.power_w is None else f"{gpu.power_w:,.0f} W"
        if gpu.kwh_per_million_tokens is not None:
            watts += f"   {marked(summary, f'{gpu.kwh_per_million_tokens:.3g}')} kWh per million output tokens"
        lines += _wrapped(f"{percent(gpu.utilisation)} busy   {watts}", f"{count(gpu.count, 'GPU')}".ljust(_LABEL))
    return lines


def _hits(summary: Summary) -> str:
    """What its ratio of prefix hits is of."""
    return "GPU's own hit ratio" if offloads(summary.engine.resolved or {}) else "hit ratio"


def offloads(resolved: Mapping[str, Any]) -> bool:
    """Whether an engine with these settings finds tokens outside the GPU too, which its own hit ratio leaves out."""
    return any(str(resolved.get(name)).lower() not in _NOT_SET for name in _OFFLOADS)


def _failures(summary: Summary) -> list[str]:
    """How often, by name, what each name means where that is known, and what the server said."""
    lines: list[str] = []
    for name, times in summary.failures.items():
        lines.append(f"{'' if lines else 'failures':<{_LABEL}}{times:>7,}  {name}")
        if (meaning := explain(name)) != name:
            lines += _wrapped(meaning, " " * (_LABEL + 9))
        messages = {} if summary.failure_messages is msgspec.UNSET else summary.failure_messages.get(name, {})
        for message, often in messages.items():
            counted = f" ({often:,} times)" if often not in (1, times) else ""
            lines += _wrapped(f"{safe(message)}{counted}", " " * (_LABEL + 9) + "- ")
    return lines


def _slo(slo: SloResult | None) -> list[str]:
    if slo is None:
        return []
    lines: list[str] = []
    for condition in slo.conditions:
        lines += _wrapped(told(condition), f"{'' if lines else 'service level':<{_LABEL}}")
    if slo.share is not None:
        inside = f"{percent(slo.share)} of {slo.calls_judged:,} calls inside every limit"
        lines.append(" " * _LABEL + inside)
        sessions = f"{slo.sessions_inside:,} of {slo.sessions_judged:,} sessions with all their calls inside"
        lines.append(" " * _LABEL + sessions)
    return lines


def _wrapped(text: str, head: str) -> list[str]:
    # Two spaces and more stay together as separators; a figure and its unit are not torn apart.
    glued = text.replace("   ", "\n").split("\n")
    glued = [part.replace(" ", "\0") if len(glued) > 1 else part for part in glued]
    indent = " " * len(head)
    lines = textwrap.wrap(
        "   ".join(glued), WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def _figure(value: float | None, unit: str) -> str:
    return f"{unit} {MISSING}" if value is None else f"{number(value)} {unit}"


def number(value: float) -> str:
    """Thousands separated; one decimal where it says something."""
    if isinstance(value, int) or value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}"


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f}%"


def seconds(value: float, fine: bool, digits: int = 2) -> str:
    """Milliseconds when `fine`; one unit and one precision for a whole row."""
    return f"{value * 1000:,.{digits}f} ms" if fine else f"{value:,.{digits}f} s"


def count(value: int, thing: str) -> str:
    return f"{value:,} {thing}{'' if value == 1 else 's'}"
