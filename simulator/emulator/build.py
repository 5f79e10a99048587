"""The engine that a resolved command line describes, without a clock and without routes."""

from windtunnel.simulator.emulator.core import Core
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.scheduler import Scheduler
from windtunnel.simulator.emulator.steptime import StepTime


def core_of(settings: Settings, *, lazy: bool = False, parks: bool = True) -> Core:
    """A core with an empty cache. `lazy`: driven by `Core.run`, which jumps where it `parks`."""
    steptime = StepTime(settings.gpu, settings.model, settings.mode, reached=settings.reached, figures=settings.figures)
    return Core(Scheduler(settings.limits), steptime, asynchronous=settings.asynchronous, lazy=lazy, parks=parks)
