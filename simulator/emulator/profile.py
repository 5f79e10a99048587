"""A calibration as a file: the constants of one GPU and engine, what they were fitted to, and how far they are off.

TOML, so that it can be read and compared by eye. `windtunnel calibrate` writes it; `--profile FILE` of the emulator and
of `validate` uses it instead of the table's constants.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator import facts, ranges
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.simulator.toml_file import parsed
from windtunnel.traces.errors import UsageError

SCHEMA = "windtunnel.profile/1"


class Source(Struct, frozen=True):
    """One run that the constants were fitted to."""

    run: str
    fingerprint: str
    """Digest of what was read of it."""
    model: str
    calls: int
    engine: str = ""


class Errors(Struct, frozen=True):
    """Mean of absolute relative errors over latency statistics."""

    in_sample: float
    held_out: float | None = None
    """Of calls that the constants were not fitted to, by a fit to the others."""
    split: str = ""
    """How the held-out calls were chosen."""
    before: float | None = None
    """With the constants that a GPU nobody measured gets."""


class Profile(Struct, frozen=True, kw_only=True):
    gpu: str
    """Key in the table of GPUs, or the name in a GPU's file."""
    engine: str
    reached: Reached
    error: Errors
    source: tuple[Source, ...]
    figures: dict[str, float] = {}
    """Replacements of what constants.toml says, by name."""

    @property
    def gpu_name(self) -> str:
        """In full, as in the table's row or the GPU's file."""
        return self._row.name if self._row else self.gpu

    @property
    def own_gpu(self) -> facts.Gpu:
        """UsageError where the table has none of that name."""
        if self._row is None:
            raise UsageError(f"--profile is of {self.gpu}, which is not in the table: give the GPU's file with --gpu.")
        return self._row

    @property
    def _row(self) -> facts.Gpu | None:
        try:
            return facts.gpu(self.gpu)
        except UsageError:
            return None

    @property
    def label(self) -> str:
        """What every result says that was computed with it."""
        runs = ", ".join(source.run for source in self.source)
        if self.error.held_out is None:
            return f"calibrated on {runs}, error {self.error.in_sample:.1%} in sample"
        return f"calibrated on {runs}, error {self.error.held_out:.1%} held out"


SHIPPED = {"ladder": "ladder_profile.toml"}
"""Profiles that come with the program, by name: of the published ladder's GPU, calibrated on its first rung alone."""


def load(path: Path) -> Profile:
    """A file, or a shipped profile's name; UsageError for a file that is none."""
    try:
        shipped = SHIPPED.get(str(path)) if not path.exists() else None
        text = shipped_text(shipped) if shipped else path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"--profile {path} cannot be read: {error}.") from error
    return _read(path, text)


def _read(path: Path, text: str) -> Profile:
    try:
        data = parsed(text)
    except ValueError as error:
        raise UsageError(f"--profile {path} cannot be read: {error}.") from error
    if data.pop("schema", None) != SCHEMA:
        raise UsageError(f"--profile {path} is no profile: give a file that `windtunnel calibrate` wrote.")
    data.pop("label", None)
    _check(path, data)
    try:
        profile = msgspec.convert(data, Profile)
    except msgspec.ValidationError as error:
        raise UsageError(f"--profile {path} is damaged ({error}): calibrate again.") from error
    return msgspec.structs.replace(profile, reached=msgspec.structs.replace(profile.reached, fit=profile.label))


def _check(path: Path, data: dict[str, Any]) -> None:
    """UsageError for a number that no engine has."""
    for table, allowed in (("reached", ranges.REACHED), ("figures", ranges.FIGURES), ("error", ranges.ERROR)):
        values = data.get(table)
        if isinstance(values, dict) and (said := ranges.wrong(values, allowed, f"{table}.")):
            raise UsageError(f"--profile {path} is damaged: {said}; correct it, or calibrate again.")


def save(profile: Profile, path: Path) -> None:
    """UsageError where it cannot be written, or could not be read afterwards."""
    text = _text(profile)
    _read(path, text)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): choose another -o.") from error


def _text(profile: Profile) -> str:
    lines = [
        "# Constants of the emulator's step time, fitted to measured runs (windtunnel calibrate).",
        f"schema = {_value(SCHEMA)}",
        f"gpu = {_value(profile.gpu)}",
        f"engine = {_value(profile.engine)}",
        f"label = {_value(profile.label)}",
    ]
    tables: list[tuple[str, Any]] = [
        ("[reached]", msgspec.to_builtins(profile.reached) | {"fit": profile.label}),
        ("[error]", msgspec.to_builtins(profile.error)),
        ("[figures]", profile.figures),
        *(("[[source]]", msgspec.to_builtins(source)) for source in profile.source),
    ]
    for heading, values in tables:
        known = {name: value for name, value in values.items() if value not in (None, "")}
        if known:
            lines += ["", heading, *(f"{name} = {_value(value)}" for name, value in known.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    return msgspec.json.encode(value).decode()
