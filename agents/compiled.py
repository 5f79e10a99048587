"""Parts in C, where a C compiler was there at installation."""

import os
from importlib import import_module
from types import ModuleType


def compiled(name: str) -> ModuleType | None:
    """The extension module; None where it could not be built, and everywhere with WINDTUNNEL_COMPILED=0."""
    if os.environ.get("WINDTUNNEL_COMPILED") == "0":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
