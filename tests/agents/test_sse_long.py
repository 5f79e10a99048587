"""A line of megabytes says the same taken in as it comes as decoded in one go, however it is cut and damaged."""

import json
import random
import time

import pytest

from windtunnel.agents.sse import parse
from windtunnel.agents.sse_lines import Events
from windtunnel.agents.sse_long import Cut, LongLine
from windtunnel.agents.sse_shapes import decode

TEXTS = {
    "plain": "x" * 300_000,
    "code": 'def f(a):\n\tprint("a\\n", \'b\')  # "quoted" \\\\ and more\n' * 6_000,
    "backslashes": "\\" * 150_001 + '"' + "\\" * 100,
    "quotes": '"' * 200_000,
    "wide": "你好, wörld 😀 \x7f\u2028" * 15_000,
    "nested": json.dumps({"command": "cat <<'E'\n" + 'echo "\\"" && ls\n' * 8_000, "description": '{"a": [1, 2]}'}),
    "looks like an event": json.dumps({"choices": [{"delta": {"content": ', "prompt_token_ids": [1, 2'}}]}) * 4_000,
}
FIELDS = ["content", "reasoning", "reasoning_content", "arguments", "text", "unknown", "key", "name", "error", "id"]


def chunk(field, text):
    """An event that has the text in this place, and something else before and behind it."""
    choice = {"index": 0, "delta": {"content": "a\"'"}, "finish_reason": None}
    whole = {"id": "c", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    function = {"name": "Bash", "arguments": "{}"}
    tool = {"index": 0, "id": "call", "function": function}
    if field in ("content", "reasoning", "reasoning_content"):
        choice["delta"][field] = text
    elif field == "text":
        choice |= {"text": text, "delta": None}
    elif field in ("arguments", "name", "id"):
        choice["delta"]["tool_calls"] = [tool]
        (tool if field == "id" else function)[field] = text
    elif field == "unknown":
        choice["logprobs"] = {"tokens": ["a", text, {"b": text}]}
    elif field == "key":
        whole["more"] = {text: 1}
    elif field == "error":
        whole["error"] = {"message": text, "code": 1}
    return whole


def pieces(data, size):
    """Cut into reads that end anywhere."""
    rng = random.Random(size)
    out, at = [], 0
    while at < len(data):
        step = rng.randint(1, 2 * size) if rng.random() < 0.9 else rng.randint(1, 3)
        out.append((at + 1, data[at : at + step]))
        at += step
    return out


class Whole(Events):
    """What decoding each line in one go gives."""

    def feed(self, data):
        return [event if isinstance(event, bytes) else event.plain() for event in super().feed(data)]


def both(data, size, monkeypatch):
    """The result, taken in as it comes; it must be the one of decoding each line in one go."""
    end = b'\n\ndata: {"choices":[{"index":0,"delta":{"content":"z"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    cut = pieces(b"data: " + data + end, size)
    got = parse(cut)
    with monkeypatch.context() as patch:
        patch.setattr("windtunnel.agents.sse.Events", Whole)
        want = parse(cut)
    parts = {"text": "whole_text", "more_text": "whole_text"}
    parts |= {"reasoning": "whole_reasoning", "more_reasoning": "whole_reasoning"}
    names = [parts.get(name, name) for name in got.__struct_fields__]
    differing = [name for name in names if getattr(got, name) != getattr(want, name)]
    # Of several faults of one line another one may be named first.
    assert differing == [] or (differing == ["detail"] and got.failure == "malformed_stream")
    return got


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_long_text_in_any_place(field, name, ascii_only, monkeypatch):
    data = json.dumps(chunk(field, TEXTS[name]), ensure_ascii=ascii_only).encode()
    assert len(data) > 140_000
    got = both(data, 20_000, monkeypatch)
    text = TEXTS[name]
    if field == "content":
        assert got.whole_text == text + "z"
    elif field in ("reasoning", "reasoning_content"):
        assert got.whole_reasoning == text
    elif field == "arguments":
        assert got.tool_calls == (("call", "Bash", text),)
    elif field == "error":
        assert (got.failure, got.detail[:1]) == ("error_event", text[:1])
    assert field == "error" or (got.failure, got.prompt_tokens, got.completion_tokens) == (None, 7, 3)


DAMAGE = [
    b'"',
    b"\\",
    b"\\u12",
    b"\\ud83d",
    b"\\ude00",
    b"\\q",
    b"\x00",
    b"\n",
    b"\xff",
    b"\xe4\xbd",
    b"}",
    b",",
    b"\r",
]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_line(field, seed, monkeypatch):
    rng = random.Random(f"{field} {seed}")
    text = TEXTS[rng.choice(list(TEXTS))][:180_000]
    data = json.dumps(chunk(field, text), ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(data)) if rng.random() < 0.8 else rng.choice([0, 5, len(data) - 5, len(data)])
        data = data[:at] + rng.choice(DAMAGE) + data[at + rng.randint(0, 3) :]
    if rng.random() < 0.2:
        data = data[: rng.randint(0, len(data))]
    both(data, rng.choice([500, 9_000, 70_000]), monkeypatch)


@pytest.mark.parametrize("half", ["\ude00", "\ude00\ud83d", "a\ud83d"])
def test_halves_of_surrogate_pairs(half, monkeypatch):
    data = json.dumps(chunk("content", half * 60_000 + "😀" * 30_000)).encode()
    got = both(data, 7_000, monkeypatch)
    assert (got.failure, got.text[-3:]) == (None, "😀😀z")
    assert "\ufffd" in got.text


def test_bytes_that_are_no_text(monkeypatch):
    data = json.dumps(chunk("content", "y" * 200_000 + "é" * 50_000), ensure_ascii=False).encode()
    got = both(data.replace(b"\xc3\xa9" * 3, b"\xc3\xc3\xff\xa9", 9_000), 8_000, monkeypatch)
    assert got.failure is None
    assert "\ufffd" in got.text


def test_several_data_lines_and_other_fields(monkeypatch):
    data = json.dumps(chunk("arguments", TEXTS["code"]), separators=(",\ndata: ", ": ")).encode()
    got = both(data, 30_000, monkeypatch)
    assert got.tool_calls == (("call", "Bash", TEXTS["code"]),)
    data = b"x" * 300_000 + b"\n: " + b"y" * 300_000 + b"\nother: " + b"z" * 300_000
    assert both(data, 30_000, monkeypatch).failure == "malformed_stream"


def test_one_that_imitates_what_stands_for_a_cut_text():
    line = LongLine(keep_text=True)
    data = json.dumps(chunk("content", "q" * 200_000)).encode()
    for at in range(0, len(data), 30_000):
        line.feed(data[at : at + 30_000])
    line.end()
    got, cuts = line.decode()
    (name,) = cuts
    assert got.choices[0].delta.content == name
    assert "".join(cuts[name].parts) == "q" * 200_000
    assert name.encode() not in data


def test_a_text_that_is_not_kept_is_checked_and_its_end_is_kept():
    cut = Cut(keep=False)
    for piece in (b"abc\\n" * 100, b"\xe4", b"\xbd\xa0", b"\\ud83d", b"\\ude00"):
        cut.feed(piece, piece)
    cut.end()
    assert (cut.parts, cut.tail[-6:], len(cut.tail), cut.odd, cut.broken) == ([], "abc\n你😀", 200, False, None)
    cut = Cut(keep=False)
    cut.feed(b"a\\q", b"a\\q")
    assert "escape" in cut.broken


@pytest.mark.parametrize("field", ["content", "arguments", "reasoning"])
@pytest.mark.parametrize("name", ["plain", "code", "wide"])
def test_no_step_takes_long(field, name):
    """Ten megabytes in reads of 64 KB: the longest step is a small part of decoding it in one go."""
    text = TEXTS[name] * (10_000_000 // len(TEXTS[name]))
    data = b"data: " + json.dumps(chunk(field, text), ensure_ascii=False).encode() + b"\n\n"
    reads = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]

    def steps():
        events, took = Events(keep_text=False), []
        for read in reads:
            began = time.thread_time()
            for event in events.feed(read):
                event.decode()
            took.append(time.thread_time() - began)
        return max(took)

    began = time.thread_time()
    decode(data[6:])
    whole = time.thread_time() - began
    assert min(steps() for _ in range(3)) < whole / 4
