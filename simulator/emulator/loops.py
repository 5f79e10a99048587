"""The emulated model's hashes, words and texts: compiled where a C compiler was there at installation.

`_loops.c` does what `blocks.numpy_hashes`, `script.Inventory` and `spoken.Speech` do with numpy, in a fraction of their
time; results are the same to the bit. An hour of many agents is tens of thousands of short answers, and most of numpy's
time for one goes to beginning.
"""

from windtunnel.agents.compiled import compiled

LOOPS = compiled("windtunnel.simulator.emulator._loops")
"""`chain_hashes`, `draw` and `speak`; None where they could not be built."""
