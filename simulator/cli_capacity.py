"""`windtunnel capacity`: how many agents the engine carries at a service level."""

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.simulator.cli_options import run_options, to_config

OWN_WORDS = {
    "agents": "Where the search begins.",
    "seed": "First of the --repeats seeds: order of sessions and start points.",
    "duration": "Length of each run's measured window, after warm-up (default 300).",
    "sessions": "Each run starts K sessions, then drains.",
    "calls": "Each run starts K calls, then drains.",
    "engine": 'What carries them: "vllm serve MODEL --port {port}", "emulator --gpu H100 ..." (default: emulator).',
    "slo": "Service level to be met (default: ttft_s.p90<3,tpot_s.p90<0.05).",
    "out": "Folder with a run for each number that is tried; goes on with it (default: a new one in ./runs).",
    "as_json": "Print the answer as JSON.",
    "virtual": "As always here with the emulator: on the virtual clock. Other engines are refused.",
    "no_text": "As always here: what the models write is not kept.",
}
"""Flags of a run that mean something else here."""

if TYPE_CHECKING:
    from windtunnel.simulator.experiments.capacity import Capacity


@click.command()
@run_options
@click.option("--most", type=click.IntRange(1), default=1024, show_default=True, help="Try no more agents than this.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Seeds that decide at the edge.")
@click.option("--resolution", default="0%", show_default=True, metavar="SHARE", help="Distance at which to stop.")
@click.option("--emulate", metavar="CMD", help='Place the bracket on the emulator first: "emulator --gpu H100 ...".')
def capacity(most: int, repeats: int, resolution: str, emulate: str | None, **flags: Any) -> None:
    """How many agents this engine carries at a service level.

    Looks for the largest number of agents that meets --slo (default: ttft_s.p90<3,tpot_s.p90<0.05). --agents is where
    the search begins. The emulator is asked on the virtual clock, in seconds; an engine or a URL in real time.
    """
    from msgspec.structs import replace

    from windtunnel.simulator.experiments.capacity import DEFAULT_SLO
    from windtunnel.simulator.experiments.capacity_text import printed
    from windtunnel.simulator.run.config import parse_share

    as_json = bool(flags.pop("as_json"))
    config = to_config({**flags, "slo": flags["slo"] or DEFAULT_SLO})
    config = replace(config, text=False)
    share = parse_share(resolution, "--resolution")
    found = _search(config, most=most, repeats=repeats, resolution=share, emulate=emulate)
    click.echo(printed(found, as_json=as_json), nl=False)


def _in_own_words(command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = OWN_WORDS.get(option.name or "", option.help)


_in_own_words(capacity)


def _search(config: Any, *, most: int, repeats: int, resolution: float, emulate: str | None) -> "Capacity":
    from msgspec.structs import replace

    from windtunnel.simulator.experiments import capacity as cap
    from windtunnel.simulator.experiments.backends import Real, Virtual
    from windtunnel.simulator.experiments.claim import given_up, held
    from windtunnel.simulator.experiments.foreground import to_the_end
    from windtunnel.simulator.experiments.plan import Step, is_emulated
    from windtunnel.simulator.results.searched import PLAN_FILE
    from windtunnel.simulator.run.viewer import say
    from windtunnel.traces.errors import UsageError
    from windtunnel.traces.sources import load

    loaded = load(config.traces)
    command = None if config.target else config.engine or "emulator"
    step = Step(name="engine", command=command, target=config.target)
    virtual = command is not None and is_emulated(command)
    if config.virtual and not virtual:
        raise UsageError('--virtual asks the emulator in this process: give --engine "emulator ..." or leave it out')
    folder = Path(config.out) if config.out else _new_folder()
    # The clock is the engine's: said or not, it is the same question.
    workload = replace(config, target=None, engine=None, out=None, virtual=False)

    async def main() -> "Capacity":
        first = config.agents
        if emulate is not None and not virtual:
            model = Step(name="emulator", command=emulate)
            say(f"first on the emulator: {emulate}")
            cap.claim(folder / "emulated", workload, model)
            placed = cap.Readings(Virtual(workload, loaded, _quiet), model, folder / "emulated", config.seed, say)
            first = max(1, (await cap.find(placed, first=first, most=most, repeats=1, resolution=0.05)).agents)
            say(f"the emulator says {first}; now the engine itself")
        runner = Virtual(workload, loaded, _quiet) if virtual else Real(workload, loaded, folder, say)
        readings = cap.Readings(runner, step, folder, config.seed, say)
        try:
            edge = await cap.find(readings, first=first, most=most, repeats=repeats, resolution=resolution)
        finally:
            await runner.close()
        found = cap.answer(
            edge,
            loaded.traces,
            slo=config.slo,
            pace=config.pace,
            emulated=readings.emulated,
            folder=folder,
            whose=readings.emulation,
            duration_s=config.duration_s,
        )
        cap.keep(found, folder)
        return found

    cap.claim(folder, workload, step)
    with given_up(folder, PLAN_FILE), held(folder):
        return to_the_end(main(), goes_on=f"the same command with --out {folder} goes on")


def _quiet(_: str) -> None:
    """A virtual run's own words would drown the search's."""


def _new_folder() -> Path:
    return Path("runs") / f"capacity-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
