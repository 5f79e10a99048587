"""The transcript of one agent: recorded text, shape-only traces, failures, long texts."""

from msgspec.structs import replace

from windtunnel.simulator.results.breakdown import Part
from windtunnel.simulator.results.call_lines import Waited
from windtunnel.simulator.results.store import TextLine
from windtunnel.traces.model import (
    Block,
    Call,
    Header,
    Message,
    Thread,
    ToolCall,
    ToolSet,
    Trace,
    digest_of,
)
from windtunnel.tui.screens.agent import Spot, compose_agent
from windtunnel.tui.theme import ASCII, UNICODE, Theme, cells_of, plain
from windtunnel.tui.transcript import Story, ThreadLane, Turn, entries
from windtunnel.tui.view import Row, View
from windtunnel.tui.widgets.story import Paragraphs, tail_of, wrapped
from windtunnel.tui.widgets.turns import about_turn, spent, split, time_bar, turns_head, turns_table

TEXTS = ("[schemas]", "be brief", "fix the importer", '{"path": "a.py"}', "def read():\n    pass\n", "done")


def session(shape_only: bool) -> Trace:
    """System, user, a tool call, its result, an answer: two calls."""
    blocks = tuple(
        Block(
            id=i,
            digest=digest_of(text),
            kind="prose",
            tokens=100 * (i + 1),
            text=None if shape_only else text,
        )
        for i, text in enumerate(TEXTS)
    )
    messages = (
        Message(id=0, role="system", blocks=(1,)),
        Message(id=1, role="user", blocks=(2,)),
        Message(id=2, role="assistant", tool_calls=(ToolCall("t1", "Read", 3),)),
        Message(id=3, role="tool", blocks=(4,), tool_call_id="t1"),
        Message(id=4, role="assistant", blocks=(5,)),
    )
    return Trace(
        header=Header(id="fix", shape_only=shape_only),
        blocks=blocks,
        messages=messages,
        toolsets=(ToolSet(0, ("Read", "Bash"), 0),),
        threads=(Thread(0),),
        calls=(
            Call(id=0, thread=0, append=(0, 1), tools=0, output=2),
            Call(id=1, thread=0, base=0, keep=2, append=(2, 3), tools=0, output=4),
        ),
    )


def turn(call: int, **fields: object) -> Turn:
    known = {"done": True, "prompt": 1000, "cached": 700, "missed": 200, "completion": 40, "latency_s": 2.5}
    return Turn(thread=0, call=call, turn=call + 1, turns=2, **{**known, **fields})


def story(shape_only: bool = False, **fields: object) -> Story:
    written = {
        (0, 0): TextLine(request_id="a", agent=0, session="s", thread=0, call=0, text="I will read it."),
        (0, 1): TextLine(request_id="b", agent=0, session="s", thread=0, call=1, text="It is fixed."),
    }
    known = {"turns": (turn(0), turn(1)), "trace": session(shape_only), "written": written, "session": "s"}
    return Story(row=Row(agent=0, state="tool"), **{**known, **fields})


LOOK = Theme()


def lines(s: Story, width: int = 80, look: Theme = LOOK) -> str:
    return "\n".join(plain(line).rstrip() for line in Paragraphs(look).text(s, width).lines)


def test_recorded_text_and_what_this_run_wrote_alternate() -> None:
    said = [(e.who, e.text) for t in story().turns for e in entries(story(), t)]
    assert said == [
        ("system", "Read, Bash"),
        ("system", "be brief"),
        ("user", "fix the importer"),
        ("agent", "I will read it."),
        ("call", '{"path": "a.py"}'),
        ("tool", "def read():\n    pass\n"),
        ("agent", "It is fixed."),
    ]
    shown = lines(story())
    assert "turn 1 ───" in shown
    assert " tool     Read  500 tokens" in shown


def test_a_shape_only_trace_shows_its_shape_and_says_so() -> None:
    told = story(shape_only=True)
    told = replace(told, lanes=(ThreadLane(0, "", 0, untold=((0, 9),)),))
    for width, note in ((80, "shape only"), (120, "shape only: no text was recorded")):
        frame = compose_agent(View(), told, Paragraphs(LOOK), Spot(), width, 24, LOOK)
        head = next(plain(line) for line in frame.lines if plain(line).startswith(" transcript"))
        assert head.startswith(f" transcript  {note}  ")
        assert "═ queue or prefill" in head
    shown = lines(told)
    assert "300 prose" in shown
    assert "400 tokens of arguments" in shown
    for text in TEXTS[1:5]:
        assert text.splitlines()[0] not in shown
    # What the model wrote in this run is text all the same.
    assert "I will read it." in shown


def test_without_a_trace_the_reason_is_shown_once() -> None:
    shown = lines(story(trace=None, trace_note="/gone.jsonl does not exist"))
    assert shown.count("/gone.jsonl does not exist") == 1
    assert "It is fixed." in shown


def test_a_running_call_shows_what_it_has_written_so_far() -> None:
    running = turn(1, done=False, completion=12, pinned=300, tail="It is f", cached=None, missed=None)
    shown = lines(story(turns=(turn(0), running)))
    assert "12 of 300 tokens" in shown
    assert "It is f" in shown
    assert "It is fixed" not in shown


def test_failures_and_cuts_are_named() -> None:
    broken = turn(0, failure="truncated_stream", detail="closed before the end marker")
    shown = lines(story(turns=(broken, turn(1, cut=True))))
    assert "failed   truncated stream" in shown
    assert "closed before the end marker" in shown
    assert "stopped by the end of the run" in shown


def test_without_kept_text_that_is_said() -> None:
    assert "--no-text" in lines(story(written={}, text_kept=False))


def test_long_texts_are_cut_and_counted() -> None:
    text = "\n".join(f"line {i}" for i in range(100))
    assert wrapped(text, 40, 8, UNICODE) == [*(f"line {i}" for i in range(7)), "… 93 more lines"]
    assert wrapped("x" * 100, 40, 8, UNICODE) == ["x" * 40, "x" * 40, "x" * 20]
    assert wrapped("", 40, 8, UNICODE) == []


def test_control_characters_never_reach_the_terminal() -> None:
    shown = lines(story(written={(0, 0): TextLine("a", 0, "s", 0, 0, text="red \x1b[31m and \x07 bell\tand tab")}))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\t" not in shown


def test_every_line_fits_its_width() -> None:
    for width in (80, 113, 153):
        for line in Paragraphs(LOOK).text(story(), width).lines:
            assert sum(cells_of(text) for text, _ in line) <= width


def value_below(head: str, row: str, name: str) -> str:
    """What a row shows in the column that ends where its name ends."""
    end = head.index(name) + len(name)
    return row[:end].rsplit(maxsplit=1)[-1]


WAITED = (Waited("tool", "Read", 3.2, 2.9),)


def test_the_turns_table_splits_the_prompt() -> None:
    s = story(turns=(turn(0, recorded_s=4.0, miss_cause="evicted, 71 s gap"), turn(1, waits=WAITED)))
    head = plain(turns_head(170, s))
    rows = [plain(line) for line in turns_table(s, None, 170, 5, LOOK)]
    for name, value in (
        ("rec s", "4.00"),
        ("took s", "2.50"),
        ("prompt", "1.0k"),
        ("cached", "700"),
        ("missed", "200"),
        ("new", "100"),
        ("tool s", "3.20"),
    ):
        assert value_below(head, rows[0], name) == value
    assert "evicted, 71 s gap · Read" in rows[0]
    narrow = plain(turns_head(80, s))
    for name in ("rec s", "took s", "prompt", "cached", "missed", "new", "TTFT s", "TPOT", "tool s", "time"):
        assert name in narrow
    # Nothing was recorded of a recording's own calls.
    assert "rec s" not in plain(turns_head(80, story()))


def test_what_a_change_of_the_history_cost_is_part_of_what_was_missed() -> None:
    s = story(turns=(turn(0, lost=150, missed=0, culprit="compaction or cut history"),))
    head, (row,) = plain(turns_head(150, s)), [plain(line) for line in turns_table(s, None, 150, 5, LOOK)]
    assert (value_below(head, row, "missed"), value_below(head, row, "new")) == ("150", "150")
    assert "compaction or cut history" in row
    assert "lost 150: compaction or cut history" in plain(about_turn(s.turns[0], None, 100, LOOK))


def test_a_turn_in_words() -> None:
    told = turn(0, cause="evicted during a gap of 71 s", miss_cause="evicted, 71 s gap", again=312)
    said = plain(about_turn(told, turn(1, waits=WAITED), 160, LOOK))
    assert "missed 200: evicted during a gap of 71 s" in said
    assert "312 of its own output again, sent back as other bytes" in said
    assert "then Read 3.20 s (recorded 2.90)" in said
    assert len(said) == 160
    assert plain(about_turn(told, turn(1, waits=WAITED), 60, LOOK)).rstrip().endswith("…")
    assert "all new" in plain(about_turn(turn(0, cached=0, missed=0), None, 100, LOOK))


def test_where_the_time_went() -> None:
    parts = (
        Part("queue", 1.0, "measured"),
        Part("prefill_new", 0.5, "derived"),
        Part("prefill_missed", 1.5, "derived"),
        Part("decode", 3.0, "measured"),
        Part("held_up", 1.0, "derived"),
    )
    times = spent(turn(0, parts=parts), turn(1, waits=(*WAITED, Waited("human", "", 4.8))))
    assert times == {"queue": 1.0, "prefill": 2.0, "decode": 4.0, "tool": 3.2, "wait": 4.8}
    bar = time_bar(times, 30.0, 30, Theme(colour=False))
    assert plain(bar) == "QPPDDDDTTTWWWWW" + " " * 15
    assert plain(time_bar(times, 15.0, 15, LOOK)) == "╌▇▇▇▇▇▇━━━─────"
    assert plain(time_bar({}, 15.0, 15, LOOK)) == " " * 15
    unknown = spent(turn(0, parts=(Part("first_token", 2.0, "unknown"),)), None)
    assert unknown == {"first": 2.0}
    assert plain(time_bar(unknown, 4.0, 8, LOOK)) == "════    "
    assert plain(time_bar(unknown, 4.0, 8, Theme(colour=False))) == "????    "
    shown = plain(about_turn(turn(0, parts=(Part("first_token", 2.0, "unknown"),)), None, 120, LOOK))
    assert "the engine does not say" in shown


def test_queue_and_prefill_have_columns_where_the_engine_tells_them_apart() -> None:
    """A call that waited for its first token for 15 s was not queued for 0.00 s."""
    together = turn(0, ttft_s=15.5, parts=(Part("first_token", 15.5, "unknown"), Part("decode", 2.6, "measured")))
    apart = turn(1, parts=(Part("queue", 12.0, "measured"), Part("prefill", 3.5, "derived")))
    at_once = turn(2, parts=(Part("prefill_new", 3.5, "derived"), Part("decode", 1.0, "measured")))
    assert [split(t) for t in (together, apart, at_once, turn(3))] == [False, True, True, False]

    def table(*turns: Turn) -> list[str]:
        told = Story(row=Row(agent=0), turns=turns)
        return [plain(turns_head(160, told)), *map(plain, turns_table(told, None, 160, 9, LOOK))]

    head, line = table(together)
    assert "queue s" not in head
    assert "prefill s" not in head
    assert "TTFT s" in head
    assert "15.50" in line
    head, *rows = table(together, apart, at_once)
    assert [value_below(head, row, "queue s") for row in rows] == ["–", "12.00", "0.00"]
    assert [value_below(head, row, "prefill s") for row in rows] == ["–", "3.50", "3.50"]


def test_on_the_narrowest_screen_columns_are_left_out_and_not_cut() -> None:
    s = story(turns=(turn(0, recorded_s=4.0, tpot_s=0.0123), turn(1, waits=WAITED)))
    head = plain(turns_head(60, s)).rstrip()
    assert head.endswith("TTFT s")
    assert all(len(plain(line).rstrip()) <= len(head) for line in turns_table(s, None, 60, 5, LOOK))
    assert "tool s" in plain(turns_head(80, s))


def test_the_chosen_turn_stays_in_the_table() -> None:
    many = tuple(turn(0, latency_s=1.0 + i) for i in range(40))
    many = tuple(
        Turn(**{**{f: getattr(t, f) for f in t.__struct_fields__}, "call": i, "turn": i + 1})
        for i, t in enumerate(many)
    )
    s = story(turns=many)
    table = turns_table(s, many[3], 100, 7, LOOK)
    assert [plain(line).split()[0] for line in table] == ["1", "2", "3", "4", "5", "6", "7"]
    assert all("select" in style for _, style in table[3])
    assert [plain(line).split()[0] for line in turns_table(s, None, 100, 3, LOOK)] == ["38", "39", "40"]


# Sub-agents and shapes


def test_a_sub_agents_turns_are_indented_below_its_name() -> None:
    known = {f: getattr(turn(1), f) for f in Turn.__struct_fields__}
    nested = Turn(**{**known, "thread": 2, "start": 65_000})
    lanes = (ThreadLane(0, "", 0), ThreadLane(1, "explore", 1), ThreadLane(2, "review", 2))
    shown = lines(story(turns=(turn(0), nested), lanes=lanes, trace=None)).splitlines()
    at = next(i for i, line in enumerate(shown) if "review turn 2" in line)
    assert shown[at].startswith(" │ │ ↳2 review turn 2 ─")
    assert shown[at].rstrip().endswith(" 1:05 ──")
    assert all(line.startswith(" │ │ ") for line in shown[at:])
    assert all("│" not in line for line in shown[:at])
    assert lines(story(turns=(nested,), lanes=lanes, trace=None), look=Theme(ASCII)).startswith(" | | >2 review")


def test_shapes_are_drawn_to_one_scale() -> None:
    shown = [line for line in lines(story(shape_only=True), 100).splitlines() if "▇" in line]
    cells = [line.count("▇") for line in shown]
    assert cells == [15, 19, 24], "square roots of 200, 300 and 500 tokens, the largest filling its place"
    assert "300 prose" in shown[1]
    letters = [line for line in lines(story(shape_only=True), 100, Theme(colour=False)).splitlines() if "pppp" in line]
    assert [line.count("p" * 14) for line in letters] == [1, 1, 1]


def test_the_view_of_a_long_text_is_bounded_at_both_ends() -> None:
    text = [((str(i), ""),) for i in range(50)]
    assert tail_of(text, 10, 0) == (text[40:], 0)
    assert tail_of(text, 10, 7) == (text[33:43], 7)
    assert tail_of(text, 10, 10_000) == (text[:10], 40)
    assert tail_of(text[:3], 10, 5) == (text[:3], 0)


def test_tokens_of_a_running_call_that_are_an_estimate_are_marked() -> None:
    for exact, shown in ((True, "  40 "), (False, " ~40 ")):
        table = turns_table(story(turns=(turn(0, done=False, exact=exact),)), None, 120, 5, LOOK)
        assert shown in plain(table[0])
