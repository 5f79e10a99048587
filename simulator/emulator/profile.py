"""A calibration's file: the constants that were fitted to recorded runs, and how well."""

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.constants import Constants, constants
from windtunnel.simulator.emulator.facts import Reached
from windtunnel.traces.errors import UsageError


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    reached: Reached
    constants: dict[str, float] = {}
    """Values in place of those of constants.toml."""

    def figures(self) -> Constants:
        return msgspec.structs.replace(constants(), **self.constants)


def load(path: Path) -> Profile:
    """UsageError, in one sentence, for a file that is none."""
    try:
        profile = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Profile)
        profile.figures()
        return profile
    except OSError as error:
        raise UsageError(f"--profile {path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"--profile {path} is no profile: {error}.") from None
