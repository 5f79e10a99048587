"""`windtunnel why`: the command and its flags; what it does is in `why`."""

import sys

import click


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="TRACE|RUN")
@click.option("--limit", type=click.IntRange(0), default=10, show_default=True, help="Show the N dearest in full.")
@click.option("--width", type=click.IntRange(60), help="Columns to write on (default: the terminal's).")
@click.option("--json", "as_json", is_flag=True)
def why(sources: tuple[str, ...], limit: int, width: int | None, as_json: bool) -> None:
    """Say why the prefix cache missed: what changed in the prompts of a trace or a run, and who changed it."""
    from windtunnel.simulator.why import explain

    sys.exit(explain(sources, limit=limit, width=width, as_json=as_json))
