"""Going from one run to others and back: past runs, comparisons, and runs opened from there.

Runs opened over one another lie on a stack; only the topmost is followed, the others catch up when they are seen again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.simulator.experiments import runs
from windtunnel.simulator.results.store import RunFolder
from windtunnel.traces.errors import UsageError
from windtunnel.tui.comparing import Comparing
from windtunnel.tui.follow import Follower
from windtunnel.tui.past import RUNS, Shelf
from windtunnel.tui.screens.board import Table
from windtunnel.tui.screens.compare import CompareScreen
from windtunnel.tui.screens.fleet import FleetScreen
from windtunnel.tui.screens.runs import RunsScreen
from windtunnel.tui.transcript import Story
from windtunnel.tui.view import Row, View
from windtunnel.tui.window import Place, Window

if TYPE_CHECKING:
    from windtunnel.tui.app import Source, Viewer

Clock = Callable[[], float]


class NoRun:
    """Where a viewer begins without a run: with past ones, or a comparison."""

    agents = 0

    def poll(self) -> View:
        return View()

    def read_on(self) -> bool:
        return False

    def story(self, agent: int, at: int | None = None) -> Story:  # noqa: ARG002 -- what every source takes
        return Story(row=Row(agent=agent))

    def span(self) -> tuple[int, int]:
        return 0, 0

    def window(self, place: Place, cursor: int | None) -> Window:  # noqa: ARG002 -- what every source takes
        return Window(place=place)


class Trips:
    """Of one viewer. `wall` and `monotonic` are its clocks; `whole` reads everything at once, for pictures."""

    def __init__(self, app: "Viewer", wall: Clock, monotonic: Clock, *, whole: bool = False) -> None:
        self.app = app
        self.wall, self.monotonic, self.whole = wall, monotonic, whole
        self._below: list[tuple[Source, FleetScreen, View]] = []

    @property
    def away(self) -> bool:
        """Whether another run lies over the one that the viewer was opened with."""
        return bool(self._below)

    def home_view(self) -> View:
        """The run that the viewer was opened with, as it is now."""
        if not self._below:
            return self.app.view
        return self._below[0][0].poll()

    # -- runs

    def open_run(self, path: Path, speed: float | None = None) -> None:
        """Another run over what is shown; escape comes back. One that is followed below already is gone back to."""
        if speed is None and self._back_to(path):
            return
        try:
            follower = Follower.open(path, self.wall, self.monotonic, speed=speed, whole=self.whole)
        except UsageError as error:
            self.app.say(str(error), "bad")
            return
        app = self.app
        self._below.append((app.source, app.fleet, app.view))
        app.source, app.fleet, app.view = follower, FleetScreen(app.look), View()
        app.fleet.table = Table(away=True)
        app.put(app.fleet, self._closed)
        app.tick()

    def _back_to(self, path: Path) -> bool:
        """Whether the run is followed here, and shown now: it is not read twice."""
        sources = [*(source for source, *_ in self._below), self.app.source]
        depth = next((i for i, source in enumerate(sources) if _shows(source, path)), None)
        if depth is None:
            return False
        while len(self._below) > depth or self.app.screen is not self.app.fleet:
            fleet = self.app.screen is self.app.fleet
            self.app.pop_screen()
            if fleet:
                self._closed(None)
        self.app.tick()
        return True

    def _closed(self, _: Any) -> None:
        if isinstance(self.app.source, Follower):
            self.app.source.close()
        self.app.source, self.app.fleet, self.app.view = self._below.pop()
        self.app.tick()

    def close(self) -> None:
        """The files of runs that were opened here; the first one is closed by whoever opened it."""
        for source in [source for source, *_ in self._below[1:]] + ([self.app.source] if self._below else []):
            if isinstance(source, Follower):
                source.close()

    # -- lists of them

    def open_runs(self, root: Path) -> None:
        self.app.put(self.runs_of(root))

    def runs_of(self, root: Path, *, nested: bool = True) -> RunsScreen:
        return RunsScreen(self.app.look, Shelf(root, self.wall, self.monotonic), self.wall, nested=nested)

    def open_some(self, name: str, paths: Sequence[Path]) -> None:
        """The runs of one configuration."""
        shelf = Shelf(Path(name), self.wall, self.monotonic, only=paths)
        self.app.put(RunsScreen(self.app.look, shelf, self.wall))

    def runs(self) -> None:
        """Those beside the run that is shown."""
        self.open_runs(self._root())

    def _root(self) -> Path:
        here = self._shown()
        if here is None:
            return RUNS
        beside = here.absolute().parent
        # A run of an experiment lies in a block of it: what it is compared with lies above.
        while beside.name.startswith("block-") or (beside.parent / "experiment.json").exists():
            beside = beside.parent
        return _readable(beside)

    def _shown(self) -> Path | None:
        source = self.app.source
        return source.folder.path if isinstance(source, Follower) else None

    # -- comparing

    def compare_with(self) -> None:
        """Asks which run the shown one is compared with; that one is the base."""
        here = self._shown()
        if here is None:
            self.app.say("there is no run here to compare", "warn")
            return
        shelf = Shelf(self._root(), self.wall, self.monotonic)
        subject = _readable(here.absolute())

        def chosen(other: Path | None) -> None:
            if other is not None:
                self.open_comparison([other, subject])

        self.app.put(RunsScreen(self.app.look, shelf, self.wall, subject=subject, against=against(subject)), chosen)

    def open_comparison(self, paths: Sequence[Path]) -> None:
        self.app.put(self.comparison_of(paths))

    def comparison_of(self, paths: Sequence[Path], *, nested: bool = True) -> CompareScreen:
        source = Comparing(paths, self.wall, self.monotonic, whole=self.whole, this=self._shown())
        return CompareScreen(self.app.look, source, nested=nested)


def against(subject: Path) -> Callable[[Path], tuple[str, str]]:
    """How a run stands to the subject, as (text, tone): the same settings, the same work, or what of it is other."""
    try:
        mine = RunFolder.open(subject).run
    except UsageError:
        mine = {}

    def told(path: Path) -> tuple[str, str]:
        try:
            other = RunFolder.open(path).run
        except UsageError:
            return "cannot be read", "bad"
        found = runs.differences(other, mine)
        if found:
            more = f" +{len(found) - 1}" if found[1:] else ""
            return f"other: {found[0].partition(' against ')[0]}{more}", "dim"
        if runs.engine_identity(other) == runs.engine_identity(mine):
            return "same work, settings", "good"
        return "same work", "good"

    return told


def _shows(source: "Source", path: Path) -> bool:
    """Whether it follows this run as it stands, and does not play it again."""
    if not isinstance(source, Follower) or source.playing is not None:
        return False
    return source.folder.path.absolute() == path.absolute()


def _readable(path: Path) -> Path:
    """Relative to where the viewer was started, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
