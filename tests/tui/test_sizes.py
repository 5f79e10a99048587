"""Every screen at every size: from too small for anything to larger than most monitors."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake

from windtunnel.tui.app import STOP, Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.small import SmallScreen, small_lines
from windtunnel.tui.theme import ASCII, UNICODE, Theme, plain

SIZES = ((80, 24), (250, 70), (40, 12), (39, 12), (40, 11), (20, 4), (8, 2), (2, 1), (1, 1), (100, 9), (120, 40))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, running: Fake) -> Path:
    return running.write(tmp_path_factory.mktemp("sizes") / "run", summary=True)


def text(app: Viewer) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=lambda g: g.name)
@pytest.mark.parametrize("keys", ["", "enter", "t", "m", "r", "question_mark", "ctrl+p"])
async def test_resizing_an_open_screen(
    folder: Path, follow: Callable[..., Follower], keys: str, glyphs: object
) -> None:
    app = Viewer(follow(folder, at_s=40.0), Theme(glyphs), "view", tick_s=0)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys.split())
        await pilot.pause()
        was = type(app.screen)
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            app.tick()
            await pilot.pause()
            shown = text(app)
            small = size[0] < 40 or size[1] < 12
            assert isinstance(app.screen, SmallScreen if small else was), size
            assert len(shown) == size[1]
            assert {len(line) for line in shown} <= {size[0]}
            if glyphs is ASCII:
                assert all(line.isascii() for line in shown), [line for line in shown if not line.isascii()]
            if small and size[0] >= 20:
                assert "too small" in "".join(shown)
        assert len(app.screen_stack) == len(keys.split()) + 2 - (keys == "m")


async def test_a_small_terminal_is_left_by_q(folder: Path, follow: Callable[..., Follower]) -> None:
    app = Viewer(follow(folder, at_s=40.0), Theme(), "view", tick_s=0)
    async with app.run_test(size=(30, 8)) as pilot:
        await pilot.pause()
        assert any("30x8 is too small" in line for line in text(app))
        await pilot.press("enter", "s", "q")
        await pilot.pause()
        assert app.return_value == STOP


def test_the_sentence_fits() -> None:
    said = [plain(line) for line in small_lines(60, 8, Theme())]
    assert said[-1] == "60x8 is too small: make it 40x12 or larger; q quits"
    for width in range(1, 60):
        for height in range(1, 12):
            lines = [plain(line) for line in small_lines(width, height, Theme())]
            assert len(lines) <= height
            assert max(map(len, lines)) <= width
