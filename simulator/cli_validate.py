"""`windtunnel validate` and `windtunnel calibrate`: the commands and their flags."""

import sys
from pathlib import Path

import click

from windtunnel.simulator.cli_options import Number

_GPU = "The GPU, where a run does not say or the table lacks it: a name, or a file that describes it."
_MODEL = "The model, where a run does not say or the table lacks it: a name, or a folder with its config.json."


@click.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path), metavar="[RUN|TABLE ...]")
@click.option(
    "--calibrate-on",
    type=Number(0.0, 1.0, min_open=True, max_open=True),
    metavar="SHARE",
    help="Fit constants to this share of the rows, by id (0.5: every second), and report the others.",
)
@click.option("--profile", type=click.Path(path_type=Path), metavar="FILE", help="Use a calibration's constants.")
@click.option("--gpu", metavar="NAME|FILE", help=_GPU)
@click.option("--model", metavar="NAME|FOLDER", help=_MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON.")
def validate(
    sources: tuple[Path, ...],
    calibrate_on: float | None,
    profile: Path | None,
    gpu: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Hold the emulator against measured runs, and say how far it is off.

    Takes tables of fixed-concurrency runs (.csv), folders of a run recorded request by request (requests.csv,
    meta.json) and run folders. Without any: the published figures that ship with the project.
    """
    from windtunnel.simulator.emulator.validate_command import validate_command

    sys.exit(
        validate_command(sources, calibrate_on=calibrate_on, profile=profile, as_json=as_json, gpu=gpu, model=model)
    )


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN_DIR ...")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Profile to write (TOML).")
@click.option("--gpu", metavar="NAME|FILE", help=_GPU)
@click.option("--model", metavar="NAME|FOLDER", help=_MODEL)
@click.option("--force", is_flag=True, help="Write the profile even where it is no better than the usual constants.")
def calibrate(runs: tuple[Path, ...], out: Path, gpu: str | None, model: str | None, force: bool) -> None:
    """Fit the emulator's step times to recorded runs of one GPU, and say the error, in sample and held out.

    The profile is used with `windtunnel engine --profile FILE` and `--engine "emulator --profile FILE"`; that of a GPU
    of your own with its --gpu FILE beside.
    """
    from windtunnel.simulator.emulator.validate_command import calibrate_command

    sys.exit(calibrate_command(runs, out, gpu=gpu, model=model, force=force))
