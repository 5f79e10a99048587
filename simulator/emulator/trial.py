"""A measured case emulated with one set of constants after another."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from windtunnel.simulator.emulator.clients import CLIENTS, asks, counted, weights
from windtunnel.simulator.emulator.constants import Constants
from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.flags import Settings, parse
from windtunnel.simulator.emulator.measured import Case, Closed, Open
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.replay import COLUMNS, NS, Accepting, Ask, Fill, Floats, Played, Times, play
from windtunnel.simulator.emulator.request import Script
from windtunnel.simulator.emulator.retime import Frozen, Schedule
from windtunnel.simulator.emulator.scheduler import Scheduler
from windtunnel.simulator.emulator.step import Limits
from windtunnel.simulator.emulator.steptime import StepTime

STATISTICS = ("mean", "p50", "p90", "p99")


class Trial:
    """One case, its flags resolved. UsageError or EngineError where it cannot be served."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.settings: Settings = parse(list(case.flags), dict(case.environ))
        self._schedule: Schedule | None = None
        self._twin: Trial | None = None
        self._frozen: Frozen | None = None
        self._order: Times | None = None
        """Of the frozen requests: their numbers in the case, in the order in which they are scheduled."""

    def share(self, other: "Trial") -> None:
        """Use the schedule of another trial of the same flags and load."""
        if other is not self:
            self._twin = other

    def played(self, reached: Reached | None = None, figures: Constants | None = None) -> Played:
        """The case's requests as they go with these constants; None: those of the tables."""
        settings, load = self.settings, self.case.load
        steptime = StepTime(settings.gpu, settings.model, settings.mode, reached=reached, figures=figures)
        if self._frozen is not None:
            return _in_order(self._frozen.timed(steptime), self._order)
        if isinstance(load, Open) or settings.speculation is not None:
            return self._directly(steptime, reached or settings.gpu.reached)
        if self._twin is not None:
            return self._twin.played(reached, figures)
        if self._schedule is None:
            client = CLIENTS[load.client]
            limits = _plain(settings)
            self._schedule = Schedule.of(
                limits,
                asks(client, load.concurrency, load.tokens_in, load.tokens_out, limits.hash_block_size),
                load.concurrency,
                counted=counted(client, load.concurrency),
                asynchronous=settings.asynchronous,
            )
        return self._schedule.timed(steptime)

    def freeze(self, reached: Reached) -> None:
        """From here on a recorded run's steps are those that these constants give, only their times change."""
        if isinstance(self.case.load, Open) and self.settings.speculation is None:
            self._frozen = None
            steptime = StepTime(self.settings.gpu, self.settings.model, self.settings.mode, reached=reached)
            coming, self._order = self._arrivals(self.case.load, reached)
            self._frozen = Frozen(
                self.settings.limits,
                coming,
                steptime,
                asynchronous=self.settings.asynchronous,
                script=_outputs(Fill, self._order),
            )

    def thaw(self) -> None:
        self._frozen = None

    def _arrivals(self, load: Open, reached: Reached) -> tuple[list[Ask], Times]:
        """The requests as they reach the scheduler, and which of the case's each of them is.

        A client's request is on its way for as long as its prompt takes, so a short one may overtake a long one.
        """
        times = np.array([ask.at for ask in load.asks], dtype=np.int64)
        if self.case.client_side:
            times += _outside_ns(reached, np.array([len(ask.prompt) for ask in load.asks]))
        order = np.argsort(times, kind="stable")
        return [replace(load.asks[at], at=int(times[at])) for at in order.tolist()], order

    def _directly(self, steptime: StepTime, reached: Reached) -> Played:
        """Played anew: what is in a step depends on how long steps take, or on what is accepted."""
        settings, load, wanted = self.settings, self.case.load, self.settings.speculation
        core = Core(Scheduler(settings.limits), steptime, asynchronous=settings.asynchronous, lazy=True)
        script = (lambda number: Accepting(number, wanted.acceptance)) if wanted is not None else Fill
        if isinstance(load, Open):
            coming, order = self._arrivals(load, reached)
            return _in_order(play(core, coming, script=_outputs(script, order)), order)
        client = CLIENTS[load.client]
        sent = asks(client, load.concurrency, load.tokens_in, load.tokens_out, settings.limits.hash_block_size)
        return play(core, sent, concurrency=load.concurrency, counted=counted(client, load.concurrency), script=script)

    def emulated(self, reached: Reached | None = None, figures: Constants | None = None) -> dict[str, float]:
        """The case's metrics, in the units they were measured in."""
        return self.metrics(self.played(reached, figures), reached or self.settings.gpu.reached)

    def as_seen(self, played: Played, reached: Reached) -> Played:
        """With what a client waits beside the engine's steps, where the case's times are a client's."""
        if not self.case.client_side:
            return played
        return replace(played, asked=played.asked - _outside_ns(reached, played.prompt))

    def metrics(self, played: Played, reached: Reached) -> dict[str, float]:
        case, load = self.case, self.case.load
        played = self.as_seen(played, reached)
        known = statistics(played) if isinstance(load, Open) else _means(played, load)
        return {metric: known[metric] for metric in case.measured if metric in known}


def _outside_ns(reached: Reached, prompt_tokens: NDArray[np.int64]) -> Times:
    return np.rint(reached.outside_s(prompt_tokens.astype(np.float64)) * NS).astype(np.int64)


def _outputs(script: Callable[[int], Script], order: Times) -> Callable[[int], Script]:
    """Each request's output is that of its number in the case, as its later prompts repeat it."""
    return lambda number: script(int(order[number]))


def _in_order(played: Played, order: Times | None) -> Played:
    """In the order of the case's requests."""
    if order is None:
        return played
    back = np.argsort(order)
    return replace(played, **{name: getattr(played, name)[back] for name in COLUMNS})


def _plain(settings: Settings) -> Limits:
    """Windows without a prefix cache as one group of the same size in tokens: they are counted all the same.

    What they free early matters to a full pool only, and many steps at once are twenty times as fast so.
    """
    limits = settings.limits
    if limits.enable_prefix_caching or any(group.kind == "mamba" for group in limits.groups):
        return limits
    blocks = settings.kv_tokens // limits.block_size + 1
    return replace(limits, groups=(), num_gpu_blocks=blocks) if limits.groups else limits


def _means(played: Played, load: Closed) -> dict[str, float]:
    weight = weights(CLIENTS[load.client], load.concurrency)
    several = weight * (played.output > 1)
    # Completed output over time: each request in flight yields its tokens in its own time.
    lasted = float(np.average(played.e2e_s, weights=weight))
    known = {
        "ttft_ms": float(np.average(played.ttft_s, weights=weight)) * 1e3,
        "ttft_p50_ms": float(np.median(played.ttft_s[weight > 0])) * 1e3,
        "output_tokens_per_s": load.concurrency * float(np.average(played.output, weights=weight)) / lasted,
    }
    if several.any():
        known["tpot_ms"] = float(np.average(played.tpot_s, weights=several)) * 1e3
    return known


def statistics(played: Played, which: slice = slice(None)) -> dict[str, float]:
    """{ttft, tpot, e2e} by {mean, p50, p90, p99}, in ms, over some of the requests in their order of arrival."""
    chosen = np.arange(len(played.output))[which]
    several = chosen[played.output[chosen] > 1]
    return {
        **_spread("ttft", played.ttft_s[chosen]),
        **_spread("tpot", played.tpot_s[several]),
        **_spread("e2e", played.e2e_s[chosen]),
    }


def _spread(name: str, seconds: Floats) -> dict[str, float]:
    if not len(seconds):
        return {}
    values = (seconds.mean(), *np.percentile(seconds, (50, 90, 99)))
    return {f"{name}_{which}_ms": float(value) * 1e3 for which, value in zip(STATISTICS, values, strict=True)}
