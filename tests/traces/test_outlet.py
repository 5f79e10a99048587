"""Text that leaves: nothing of the data steers the terminal, JSON keeps its meaning."""

import io
import json
import sys
from pathlib import Path

from windtunnel.traces.outlet import Outlet, one_line, readable, safe, safe_streams, shown, to_json

EVIL = "a\x1b]0;T\x07b\x9b31mc\u202ed\u2066e\x7ff\u2028g\U000e0041h\ri"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_steers_a_terminal_is_shown_as_its_escape() -> None:
    assert safe("\x1b[31mred\x9c") == "\\u001b[31mred\\u009c"
    assert safe("漢字 é 👩‍👩 tab\tline\n") == "漢字 é 👩‍👩 tab\tline\n"
    assert safe("\U000e0041") == "\\udb40\\udc41"
    left = safe(EVIL)
    assert all(c.isprintable() for c in left)
    assert left.startswith("a\\u001b]0;T\\u0007b")


def test_json_means_the_same_afterwards() -> None:
    data = {"name": EVIL, "plain": "é"}
    text = safe(json.dumps(data, ensure_ascii=False))
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert json.loads(text) == data


def test_the_colours_of_tables_reach_a_terminal_and_nothing_else_does() -> None:
    out = Terminal()
    Outlet(out).write("\x1b[36mcall\x1b[0m \x1b[2J\x1b]0;T\x07\x1b[8m")
    assert out.getvalue() == "\x1b[36mcall\x1b[0m \\u001b[2J\\u001b]0;T\\u0007\\u001b[8m"
    pipe = io.StringIO()
    Outlet(pipe).write("\x1b[36mcall\x1b[0m")
    assert "\x1b" not in pipe.getvalue()


def test_a_sentence_stays_one_line() -> None:
    assert one_line("no folder a\nb\r\n  c\u2028d\x85e: \x1b[2J") == "no folder a b c d e: \\u001b[2J"


def test_the_streams_are_safe_for_a_while(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with safe_streams(), safe_streams():
        print("\x1b[2J")
        print("\u202e", file=sys.stderr)
    assert (out.getvalue(), err.getvalue()) == ("\\u001b[2J\n", "\\u202e\n")
    assert sys.stdout is out


def test_paths_that_are_no_text_are_written_with_a_mark() -> None:
    path = Path("runs/caf\udce9")
    assert readable({path: [str(path), ("é", 1.5, None)]}) == {"runs/caf\ufffd": ["runs/caf\ufffd", ["é", 1.5, None]]}
    assert readable("half \ud800") == "half ?"
    assert readable("caf\udcc3\udca9") == "café"  # from a system that had another encoding
    assert to_json({"a": path, "b": {"c": "\udce9"}}) == '{"a":"runs/caf\ufffd","b":{"c":"\ufffd"}}'.encode()
    assert to_json({"a": Path("é")}) == '{"a":"é"}'.encode()


def test_a_name_is_one_line_and_no_longer_than_helps():
    assert shown("org/model-7B") == "org/model-7B"
    assert shown("x" * 80) == "x" * 80
    assert shown("x" * 10_000) == "x" * 80 + "..."
    assert shown("a\n\n b\r\nc") == "a b c"
    assert shown("a\x1b[31mb\u202e") == "a\\u001b[31mb\\u202e"
    assert shown(None) == "None"
