"""The transcript of one agent: recorded text, shape-only traces, failures, long texts."""

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
from windtunnel.tui.theme import UNICODE, cells_of, plain
from windtunnel.tui.transcript import Story, Turn, entries
from windtunnel.tui.view import Row
from windtunnel.tui.widgets.story import Paragraphs, tail_of, turns_head, turns_table, wrapped

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


def lines(s: Story, width: int = 80) -> str:
    return "\n".join(plain(line).rstrip() for line in Paragraphs(UNICODE).lines(s, width))


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
    shown = lines(story(shape_only=True))
    assert "its text was never recorded" in shown
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
        for line in Paragraphs(UNICODE).lines(story(), width):
            assert sum(cells_of(text) for text, _ in line) <= width


def test_the_turns_table_splits_the_prompt() -> None:
    s = story(turns=(turn(0, miss_cause="evicted during a 71 s gap"), turn(1, wait_label="Read", waited_s=3.2)))
    head = plain(turns_head(140))
    rows = [plain(line) for line in turns_table(s, 140, 5, UNICODE)]
    for name, value in (("prompt", "1.0k"), ("cached", "700"), ("missed", "200"), ("new", "100"), ("now s", "2.50")):
        end = head.index(name) + len(name)
        assert rows[0][:end].endswith(value)
    assert "evicted during a 71 s gap · Read 3.2 s" in rows[0]
    narrow = plain(turns_head(80))
    assert "missed" in narrow
    assert "then" in narrow


def test_the_view_of_a_long_text_is_bounded_at_both_ends() -> None:
    text = [((str(i), ""),) for i in range(50)]
    assert tail_of(text, 10, 0) == (text[40:], 0)
    assert tail_of(text, 10, 7) == (text[33:43], 7)
    assert tail_of(text, 10, 10_000) == (text[:10], 40)
    assert tail_of(text[:3], 10, 5) == (text[:3], 0)


def test_tokens_of_a_running_call_that_are_an_estimate_are_marked() -> None:
    for exact, shown in ((True, "  40 "), (False, " ~40 ")):
        table = turns_table(story(turns=(turn(0, done=False, exact=exact),)), 120, 5, UNICODE)
        assert shown in plain(table[0])
