"""`windtunnel compare`: an experiment file, or run folders that exist."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.simulator.cli_options import GivenPath

if TYPE_CHECKING:
    from windtunnel.simulator.experiments.outcome import Outcome
    from windtunnel.simulator.experiments.plan import Plan

UNKNOWN_RUN_S = 60.0
"""For the time of runs whose end is counted in calls or sessions, before one was made."""
ENDS = {
    "narrow": "the intervals are narrow enough",
    "blocks": "the budget of blocks is used up",
    "time": "the time is used up",
    "nothing": "there are no two configurations left to compare",
}


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="FILE | RUN RUN ...", type=GivenPath())
@click.option("--out", type=GivenPath(), help="Experiment folder (default: one of its own in ./runs).")
@click.option("--dry-run", is_flag=True, help="Print what would be run, and for how long.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Compare this, e.g. ttft_s.p90 (repeatable).")
@click.option("--fail-if", type=click.Choice(["worse"]), help="Exit with 1 when anything is worse than the base.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    what: tuple[Path, ...],
    out: Path | None,
    dry_run: bool,
    metrics: tuple[str, ...],
    fail_if: str | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Compare engine configurations on the same sessions.

    FILE is an experiment (TOML), or the name of a shipped one: a workload, an engine, and steps that change its flags.
    It goes on where an earlier call of the same command was ended. RUN RUN ... are run folders that exist.
    """
    from msgspec.structs import replace

    from windtunnel.simulator.experiments.plan import find, load

    if len(what) == 1 and not what[0].is_dir():
        plan = load(find(what[0]))
        plan = replace(plan, metrics=metrics) if metrics else plan
        if dry_run:
            click.echo(_as_json(plan) if as_json else _described(plan), nl=False)
            return
        outcome = _conduct(plan, out)
    else:
        outcome = _of_folders(what, metrics)
    click.echo(_printed(outcome, markdown=markdown, as_json=as_json), nl=False)
    if fail_if == "worse" and any(c.verdict == "worse" for step in outcome.steps for c in step.versus_base.values()):
        sys.exit(1)
    if all(step.failed is not None for step in outcome.steps):
        sys.exit(1)


def _of_folders(paths: tuple[Path, ...], metrics: tuple[str, ...]) -> "Outcome":
    from windtunnel.simulator.experiments import metrics as named
    from windtunnel.simulator.experiments.folders import group
    from windtunnel.simulator.experiments.outcome import assess, told

    steps, asked = group(paths, time.time()), named.chosen(metrics)
    return assess(steps, asked if metrics else told(asked, steps), name="comparison of run folders")


def _conduct(plan: "Plan", out: Path | None) -> "Outcome":
    from windtunnel.simulator.experiments.backends import Real, Virtual
    from windtunnel.simulator.experiments.experiment import Experiment, Runner, default_folder
    from windtunnel.simulator.experiments.foreground import to_the_end
    from windtunnel.simulator.run.viewer import say
    from windtunnel.traces.sources import load

    folder = out or default_folder(plan)
    experiment = Experiment.open(plan, folder, talk=say)
    loaded = load(plan.workload.traces)
    say(f"experiment: {folder}")
    runner: Runner = Virtual(plan.workload, loaded, say) if plan.virtual else Real(plan.workload, loaded, folder, say)

    async def main() -> "Outcome":
        ended = await experiment.conduct(runner)
        say(ENDS[ended.reason])
        return ended.outcome

    return to_the_end(main(), goes_on=f"the same command goes on in {folder}")


def _printed(outcome: "Outcome", *, markdown: bool, as_json: bool) -> str:
    from windtunnel.simulator.experiments import table
    from windtunnel.traces.outlet import to_json

    if as_json:
        return to_json(outcome).decode() + "\n"
    return table.markdown(outcome) if markdown else table.render(outcome)


def _described(plan: "Plan") -> str:
    """What would be run, step by step, and how long it takes."""
    from windtunnel.simulator.results.text import count

    many = "" if plan.least == plan.most else f"{plan.least} to "
    lines = [f"{plan.name}: {count(len(plan.steps), 'configuration')}, {many}{count(plan.most, 'block')} of each"]
    lines += [plan.about] if plan.about else []
    for step in plan.steps:
        lines.append(f"  {step.name}")
        lines += [f"      {change}" for change in step.changes] or [f"      {step.command or step.target}"]
        lines += [f"      because: {step.why}"] if step.why else []
    lines.append(_time(plan))
    return "\n".join(lines) + "\n"


def _as_json(plan: "Plan") -> str:
    """The same for `--json`; times in seconds, None where they are not known before a run was made."""
    from windtunnel.simulator.experiments.metrics import chosen
    from windtunnel.traces.outlet import to_json

    steps = [
        {
            "name": step.name,
            "command": step.command,
            "target": step.target,
            "previous": None if step.previous is None else plan.steps[step.previous].name,
            "changes": step.changes,
            "lossy": step.lossy,
            "why": step.why,
        }
        for step in plan.steps
    ]
    low, high = _seconds(plan) or (None, None)
    known = {"name": plan.name, "about": plan.about, "steps": steps, "virtual": plan.virtual}
    known |= {
        "blocks": {"least": plan.least, "most": plan.most},
        "metrics": [str(metric) for metric in chosen(plan.metrics)],
    }
    known |= {"seconds": {"least": low, "most": high, "limit": plan.time_s}}
    return to_json(known).decode() + "\n"


def _seconds(plan: "Plan") -> tuple[float, float] | None:
    """Of the runs in real time, for the least and the most blocks."""
    config: Any = plan.workload
    if plan.virtual or config.duration_s is None:
        return None
    each = config.duration_s + config.ramp_s + UNKNOWN_RUN_S
    return each * len(plan.steps) * plan.least, each * len(plan.steps) * plan.most


def _time(plan: "Plan") -> str:
    if plan.virtual:
        return "time: on the virtual clock, seconds for each run"
    if (known := _seconds(plan)) is None:
        return "time: each run ends by its count of calls or sessions; how long that takes is not known before one ran"
    low, high = (seconds / 60 for seconds in known)
    limit = "" if plan.time_s is None else f", no block is begun after {plan.time_s / 60:.0f} minutes"
    minutes = f"{high:.0f}" if plan.least == plan.most else f"{low:.0f} to {high:.0f}"
    return f"time: {minutes} minutes of runs, the engines' starts not counted{limit}"
