"""The bench's own modules are scripts beside this file, not a package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
