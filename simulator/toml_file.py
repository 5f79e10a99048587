"""TOML that a user wrote, read so that whatever is in it is told as trouble with the file."""

import tomllib
from typing import Any


def parsed(text: str) -> dict[str, Any]:
    """The tables of a text; ValueError, in a few words, where it is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python reads no whole number of more than 4300 digits
        raise ValueError("it has a number of too many digits") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
