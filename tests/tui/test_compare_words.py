"""Words of the compare screen that stand for several things."""

from pathlib import Path

import fake_shelf
import pytest
from fake_clocks import Clocks
from fake_run import Fake
from msgspec.structs import replace

from windtunnel.tui.comparing import Comparing
from windtunnel.tui.screens.compare_frame import compose_compare
from windtunnel.tui.screens.compare_parts import Looked
from windtunnel.tui.theme import Theme, plain


@pytest.mark.parametrize(("width", "rung"), [(60, "too few blocks"), (120, "too few blocks")])
def test_two_single_runs_are_too_few_and_not_too_noisy(small: Fake, tmp_path: Path, width: int, rung: str) -> None:
    """As `windtunnel compare` says of them."""
    paths = [fake_shelf.write(small, tmp_path / name, rate=rate) for name, rate in (("a", 100.0), ("b", 111.0))]
    clocks = Clocks()
    found = Comparing(paths, lambda: clocks.wall, lambda: clocks.monotonic, whole=True).poll()
    frame = compose_compare(found, Looked(cursor=1), width, 40, Theme())
    lines = [plain(line).rstrip() for line in frame.lines]
    assert lines[frame.first + 1].endswith(rung)
    assert "too noisy" not in "".join(lines)
    assert width < 100 or any(line.endswith("too few blocks count: 1 of 3") for line in lines)


def test_runs_that_do_not_count_for_the_same_reason_are_told_together(small: Fake, tmp_path: Path) -> None:
    paths = [fake_shelf.write(small, tmp_path / name, rate=100.0) for name in ("a", "b")]
    clocks = Clocks()
    found = Comparing(paths, lambda: clocks.wall, lambda: clocks.monotonic, whole=True).poll()
    invalid = ("block-02/x: client_lag", "block-03/x: client_lag", "block-05/x: no_window")
    column = replace(found.columns[1], step=replace(found.columns[1].step, invalid_runs=invalid))
    shown = replace(found, columns=(found.columns[0], column))
    text = "\n".join(plain(line) for line in compose_compare(shown, Looked(cursor=1), 120, 40, Theme()).lines)
    assert "not counted: block-02/x, block-03/x: the client was late" in text
    assert text.count("the client was late") == 1
    assert "not counted: block-05/x: " in text
