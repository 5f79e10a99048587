"""The emulated model's hashes, words and texts: compiled where a C compiler was there at installation.

`_loops.c` does what `blocks.numpy_hashes`, `script.Inventory` and `spoken.Speech` do with numpy, in a fraction of their
time; results are the same to the bit. An hour of many agents is tens of thousands of short answers, and most of numpy's
time for one goes to beginning.
"""

import os
from importlib import import_module
from types import ModuleType


def _compiled() -> ModuleType | None:
    if os.environ.get("WINDTUNNEL_COMPILED") == "0":
        return None
    try:
        return import_module("windtunnel.simulator.emulator._loops")
    except ImportError:
        return None


LOOPS = _compiled()
"""`chain_hashes`, `draw` and `speak`; None where they could not be built."""
