"""`windtunnel capacity`: how many agents the engine carries at a service level."""

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from windtunnel.simulator.cli_options import run_options

OWN_WORDS = {
    "agents": "Where the search begins.",
    "seed": "First of the --repeats seeds: order of sessions and start points.",
    "duration": "Length of each run's measured window, after warm-up (default 1200 on the emulator alone, else 300).",
    "warmup": "Calls per agent (default 2), or seconds (300s where waits have no cap), before the window opens.",
    "sessions": "Each run starts K sessions, then drains.",
    "calls": "Each run starts K calls, then drains.",
    "engine": 'What carries them: "vllm serve MODEL --port {port}", "emulator --gpu H100 ..." (default: emulator). '
    "Once for each configuration.",
    "slo": "Service level to be met (default: ttft_s.p90<3,tpot_s.p90<0.05).",
    "out": "Folder with a run for each number that is tried; goes on with it (default: a new one in ./runs).",
    "as_json": "Print the answer as JSON.",
    "virtual": "As always here with the emulator: on the virtual clock. Other engines are refused.",
    "no_text": "As always here: what the models write is not kept.",
}
"""Flags of a run that mean something else here."""

if TYPE_CHECKING:
    from windtunnel.simulator.experiments.backends import Real, Virtual
    from windtunnel.simulator.experiments.capacity import Capacity
    from windtunnel.simulator.experiments.configurations import Asked


@click.command()
@run_options
@click.option("--most", type=click.IntRange(1), default=1024, show_default=True, help="Try no more agents than this.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Seeds that decide at the edge.")
@click.option("--resolution", default="0%", show_default=True, metavar="SHARE", help="Distance at which to stop.")
@click.option("--emulate", metavar="CMD", help='Place the bracket on the emulator first: "emulator --gpu H100 ...".')
@click.option(
    "--try", "tries", is_flag=True, help="Then start it with the lever's flag added, and say what that carries."
)
@click.pass_context
def capacity(
    context: click.Context, /, most: int, repeats: int, resolution: str, emulate: str | None, tries: bool, **flags: Any
) -> None:
    """How many agents this engine carries at a service level, and which flags carry more.

    Looks for the largest number of agents that meets --slo (default: ttft_s.p90<3,tpot_s.p90<0.05). --agents is where
    the search begins. The emulator is asked on the virtual clock, in seconds; an engine or a URL in real time.

    Several configurations, beside each other: --engine more than once, each with a name in front of it if you like
    ("8 bit: vllm serve ..."); or in place of TRACE an experiment as `compare` takes it (FILE.toml, or the name of a
    shipped one), whose workload holds but for the flags that are given.
    """
    from windtunnel.simulator.experiments.capacity import DEFAULT_SLO
    from windtunnel.simulator.experiments.capacity_text import printed
    from windtunnel.simulator.experiments.configurations import asked
    from windtunnel.simulator.run.config import parse_share

    as_json = bool(flags.pop("as_json"))
    given = {name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    what = asked(flags, given, default_slo=DEFAULT_SLO)
    share = parse_share(resolution, "--resolution")
    found = _search(what, most=most, repeats=repeats, resolution=share, emulate=emulate, tries=tries)
    click.echo(printed(found, as_json=as_json), nl=False)


def _in_own_words(command: click.Command) -> None:
    for at, option in enumerate(command.params):
        if not isinstance(option, click.Option):
            continue
        if option.name == "engine":
            command.params[at] = click.Option(
                ["--engine"], multiple=True, metavar="[NAME: ]CMD", help=OWN_WORDS["engine"]
            )
        option.help = OWN_WORDS.get(option.name or "", option.help)


_in_own_words(capacity)


def _search(
    what: "Asked", *, most: int, repeats: int, resolution: float, emulate: str | None, tries: bool
) -> "Capacity":
    from windtunnel.simulator.experiments import capacity as cap
    from windtunnel.simulator.experiments.backends import Real, Virtual
    from windtunnel.simulator.experiments.claim import PLACED, given_up
    from windtunnel.simulator.experiments.foreground import to_the_end
    from windtunnel.simulator.experiments.plan import Step
    from windtunnel.simulator.experiments.searching import Beside, Question, search
    from windtunnel.simulator.results.searched import PLAN_FILE
    from windtunnel.simulator.run.viewer import say
    from windtunnel.traces.errors import UsageError
    from windtunnel.traces.sources import load

    steps, workload = what.steps, what.workload
    several = len(steps) > 1
    if several and (emulate is not None or tries):
        flag = "--try" if tries else "--emulate"
        raise UsageError(f"{flag} is for one configuration: give one --engine, or leave {flag} out")
    loaded = load(workload.traces)
    folder = Path(what.out) if what.out else _new_folder()
    question = Question(workload=workload, most=most, repeats=repeats, resolution=resolution)
    virtual, real = Virtual(workload, loaded, _quiet), Real(workload, loaded, folder, say)

    def runner_of(step: Step) -> "Virtual | Real":
        return virtual if what.virtual(step) else real

    async def main() -> "Capacity":
        first = workload.agents
        if emulate is not None and not what.virtual(steps[0]):
            model = Step(name="emulator", command=emulate)
            say(f"first on the emulator: {emulate}")
            with cap.claimed(folder / PLACED, workload, model):
                placed = cap.Readings(virtual, model, folder / PLACED, workload.seed, say)
                try:
                    edge = await cap.find(placed, first=first, most=most, repeats=1, resolution=0.05)
                except cap.NothingCountsError as error:
                    say(f"the emulator has no answer ({error}); now the engine itself")
                else:
                    first = max(1, edge.agents)
                    say(f"the emulator says {first}; now the engine itself")
        try:
            beside = Beside(question, folder, runner_of, say, first=first)
            if several:
                return await beside.of(steps)
            if tries:
                return await beside.trying(steps[0])
            return (await search(question, runner_of(steps[0]), steps[0], folder, first, say)).found
        finally:
            await real.close()

    claimed = cap.claimed_together(folder, workload) if several else cap.claimed(folder, workload, steps[0])
    with claimed, given_up(folder, PLAN_FILE):
        return to_the_end(main(), goes_on=f"the same command with --out {folder} goes on")


def _quiet(_: str) -> None:
    """A virtual run's own words would drown the search's."""


def _new_folder() -> Path:
    return Path("runs") / f"capacity-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
