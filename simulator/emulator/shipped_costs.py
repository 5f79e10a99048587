"""What a run learns of the built-in tokenizer, learnt beforehand: token costs of regenerated text, and ordinary ids.

It is what the questions of `run.calibrate` would bring; a test asks them and compares, and writes the file anew.
"""

from functools import cache
from pathlib import Path

import msgspec
import zstandard

from windtunnel.traces.calibration import Calibration

SHIPPED = Path(__file__).parent / "builtin_costs.json.zst"


def builtin_calibration(name: str) -> Calibration:
    """Of the built-in tokenizer, by the model's name."""
    return msgspec.structs.replace(_shipped(), name=name)


@cache
def _shipped() -> Calibration:
    return msgspec.json.decode(zstandard.ZstdDecompressor().decompress(SHIPPED.read_bytes()), type=Calibration)


def pack(calibration: Calibration) -> bytes:
    """The file's content."""
    return zstandard.ZstdCompressor(level=19).compress(msgspec.json.encode(calibration))
