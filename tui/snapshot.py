"""From the fold to what is drawn: one frozen `View`, with names made short and ages worked out."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from windtunnel.agents.events import CallStart, Event, WaitStart
from windtunnel.simulator.results.cautions import left_out
from windtunnel.simulator.results.emulation import Emulation, bar_of, missed, of_run
from windtunnel.simulator.results.fold import Fold
from windtunnel.simulator.results.fold_trust import is_measured
from windtunnel.simulator.results.summary_model import Distribution, Summary, comparable
from windtunnel.simulator.results.text import offloads
from windtunnel.simulator.results.untold import Untold
from windtunnel.simulator.results.validity import in_words, is_recording
from windtunnel.traces.outlet import shown
from windtunnel.tui.figures import clock, seconds, tenths, whole
from windtunnel.tui.history import history_of
from windtunnel.tui.rows import in_engine_queue, row_of
from windtunnel.tui.view import Ending, Engine, History, View

N = TypeVar("N", int, float)
NS = 1_000_000_000
RATE_S = 5.0
"""Speeds are of the last seconds: long enough to stand still, short enough to show a change."""
GUESS_FROM = 0.1
"""Of the sessions or calls wanted; before so many have ended, their pace tells no end."""


class Plans:
    """What calls and waits were planned to be, and of which calls the time in the queue is not told: the fold keeps
    only what they came to.
    """

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], CallStart] = {}
        self.waits: dict[tuple[int, int], WaitStart] = {}
        self.untold = Untold()

    def apply(self, event: Event) -> None:
        if isinstance(event, CallStart):
            self.calls[event.agent, event.thread] = event
        elif isinstance(event, WaitStart):
            self.waits[event.agent, event.thread] = event
        else:
            self.untold.apply(event)


def head_of(run: Mapping[str, Any], name: str) -> View:
    """What does not change while the run goes on, from `run.json`."""
    config, engine = _dict(run.get("config")), _dict(run.get("engine"))
    emulation = _dict(engine.get("emulation"))
    version = str(engine.get("version") or "")
    engine_name = str(engine.get("name") or "")
    emulated = of_run(dict(run))
    hardware = emulation.get("gpu") or engine.get("gpu") or _dict(run.get("gpu")).get("name") or ""
    traces = config.get("traces")
    source = ", ".join(_short(str(t)) for t in traces) if isinstance(traces, list) else ""
    recording = is_recording(dict(run))
    if recording:
        source = str(run.get("target") or "").rpartition("://")[2]
    duration = config.get("duration_s")
    goal = next(((0, int(config[name]), name) for name in ("sessions", "calls") if _int(config.get(name))), None)
    return View(
        run=name,
        agents=_int(run.get("agents")) or _int(config.get("agents")) or 0,
        source=source,
        engine_name="emulator" if engine_name.endswith("emulator") else shown(f"{engine_name} {version}".strip()),
        model=shown(str(engine.get("model") or config.get("model") or "").rstrip("/").rpartition("/")[2]),
        hardware=shown(hardware),
        emulated=bool(engine.get("emulated")),
        error_bar=bar_of(emulated, "") if emulated is not None else "",
        sure=_sure(emulated) if emulated is not None else "",
        recording=recording,
        total_s=float(duration) if isinstance(duration, int | float) else None,
        goal=None if recording else goal,
        engine=Engine(kv_tokens=_int(engine.get("kv_tokens")), offloads=offloads(_dict(engine.get("resolved")))),
    )


def _sure(emulated: Emulation) -> str:
    """`uncalibrated, unverified, flags not modelled`: beside the model, where there is room."""
    fit = {True: "calibrated", False: "uncalibrated", None: ""}[emulated.calibrated]
    flags = "flags not modelled" if missed(emulated.ignored) else ""
    return ", ".join(part for part in (fit, "unverified" if emulated.unverified else "", flags) if part)


def view_of(
    head: View,
    fold: Fold,
    plans: Plans,
    *,
    ending: Ending | None,
    silent_s: float | None,
    summary: Summary | None,
    speed: str,
    history: History | None = None,
) -> View:
    """The run as the fold knows it; once there is a summary, its figures are the ones shown."""
    reasons = summary.invalid_reasons if summary is not None else fold.invalid_reasons()
    if summary is None and ending == "died":
        reasons = ("died", *reasons)
    measured = is_measured(fold, over=ending is not None)
    window_s = fold.trust.window_s if measured else 0.0
    now = fold.t
    engine = fold.engine
    gpus = list(engine.gpus.values())
    latest = engine.latest
    expected = fold.cache.shown.expected_share
    lag = fold.trust.lag_p99_s
    live = ending is None
    queued = in_engine_queue(fold.agents, latest, now) if live else frozenset()
    goal = _goal(head, fold)
    ended = fold.calls if head.recording else fold.sessions
    left = _left(head, fold, goal)
    note = fold.phase_note or (fold.notes[-1].text if fold.notes else "")
    view = View(
        run=head.run,
        agents=len(fold.agents) if head.recording else head.agents or len(fold.agents),
        source=head.source,
        engine_name=head.engine_name,
        model=head.model,
        hardware=head.hardware,
        emulated=head.emulated,
        error_bar=head.error_bar,
        sure=head.sure,
        recording=head.recording,
        speed=speed,
        phase=fold.phase,
        note=note,
        elapsed_s=fold.elapsed_s,
        phase_s=fold.phase_s,
        total_s=head.total_s,
        left_s=left[0] if live else None,
        left_sure=left[1],
        warm=_warm(head, fold) if live else None,
        goal=goal,
        ending=ending,
        reason=fold.status_reason,
        silent_s=silent_s,
        valid=False if reasons else True if measured or summary is not None else None,
        invalid=tuple(reasons),
        why=tuple(in_words(r) for r in reasons),
        out_rate=fold.output_per_s(RATE_S) if live else None,
        in_rate=fold.prompt_per_s(RATE_S) if live else None,
        cached=fold.cache.shown.share,
        could_be_cached=expected if comparable(expected) else None,
        in_flight=fold.in_flight,
        in_tool=fold.in_tool,
        waiting=fold.waiting,
        in_flight_mean=fold.trust.in_flight_mean if measured else None,
        in_tool_mean=fold.trust.in_tool_s / window_s if window_s else None,
        waiting_mean=fold.trust.waiting_s / window_s if window_s else None,
        calls=fold.calls["started"],
        done=ended["completed"],
        failed=ended["failed"],
        cut=ended["cut"],
        lag_p99_ms=None if lag is None else lag * 1000,
        blocked=fold.trust.blocked,
        parsed=not fold.approximate,
        failures=tuple(fold.failure_reasons.most_common(5)),
        engine=Engine(
            kv_usage=latest.kv_usage if latest else None,
            kv_tokens=head.engine.kv_tokens,
            offloads=head.engine.offloads,
            held=_held_now(fold) if live else _held_in_window(fold) if measured else None,
            running=latest.running if latest else None,
            waiting=latest.waiting if latest else None,
            hit_ratio=engine.hit_ratio,
            preemptions=engine.preemptions if latest is not None and latest.preemptions is not None else None,
            accepted=engine.acceptance_length,
            gpu=_mean([g.utilisation for g in gpus]),
            memory=_sum([g.memory_used for g in gpus]),
            memory_total=_sum([g.memory_total for g in gpus]),
            power_w=_sum([g.power_w for g in gpus]),
        ),
        history=history if history is not None else history_of(fold, ended=not live),
        rows=tuple(row_of(row, plans, now, ended=not live, queued=row.agent in queued) for row in fold.rows),
    )
    return view if summary is None else _concluded(view, summary, fold)


def _goal(head: View, fold: Fold) -> tuple[int, int, str] | None:
    """How much of what ends the run has ended."""
    if head.goal is None:
        return None
    _, wanted, what = head.goal
    ended = fold.sessions if what == "sessions" else fold.calls
    return ended["completed"] + ended["failed"] + ended["cut"], wanted, what


def _warmup(fold: Fold, name: str) -> float | None:
    """`calls` or `seconds` of the warm-up, from `run.json`."""
    value = _dict(_dict(fold.run.get("config")).get("warmup")).get(name)
    return value if isinstance(value, int | float) else None


def _warm(head: View, fold: Fold) -> tuple[int, int] | None:
    """How many agents have made the calls that the warm-up waits for."""
    wanted = _warmup(fold, "calls")
    if fold.phase != "warmup" or not wanted or head.recording:
        return None
    return sum(len(agent.calls) >= wanted for agent in fold.agents), head.agents or len(fold.agents)


def _left(head: View, fold: Fold, goal: tuple[int, int, str] | None) -> tuple[float | None, bool]:
    """Seconds until the end of the window, and whether that is known and not guessed from the pace so far."""
    if fold.phase == "warmup" and (lasts := _warmup(fold, "seconds")) is not None:
        return max(0.0, lasts - fold.phase_s), True
    if fold.phase == "steady" and head.total_s is not None:
        return max(0.0, head.total_s - fold.phase_s), True
    if goal is None or fold.ended or goal[0] < GUESS_FROM * goal[1] or goal[0] >= goal[1]:
        return None, True
    return fold.elapsed_s / goal[0] * (goal[1] - goal[0]), False


def _held_now(fold: Fold) -> float | None:
    """The report's working set, and beyond it what the calls in flight have generated; None while a context that
    belongs to it is not known.
    """
    return float(fold.held.tokens + sum(agent.live_tokens for agent in fold.agents)) if fold.held.known else None


def _held_in_window(fold: Fold) -> float | None:
    """The mean working set of the measured window, tokens; None where nothing was measured."""
    if fold.window is None:
        return None
    start, end = fold.window[0], fold.window[1] or fold.t
    return fold.series.amounts("held", [start, end])[0] * NS / (end - start) if end > start else None


def _sum(values: Sequence[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _last_busy(engine: Engine, fold: Fold) -> Engine:
    """The engine as it was while it still had requests, for a run without a window."""
    busy = fold.engine.busy
    held = [tokens for tokens in fold.series.rates("held") if tokens > 0]
    if busy is None:
        return engine
    return replace(
        engine,
        kv_usage=busy.kv_usage,
        running=busy.running,
        waiting=busy.waiting,
        held=held[max(0, len(held) - 2)] if held else None,
    )


def _concluded(view: View, summary: Summary, fold: Fold) -> View:
    expected = summary.expected_cache_hit_ratio
    recorded = summary.kind == "recording"
    unmeasured = not summary.window_s and not recorded
    return replace(
        view,
        valid=summary.valid,
        out_rate=summary.output_tokens_per_s,
        in_rate=summary.prompt_tokens_per_s,
        cached=summary.cache_hit_ratio,
        could_be_cached=expected if comparable(expected) else None,
        in_flight_mean=summary.in_flight_mean,
        in_tool_mean=summary.in_tool_mean,
        waiting_mean=summary.waiting_mean,
        lag_p99_ms=summary.client_lag_s.p99 * 1000 if summary.client_lag_s else None,
        blocked=summary.blocked_max,
        done=view.done if recorded else summary.sessions_completed,
        failed=view.failed if recorded else summary.sessions_failed,
        cut=view.cut if recorded else summary.sessions_cut,
        calls=summary.calls,
        emulated=summary.emulated,
        elapsed_s=summary.duration_s,
        unmeasured=unmeasured,
        engine=_last_busy(view.engine, fold)
        if unmeasured
        else replace(
            view.engine,
            kv_usage=summary.engine.kv_usage,
            running=summary.engine.running,
            waiting=summary.engine.waiting,
            hit_ratio=summary.engine.hit_ratio,
            preemptions=summary.engine.preemptions,
            accepted=summary.engine.acceptance_length,
            gpu=summary.gpu.utilisation if summary.gpu else None,
            memory=summary.gpu.memory_used if summary.gpu else None,
            memory_total=summary.gpu.memory_total if summary.gpu else None,
            power_w=summary.gpu.power_w if summary.gpu else None,
        ),
        headline=headline(summary),
    )


def headline(summary: Summary) -> tuple[tuple[str, str], ...]:
    """The result in the order of importance."""

    def spread(d: Distribution | None, unit: str, scale: float = 1.0) -> str:
        return "–" if d is None else f"{seconds(d.p50 * scale)} / {seconds(d.p90 * scale)} {unit}"

    recording = summary.kind == "recording"
    if not recording and not summary.window_s:
        return (
            ("calls", f"{whole(summary.calls)} ({summary.failed_calls} failed, {summary.calls_cut} cut)"),
            ("output tokens", whole(summary.output_tokens)),
            ("prompt tokens", whole(summary.prompt_tokens)),
            ("sessions", f"{whole(summary.sessions_started)} ({summary.sessions_completed} completed)"),
        )
    missing = left_out(summary)
    return (
        ("TTFT p50 / p90", spread(summary.ttft_s, "s")),
        ("TPOT p50 / p90", spread(summary.tpot_s, "ms", 1000)),
        *((("left out", f"{missing[0]} of {missing[1]} (long ones)"),) if missing else ()),
        ("sessions", whole(summary.agents))
        if recording
        else ("session equiv./h", tenths(summary.session_equivalents_per_hour)),
        ("calls", f"{whole(summary.calls)} ({summary.failed_calls} failed, {summary.calls_cut} cut)"),
        ("output tokens", whole(summary.output_tokens)),
        ("prompt tokens", whole(summary.prompt_tokens)),
        ("window", clock(summary.window_s)),
    )


def _short(source: str) -> str:
    return source if source.startswith("library") else source.rstrip("/").rpartition("/")[2] or source


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None
