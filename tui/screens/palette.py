"""Everything the open screen can do, by name: type to filter, enter runs it. Made from the keys' own bindings."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from windtunnel.tui.palettes import NAMES
from windtunnel.tui.screens.box import BoxScreen
from windtunnel.tui.screens.help import named
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.widgets.compose import cut, filled, first_seen

WIDTH = 72
"""At most; as wide as its longest line."""
LEAST = 52
ROWS = 14
MOVES = frozenset({"up", "down", "left", "right", "page up", "page down", "first", "last"})
"""Nothing that one would look for by name."""


class Command(Struct, frozen=True):
    """One thing that can be done."""

    name: str
    key: str
    """As people write it; several are separated by blanks, none is empty."""
    action: str
    screen: bool = True
    """The open screen's own, not the program's."""


def commands(screen: Screen[object], *, colour: bool) -> tuple[Command, ...]:
    """What the screen's keys do, then what works everywhere; the same action of several keys once."""
    found: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for key, (node, binding, enabled, _) in screen.active_bindings.items():
        told = binding.description and binding.description not in MOVES and binding.action != "palette"
        if enabled and told and binding.action.partition(".")[0] not in {"app", "screen"}:
            found.setdefault((binding.action, node is screen), []).append((named(key), binding.description))
    out = [
        Command(keys[0][1], _told([key for key, _ in keys]), action, own)
        for own in (True, False)
        for (action, of), keys in found.items()
        if of is own
    ]
    themes = [Command(f"theme: {name}", "", f"wear('{name}')", screen=False) for name in NAMES] if colour else []
    return (*out, *themes, Command("show it in a browser (--web)", "", "web", screen=False))


def _told(keys: Sequence[str]) -> str:
    """Two of them at most, letters before control keys."""
    return " ".join(sorted(keys, key=lambda key: key.startswith("^"))[:2])


def matching(all_: Sequence[Command], typed: str) -> list[Command]:
    """Those that have every typed word in their name; names that begin with what was typed come first."""
    words = typed.lower().split()
    kept = [c for c in all_ if all(word in c.name.lower() for word in words)]
    return sorted(kept, key=lambda c: not c.name.lower().startswith(typed.strip().lower()))


class PaletteScreen(BoxScreen[Command]):
    """Gives the chosen command back; who opened it runs it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "leave", "close"),
        Binding("up,ctrl+k", "move(-1)", "up"),
        Binding("down,tab,ctrl+j", "move(1)", "down"),
        Binding("enter", "take", "run"),
        Binding("backspace", "erase", "erase"),
        Binding("ctrl+u", "clear", "clear"),
    ]

    def __init__(self, look: Theme, all_: Sequence[Command]) -> None:
        super().__init__(look, "palette")
        self.all = tuple(all_)
        self.typed = ""
        self.at = 0
        self.top = 0

    @property
    def found(self) -> list[Command]:
        return matching(self.all, self.typed)

    @property
    def room(self) -> int:
        """Commands that fit: the box keeps its height while one types."""
        return max(1, min(len(self.all), self.size.height - 6, ROWS))

    @property
    def widest(self) -> int:
        """Cells of the longest line, so that the box keeps its width too while one types."""
        return min(WIDTH, max(LEAST, *(len(c.name) + len(c.key) + 5 for c in self.all)))

    def draw(self) -> None:
        found, room, width = self.found, self.room, min(self.widest, self.size.width - 6)
        self.at = max(0, min(self.at, len(found) - 1))
        self.top = first_seen(self.top, self.at, room, len(found))
        prompt: Line = (("> ", "key"), (self.typed, "strong"), (" ", "reverse"))
        if not self.typed:
            prompt = (*prompt, (" type to filter", "dim"))
        body: list[Line] = [filled(prompt, width), filled((), width)]
        for i, command in enumerate(found[self.top : self.top + room], self.top):
            over = "select" if i == self.at else ""
            name = cut(command.name, width - len(command.key) - 3, self.look.glyphs.ellipsis)
            gap = " " * max(1, width - len(name) - len(command.key) - 2)
            line: Line = ((f" {name}{gap}", f"text {over}"), (f"{command.key} ", f"key {over}"))
            body.append(filled(line, width, over))
        if not found:
            body.append(filled(((" nothing is called that", "dim"),), width))
        body += [filled((), width)] * (room + 2 - len(body))
        count = f"{len(found)} of {len(self.all)}, " if len(found) < len(self.all) else ""
        if len(found) > room:
            count = f"{self.top + 1}-{self.top + room} of {len(found)}, "
        self.show_box(body, width, "commands", f"{count}enter runs, escape closes")

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character is not None:
            event.stop()
            self._type(self.typed + event.character)

    def on_paste(self, event: events.Paste) -> None:
        self._type(self.typed + "".join(c for c in event.text if c.isprintable()))

    def _type(self, text: str) -> None:
        self.typed, self.at, self.top = text[:40], 0, 0
        self.draw()

    def action_erase(self) -> None:
        self._type(self.typed[:-1])

    def action_clear(self) -> None:
        self._type("")

    def action_move(self, by: int) -> None:
        self.at = (self.at + by) % max(1, len(self.found))
        self.draw()

    def action_take(self) -> None:
        if self.found:
            self.dismiss(self.found[self.at])

    def on_click(self, event: events.Click) -> None:
        row = event.screen_y - self.body.region.y - 3
        if 0 <= row < min(self.room, len(self.found) - self.top):
            self.dismiss(self.found[self.top + row])

    def on_mouse_scroll_down(self) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-1)
