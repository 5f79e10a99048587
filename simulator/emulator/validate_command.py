"""What `windtunnel validate` and `windtunnel calibrate` do. Data on stdout, talk on stderr."""

import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator import profile as profiles
from windtunnel.simulator.emulator.calibrate import calibrate
from windtunnel.simulator.emulator.identity import gpu_named
from windtunnel.simulator.emulator.measured import Case, Open
from windtunnel.simulator.emulator.measured_run import is_run, read_run
from windtunnel.simulator.emulator.profile import Errors, Profile, Source
from windtunnel.simulator.emulator.run_folder import is_run_folder, read_run_folder
from windtunnel.simulator.emulator.shipped import validate_shipped
from windtunnel.simulator.emulator.validate import Validation, read, validate, validate_split
from windtunnel.simulator.emulator.validate_text import print_ladder, print_validation
from windtunnel.traces.errors import UsageError, WindtunnelError

EMULATED = " (emulated)"
"""Behind the name of a run that says what an emulator did: a profile of it measures no GPU."""


class NoGainError(WindtunnelError):
    """A calibration that is no better than none."""


def validate_command(
    sources: Sequence[Path],
    *,
    calibrate_on: float | None,
    profile: Path | None,
    as_json: bool,
    gpu: str | None = None,
    model: str | None = None,
) -> int:
    """Print the errors of all points; 0 whatever they are."""
    if calibrate_on is not None and profile is not None:
        raise UsageError("--calibrate-on fits constants and --profile brings some: give one of them.")
    loaded = profiles.load(profile) if profile is not None else None
    if (gpu or model) and not sources:
        raise UsageError("--gpu and --model are for runs that do not say theirs: name one.")
    if not sources:
        if calibrate_on is not None:
            raise UsageError("--calibrate-on splits the rows of a table: name one.")
        _print(validate_shipped(loaded), as_json=as_json)
        if not as_json:
            print_ladder()
        return 0
    cases, skipped = read(sources, gpu, model)
    if calibrate_on is None:
        _print(validate(cases, skipped, loaded), as_json=as_json)
        return 0
    outside, inside = validate_split(cases, skipped, calibrate_on)
    _print(outside, as_json=as_json, fitted=inside)
    return 0


def calibrate_command(
    runs: Sequence[Path], out: Path, *, gpu: str | None, model: str | None, force: bool = False
) -> int:
    """Fit one GPU's constants to `runs` and write them to `out`; NoGainError where they are none, unless forced."""
    cases = [_run(path, gpu, model) for path in runs]
    others = sorted({case.gpu for case in cases})
    if len(others) > 1:
        raise UsageError(f"the runs are of {' and '.join(others)}: calibrate each GPU by itself.")
    fitted = calibrate(cases, lambda line: print(line, file=sys.stderr))
    if fitted.fault and not force:
        raise NoGainError(f"nothing written: {fitted.fault}; give runs that differ more, or --force.")
    profile = Profile(
        gpu=gpu_named(cases[0].gpu),
        engine="vllm",
        reached=fitted.reached,
        error=Errors(fitted.in_sample, fitted.held_out, "the second half of each run's calls, by time", fitted.before),
        source=tuple(source_of(path, case) for path, case in zip(runs, cases, strict=True)),
    )
    profiles.save(profile, out)
    if fitted.fault:
        print(f"written all the same: {fitted.fault}", file=sys.stderr)
    print(f"{profile.gpu}: {profile.label} ({fitted.before:.1%} with the usual constants)")
    print(f"wrote {out}", file=sys.stderr)
    return 0


def source_of(path: Path, case: Case) -> Source:
    """What a profile says of a run that it was fitted to."""
    name = case.id + (EMULATED if case.emulated else "")
    model = case.model if case.model in facts.models() else facts.model(case.model).name
    return Source(name, _fingerprint(path), model, len(case.load.asks) if isinstance(case.load, Open) else 0)


def _run(path: Path, gpu: str | None, model: str | None) -> Case:
    if is_run(path):
        return read_run(path, gpu, model)
    if is_run_folder(path):
        return read_run_folder(path, gpu, model)
    raise UsageError(f"{path} holds no run: give a run folder, or one with requests.csv and meta.json.")


def _fingerprint(path: Path) -> str:
    digest = blake2b(digest_size=8)
    for name in ("events.jsonl", "run.json", "requests.csv", "blocks.jsonl", "meta.json"):
        if (path / name).is_file():
            digest.update((path / name).read_bytes())
    return digest.hexdigest()


def _print(validation: Validation, *, as_json: bool, fitted: Validation | None = None) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(validation), indent=2).decode() + "\n")
    else:
        print_validation(validation, fitted)
