"""What a watched screen drew goes when the next picture comes, and not when all that lives is looked through."""

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_clocks import Clocks
from fake_run import Fake
from textual.strip import Strip

from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.theme import Row, Theme, strip

PICTURES = 60


@pytest.mark.parametrize("keys", [(), ("t",), ("enter",), ("m",)], ids=["fleet", "timeline", "agent", "map"])
async def test_no_row_is_left_for_the_collector(
    tmp_path: Path, running: Fake, follow: Callable[..., Follower], clocks: Clocks, keys: tuple[str, ...]
) -> None:
    app = Viewer(follow(running.write(tmp_path / "run"), at_s=5.0, speed=1.0), Theme(), "view", tick_s=0)
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        before = strip.cache_info().misses
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(PICTURES):
                clocks.monotonic += 0.5
                app.tick()
                await pilot.pause()
            gc.collect()
            left = Counter(type(one).__name__ for one in gc.garbage if isinstance(one, Strip))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert strip.cache_info().misses > before + PICTURES
    assert sum(left.values()) < PICTURES, left  # Textual draws a few of its own when a screen comes


@pytest.mark.parametrize("cuts", [[20], [20, 40], [5, 20], [5, 12, 20], [40], []])
def test_a_row_is_divided_as_any_strip_is(cuts: list[int]) -> None:
    row = strip((("ready", "strong"), (" and waiting", "")), 20)
    assert isinstance(row, Row)
    assert [one.text for one in row.divide(cuts)] == [one.text for one in Strip(list(row), 20).divide(cuts)]
