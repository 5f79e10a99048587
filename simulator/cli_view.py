"""`windtunnel view`: a run, several of them, an experiment, or what was run before."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from windtunnel.simulator.cli_options import GivenPath, theme_option
from windtunnel.traces.errors import UsageError


def _factor(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    from windtunnel.simulator.opening import factor

    return _told(factor, text)


def _moment(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    from windtunnel.simulator.opening import moment

    return _told(moment, text)


def _told(read: Callable[[str], float], text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN | RUN RUN ... | EXPERIMENT | FOLDER]", type=GivenPath())
@click.option("--speed", metavar="N", callback=_factor, help="Play a run again, N times as fast as it was.")
@click.option("--at", metavar="S", callback=_moment, help="Show a run as it was S seconds after its start.")
@click.option("--plain", is_flag=True, help="Text instead of the screen; of a live run a line a second first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: summary.json of a run, `compare --json` of several.")
@theme_option()
@click.option("--web", is_flag=True, help="Show it in this machine's browsers; prints the address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --web (default: any free one).")
def view(
    paths: tuple[Path, ...],
    speed: float | None,
    at: float | None,
    plain: bool,
    as_json: bool,
    theme: str | None,
    web: bool,
    port: int,
) -> None:
    """Open a run folder: running, finished, or left by a run that died.

    Several runs, or the folder of an experiment, are compared. Without a folder, or with one that holds runs, past runs
    are listed: to be opened, played again, or compared.
    """
    from windtunnel.simulator.opening import kind_of
    from windtunnel.simulator.run.viewer import SCREENLESS, become, dumb, terminal

    kind = kind_of(paths)
    played = speed is not None or at is not None
    if played and kind != "run":
        raise UsageError("--speed and --at play one run again: give the folder of a run")
    command = [sys.executable, "-m", "windtunnel.tui", *map(str, paths), "--mode", "view"]
    if web or (terminal() and not plain and not as_json):
        given = {"--theme": theme, "--speed": speed, "--at": at, "--port": port if web else None}
        command += [word for name, value in given.items() if value is not None for word in (name, f"{value}")]
        become(command + (["--web"] if web else []))
    if dumb() and not plain and not as_json:
        raise UsageError(SCREENLESS)
    if played:
        raise UsageError("--speed and --at play a run on the screen: they need a terminal, and no --plain or --json")
    if kind == "runs":
        from windtunnel.simulator.results.searched import instead

        if paths and (said := instead(paths[0])) is not None:
            click.echo(said, err=True)
        become([*command, "--list", *(["--json"] if as_json else [])])
    from windtunnel.simulator.view import follow_run, print_comparison, print_run

    if kind == "comparison":
        print_comparison(paths, as_json=as_json)
        return
    from windtunnel.simulator.results.store import RunFolder

    folder = RunFolder.open(paths[0])
    if plain and not as_json:
        follow_run(folder)
    print_run(folder, as_json=as_json)
