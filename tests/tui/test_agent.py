"""The agent screen on made-up runs: its sessions, its lanes, its turns, and its keys."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from fake_clocks import Clocks
from fake_run import Fake
from msgspec.structs import replace
from textual.pilot import Pilot

from windtunnel.agents.events import CallEnd, CallStart, SessionStart, WaitEnd, WaitStart
from windtunnel.simulator.results.breakdown import break_down, waits_of
from windtunnel.simulator.results.lanes import RANK
from windtunnel.simulator.results.misses import read
from windtunnel.tui.app import Viewer
from windtunnel.tui.figures import seconds
from windtunnel.tui.follow import Follower
from windtunnel.tui.screens.agent import AgentScreen, Spot, compose_agent
from windtunnel.tui.screens.timeline import TimelineScreen
from windtunnel.tui.stories import joined_tail
from windtunnel.tui.theme import Theme, cells_of, plain
from windtunnel.tui.transcript import Story, ThreadLane
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.story import Paragraphs
from windtunnel.tui.widgets.threads import chosen, lane_lines
from windtunnel.tui.widgets.turns import about_turn, following, spent, turn_line

Open = Callable[..., Follower]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, failing: Fake) -> Path:
    return failing.write(tmp_path_factory.mktemp("agent") / "run", summary=True)


def read_whole(follower: Follower) -> Follower:
    while follower.poll().reading:
        pass
    return follower


def busiest(fake: Fake) -> int:
    """An agent that had several sessions."""
    counts = [0] * fake.agents
    for event in fake.events:
        if isinstance(event, SessionStart):
            counts[event.agent] += 1
    return counts.index(max(counts))


def test_turns_are_told_by_the_rules_of_why_and_diagnose(folder: Path, follow: Open, failing: Fake) -> None:
    follower = read_whole(follow(folder))
    samples = [e for e in failing.events if type(e).__name__ == "EngineSample"]
    report = {(c.session, c.call): c for c in read(failing.events, 1, {}).calls}
    ends = [e for e in failing.events if isinstance(e, CallEnd)]
    times = {(t.session, t.call): t for t in break_down(ends, samples, report, waits_of(failing.events))}
    seen = 0
    for agent in range(8):
        story = follower.story(agent)
        for turn in story.turns:
            told = times.get((story.session, turn.call))
            if told is None:
                assert turn.failure or turn.cut
                continue
            seen += 1
            cache = report[story.session, turn.call]
            assert (turn.cached, turn.missed, turn.lost) == (cache.cached, cache.missed, 0)
            ours = {p.name: p.seconds for p in turn.parts}
            theirs = {p.name: p.seconds for p in told.parts}
            # The gaps between chunks, which tell decode from decode held up, are not kept.
            theirs["decode"] = theirs.get("decode", 0.0) + theirs.pop("held_up", 0.0)
            assert ours == pytest.approx(theirs)
    assert seen > 20


def test_a_session_of_the_past_is_shown_as_it_was(folder: Path, follow: Open, failing: Fake) -> None:
    agent = busiest(failing)
    follower = read_whole(follow(folder))
    begun = [e for e in failing.events if isinstance(e, SessionStart) and e.agent == agent]
    assert len(begun) >= 3
    now = follower.story(agent)
    assert (now.session, now.number, now.sessions) == (begun[-1].session, len(begun), len(begun))
    for i, start in enumerate(begun[:-1]):
        story = follower.story(agent, start.t // 1_000_000 + 1)
        assert (story.session, story.number, story.title) == (start.session, i + 1, start.title)
        assert story.over
        assert story.row.state in {"done", "failed"}
        ends = [e for e in failing.events if isinstance(e, CallEnd) and e.session == start.session]
        assert [t.call for t in story.turns] == [e.call for e in ends]
        assert all(story.since <= t.start <= (t.end or 0) <= story.until for t in story.turns)


def test_the_lanes_hold_the_sessions_time(folder: Path, follow: Open) -> None:
    follower = follow(folder, at_s=40.0)
    follower.poll()
    story = follower.story(3)
    main = story.lanes[0]
    assert main.thread == 0
    decoded = sum(b - a for a, b, r in zip(main.starts, main.ends, main.ranks, strict=True) if r == RANK["decode"])
    calls = [t for t in story.turns if t.thread == 0 and t.done]
    assert decoded >= sum((t.latency_s or 0) - (t.ttft_s or 0) for t in calls) * 1000 - len(calls) * 2 > 0
    assert 39_900 <= story.until <= 40_000


def lane(thread: int, *stretches: tuple[int, int, str], depth: int = 0, name: str = "") -> ThreadLane:
    starts, ends, ranks = zip(*((a, b, RANK[state]) for a, b, state in stretches), strict=True)
    return ThreadLane(thread, name, depth, starts, ends, ranks)


LANES = (
    lane(0, (0, 10_000, "decode"), (10_000, 40_000, "wait")),
    lane(1, (10_000, 20_000, "prefill"), (20_000, 30_000, "tool"), depth=1, name="explore"),
    lane(2, (20_000, 40_000, "decode"), depth=2, name="review"),
)


def test_lanes_of_a_session_stand_below_each_other_in_time() -> None:
    story = Story(row=Row(agent=0), since=0, until=39_000, over=True, lanes=LANES)
    look = Theme(colour=False)
    head, main, first, second = (plain(line).rstrip() for line in lane_lines(story, 103, 5, None, look))
    assert head.startswith(" lanes")
    assert main.split(maxsplit=1)[1] == "D" * 20 + "W" * 60
    assert first.startswith(" ↳1 explore")
    assert first[22:].strip() == "P" * 20 + "T" * 20
    assert second.startswith("  ↳2 review")
    assert second[22:] == " " * 40 + "D" * 40
    crossed = [plain(line)[22 + 30] for line in lane_lines(story, 103, 5, 15_000, look)[1:]]
    assert crossed == ["│", "│", "│"]


def test_of_many_threads_the_latest_are_shown_and_that_is_said() -> None:
    many = (LANES[0], *(lane(i, (i * 1000, i * 1000 + 500, "decode"), depth=1) for i in range(1, 9)))
    assert [x.thread for x in chosen(many, 4)] == [0, 6, 7, 8]
    story = Story(row=Row(agent=0), until=40_000, lanes=many)
    assert plain(lane_lines(story, 120, 4, None, Theme())[0]).startswith(" 4 of 9 threads")


def test_text_that_is_written_is_joined_from_its_latest_ends() -> None:
    whole = "The importer drops the last line when the file has no trailing newline. I will read the test first."
    text = ""
    for end in range(10, len(whole), 7):
        text = joined_tail(text, whole[:end][-40:])
    assert text == whole[:end]
    assert joined_tail("abc", "nothing in common with it") == "abc … nothing in common with it"
    assert joined_tail("abc", "") == "abc"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (60, 16)])
def test_every_line_fits(folder: Path, follow: Open, size: tuple[int, int]) -> None:
    follower = follow(folder, at_s=45.0)
    view = follower.poll()
    for look in (Theme(), Theme(colour=False)):
        paragraphs = Paragraphs(look)
        for agent in range(6):
            for spot in (Spot(), Spot(back=7), Spot(back=3, turn=(0, 0))):
                frame = compose_agent(view, follower.story(agent), paragraphs, spot, *size, look)
                assert len(frame.lines) == size[1]
                assert all(sum(cells_of(text) for text, _ in line) <= size[0] for line in frame.lines)


def test_an_agent_without_a_session_says_so() -> None:
    frame = compose_agent(
        View(note="waiting for the first agent"), Story(row=Row(agent=4)), Paragraphs(Theme()), Spot(), 80, 24, Theme()
    )
    assert any("waiting for the first agent" in plain(line) for line in frame.lines)


@asynccontextmanager
async def opened(
    follower: Follower, agent: int, size: tuple[int, int] = (120, 40), at: int | None = None
) -> AsyncIterator[tuple[Viewer, Pilot[int], AgentScreen]]:
    app = Viewer(follower, Theme(), "view", tick_s=0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.open_agent(agent, at)
        await pilot.pause()
        assert isinstance(app.screen, AgentScreen)
        yield app, pilot, app.screen


def drawn(app: Viewer) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def test_turns_before_and_after(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=45.0), 0) as (app, pilot, screen):
        last = len(screen.story.turns) - 1
        assert last > 3
        assert screen.frame.shown == last
        await pilot.press("comma", "comma")
        assert screen.frame.shown == last - 2
        turn = screen.story.turns[last - 2]
        assert screen.spot.turn == turn.key
        assert any("│" in line[22:] for line in drawn(app)[5:6]), "the lane has the cursor"
        await pilot.press("full_stop")
        assert screen.frame.shown == last - 1
        await pilot.press("full_stop", "full_stop")
        assert (screen.spot, screen.frame.shown) == (Spot(), last)
        await pilot.press("home")
        assert screen.frame.shown == 0
        assert "scrolled back" in drawn(app)[-1]
        await pilot.press("end")
        assert "following" in drawn(app)[-1]


async def test_sessions_before_and_after(folder: Path, follow: Open, failing: Fake) -> None:
    agent = busiest(failing)
    async with opened(follow(folder), agent) as (app, pilot, screen):
        number = screen.story.number
        assert f"session {number} of {number}" in drawn(app)[2]
        await pilot.press("less_than_sign")
        assert screen.story.number == number - 1
        await pilot.press("less_than_sign")
        assert screen.story.number == number - 2
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
        assert screen.story.number == number
        await pilot.press(*["less_than_sign"] * (number + 2))
        assert screen.story.number == 1


async def test_it_opens_at_the_timelines_time(folder: Path, follow: Open, failing: Fake) -> None:
    agent = busiest(failing)
    async with opened(follow(folder), 0) as (app, pilot, _):
        await pilot.press("t")
        assert isinstance(app.screen, TimelineScreen)
        timeline = app.screen
        await pilot.press(*["down"] * agent, *["shift+left"] * 4)
        at = timeline.scope.cursor
        await pilot.press("enter")
        assert isinstance(app.screen, AgentScreen)
        shown = app.screen
        assert shown.agent == agent
        assert shown.story.since <= at <= shown.story.until
        turn = shown.story.turns[shown.frame.shown]
        later = [t for t in shown.story.turns if t.start > turn.start]
        assert turn.start <= at or turn is shown.story.turns[0]
        assert all(t.start > at for t in later)


async def test_the_timeline_is_opened_at_the_turn_that_is_looked_at(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=45.0), 5) as (app, pilot, screen):
        await pilot.press("t")
        assert (app.screen.scope.agent, app.screen.scope.cursor) == (5, None)
        await pilot.press("t", "comma", "comma", "t")
        turn = screen.story.turns[screen.frame.shown]
        assert (app.screen.scope.agent, app.screen.scope.cursor) == (5, turn.start)


async def test_other_agents_by_keys(folder: Path, follow: Open) -> None:
    async with opened(follow(folder, at_s=45.0), 0) as (_, pilot, screen):
        for key, agent in (("right", 1), ("l", 2), ("tab", 3), ("left", 2), ("h", 1), ("left", 0), ("left", 31)):
            await pilot.press(key)
            assert screen.agent == agent


async def test_what_is_read_stays_while_the_session_goes_on(folder: Path, follow: Open, clocks: Clocks) -> None:
    async with opened(follow(folder, at_s=30.0, speed=1.0), 0) as (app, pilot, _):
        await pilot.press("pageup")
        before = drawn(app)[-10:-2]
        for _ in range(4):
            clocks.monotonic += 1.0
            app.tick()
            await pilot.pause()
        assert drawn(app)[-10:-2] == before


def test_that_caching_is_off_is_said_of_every_turn_once_it_is_sure(tmp_path: Path, follow: Open, running: Fake) -> None:
    events = [replace(e, cached_tokens=0) if isinstance(e, CallEnd) and not e.cut else e for e in running.events]
    folder = running.write(tmp_path / "run")
    (folder / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(e) + b"\n" for e in events))
    story = read_whole(follow(folder)).story(0)
    missed = [turn for turn in story.turns if turn.missed]
    assert missed
    assert {turn.cause for turn in missed} == {"nothing was ever found: is caching off?"}


def test_the_first_token_of_a_running_call_is_told_once_it_came(folder: Path, follow: Open, clocks: Clocks) -> None:
    follower = follow(folder, at_s=20.0, speed=1.0)
    told: dict[tuple[int, str, int, int], float] = {}
    checked = 0
    for _ in range(60):
        clocks.monotonic += 0.25
        view = follower.poll()
        for agent in range(6):
            story = follower.story(agent)
            for turn in story.turns:
                key = agent, story.session, *turn.key
                if not turn.done and story.row.state == "prefill":
                    assert turn.ttft_s is None
                elif not turn.done and turn.ttft_s is not None:
                    assert turn.ttft_about
                    told[key] = turn.ttft_s
                    if turn.thread == story.row.thread:
                        assert turn.ttft_s == story.row.ttft_s, "head and table agree"
                        frame = compose_agent(view, story, Paragraphs(Theme()), Spot(), 120, 40, Theme())
                        assert sum(f"~{turn.ttft_s:.2f}" in plain(line) for line in frame.lines) == 2
                elif turn.done and key in told and turn.ttft_s is not None:
                    assert not turn.ttft_about
                    assert told.pop(key) == pytest.approx(turn.ttft_s, abs=0.26)
                    checked += 1
    assert checked > 10


def test_lanes_of_a_past_session_end_with_it(folder: Path, follow: Open, failing: Fake) -> None:
    agent = busiest(failing)
    follower = read_whole(follow(folder))
    first = next(e for e in failing.events if isinstance(e, SessionStart) and e.agent == agent)
    story = follower.story(agent, first.t // 1_000_000 + 1)
    assert story.over
    assert story.lanes
    for one in story.lanes:
        assert max(one.ends) <= story.until
        assert min(one.starts) >= story.since


async def test_every_key_of_an_action_does_the_same(folder: Path, follow: Open, failing: Fake) -> None:
    agent = busiest(failing)
    async with opened(follow(folder), agent, size=(80, 24)) as (app, pilot, screen):
        number = screen.story.number
        for binding in screen.BINDINGS:
            if binding.action == "back":
                continue
            results = []
            for key in binding.key.split(","):
                screen.agent, screen.at = agent, screen.story.since - 1 if screen.story.number == number else screen.at
                screen.spot = Spot(back=30)
                screen.draw()
                await pilot.press(key)
                results.append((screen.agent, screen.story.number, screen.spot))
            assert len(set(map(repr, results))) == 1, binding.key
        for key in ("escape", "backspace"):
            await pilot.press(key)
            assert app.screen is app.fleet
            app.open_agent(0)
            await pilot.pause()


def test_what_is_written_is_seen_as_it_comes(folder: Path, follow: Open, clocks: Clocks, failing: Fake) -> None:
    follower = follow(folder, at_s=20.0, speed=1.0)
    longest: dict[str, str] = {}
    for _ in range(40):
        clocks.monotonic += 0.25
        follower.poll()
        for turn in follower.story(2).turns:
            if not turn.done:
                longest[f"{turn.call}"] = turn.tail
    shown = max(longest.values(), key=len)
    assert len(shown) > 100, "more than the last characters that progress tells"
    whole = [text["text"] for text in failing.texts if text["agent"] == 2]
    assert any(shown.split(" … ")[-1] in text for text in whole)


def a_tool_between_two_calls(fake: Fake) -> tuple[WaitStart, WaitEnd, CallStart, CallEnd]:
    """A longer tool run of the main agent, and the call after it."""
    for start in fake.events:
        if isinstance(start, WaitStart) and start.cause == "tool" and start.seconds > 3 and start.t > 20_000_000_000:
            later = [e for e in fake.events if e.t > start.t and getattr(e, "agent", None) == start.agent]
            end = next(e for e in later if isinstance(e, WaitEnd))
            call = next(e for e in later if isinstance(e, CallStart))
            done = next((e for e in later if isinstance(e, CallEnd)), None)
            before = [e for e in fake.events if e.t <= start.t and getattr(e, "agent", None) == start.agent]
            last = next(e for e in reversed(before) if isinstance(e, CallEnd))
            if done is not None and done.t - call.t > 1_000_000_000 and call.thread == done.thread == last.thread == 0:
                return start, end, call, done
    raise AssertionError("there is none")


@pytest.mark.parametrize("when", ["while it runs", "after it, in the next call", "after that"])
def test_what_a_turns_tools_take_is_shown_as_soon_as_it_is_known(
    folder: Path, follow: Open, failing: Fake, when: str
) -> None:
    start, end, call, done = a_tool_between_two_calls(failing)
    ran_s = (end.t - start.t) / 1e9
    at_s = {"while it runs": start.t / 1e9 + 2.1, "after it, in the next call": call.t / 1e9 + 0.5}.get(
        when, done.t / 1e9 + 0.001
    )
    follower = follow(folder, at_s=at_s)
    follower.poll()
    story = follower.story(start.agent)
    turn = next(t for t in story.turns if t.call == call.call - 1 and t.thread == 0)
    after = following(story.turns).get(turn.key)
    row = plain(turn_line(turn, after, story, 100.0, 160, Theme(colour=False), ""))
    shown = 2.0 if when == "while it runs" else ran_s
    assert spent(turn, after)["tool"] == pytest.approx(shown, abs=0.01)
    assert f" {seconds(spent(turn, after)['tool'])} " in row
    assert start.label in row
    assert f"then {start.label} " in plain(about_turn(turn, after, 200, Theme(colour=False)))
