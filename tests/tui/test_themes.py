"""Colours: every theme can be read, is chosen in four ways, and is changed while the screen is open."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake

from windtunnel.traces.errors import UsageError
from windtunnel.tui.app import Viewer
from windtunnel.tui.follow import Follower
from windtunnel.tui.palettes import NAMES, PALETTES, PLAIN
from windtunnel.tui.theme import STATES, Theme, strip, theme_for

DECORATION = frozenset({"rule"})
"""Lines and the rest of a bar: nothing to read."""
AREAS = ("fill-", "on-")
"""Surfaces of pictures: nothing stands on them."""


def luminance(rgb: tuple[int, int, int]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a: str, b: str) -> float:
    first, second = sorted(luminance(tuple(bytes.fromhex(c.lstrip("#")))) for c in (a, b))
    return (second + 0.05) / (first + 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_every_tone_can_be_read_on_every_ground(name: str) -> None:
    palette = PALETTES[name]
    assert set(STATES) <= set(palette.tones)
    assert set(PLAIN) == set(palette.tones)
    for tone, style in palette.tones.items():
        if tone.startswith(AREAS):
            continue
        colour = style.color.name if style.color is not None else palette.text
        grounds = palette.grounds if style.bgcolor is None else (style.bgcolor.name,)
        for ground in grounds:
            assert contrast(colour, ground) >= (1.05 if tone in DECORATION else 4.5), (tone, ground)
    rule = palette.tones["rule"].color
    assert rule is not None
    assert contrast(rule.name, palette.ground) >= 1.5


@pytest.mark.parametrize("name", NAMES)
def test_states_that_stand_side_by_side_differ(name: str) -> None:
    tones = PALETTES[name].tones
    for group in (("queue", "prefill", "decode", "tool", "wait"), ("good", "warn", "bad")):
        colours = [tones[tone].color for tone in group]
        assert len({c.name for c in colours if c is not None}) == len(group)


def test_a_strip_wears_what_it_is_told() -> None:
    for name in NAMES:
        (first, _) = strip((("decode", "decode"),), 10, name)
        assert first.style is not None
        assert first.style.color == PALETTES[name].tones["decode"].color
        assert first.style.bgcolor is not None
        assert first.style.bgcolor.name == PALETTES[name].ground
    (first, _) = strip((("decode", "decode"),), 10, colour=False)
    assert first.style is not None
    assert first.style.color is None


def test_the_theme_is_chosen_by_flag_then_environment() -> None:
    assert theme_for({}, "utf-8").palette == "dark"
    assert theme_for({"WINDTUNNEL_THEME": "light"}, "utf-8").palette == "light"
    assert theme_for({"WINDTUNNEL_THEME": "light"}, "utf-8", "okabe-ito").palette == "okabe-ito"
    with pytest.raises(UsageError, match=r"pink is no theme: choose one of dark, light, okabe-ito"):
        theme_for({"WINDTUNNEL_THEME": "pink"}, "utf-8")


def grounds(app: Viewer) -> set[str]:
    strips = app.screen._compositor.render_strips()
    return {s.style.bgcolor.name for line in strips for s in line if s.style is not None and s.style.bgcolor}


@pytest.mark.parametrize("keys", ["", "enter"])
async def test_t_changes_what_is_open(
    tmp_path: Path, running: Fake, follow: Callable[..., Follower], keys: str
) -> None:
    app = Viewer(follow(running.write(tmp_path / "run"), at_s=40.0), Theme(), "view", tick_s=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys.split())
        await pilot.pause()
        assert PALETTES["dark"].ground in grounds(app)
        await pilot.press("T")
        await pilot.pause()
        assert app.look.palette == "light"
        assert PALETTES["light"].ground in grounds(app)
        assert PALETTES["dark"].ground not in grounds(app)
        assert f'fill="{PALETTES["light"].ground}"' in app.draw_svg()
        await pilot.press("escape", "T")
        await pilot.pause()
        assert PALETTES["okabe-ito"].ground in grounds(app)
        await pilot.press("T")
        assert app.look.palette == "dark"


async def test_without_colours_there_is_no_theme(
    tmp_path: Path, running: Fake, follow: Callable[..., Follower]
) -> None:
    app = Viewer(follow(running.write(tmp_path / "run"), at_s=40.0), Theme(colour=False), "view", tick_s=0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("T")
        await pilot.pause()
        assert "NO_COLOR" in app.screen._compositor.render_strips()[-1].text
        assert app.look == Theme(colour=False)
