"""The fleet's screen as text: what it says in every condition of a run, at three sizes. Pictures: `test_fleet_pictures`."""

import math
import re

import pytest
from fake_run import NS, Fake
from msgspec.structs import replace
from snapshots import SIZES

from windtunnel.agents.events import Progress
from windtunnel.simulator.results.fold import Fold
from windtunnel.tui.figures import clock
from windtunnel.tui.screens.board import Frame, Table, compose_frame, paced
from windtunnel.tui.snapshot import Plans, head_of, view_of
from windtunnel.tui.theme import ASCII, UNICODE, Theme, plain, strip
from windtunnel.tui.view import Doing, Row, View
from windtunnel.tui.widgets.agents import SORTS
from windtunnel.tui.widgets.digits import read

CONDITIONS = ("starting", "running", "failures", "finished", "invalid", "died", "many")


def text_of(frame: Frame) -> str:
    return "".join(plain(line).rstrip() + "\n" for line in frame.lines)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_ascii_says_the_same_without_any_other_character(
    views: dict[str, View], condition: str, width: int, height: int
) -> None:
    rich = compose_frame(views[condition], Table(), width, height, Theme(UNICODE))
    poor = compose_frame(views[condition], Table(), width, height, Theme(ASCII))
    text = text_of(poor)
    assert text.isascii()
    assert len(poor.lines) == len(rich.lines)
    assert poor.shown == rich.shown
    for word in ("decode", "failed", "KV"):
        assert (word in text) == (word in text_of(rich))


def test_no_colour_means_none_and_states_stay_told_apart(views: dict[str, View]) -> None:
    look = Theme(UNICODE, colour=False)
    frame = compose_frame(views["running"], Table(), 120, 40, look)
    for line in frame.lines:
        for segment in strip(line, 120, colour=False):
            assert segment.style is None or (segment.style.color is None and segment.style.bgcolor is None)
    text = text_of(frame)
    for glyph, word in (("▶", "decode"), ("▷", "prefill"), ("◆", "tool")):
        assert f"{glyph} {word}" in text
    # The history of states is made of their glyphs where it cannot be made of colours.
    stacked = [line[59:80] for line in text.splitlines()[2:5]]
    assert "▶▶▶" in stacked[2]
    assert "◆◆" in stacked[0]
    narrow = text_of(compose_frame(views["running"], Table(), 80, 24, look))
    bar = next(line for line in narrow.splitlines() if line.lstrip().startswith("agents"))
    assert "▶▶▶" in bar


def test_the_numbers_on_the_screen_are_the_views(views: dict[str, View]) -> None:
    view = views["running"]
    text = text_of(compose_frame(view, Table(), 120, 40, Theme()))
    rows = text.splitlines()
    assert read([row[:21] for row in rows[2:5]], UNICODE) == f"{view.out_rate:.0f}"
    assert f"cached {view.cached * 100:.1f}% of {view.could_be_cached * 100:.1f}%" in text
    assert f"in flight {view.in_flight:>2.0f}" in text
    for state, n in view.states().items():
        assert re.search(rf"{state} +{n}\b", text)
    assert f"done  {view.done}" in text
    times = [clock(s) for s in (view.phase_s, view.total_s, math.ceil(view.left_s))]
    assert "{} / {}  left {}".format(*times) in text
    assert f"set {view.engine.demand * 100:3.0f}%" in text
    row = next(r for r in view.rows if r.state == "decode")
    line = next(line for line in rows if line.startswith(f" {row.agent + 1:02d} "))
    for figure in (f"{row.turn}/{row.turns}", f"{row.rate:.1f}", f"{row.ttft_s:.2f}", f"{row.doing.tokens}/"):
        assert figure in line


def test_estimates_are_marked_and_counts_are_not(views: dict[str, View]) -> None:
    view = views["running"]
    # The time to a running call's first token is always worked out.
    assert {row.state for row in view.rows if row.ttft_about} == {"decode"}
    view = replace(view, rows=tuple(replace(row, ttft_about=False) for row in view.rows))
    writing = [r for r in view.rows if r.state == "decode" and r.rate is not None][:2]
    guessed = replace(writing[0], exact=False)
    rows = tuple(guessed if r.agent == guessed.agent else r for r in view.rows)
    before = text_of(compose_frame(view, Table(), 120, 40, Theme())).splitlines()
    after = text_of(compose_frame(replace(view, rows=rows, parsed=False), Table(), 120, 40, Theme())).splitlines()
    assert not any("~" in line for line in before)
    (line,) = [line for line in after if line.startswith(f" {guessed.agent + 1:02d} ")]
    assert f" ~{guessed.rate:.1f} " in line
    assert f" ~{guessed.doing.tokens}/" in line
    assert read([row[:21] for row in after[2:5]], UNICODE) == f"~{view.out_rate:.0f}"
    changed = [y for y, (a, b) in enumerate(zip(after, before, strict=True)) if a != b]
    assert changed == [3, after.index(line)]


def test_every_sort_keeps_every_agent_and_puts_missing_values_last(views: dict[str, View]) -> None:
    for key in SORTS:
        frame = compose_frame(views["running"], Table(sort=key), 120, 40, Theme())
        assert sorted(frame.order) == list(range(32))
    rows = {r.agent: r for r in views["running"].rows}
    order = compose_frame(views["running"], Table(sort="rate"), 120, 40, Theme()).order
    rates = [rows[a].rate for a in order]
    known = [r for r in rates if r is not None]
    assert known == sorted(known, reverse=True)
    assert rates[: len(known)] == known
    backwards = compose_frame(views["running"], Table(sort="context", backwards=True), 120, 40, Theme()).order
    contexts = [rows[a].context or 0 for a in backwards]
    assert contexts == sorted(contexts)


def test_the_filter_is_a_regular_expression_and_can_be_inverted(views: dict[str, View]) -> None:
    rows = views["running"].rows
    codex = {r.agent for r in rows if "codex" in r.title}
    assert set(compose_frame(views["running"], Table(pattern="^.. \\w+ codex"), 120, 40, Theme()).order) == codex
    others = compose_frame(views["running"], Table(pattern="!codex"), 120, 40, Theme())
    assert set(others.order) == {r.agent for r in rows} - codex
    # Totals stay of all agents.
    assert f"{len(others.order)} of 32" in text_of(others)
    assert "32 agents" in text_of(others)
    assert compose_frame(views["running"], Table(pattern="(unfinished"), 120, 40, Theme()).order == ()


def test_256_agents_scroll_with_the_cursor(views: dict[str, View]) -> None:
    frame = compose_frame(views["many"], Table(cursor=200), 80, 24, Theme())
    assert 200 in frame.shown
    assert "of 256" in text_of(frame)
    assert frame.marked == frame.first + frame.shown.index(200)
    again = compose_frame(views["many"], frame.table, 80, 24, Theme())
    assert again.shown == frame.shown


def test_rows_that_only_write_on_take_turns_and_changes_of_state_do_not_wait() -> None:
    writing = tuple(Row(agent=a, state="decode", turn=3, doing=Doing(tokens=10)) for a in range(4))
    further = tuple(replace(r, doing=Doing(tokens=20), rate=60.0) for r in writing)
    first = paced(further, writing, beat=0)
    assert [r.doing.tokens for r in first] == [20, 10, 20, 10]
    assert [r.doing.tokens for r in paced(further, first, beat=1)] == [20, 20, 20, 20]
    ended = tuple(replace(r, state="tool") for r in further)
    assert paced(ended, first, beat=0) == ended
    assert paced(tuple(replace(r, turn=4) for r in further), first, beat=0)[1].turn == 4


@pytest.mark.parametrize(("width", "height"), [*SIZES, (160, 48)])
def test_nothing_above_the_table_jumps(running: Fake, width: int, height: int) -> None:
    """Names stand in the same cells from one look to the next, whatever the numbers do."""
    fold, plans, head = Fold(running.run_json()), Plans(), head_of(running.run_json(), "run")
    places: dict[tuple[int, str], set[int]] = {}
    events, looks = iter(running.events), 0
    for event in events:
        fold.apply(event)
        plans.apply(event)
        if not isinstance(event, Progress) or not 20 * NS < event.t < 58 * NS:
            continue
        looks += 1
        if looks % 3:
            continue
        view = view_of(head, fold, plans, ending=None, silent_s=None, summary=None, speed="real time 1.0x")
        frame = compose_frame(view, Table(), width, height, Theme())
        for y in range(frame.first):
            for found in re.finditer(r"[a-z]{2,}", plain(frame.lines[y])):
                places.setdefault((y, found[0]), set()).add(found.start())
    assert looks > 100
    # A name may stand twice in a line, but neither of its places may move.
    moved = {key: columns for key, columns in places.items() if len(columns) > plain(frame.lines[key[0]]).count(key[1])}
    assert moved == {}


def test_numbers_stand_still(views: dict[str, View]) -> None:
    """Columns do not move between two moments: the head's names and every row's numbers end at the same cells."""
    frame = compose_frame(views["running"], Table(), 120, 40, Theme())
    lines = [plain(line) for line in frame.lines]
    head = lines[frame.first - 1]
    end = head.index("context") + len("context")
    for line in lines[frame.first : frame.first + 30]:
        assert line[end - 1] in "k0123456789–"
        assert line[end] == " "
