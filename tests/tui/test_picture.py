"""The program's own SVG: what browsers do with blanks must not move a word."""

import re

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from windtunnel.tui.picture import CELL_W, svg


def test_words_far_apart_are_texts_of_their_own():
    """Browsers collapse blanks inside a text, and would stretch what is left over its whole width."""
    line = Strip([Segment("57/96   88.5k  99%", Style(color="#ffffff"))])
    picture = svg([line], 20, "t")
    assert re.findall(r">([^<>]+)</text>", picture) == ["57/96", "88.5k", "99%"]
    x = [float(found) for found in re.findall(r'<text x="([\d.]+)"', picture)]
    assert x[1] - x[0] == pytest.approx(8 * CELL_W)
