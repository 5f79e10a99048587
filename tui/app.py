"""The viewer: follows a run folder and shows it. It never talks to the run but through its exit code."""

import asyncio
import gc
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from msgspec.structs import replace
from rich.console import RenderableType
from textual import events
from textual._compositor import CompositorUpdate
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen, Screen

from windtunnel.traces.errors import WindtunnelError
from windtunnel.tui.follow import Follower
from windtunnel.tui.frugal import FrugalDriver, cropped
from windtunnel.tui.keys import InTurn
from windtunnel.tui.palettes import NAMES, PALETTES, PaletteName
from windtunnel.tui.picture import svg
from windtunnel.tui.screens.agent import AgentScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.full import FullScreen
from windtunnel.tui.screens.help import HelpScreen
from windtunnel.tui.screens.leave import Answer, LeaveScreen
from windtunnel.tui.screens.palette import Command, PaletteScreen, commands
from windtunnel.tui.screens.small import SmallScreen, too_small
from windtunnel.tui.screens.timeline import TimelineScreen
from windtunnel.tui.theme import Line, Theme
from windtunnel.tui.transcript import Story
from windtunnel.tui.trips import NoRun, Trips
from windtunnel.tui.view import View
from windtunnel.tui.widgets.header import closing
from windtunnel.tui.widgets.lines import Lines
from windtunnel.tui.window import Place, Window

STOP, DETACH, ORPHANED = 0, 3, 1
"""Exit codes: the run's only word from its viewer (0: stop and keep, or nothing left to watch)."""
TICK_S = 0.25
SETTLED_S = 3.0
GARBAGE = (10_000, 20, 50)
"""Objects between looks for garbage, and looks between longer looks: what is made for one picture is seldom any."""
PAUSE_S = 0.004
"""For the keys, between two goes of reading a long run."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""End the app the ordinary way, so that the terminal is put back."""
SIGNALLED = 128
LINGER_S = 8.0
"""How long the result stays with --exit-when-done."""
MESSAGE_S = 5.0
Mode = Literal["watch", "view"]


class Source(Protocol):
    """Where views come from: `follow.Follower`, or a made-up one in tests."""

    def poll(self) -> View:
        """What the run is like now; reads whatever was added since the last time."""
        ...

    def read_on(self) -> bool:
        """Between two polls: reads a little more of what there is; False when there is no more."""
        ...

    def story(self, agent: int, at: int | None = None) -> Story:
        """An agent's session so far, or the one it had at a moment (ms since the run's origin)."""
        ...

    @property
    def agents(self) -> int:
        """Lanes so far."""
        ...

    def span(self) -> tuple[int, int]:
        """When the run began and what the latest moment is, ms since its origin."""
        ...

    def window(self, place: Place, cursor: int | None) -> Window:
        """A stretch of the timeline, and the engine at the cursor (ms since the run's origin; None is now)."""
        ...


def grounds(name: PaletteName) -> str:
    """The style rules of what no line covers: behind dialogs, and the box one types into."""
    palette = PALETTES[name]
    strong = palette.tones["strong"].color
    return f"""
    Screen.{name} {{ background: {palette.ground}; }}
    ModalScreen.{name} {{ background: {palette.ground} 70%; }}
    Screen.{name} Input {{ background: {palette.raised}; color: {strong.name if strong else palette.text}; }}
    """


class Viewer(InTurn[int]):
    """`watch` asks before it leaves a live run; `view` just closes."""

    TITLE = "windtunnel"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "quit"),
        Binding("ctrl+c,ctrl+q", "leave", "quit", priority=True),  # also from dialogs and while one types
        Binding("question_mark", "help", "help"),
        Binding("p", "picture", "picture"),
        Binding("T", "theme", "next theme"),
        Binding("t", "timeline", "timeline"),
        Binding("c", "compare", "compare this run with another one"),
        Binding("r", "runs", "past runs"),
        Binding("left_square_bracket", "speed(-1)", "replay slower"),
        Binding("right_square_bracket", "speed(1)", "replay faster; a finished run from its start"),
        Binding("space", "pause", "replay: stand still, go on"),
        Binding("left_curly_bracket", "seek(-1)", "replay: back"),
        Binding("right_curly_bracket", "seek(1)", "replay: forth"),
        Binding("ctrl+p", "palette", "commands", priority=False),
    ]
    CSS = "Screen.plain { background: ansi_default; }" + "".join(map(grounds, NAMES))

    def __init__(
        self,
        source: Source | None,
        look: Theme,
        mode: Mode = "watch",
        *,
        first: Callable[[Trips], Screen[Any]] | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        whole: bool = False,
        exit_when_done: bool = False,
        tick_s: float = TICK_S,
        pictures: Path | None = None,
        stamp: Callable[[], str] = lambda: "picture",
    ) -> None:
        super().__init__(ansi_color=None if look.colour else True)
        self.source: Source = NoRun() if source is None else source
        self.look = look
        self.mode: Mode = mode
        self.exit_when_done = exit_when_done
        self.tick_s = tick_s
        self.pictures = pictures or Path()
        self.stamp = stamp
        self.view = View()
        self.fleet = FleetScreen(look)
        self.trips = Trips(self, wall, monotonic, whole=whole)
        self.fault: WindtunnelError | None = None
        """What ended the app; whoever started it tells it."""
        self.over = False
        """The run that the viewer was opened with has ended; playing it again does not take that back."""
        self.first = first
        """Makes the screen to begin with, where that is not the fleet of the source."""
        self.settled: Callable[[], object] = lambda: None
        """Called some seconds after the first picture."""
        self.reads_on = False
        self.ticks_after_end = 0
        self.hear_signals = False
        self.orphaned: Callable[[], bool] = lambda: False
        """Whether the run that has opened this screen is no more."""
        self.message: Line = ()
        self.message_ticks = 0

    def get_driver_class(self) -> type[Driver]:
        """On a terminal Textual's own driver sends every colour with every word: two thirds of all bytes."""
        chosen = super().get_driver_class()
        if chosen.__name__ != "LinuxDriver":
            return chosen
        return FrugalDriver

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, cropped(renderable) if isinstance(renderable, CompositorUpdate) else renderable)

    def on_mount(self) -> None:
        if self.hear_signals:
            loop = asyncio.get_running_loop()
            for number in SIGNALS:
                loop.add_signal_handler(number, self.exit, SIGNALLED + number)
        self._push(self.fleet if self.first is None else self.first(self.trips))
        self.tick()
        if self.tick_s > 0:
            self.set_interval(self.tick_s, self.tick)
            self.set_timer(SETTLED_S, self.settle)

    def _fatal_error(self) -> None:
        """A damaged run ends the app with its sentence; only a defect is worth a traceback."""
        if isinstance(self._exception, WindtunnelError):
            self.fault = self._exception
            self._close_messages_no_wait()
        else:
            super()._fatal_error()

    def settle(self) -> None:
        """What is there from the start stays: looking through it for garbage again and again would hold up the keys."""
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        self.settled()

    def on_unmount(self) -> None:
        self.trips.close()

    def tick(self) -> None:
        """One round: read, show, and leave when the run is over and nobody has to be asked."""
        if self.orphaned():
            self.exit(ORPHANED)
            return
        self.view = self.source.poll()
        self.over = self.over or (self.view.ending is not None and not self.playing and not self.trips.away)
        self.message_ticks -= 1
        if self.view.ending is not None and isinstance(self.screen, LeaveScreen):
            # What it asks has answered itself.
            self.screen.dismiss("stay")
        self.show()
        if (self.view.reading or self.view.unread is not None) and not self.reads_on and self.tick_s > 0:
            self.reads_on = True
            self.read_on()
        if self.view.ending is None or not self.exit_when_done:
            return
        self.ticks_after_end += 1
        if self.closes_in_s == 0:
            self.exit(STOP)

    def read_on(self) -> None:
        """A long run is read in short goes, so that no key waits for it; what is shown is made four times a second."""
        self.reads_on = self.source.read_on()
        if self.reads_on:
            self.set_timer(PAUSE_S, self.read_on)
        else:
            self.tick()

    def on_resize(self, event: events.Resize) -> None:
        """Where no screen fits, that is said; what was open comes back when there is room again."""
        if too_small(*event.size):
            if not isinstance(self.screen, SmallScreen):
                self._push(SmallScreen(self.look))
        elif isinstance(self.screen, SmallScreen):
            self.screen.dismiss()

    def show(self) -> None:
        """The topmost full screen is drawn; what a dialog covers is not hidden, so it stays alive too."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, FullScreen):
                screen.update_view(self.view, self.aside)
                return

    def put(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        """A screen over what is shown."""
        self._push(screen, then)

    def _push(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        screen.add_class(self.look.css_class)
        self.push_screen(screen, then)

    @property
    def aside(self) -> Line:
        """What the footer says at its right end: the latest message, or when the screen closes."""
        if self.message_ticks > 0:
            return self.message
        if self.closes_in_s is None and self.view.unread is not None:
            return ((f"reading the past {1 - self.view.unread:4.0%}", "dim"),)
        if self.closes_in_s is not None:
            return closing(self.closes_in_s)
        name = "events are missing: " if self.view.missing else "damaged lines: "
        return ((name, "warn"), ("v", "key")) if self.view.damaged else ()

    def say(self, text: str, tone: str = "good") -> None:
        """Shows a message in the footer for some seconds."""
        self.message, self.message_ticks = ((text, tone),), round(MESSAGE_S / (self.tick_s or TICK_S))
        self.show()

    @property
    def closes_in_s(self) -> float | None:
        if self.view.ending is None or not self.exit_when_done:
            return None
        return max(0.0, LINGER_S - self.ticks_after_end * self.tick_s)

    def action_timeline(self) -> None:
        """All agents over time; the cursor's lane is the agent that was looked at."""
        if isinstance(self.screen, FleetScreen | AgentScreen):
            at = self.screen.agent if isinstance(self.screen, AgentScreen) else self.fleet.table.cursor
            moment = self.screen.moment if isinstance(self.screen, AgentScreen) else None
            screen = TimelineScreen(self.look, at, moment)
            screen.view = self.view
            self._push(screen)

    def open_agent(self, agent: int, at: int | None = None) -> None:
        """The drill-down of one agent, at a moment (ms since the run's origin); left and right go the fleet's order."""
        frame = self.fleet.frame
        screen = AgentScreen(self.look, agent, frame.order if frame is not None else (), at)
        screen.view = self.view
        self._push(screen)

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self._push(HelpScreen(self.look, type(self.screen).__name__))

    def action_palette(self) -> None:
        """Everything the open screen can do; what is chosen is run there."""
        screen = self.screen
        if isinstance(screen, ModalScreen):
            return

        def run(command: Command | None) -> None:
            if command is not None:
                self.call_later(self.run_action, command.action, screen if command.screen else self)

        self._push(PaletteScreen(self.look, commands(screen, colour=self.look.colour)), run)

    def action_wear(self, name: PaletteName) -> None:
        self.wear(name)

    def action_web(self) -> None:
        """A browser needs a viewer of its own: how to start it."""
        where = "RUN" if self.follower is None else shlex.quote(str(self.follower.folder.path))
        self.say(f"windtunnel view {where} --web", "key")

    def action_theme(self) -> None:
        """The next theme; without colours there is none."""
        if not self.look.colour:
            self.say("no colours here (NO_COLOR)", "dim")
            return
        at = NAMES.index(self.look.palette)
        self.wear(NAMES[(at + 1) % len(NAMES)])

    def wear(self, palette: PaletteName) -> None:
        """Every screen in this theme from now on: lines name tones, so only the strips are made anew."""
        was, self.look = self.look, replace(self.look, palette=palette)
        for screen in {*self.screen_stack, self.fleet}:
            screen.set_class(False, was.css_class)
            screen.set_class(True, self.look.css_class)
            if hasattr(screen, "look"):
                screen.look = self.look
            for lines in screen.query(Lines):
                lines.wear(self.look)
        self.say(f"theme {palette}", "dim")

    def action_runs(self) -> None:
        self.trips.runs()

    def action_compare(self) -> None:
        self.trips.compare_with()

    @property
    def follower(self) -> Follower | None:
        return self.source if isinstance(self.source, Follower) else None

    @property
    def playing(self) -> bool:
        """Whether a run is played again, and can stand still."""
        return self.follower is not None and self.follower.playing is not None

    def action_speed(self, by: int) -> None:
        if self.follower is not None:
            if self.view.missing and not self.playing:
                self.say("it cannot be played again: its events are missing", "warn")
            self.follower.change_speed(by)
            self.tick()

    def action_pause(self) -> None:
        if self.follower is not None:
            self.follower.pause()
            self.tick()

    def action_seek(self, by: int) -> None:
        if self.follower is not None:
            self.follower.seek(by)
            self.tick()

    def action_leave(self) -> None:
        if self.mode == "view" or self.over or self.trips.home_view().ending is not None:
            self.exit(STOP)
        elif isinstance(self.screen, LeaveScreen):
            self.screen.dismiss("stop")
        else:
            self._push(LeaveScreen(self.look, self.trips.home_view().phase), self._answered)

    def _answered(self, answer: Answer | None) -> None:
        if answer == "stop":
            self.exit(STOP)
        elif answer == "detach":
            self.exit(DETACH)

    def draw_svg(self) -> str:
        """The current screen as an SVG document."""
        strips = self.screen._compositor.render_strips()  # noqa: SLF001 -- what App.export_screenshot does
        return svg(strips, self.size.width, f"windtunnel: {self.view.run}", self.look.colours)

    def action_picture(self) -> None:
        path = self.pictures / f"windtunnel-{self.stamp()}.svg"
        try:
            path.write_text(self.draw_svg(), encoding="utf-8")
        except OSError as error:
            self.say(f"could not be saved ({error.strerror}): {path}", "bad")
            return
        self.say(f"saved {path}")
