"""The comparison of a recording with a scripted model's log stands with the tests of the real agents."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "agents" / "real"))
