"""`windtunnel diagnose`: where a run's time went, what holds it back, and what to try."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from windtunnel.agents.events import CallEnd, EngineSample, Event
from windtunnel.simulator import doubt
from windtunnel.simulator.engines import levers
from windtunnel.simulator.engines.levers import KINDS, Lever
from windtunnel.simulator.results import breakdown, emulation, misses, slo
from windtunnel.simulator.results.bottleneck import Bottleneck, again, busy_client, find, late_client, never_found
from windtunnel.simulator.results.breakdown import BEFORE, WORDS, CallTime
from windtunnel.simulator.results.calls import NS, tpot_s
from windtunnel.simulator.results.damage import DAMAGED, judged
from windtunnel.simulator.results.facts import command_of
from windtunnel.simulator.results.liveness import state
from windtunnel.simulator.results.slowdown import Slowdown, differences, same_work, slowdown
from windtunnel.simulator.results.slowdown import in_words as slower
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.results.summary import summarise
from windtunnel.simulator.results.summary_model import SloCondition, Summary
from windtunnel.simulator.results.tally import Tally
from windtunnel.simulator.results.text import count
from windtunnel.simulator.results.why_text import Paper
from windtunnel.simulator.results.working_set import working_set
from windtunnel.simulator.view import so_far
from windtunnel.simulator.why import breaks_of
from windtunnel.traces.errors import UsageError
from windtunnel.traces.model import Problem
from windtunnel.traces.outlet import safe, to_json

POINTS = 60
"""Of the working set over time."""
NEAR = 0.8
"""Of a limit on the time per token: decoding alone that takes less is not what goes beyond it."""
BLOCKS = " ▁▂▃▄▅▆▇█"


class Level(Struct, frozen=True, kw_only=True):
    """A service level that the run does not meet, and what breaks it."""

    asked: bool
    """Of the run; else it is the one that `capacity` asks for where none is given."""
    broken: tuple[SloCondition, ...]
    bottleneck: Bottleneck
    """By the calls outside of it."""
    lever: str | None
    lever_note: str | None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """`windtunnel diagnose --json`."""

    run_dir: str
    bottleneck: Bottleneck
    lever: str | None
    """What to try, in the engine's own flags."""
    lever_note: str | None
    """What has to be known of it first: what it may cost, and what is only assumed."""
    calls: tuple[CallTime, ...]
    """Of the measured window."""
    working_set: tuple[tuple[float, float], ...]
    """(s since the run's start, tokens of context of all live sessions)."""
    kv_tokens: int | None
    emulated: bool
    valid: bool
    slowdown: Slowdown | None = None
    """Against a run of one agent, where one was given."""
    level: Level | None = None
    """The level that it does not meet; None where it does."""
    doubt: str | None = None
    """Why the verdict is doubtful: few calls, many without an end, a client that was late; None where nothing is."""


def diagnose(path: Path, *, level: bool = False) -> tuple[Diagnosis, Summary, list[Problem]]:
    """Read a run folder and say what holds it back; UsageError where it is none.

    `level`: what keeps it from its service level, by the calls outside of it; where only the first token is late, by
    their time until then.
    """
    folder = RunFolder.open(path)
    problems: list[Problem] = []
    events: list[Event] = list(folder.events(problems))
    tally = Tally(folder.run, events)
    summary = judged(folder.summary() or summarise(folder.run, events), problems)
    if state(folder, time.time()) == "running":
        summary = so_far(summary)
    engine = folder.run.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    breaks, notes = breaks_of(folder)
    unit, exact, holds = misses.settings(folder.run)
    foreign = misses.provided(folder.run)
    known = misses.unit_known(folder.run)
    report = misses.read(events, unit, breaks, exact=exact, kv_tokens=holds, provided=foreign, unit_known=known)
    caches = {(cache.session, cache.call): cache for cache in report.calls}
    samples = [event for event in events if isinstance(event, EngineSample)]
    measured = [] if tally.window is None else [call for call in tally.calls if not call.warmup]
    calls = tally.window_calls or measured
    held = working_set(events, max(tally.end_t / 1e9, 1e-9), POINTS)
    resolved = engine.get("resolved")
    settings = resolved if isinstance(resolved, dict) else {}
    inside = tally.engine_in_window or samples
    waits = breakdown.waits_of(events)
    behind = [caches[key] for call in calls if (key := (call.session, call.call)) in caches]

    def of(limits: Sequence[slo.Condition]) -> tuple[list[CallTime], Bottleneck]:
        asked = slo.outside(limits, calls) or calls
        times = breakdown.break_down(asked, samples, caches, waits)
        if limits and all(limit.metric.startswith("ttft") for limit in limits):
            times = [breakdown.until_first(time) for time in times]
        return times, find(
            summary,
            times,
            inside,
            working_set=max((tokens for _, tokens in held), default=None),
            settings=settings,
            evicted=again(behind),
            unfound=never_found(behind),
            but=("decode",) if _decodes_in_time(limits, asked, times) else (),
        )

    own = () if summary.slo is None else tuple(c for c in summary.slo.conditions if c.met is False)
    times, found = of(_limits(own) if level else ())
    pulled = _lever(folder.run, found, summary, settings)
    broken = () if level or not times else own if summary.slo is not None else _beyond_usual(summary, tally)
    breaks_it = of(_limits(broken))[1] if broken else None
    return (
        Diagnosis(
            run_dir=str(path),
            bottleneck=found,
            lever=None if pulled is None else pulled.text,
            lever_note=None if pulled is None else _note(pulled, folder.run, summary),
            calls=tuple(times),
            working_set=tuple(held),
            kv_tokens=summary.engine.kv_tokens,
            emulated=summary.emulated,
            valid=summary.valid,
            level=None if breaks_it is None else _level(folder.run, breaks_it, broken, summary, settings),
            doubt=_doubt(folder.run, summary, len(times)),
        ),
        summary,
        [*problems, *notes],
    )


def _limits(broken: Sequence[SloCondition]) -> list[slo.Condition]:
    return [limit for condition in broken for limit in slo.parse(condition.condition)]


def _beyond_usual(summary: Summary, tally: Tally) -> tuple[SloCondition, ...]:
    """What a run that was asked for no service level does not meet of the one that `capacity` takes then."""
    from windtunnel.simulator.experiments.capacity import DEFAULT_SLO

    limits = slo.parse(DEFAULT_SLO)
    judged_by = slo.judge(limits, tally, {limit.metric: getattr(summary, limit.metric) for limit in limits})
    return () if judged_by is None else tuple(c for c in judged_by.conditions if c.met is False)


def _level(
    run: dict[str, Any],
    found: Bottleneck,
    broken: tuple[SloCondition, ...],
    summary: Summary,
    settings: dict[str, Any],
) -> Level:
    pulled = _lever(run, found, summary, settings)
    return Level(
        asked=summary.slo is not None,
        broken=broken,
        bottleneck=found,
        lever=None if pulled is None else pulled.text,
        lever_note=None if pulled is None else _note(pulled, run, summary),
    )


def _decodes_in_time(limits: Sequence[slo.Condition], calls: Sequence[CallEnd], times: Sequence[CallTime]) -> bool:
    """Whether calls beyond a limit on the time per token would be well inside if nothing held their decoding up."""
    paces = [limit.limit for limit in limits if limit.metric == "tpot_s"]
    tokens = sum(
        (call.t_last - call.t_first) / NS / pace
        for call in calls
        if (pace := tpot_s(call)) and call.t_last is not None and call.t_first is not None
    )
    decode = sum(part.seconds for time in times for part in time.parts if part.name == "decode")
    return bool(paces) and tokens > 0 and decode / tokens < NEAR * min(paces)


def _lever(run: dict[str, Any], found: Bottleneck, summary: Summary, settings: dict[str, Any]) -> Lever | None:
    known = next((name for name in KINDS if name == found.kind), None)
    engine = run.get("engine")
    name = engine.get("name") if isinstance(engine, dict) else None
    if not isinstance(name, str) or known is None:
        return None
    if known == "client" and found.parts.get("rate_cap", 0.0) > found.parts.get("client", 0.0):
        return levers.RATE
    left = levers_left(run, known, settings)
    return next((lever for lever in left if busy_client(summary) or lever.flag != "--workers"), None)


def _doubt(run: dict[str, Any], summary: Summary, calls: int) -> str | None:
    """Of the calls, and of a client that was late; with what helps where it held itself up."""
    said = doubt.of_calls(summary, calls)
    if late := late_client(summary):
        left = levers_left(run, "client", {}) if busy_client(summary) else []
        said.append(late + "".join(f"; try {lever.text}" for lever in left[:1]))
    return "; ".join(said) or None


def levers_left(run: dict[str, Any], kind: levers.Kind, settings: dict[str, Any]) -> list[Lever]:
    """What is not pulled yet against a limit, best first, by the engine's command and its resolved settings."""
    engine, config, command = run.get("engine"), run.get("config"), command_of(run)
    engine = engine if isinstance(engine, dict) else {}
    settings = {**settings, "windtunnel.workers": config.get("workers") if isinstance(config, dict) else None}
    started = command or ("emulator" if run.get("virtual") is True else None)
    if started is not None and engine.get("emulated") is True:
        from windtunnel.simulator.expected import left

        return left(str(engine.get("name")), kind, started, settings)
    return levers.left(str(engine.get("name")), kind, command, settings)


def _note(lever: Lever, run: dict[str, Any], summary: Summary) -> str | None:
    """What it may cost: in quality, and where it is emulated in time."""
    said = [levers.LOSSY] if lever.lossy else []
    said += [lever.note] if lever.note else []
    if summary.emulated:
        from windtunnel.simulator.expected import expected

        engine = summary.engine
        started = command_of(run) or ("emulator" if run.get("virtual") is True else None)
        cached = None if engine.kv_usage is None or not engine.kv_tokens else engine.kv_usage * engine.kv_tokens
        told = expected(started, lever.text, running=engine.running, cached=cached) if started else ""
        said += [told] if told else []
    return "; ".join(said) or None


def against(path: Path, alone: Path) -> Slowdown:
    """UsageError where `alone` is not a run of one agent, or played the same sessions otherwise."""
    single = RunFolder.open(alone)
    if single.run.get("agents") != 1:
        raise UsageError(f"{alone} is a run of {single.run.get('agents')} agents: give one made with --agents 1")
    together = RunFolder.open(path)
    if not same_work(together.run, single.run):
        raise UsageError(f"{alone} did not replay the sessions as {path} did: give one made with the same flags")
    engine = single.run.get("engine")
    emulated = isinstance(engine, dict) and engine.get("emulated") is True
    differs = differences(single.run, together.run)
    return slowdown(together.events(), single.events(), emulated=emulated, differs=differs)


def show(path: Path, *, alone: Path | None, limit: int, width: int | None, as_json: bool) -> int:
    """Print the diagnosis."""
    found, summary, problems = diagnose(path)
    if alone is not None:
        found = replace(found, slowdown=against(path, alone))
    if as_json:
        text = msgspec.json.format(to_json(found), indent=1).decode()
        sys.stdout.buffer.write(safe(text).encode() + b"\n")
        return 0
    if summary.status_reason == "running":
        print(
            f"the {_what(summary)} in {path} is still running; what follows is of what it has so far", file=sys.stderr
        )
    for problem in problems[:5]:
        print(problem, file=sys.stderr)
    terminal = sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    paper = Paper(width or max(60, shutil.get_terminal_size((100, 24)).columns), colour)
    print("\n".join(lines(found, summary, paper, limit)))
    return 0


def lines(found: Diagnosis, summary: Summary, paper: Paper, limit: int) -> list[str]:
    """For people: the answer, its evidence, the parts, the working set, the slowest calls."""
    neck = found.bottleneck
    if not found.calls:
        return [f"{found.run_dir}: {_nothing(summary)}; nothing can be diagnosed"]
    held = "the recorded calls" if summary.kind == "recording" else "this run"
    head = f"{neck.words} holds {held} back: {neck.share:.0%} of the calls' time."
    if neck.kind == "unknown":
        head = f"what holds {held} back is not known: it is not told where {neck.share:.0%} of the calls' time went."
    out = [*paper.wrapped(head[0].upper() + head[1:], "")]
    out += [line for text in neck.evidence for line in paper.wrapped(text, "  - ", "    ")]
    if found.lever:
        out += paper.wrapped(f"try {found.lever}", "  > ", "    ")
        out += paper.wrapped(found.lever_note, "    ", "    ") if found.lever_note else []
    if found.level is not None:
        out += paper.wrapped(_broken(found.level, found), "  ! ", "    ")
    if found.doubt is not None:
        out += paper.wrapped(found.doubt, "  ! ", "    ")
    if found.emulated:
        told = emulation.in_words(summary.engine.emulation)
        out += paper.wrapped(f"EMULATED, not measured{': ' if told else ''}{told}", "")
    if not found.valid:
        whole = "whole" if summary.kind == "recording" else "valid"
        out += paper.wrapped(f"the {_what(summary)} is not {whole}: {', '.join(summary.invalid_reasons)}", "")
    out += ["", f"{'where the time of ' + count(len(found.calls), 'call') + ' went':<52}{'share':>7}{'mean':>11}"]
    out += [_row(name, share, found) for name, share in neck.parts.items()]
    out += [
        _between(name, found) for name in BEFORE.values() if any(p.name == name for c in found.calls for p in c.before)
    ]
    out += _held(found)
    out += slower(found.slowdown)
    slow = sorted(found.calls, key=lambda call: -call.seconds)[:limit]
    if slow:
        out += ["", "the slowest calls"]
        out += [line for call in slow for line in _call(call, paper)]
    return out


def _broken(level: Level, found: Diagnosis) -> str:
    """One sentence: the level may be broken by something else than what takes most of all calls' time."""
    values = ", ".join(
        condition.condition + (f" ({value})" if (value := slo.judged_value(condition)) else "")
        for condition in level.broken
    )
    whose = "its service level" if level.asked else "the default service level"
    neck = level.bottleneck
    if neck.kind == "unknown":
        return f"{whose} is broken, {values}; by what is not known"
    text = f"{whose} is broken, {values}, by {neck.words}: {neck.share:.0%} of the time of the calls outside it"
    if not level.lever or level.lever == found.lever:
        return text
    return f"{text}; try {level.lever}" + (f" ({level.lever_note})" if level.lever_note else "")


def _nothing(summary: Summary) -> str:
    """Why there is no call to look at."""
    what = _what(summary)
    if not summary.window_s:
        ended = {
            "running": "has not opened it yet",
            "died": "was killed before it opened",
            "interrupted": "was interrupted before it opened",
            "failed": "failed before it opened",
        }
        word = summary.status_reason if summary.status_reason in ("running", "died") else summary.status
        return f"there is no measured window: the {what} {ended.get(word or '', 'ended without one')}"
    if summary.e2e_s is None and DAMAGED in summary.invalid_reasons:
        return f"what can be read of the {what} holds no completed call of its measured window"
    if summary.e2e_s is None:
        return f"no call that began in the {what}'s measured window was completed"
    return "no completed call says when its first token came"


def _what(summary: Summary) -> str:
    return "recording" if summary.kind == "recording" else "run"


def _row(name: str, share: float, found: Diagnosis) -> str:
    mine = [part for call in found.calls for part in call.parts if part.name == name]
    basis = "/".join(sorted({part.basis for part in mine}))
    mean = sum(part.seconds for part in mine) / len(found.calls)
    return f"  {WORDS[name]:<50}{share:>7.1%}{_seconds(mean):>11}  {basis}"


def _between(name: str, found: Diagnosis) -> str:
    """What threads waited for between their calls, beside the calls' own time."""
    seconds = sum(part.seconds for call in found.calls for part in call.before if part.name == name)
    return f"  {'between calls: ' + WORDS[name]:<50}{'':>7}{_seconds(seconds / len(found.calls)):>11}  measured"


def _held(found: Diagnosis) -> list[str]:
    tokens = [value for _, value in found.working_set]
    top = max([*tokens, found.kv_tokens or 0.0])
    if not top:
        return []
    bars = "".join(BLOCKS[min(8, round(8 * value / top))] for value in tokens)
    holds = f", the KV cache holds {found.kv_tokens:,}" if found.kv_tokens else ""
    return ["", f"working set over the run: up to {max(tokens):,.0f} tokens{holds}", f"  {bars}"]


def _call(call: CallTime, paper: Paper) -> list[str]:
    parts = [
        f"{WORDS[part.name]} {_seconds(part.seconds)}" + (f" ({part.cause})" if part.cause else "")
        for part in sorted(call.parts, key=lambda part: -part.seconds)
    ]
    head = f"agent {call.agent + 1}, {call.session} thread {call.thread} call {call.call}, {_seconds(call.seconds)}: "
    before = ", ".join(f"{WORDS[part.name]} {_seconds(part.seconds)}" for part in call.before)
    return paper.wrapped(head + "; ".join(parts) + (f" (before it: {before})" if before else ""), "  ", "    ")


def _seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.1f} s"
