"""The fleet's screen as kept pictures: every condition of a run at three sizes, under a clock that stands still."""

import pytest
from snapshots import SIZES, picture, same

from windtunnel.tui.screens.board import Table, compose_frame
from windtunnel.tui.theme import ASCII, UNICODE, Theme, cells_of, plain
from windtunnel.tui.view import View

CONDITIONS = ("starting", "running", "many", "failures", "finished", "invalid", "died")
SHOWN = CONDITIONS[:-1]
LOOKS = {
    "": Theme(),
    "-plain": Theme(colour=False),
    "-ascii": Theme(ASCII),
    "-light": Theme(palette="light"),
    "-okabe-ito": Theme(palette="okabe-ito"),
}
PICTURES = [
    *((condition, "", size) for condition in SHOWN for size in SIZES),
    ("died", "", (120, 40)),
    *(("running", look, size) for look in ("-plain", "-ascii") for size in SIZES),
    *(("running", look, (120, 40)) for look in ("-light", "-okabe-ito")),
    ("finished", "-plain", (120, 40)),
]


@pytest.mark.parametrize(("condition", "look", "size"), PICTURES)
def test_fleet(views: dict[str, View], condition: str, look: str, size: tuple[int, int]) -> None:
    width, height = size
    frame = compose_frame(views[condition], Table(), width, height, LOOKS[look])
    assert len(frame.lines) == height
    for line in frame.lines:
        assert sum(cells_of(text) for text, _ in line) <= width, plain(line)
    same(f"fleet-{condition}{look}-{width}x{height}", picture(frame.lines, width, LOOKS[look], frame.marked))


@pytest.mark.parametrize(("width", "height"), [(40, 12), (63, 19), (64, 20), (99, 30), (100, 35), (160, 48), (250, 70)])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("shown", ["", "state"])
def test_no_size_cuts_a_line_or_hides_the_agents(
    views: dict[str, View], condition: str, width: int, height: int, shown: str
) -> None:
    for glyphs in (UNICODE, ASCII):
        frame = compose_frame(views[condition], Table(map=shown), width, height, Theme(glyphs))
        assert len(frame.lines) == height
        assert all(sum(cells_of(text) for text, _ in line) <= width for line in frame.lines)
        assert frame.shown
        assert "quit" in plain(frame.lines[-1]) or "close" in plain(frame.lines[-1]) or width < 60


@pytest.mark.parametrize(
    ("condition", "shown", "size"),
    [
        *(("many", "state", size) for size in SIZES),
        *(("many", shown, (120, 40)) for shown in ("tok/s", "context", "cached", "TTFT")),
        ("many", "TTFT", (80, 24)),
        ("running", "tok/s", (120, 40)),
    ],
)
def test_map(views: dict[str, View], condition: str, shown: str, size: tuple[int, int]) -> None:
    width, height = size
    frame = compose_frame(views[condition], Table(map=shown, cursor=9), width, height, Theme())
    name = f"map-{condition}-{shown.replace('/', '')}-{width}x{height}"
    same(name, picture(frame.lines, width, Theme(), frame.marked))


@pytest.mark.parametrize("look", ["-plain", "-ascii"])
def test_map_without_colours(views: dict[str, View], look: str) -> None:
    frame = compose_frame(views["many"], Table(map="state", pattern="codex", cursor=9), 120, 40, LOOKS[look])
    same(f"map-many-filtered{look}-120x40", picture(frame.lines, 120, LOOKS[look], frame.marked))


def test_frozen(views: dict[str, View]) -> None:
    frame = compose_frame(views["running"], Table(frozen=True, pattern="decode"), 120, 40, Theme())
    same("fleet-frozen-120x40", picture(frame.lines, 120, Theme(), frame.marked))
