"""`windtunnel cost`."""

import sys
from pathlib import Path

import click

from windtunnel.simulator.cli_options import GivenPath, Number

_MONEY = Number(0)


@click.command()
@click.argument("run_dir", type=GivenPath())
@click.option("--gpu-hour", type=_MONEY, metavar="$", help="What an hour of one GPU costs, rented.")
@click.option(
    "--gpus",
    type=click.IntRange(1),
    metavar="N",
    help="So many times (default: the GPUs that the engine's settings tell, else one).",
)
@click.option("--buy", type=_MONEY, metavar="$", help="Or what the whole machine cost, all its GPUs, bought.")
@click.option("--years", type=Number(0, min_open=True), default=3.0, show_default=True, help="It is written off over.")
@click.option("--watts", type=_MONEY, help="What the whole machine draws under this load.")
@click.option("--kwh", type=_MONEY, metavar="$", help="Price of electricity, a kilowatt hour.")
@click.option(
    "--api",
    "apis",
    multiple=True,
    metavar="NAME|IN/CACHED/OUT",
    help="Compare with this one: a name of the shipped list, or [NAME=]prices in $ per million tokens (- for no price "
    "of cached ones). May be given again; default: the whole list.",
)
@click.option("--json", "as_json", is_flag=True)
def cost(
    run_dir: Path,
    gpu_hour: float | None,
    gpus: int | None,
    buy: float | None,
    years: float,
    watts: float | None,
    kwh: float | None,
    apis: tuple[str, ...],
    as_json: bool,
) -> None:
    """Price a run's traffic: an hour of the machine against the same tokens at an API; or a recording's tokens."""
    from windtunnel.simulator.cost import show
    from windtunnel.simulator.results.cost import machine

    hour = machine(gpu_hour, buy, years, watts, kwh)
    owned = hour if gpu_hour is None else None
    sys.exit(show(run_dir, gpu_hour=gpu_hour, owned=owned, gpus=gpus, apis=apis, as_json=as_json))
