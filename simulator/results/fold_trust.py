"""Whether the run looks valid so far: the rules of `validity` on figures that are kept up to date event by event."""

from typing import TYPE_CHECKING

from windtunnel.agents.events import CallEnd, ClientSample, EngineSample, GpuSample, Note, Phase
from windtunnel.simulator.results.calls import NS, completed, ended_ns
from windtunnel.simulator.results.counters import Counters
from windtunnel.simulator.results.facts import (
    TREND_KV,
    TREND_MIN_CALLS,
    TREND_MIN_S,
    TREND_PARTS,
    TREND_SHARE,
    fresh,
    gone,
    lateness,
    wants_every_agent,
    was_reset,
)
from windtunnel.simulator.results.validity import (
    FOREIGN_WINDOW_LIMIT,
    ONLY_IN_WINDOW,
    Facts,
    harmful_throttles,
    is_recording,
    is_window,
    judge,
    more_than,
    trends,
)

if TYPE_CHECKING:
    from windtunnel.simulator.results.fold import Fold

FOREIGN_AFTER_NS = 10 * NS
SETTLED_S = 5.0
"""Means of a window younger than this say nothing yet."""


class Trust:
    def __init__(self) -> None:
        self.live_s = 0.0
        self.in_flight_s = 0.0
        self.in_tool_s = 0.0
        self.waiting_s = 0.0
        self.window_s = 0.0
        self.cpu: float | None = None
        """The client's share of a core, mean of the window; before it, the latest."""
        self.blocked: int | None = None
        """Streams whose request the server took slower than it was written, most at one time in the latest second."""
        self._lag: dict[int, int] = {}
        self._lag_n = 0
        self._cpu_sum = 0.0
        self._cpu_n = 0
        self._throttled = False
        self._other = False
        self._foreign = False
        self._notes: list[str] = []
        self._herd: list[tuple[int, int | None]] = []
        self._first_token: int | None = None
        self._engine_base: tuple[int, int] | None = None
        self._counters = Counters()
        """The engine's, inside the window."""
        self._warm = False
        """A call was completed before the window."""
        self._window_calls = 0
        """Completed calls that were intended inside the window."""
        self._window_begun = 0
        """All that were and have ended."""
        self._prompts = self._wanted = 0
        """Prompt tokens as the server counted them, and as recorded, of the same calls."""

    @property
    def in_flight_mean(self) -> float | None:
        """Calls in flight, mean over the window so far."""
        return self.in_flight_s / self.window_s if self.window_s else None

    @property
    def lag_p99_s(self) -> float | None:
        """Event-loop lag of the client in the window so far; before it, since the start."""
        if not self._lag_n:
            return None
        below = 0
        for lag in sorted(self._lag):
            below += self._lag[lag]
            if below >= 0.99 * self._lag_n:
                return lag / 1e6
        return None

    def add_live(self, seconds: float, in_flight: float, in_tool: float, waiting: float, live: float) -> None:
        """`seconds` more of the window, in which so many agent-seconds (calls: call-seconds) passed."""
        self.window_s += seconds
        self.in_flight_s += in_flight
        self.in_tool_s += in_tool
        self.waiting_s += waiting
        self.live_s += live

    def phase(self, event: Phase) -> None:
        if event.phase == "steady":
            self._lag.clear()
            self._lag_n = self._cpu_n = 0
            self._cpu_sum, self.cpu = 0.0, None

    def client_sample(self, event: ClientSample, *, counts: bool) -> None:
        """`counts` is false once the window is over: what comes later changes nothing but the present."""
        self.blocked = event.blocked
        if not counts:
            return
        seen = self._lag
        for lag in event.lag_us:
            # Above a millisecond three digits are kept, so that the table stays small.
            kept = lag if lag < 1000 else lag // 10 * 10 if lag < 10_000 else lag // 1000 * 1000
            seen[kept] = seen.get(kept, 0) + 1
        self._lag_n += len(event.lag_us)
        if event.cpu is not None:
            self._cpu_sum += event.cpu
            self._cpu_n += 1
            self.cpu = self._cpu_sum / self._cpu_n

    def gpu_sample(self, event: GpuSample, *, steady: bool) -> None:
        if steady:
            self._throttled |= harmful_throttles(event.throttle)
            self._other |= bool(event.other_processes)

    def note(self, event: Note, *, steady: bool) -> None:
        if event.reason is not None and (steady or event.reason not in ONLY_IN_WINDOW):
            self._notes.append(event.reason)

    def engine_sample(self, event: EngineSample, output_tokens: int, *, steady: bool) -> None:
        if not steady or event.generation_tokens is None:
            return
        if self._engine_base is None:
            self._engine_base = event.t, output_tokens
        self._counters.add(event)
        t, ours = self._engine_base
        if event.t - t >= FOREIGN_AFTER_NS:
            theirs = None if self._counters.restarts else self._counters.grown("generation_tokens")
            self._foreign = more_than(theirs, output_tokens - ours, FOREIGN_WINDOW_LIMIT)

    def call_end(self, event: CallEnd, window: tuple[int, int | None] | None) -> None:
        inside = window is not None and window[0] <= event.t_intended < (window[1] or event.t_intended + 1)
        self._window_begun += inside
        if completed(event):
            self._window_calls += inside
            self._warm |= window is None or ended_ns(event) <= window[0]
        if event.prompt_tokens:
            self._prompts += event.prompt_tokens
            self._wanted += event.expected_prompt_tokens
        self._herd_call(event)

    def _herd_call(self, event: CallEnd) -> None:
        """Keeps the calls that were sent before the run's first token: see `facts.isolated`."""
        if event.t_first is not None and (self._first_token is None or event.t_first < self._first_token):
            self._first_token = event.t_first
            self._herd = [call for call in self._herd if call[0] <= event.t_first]
        if event.t_sent is not None and (self._first_token is None or event.t_sent <= self._first_token):
            self._herd.append((event.t_sent, event.cached_tokens))

    def _isolated(self, fold: "Fold") -> bool:
        """Judged from the herd's ended calls; no figure is no reason while the run goes on."""
        reported = [cached for _, cached in self._herd if cached is not None]
        if reported:
            return min(reported) == 0
        return not fold.ended or self._first_token is None or was_reset(fold.run)

    def _late(self, fold: "Fold") -> float | None:
        return lateness(fold.engine.grown("behind_s"), fold.engine.grown("step_s"))

    def _trending(self, fold: "Fold") -> bool:
        """As `facts` says of a finished run, with tokens by the progress that told of them."""
        if fold.window is None or self._window_calls < TREND_MIN_CALLS:
            return False
        start, closed = fold.window
        latest = fold.engine.latest
        told = fold.progress_t or fold.t
        tokens = _parts(fold, "output", start, min(closed or told, told))
        if tokens and trends(tokens, TREND_SHARE * sum(tokens) / TREND_PARTS):
            return True
        if latest is None or latest.kv_usage is None:
            return False
        end = min(closed or latest.t, latest.t)
        seconds = (end - start) / NS / TREND_PARTS
        return trends([held / seconds for held in _parts(fold, "kv", start, end)], TREND_KV)

    def reasons(self, fold: "Fold") -> tuple[str, ...]:
        measured = is_measured(fold, over=fold.ended)
        judged = measured and self.window_s > SETTLED_S and wants_every_agent(fold.run)
        ending = "run_failed" if fold.status == "failed" else None
        return judge(
            Facts(
                recording=is_recording(fold.run),
                steady=not fold.ended or (measured and bool(self._window_calls or not self._window_begun)),
                client_lag_p99_s=self.lag_p99_s if measured else None,
                client_cpu=self.cpu if measured else None,
                agents=len(fold.agents),
                live_mean=self.live_s / self.window_s if judged else None,
                sessions_started=fold.sessions["started"],
                sessions_failed=fold.sessions["failed"],
                isolated=self._isolated(fold),
                cold_start=measured and not self._warm and fresh(fold.run, fold.engine.first),
                foreign=self._foreign and not fold.calls["failed"],
                throttled=measured and self._throttled,
                other_processes=measured and self._other,
                trending=self._trending(fold),
                emulator_late=self._late(fold) if measured else None,
                prompts_off=abs(self._prompts / self._wanted - 1) if measured and self._wanted else None,
                ending=ending,
                damaged=fold.problems > 0,
                restarted=bool(fold.engine.counters.restarts),
                gone=gone(fold.status_reason),
                notes=tuple(reason for reason in self._notes if measured or reason not in ONLY_IN_WINDOW),
            )
        )


def is_measured(fold: "Fold", *, over: bool) -> bool:
    """Whether there is a window to be told of: one that is open while the run goes on, or was long enough."""
    if fold.window is None:
        return False
    start, closed = fold.window
    if closed is None and not over:
        return True
    return is_window(((fold.t if closed is None else closed) - start) / NS, fold.run)


def _parts(fold: "Fold", name: str, start: int, end: int) -> list[float]:
    """A column of the history over [start, end) in equal parts; empty where that is too short."""
    if end - start < TREND_MIN_S * NS:
        return []
    return fold.series.amounts(name, [start + (end - start) * part / TREND_PARTS for part in range(TREND_PARTS + 1)])
