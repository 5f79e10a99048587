"""Kept pictures of the timeline and of one agent: running, empty, with sub-agents, without text, with failures."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_run import Fake
from msgspec.structs import replace
from snapshots import picture, same
from test_story import session, turn

from windtunnel.simulator.results.breakdown import Part
from windtunnel.simulator.results.call_lines import Waited
from windtunnel.simulator.results.lanes import RANK
from windtunnel.simulator.results.store import TextLine
from windtunnel.traces.model import Trace
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.agent import Spot, compose_agent
from windtunnel.tui.screens.timeline_frame import Scope, columns_of, compose_timeline, place_of
from windtunnel.tui.theme import ASCII, Theme
from windtunnel.tui.transcript import Story, ThreadLane, Turn
from windtunnel.tui.view import Doing, Row, View
from windtunnel.tui.widgets.story import Paragraphs

Open = Callable[..., Follower]
SIZES = ((80, 24), (120, 40))
LOOKS = {"": Theme(), "-plain": Theme(colour=False), "-ascii": Theme(ASCII, colour=False)}

sized = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, running: Fake, failing: Fake, many: Fake) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pictures")
    made = {"running": running, "failures": failing, "many": many}
    return {name: fake.write(root / name) for name, fake in made.items()}


def timeline(follower: Follower, scope: Scope, size: tuple[int, int], look: Theme) -> str:
    view = follower.poll()
    began, now = follower.span()
    place = place_of(scope, began, now, columns_of(size[0], follower.agents), over=False)
    frame = compose_timeline(view, follower.window(place, scope.cursor), scope, *size, look)
    return picture(frame.lines, size[0], look, frame.marked)


def named(name: str, size: tuple[int, int]) -> str:
    return f"{name}-{size[0]}x{size[1]}"


@sized
@pytest.mark.parametrize("look", LOOKS)
def test_the_timeline_of_a_running_run(
    folders: dict[str, Path], follow: Open, size: tuple[int, int], look: str
) -> None:
    scope = Scope(cursor=31_000, agent=6)
    drawn = timeline(follow(folders["running"], at_s=50.0), scope, size, LOOKS[look])
    same(named(f"timeline-running{look}", size), drawn)


@sized
def test_the_timeline_of_many_agents_and_of_failures(
    folders: dict[str, Path], follow: Open, size: tuple[int, int]
) -> None:
    same(named("timeline-many", size), timeline(follow(folders["many"], at_s=25.0), Scope(), size, Theme()))
    scope = Scope(step=500, start=20_000, alone=True, agent=3, cursor=33_000)
    failures = timeline(follow(folders["failures"], at_s=50.0), scope, size, Theme())
    same(named("timeline-failures", size), failures)


@sized
def test_the_timeline_before_anything_began(folders: dict[str, Path], follow: Open, size: tuple[int, int]) -> None:
    same(named("timeline-empty", size), timeline(follow(folders["running"], at_s=0.0), Scope(), size, Theme()))


def agent(view: View, story: Story, size: tuple[int, int], look: Theme, spot: Spot | None = None) -> str:
    frame = compose_agent(view, story, Paragraphs(look), spot or Spot(), *size, look)
    return picture(frame.lines, size[0], look)


@sized
@pytest.mark.parametrize("look", LOOKS)
def test_an_agent_of_a_running_run(folders: dict[str, Path], follow: Open, size: tuple[int, int], look: str) -> None:
    follower = follow(folders["running"], at_s=50.0)
    view = follower.poll()
    story = replace(follower.story(4), trace_note="")
    same(named(f"agent-running{look}", size), agent(view, story, size, LOOKS[look]))


@sized
def test_an_agent_whose_call_failed(folders: dict[str, Path], follow: Open, size: tuple[int, int]) -> None:
    follower = follow(folders["failures"])
    while follower.poll().reading:
        pass
    failed = next(
        (story.row.agent, at)
        for number in range(32)
        for at in range(20_000, 60_000, 5_000)
        if (story := follower.story(number, at)).row.state == "failed" and len(story.turns) > 4
    )
    story = replace(follower.story(*failed), trace_note="")
    same(named("agent-failed", size), agent(follower.view, story, size, Theme()))


@sized
def test_an_agent_without_a_session(size: tuple[int, int]) -> None:
    view = View(run="run", agents=32, note="waiting for the engine", rows=(Row(agent=2),))
    same(named("agent-empty", size), agent(view, Story(row=Row(agent=2)), size, Theme()))


PARTS = (Part("queue", 0.3, "measured"), Part("prefill_missed", 0.9, "derived"), Part("decode", 2.6, "measured"))
BASH = (Waited("tool", "Bash  pytest -q", 4.1, 14.0),)


def lane(thread: int, name: str, depth: int, *stretches: tuple[int, int, str]) -> ThreadLane:
    starts, ends, ranks = zip(*((a, b, RANK[state]) for a, b, state in stretches), strict=True)
    return ThreadLane(thread, name, depth, starts, ends, ranks)


def telling(trace: Trace) -> Story:
    """A session with two sub-agents, one of them started by the other; a turn missed what had been evicted."""
    turns = (
        turn(0, start=1_000, end=5_000, recorded_s=6.1, parts=PARTS, ttft_s=1.2, tpot_s=0.015),
        Turn(
            **{**_fields(turn(1)), "thread": 1, "turn": 1, "start": 6_000, "end": 9_000, "missed": 300, "cached": 500},
            miss_cause="evicted, 71 s gap",
            cause="evicted during a gap of 71 s",
            parts=PARTS,
        ),
        Turn(**{**_fields(turn(0)), "thread": 2, "turn": 1, "start": 10_000, "end": 14_000}, parts=PARTS[1:]),
        Turn(
            **{**_fields(turn(1)), "thread": 1, "turn": 2, "call": 2, "start": 15_000, "end": 17_000},
            parts=PARTS,
            waits=BASH,
        ),
        turn(1, start=20_000, done=False, tail="The importer drops the last li", completion=12, pinned=300),
    )
    written = {
        (0, 0): TextLine("a", 0, "s", 0, 0, text="I will ask two sub-agents."),
        (1, 1): TextLine("b", 0, "s", 1, 1, text="The reader stops at the last newline."),
        (2, 0): TextLine("c", 0, "s", 2, 0, text="The test covers it."),
    }
    lanes = (
        lane(0, "", 0, (1_000, 5_000, "decode"), (5_000, 20_000, "wait"), (20_000, 24_000, "decode")),
        lane(1, "explore", 1, (6_000, 9_000, "decode"), (9_000, 15_000, "tool"), (15_000, 17_000, "decode")),
        lane(2, "review", 2, (10_000, 11_000, "prefill"), (11_000, 14_000, "decode")),
    )
    row = Row(
        agent=2, state="decode", title="claude/fix-importer", turn=2, turns=9, context=96_200, cached=0.98,
        ttft_s=0.31, rate=62.1, subagents=1, doing=Doing(tokens=12, pinned=300, tail="The importer drops the last li"),
    )  # fmt: skip
    return Story(
        row=row, session="s", turns=turns, trace=trace, written=written, lanes=lanes, until=24_000, sessions=3,
        number=3, slower=1.4,
    )  # fmt: skip


def _fields(told: Turn) -> dict[str, object]:
    keep = ("thread", "call", "turn", "turns", "done", "prompt", "cached", "missed", "completion", "latency_s")
    return {name: getattr(told, name) for name in keep}


@sized
def test_an_agent_with_sub_agents(size: tuple[int, int]) -> None:
    story = telling(session(False))
    view = View(run="run", agents=32, phase="steady", rows=(story.row,))
    same(named("agent-subagents", size), agent(view, story, size, Theme(), Spot(turn=(1, 1), back=8)))


@sized
def test_an_agent_whose_text_was_never_recorded(size: tuple[int, int]) -> None:
    story = telling(session(True))
    view = View(run="run", agents=32, phase="steady", rows=(story.row,))
    same(named("agent-shape", size), agent(view, story, size, Theme(), Spot(back=99)))
