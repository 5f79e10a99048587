"""What every list on a full screen does: a cursor that moves, a box that filters it, an order, and clicks."""

from typing import ClassVar, Generic, Protocol, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from windtunnel.tui.screens.full import Answer, FullScreen
from windtunnel.tui.theme import Theme

Entry = TypeVar("Entry")
"""What the list names its entries by."""
Entry_co = TypeVar("Entry_co", covariant=True)


class Asked(Protocol[Entry_co]):
    """What the user asked of the list."""

    @property
    def sort(self) -> str: ...

    @property
    def backwards(self) -> bool: ...

    @property
    def pattern(self) -> str: ...

    @property
    def cursor(self) -> Entry_co | None: ...


class Listed(Protocol[Entry_co]):
    """What the list shows."""

    @property
    def shown(self) -> tuple[Entry_co, ...]: ...

    @property
    def order(self) -> tuple[Entry_co, ...]: ...


class ListScreen(FullScreen[Answer], Generic[Answer, Entry]):
    """Keys, wheel and filter box become changes of what is asked of the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup,ctrl+b", "page(-1)", "page up"),
        Binding("pagedown,ctrl+f", "page(1)", "page down"),
        Binding("home,g", "edge(0)", "first"),
        Binding("end,G", "edge(-1)", "last"),
    ]
    DEFAULT_CSS = """
    ListScreen Input { dock: bottom; height: 1; border: none; padding: 0 1; display: none; }
    ListScreen Input:focus { border: none; }
    """
    SORTS: ClassVar[tuple[str, ...]]
    """What it can be sorted by, in the order in which a key goes through it."""

    def __init__(self, look: Theme, name: str, filtered: str) -> None:
        """`filtered`: what the empty filter box says."""
        super().__init__(look, name)
        self.frame: Listed[Entry] | None = None
        self.filter_box = Input(id="filter", placeholder=filtered)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.filter_box

    @property
    def asked(self) -> Asked[Entry]:
        raise NotImplementedError

    def change(self, **changes: object) -> None:
        """Asks for something else by its field, and draws that."""
        raise NotImplementedError

    def action_open(self) -> None:
        """What is under the cursor."""
        raise NotImplementedError

    def go_back(self) -> None:
        """What escape does once nothing is filtered."""
        raise NotImplementedError

    @property
    def typing(self) -> bool:
        """Whether the filter box takes the footer's place."""
        return self.filter_box.display

    @property
    def page(self) -> int:
        """Rows that are seen."""
        return len(self.frame.shown) if self.frame is not None else 0

    @property
    def wheel(self) -> int:
        """Rows that one turn of the wheel moves by."""
        return 3

    def action_move(self, by: int) -> None:
        if self.frame is None or not self.frame.order:
            return
        order, cursor = self.frame.order, self.asked.cursor
        at = order.index(cursor) if cursor is not None and cursor in order else 0
        self.change(cursor=order[max(0, min(len(order) - 1, at + by))])

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.page - 1))

    def action_edge(self, at: int) -> None:
        if self.frame is not None and self.frame.order:
            self.change(cursor=self.frame.order[at])

    def action_sort(self, by: int = 1) -> None:
        at = self.SORTS.index(self.asked.sort)
        self.change(sort=self.SORTS[(at + by) % len(self.SORTS)], backwards=False, top=0)

    def action_reverse(self) -> None:
        self.change(backwards=not self.asked.backwards)

    def action_filter(self) -> None:
        box = self.filter_box
        box.display = True
        box.value = self.asked.pattern
        box.focus()
        self.draw()

    def action_clear(self) -> None:
        """Escape: leaves the filter, then what else there is to leave."""
        if self.typing or self.asked.pattern:
            self._hide_filter()
            self.change(pattern="", top=0)
        else:
            self.go_back()

    def _hide_filter(self) -> None:
        self.filter_box.display = False
        self.set_focus(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self.change(pattern=event.value, top=0)

    def on_input_submitted(self) -> None:
        self._hide_filter()
        self.draw()

    def choose(self, entry: Entry) -> None:
        """A click selects; a click on what is selected opens it."""
        if entry == self.asked.cursor:
            self.action_open()
        else:
            self.change(cursor=entry)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(self.wheel)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-self.wheel)
