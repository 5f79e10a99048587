"""The colours of each theme by tone. Widgets name a tone ("tool", "dim", ...), never a colour.

Every tone but the rules can be read on every ground of its palette: 4.5:1 at least (WCAG's contrast), tested.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import Struct
from rich.style import Style

PaletteName = Literal["dark", "light", "okabe-ito"]
NAMES: tuple[PaletteName, ...] = get_args(PaletteName)


class Palette(Struct, frozen=True):
    """One theme's colours."""

    ground: str
    raised: str
    """Ground of dialogs, table heads and what is typed."""
    chosen: str
    """Ground of the row under the cursor."""
    text: str
    tones: Mapping[str, Style]

    @property
    def grounds(self) -> tuple[str, ...]:
        return self.ground, self.raised, self.chosen


RAMP = ("#440154", "#443983", "#31688e", "#21918c", "#2a9d6f", "#5ec962", "#addc30", "#fde725")
"""From little to much (matplotlib's viridis): light grows with the value, so that it can be read without its hues."""


def mixed(colour: str, ground: str, share: float) -> str:
    """`share` of a colour on the ground."""
    pairs = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _areas(ground: str, raised: str, c: Mapping[str, str]) -> dict[str, Style]:
    """Of each state: `fill-` and `on-` draw and underlay a quiet area, `cell-` is a letter on its own ground."""
    hues = {s: c[s] for s in ("queue", "prefill", "decode", "tool", "wait", "cut")}
    hues |= {"failed": c["bad"], "done": c["rule"], "idle": raised}
    areas = {s: hue if s in {"done", "idle"} else mixed(hue, ground, 0.66) for s, hue in hues.items()}
    tint = 0.24 if int(ground[1:3], 16) < 0x80 else 0.12
    letters = {**hues, "done": c["dim"], "idle": c["faint"]}
    tones = {f"fill-{s}": Style(color=area) for s, area in areas.items()}
    tones["fill-trend"] = Style(color=mixed(c["dim"], ground, 0.6))
    tones |= {f"on-{s}": Style(bgcolor=area) for s, area in areas.items()}
    tones |= {
        f"cell-{s}": Style(
            color=letters[s], bgcolor=raised if s in {"done", "idle"} else mixed(hue, ground, tint), bold=True
        )
        for s, hue in hues.items()
    }
    tones |= {
        f"heat-{i}": Style(color="#ffffff" if i < 3 else "#0b0e14", bgcolor=value) for i, value in enumerate(RAMP)
    }
    return tones


def _palette(ground: str, raised: str, chosen: str, on_badge: str, colours: Mapping[str, str]) -> Palette:
    """From plain hues: states and what is said with them, greys from `strong` to `rule`."""
    c = colours
    tones = {name: Style(color=value, bold=name in {"strong", "brand", "bad"} or None) for name, value in c.items()}
    tones |= {
        "": Style(),
        "key": Style(color=c["brand"], bold=True),
        "done": Style(color=c["dim"]),
        "failed": Style(color=c["bad"], bold=True),
        "idle": Style(color=c["faint"]),
        "graph": Style(color=c["decode"]),
        "head": Style(color=c["dim"], bgcolor=raised),
        "sorted": Style(color=c["strong"], bgcolor=raised, bold=True),
        "select": Style(bgcolor=chosen),
        "reverse": Style(reverse=True),
        "cursor": Style(color=ground, bgcolor=c["strong"], bold=True),
        "bold": Style(bold=True),
        "emulated": Style(color=on_badge, bgcolor=c["warn"], bold=True),
        "frozen": Style(color=on_badge, bgcolor=c["brand"], bold=True),
        "alarm": Style(color=on_badge, bgcolor=c["bad"], bold=True),
        **_areas(ground, raised, c),
    }
    return Palette(ground=ground, raised=raised, chosen=chosen, text=c["text"], tones=tones)


DARK = _palette(
    "#0d1017",
    "#171c28",
    "#22304a",
    "#0d1017",
    {
        "text": "#cdd6f4",
        "strong": "#ffffff",
        "dim": "#939fb7",
        "faint": "#8d99b2",
        "rule": "#323b50",
        "brand": "#7fb2ff",
        "good": "#4fd6a0",
        "warn": "#ffb454",
        "bad": "#ff7070",
        "queue": "#ffe066",
        "prefill": "#5cc8ff",
        "decode": "#4fd6a0",
        "tool": "#ffb454",
        "wait": "#d19aff",
        "cut": "#c0b283",
    },
)
LIGHT = _palette(
    "#ffffff",
    "#eef1f4",
    "#dbe6f5",
    "#ffffff",
    {
        "text": "#24292f",
        "strong": "#0b0f14",
        "dim": "#525a65",
        "faint": "#5c6570",
        "rule": "#b9c1c9",
        "brand": "#0550ae",
        "good": "#116329",
        "warn": "#8a4600",
        "bad": "#b3261e",
        "queue": "#6d5a00",
        "prefill": "#0969a8",
        "decode": "#116329",
        "tool": "#8a4600",
        "wait": "#7440c8",
        "cut": "#5f5a32",
    },
)
OKABE_ITO = _palette(
    "#0b0e14",
    "#141a24",
    "#1c2635",
    "#0b0e14",
    {
        "text": "#c9d1d9",
        "strong": "#f0f3f6",
        "dim": "#8f98a3",
        "faint": "#868f9a",
        "rule": "#2d333b",
        "brand": "#56b4e9",
        "good": "#00b384",
        "warn": "#e69f00",
        "bad": "#f0753a",
        "queue": "#f0e442",
        "prefill": "#56b4e9",
        "decode": "#00b384",
        "tool": "#e69f00",
        "wait": "#d48ab1",
        "cut": "#a8a06a",
    },
)
"""Okabe and Ito's hues for colour-blind eyes; green, vermillion and purple are lifted so that text in them is read."""

PALETTES: Mapping[PaletteName, Palette] = {"dark": DARK, "light": LIGHT, "okabe-ito": OKABE_ITO}

PLAIN: Mapping[str, Style] = {
    name: Style(
        bold=style.bold or None,
        dim=name in {"dim", "faint", "rule", "done", "idle"} or None,
        underline=name in {"head", "sorted"} or None,
        reverse=name in {"select", "reverse", "cursor", "emulated", "frozen", "alarm"} or None,
    )
    for name, style in DARK.tones.items()
}
"""The same tones without any colour, for NO_COLOR."""
