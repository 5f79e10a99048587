"""The built-in tokenizer, the template over it, and generated text."""

import json
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

import windtunnel.simulator
from windtunnel.simulator.emulator.script import Words
from windtunnel.simulator.emulator.template import ChatError, Template
from windtunnel.simulator.emulator.tokenizer import START, STOP, builtin

CODE = "".join(p.read_text() for p in sorted(Path(windtunnel.simulator.__path__[0]).rglob("*.py")))
PROSE = (
    "The scheduler walks the running requests first. When a block cannot be had, the last of them is preempted and put\n"
    "back to the head of the queue; its blocks stay findable until somebody takes them.\n\nNothing else happens.\n"
)
JSON = json.dumps([{"id": i, "name": f"file_{i}.py", "size": i * 37, "ok": i % 2 == 0} for i in range(50)], indent=2)
ODD = (
    'naïve → "日本語" \t\x00 🎉\r\n  trailing   \n\n\n____init__ {};;\n'
    + "x" * 300
    + " " * 200
    + "HTTPServerError2024\n"
)
LONE = "a \ud800 b\n"


@pytest.mark.parametrize("text", [CODE, PROSE, JSON, ODD], ids=["code", "prose", "json", "odd"])
def test_tokens_join_to_the_text(text: str) -> None:
    tok = builtin()
    ids = tok.encode(text).tolist()
    assert "".join(tok.strings(ids)) == text
    assert len(tok.strings(ids)) == len(ids)
    assert tok.decode(ids) == text
    assert max(ids) < tok.size < 150_000


def test_a_lone_surrogate_does_no_harm() -> None:
    assert builtin().count(LONE) == 7


@pytest.mark.parametrize("text", [CODE, PROSE, JSON + "\n", ODD], ids=["code", "prose", "json", "odd"])
def test_counts_add_up_over_line_ends(text: str) -> None:
    tok = builtin()
    lines = text.splitlines(keepends=True)[:2000] if "\r" not in text else text.split("\n")
    lines = lines if "\r" not in text else [line + "\n" for line in lines[:-1]]
    whole = tok.encode("".join(lines))
    parts = np.concatenate([tok.encode(line) for line in lines])
    assert np.array_equal(whole, parts)


def test_about_four_characters_a_token() -> None:
    tok = builtin()
    assert 3.2 < len(CODE) / tok.count(CODE) < 4.5
    assert 3.4 < len(PROSE) / tok.count(PROSE) < 5.0
    assert 2.0 < len(JSON) / tok.count(JSON) < 4.0


def test_ids_do_not_change() -> None:
    # Whoever recorded ids with an earlier version must find them again: entries are only ever appended.
    assert builtin().encode("def main(argv: list[str]) -> int:\n    return 0\n").tolist() == [
        9591,
        86282,
        40,
        93093,
        58,
        66844,
        91,
        20133,
        3212,
        3895,
        45711,
        275,
        2374,
        83767,
        5616,
        10,
    ]


def test_600_kilobytes_take_well_under_a_second() -> None:
    text = (CODE * (600_000 // len(CODE) + 1))[:600_000]
    tok = builtin()
    tok.encode(text)
    spent = []
    for _ in range(3):
        begun = time.process_time()
        tok.encode(text)
        spent.append(time.process_time() - begun)
    print(f"600 kB: {min(spent) * 1e3:.0f} ms")
    assert min(spent) < 0.25


def test_generated_text_reads_back_as_the_generated_tokens() -> None:
    tok = builtin()
    script = Words(np.arange(10, dtype=np.uint32), 0)
    ids = script.tokens(0, 1000)
    text = tok.decode(ids)
    assert tok.encode(text).tolist() == ids
    assert len(set(ids)) > 150
    assert "\n" in text
    assert len(text.split()) > 600


def test_output_depends_on_prompt_and_seed_only() -> None:
    one, two = np.arange(10, dtype=np.uint32), np.arange(11, dtype=np.uint32)
    base = Words(one, 0).tokens(0, 600)
    assert Words(one, 0).tokens(100, 600) == base[100:]
    assert Words(one, 1).tokens(0, 600) != base
    assert Words(two, 0).tokens(0, 600) != base


def test_answers_that_are_drawn_in_turns_do_not_mix() -> None:
    alone = [Words(np.arange(n, dtype=np.uint32), 0).tokens(0, 1200) for n in (3, 4)]
    both = [Words(np.arange(n, dtype=np.uint32), 0) for n in (3, 4)]
    in_turns: list[list[int]] = [[], []]
    for start in range(0, 1200, 100):
        for ids, script in zip(in_turns, both, strict=True):
            ids.extend(script.tokens(start, start + 100))
    assert in_turns == alone
    assert alone[0] != alone[1]


def test_the_model_stops_by_itself_where_it_said() -> None:
    lengths = set()
    for i in range(50):
        script = Words(np.array([i], dtype=np.uint32), 0)
        length = script.natural_length(1)
        lengths.add(length)
        ids = script.tokens(0, length + 5)
        assert ids[length - 1] == STOP
        assert STOP not in ids[: length - 1]
    assert len(lengths) > 30
    assert Words(np.array([1], dtype=np.uint32), 0).natural_length(5000) >= 5000


def raws(items: list) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(item).encode()) for item in items]


MESSAGES = [
    {"role": "system", "content": "You write code.\n"},
    {"role": "user", "content": [{"type": "text", "text": "List the "}, {"type": "text", "text": "files."}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py\n"},
]
TOOLS = [{"type": "function", "function": {"name": "ls", "description": "List.", "parameters": {"type": "object"}}}]


def test_the_template_renders_tools_first_and_opens_the_answer() -> None:
    tok = builtin()
    ids = Template(tok).render(raws(MESSAGES), raws(TOOLS)).tolist()
    text = "".join(tok.strings(ids))
    assert text.startswith("<|im_start|>system\n# Tools")
    assert text.index('"name":"ls"') < text.index("You write code.")
    assert "<|im_start|>user\nList the files.<|im_end|>\n" in text
    assert '<tool_call>\n{"name": "ls", "arguments": {"path": "."}}\n</tool_call>' in text
    assert "<|im_start|>tool\na.py\nb.py\n<|im_end|>\n" in text
    assert text.endswith("<|im_start|>assistant\n")


def test_each_message_adds_the_same_tokens_wherever_it_stands() -> None:
    template = Template(builtin())
    alone = [len(template.render(raws([m]), None, generate=False)) for m in MESSAGES]
    assert len(template.render(raws(MESSAGES), None, generate=False)) == sum(alone)
    opened = template.render(raws(MESSAGES), None)
    assert len(opened) == sum(alone) + 3
    assert opened[:-3].tolist() == template.render(raws(MESSAGES), None, generate=False).tolist()
    assert opened[-3] == START


def test_a_longer_history_begins_with_the_shorter_one() -> None:
    template = Template(builtin())
    short = template.render(raws(MESSAGES[:2]), raws(TOOLS), generate=False).tolist()
    long = template.render(raws(MESSAGES), raws(TOOLS)).tolist()
    assert long[: len(short)] == short


def test_a_known_history_costs_no_tokenising(monkeypatch: pytest.MonkeyPatch) -> None:
    tok = builtin()
    template = Template(tok)
    history = [{"role": "user", "content": CODE + str(i)} for i in range(5)]
    before = template.render(raws(history), None)
    seen: list[int] = []
    encode = tok.encode
    monkeypatch.setattr(tok, "encode", lambda text: (seen.append(len(text)), encode(text))[1])
    after = template.render(raws([*history, {"role": "user", "content": "next\n"}]), None)
    assert sum(seen) < 50
    assert len(after) > len(before)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.simulator.emulator.template._REMEMBERED", 500)
    template = Template(builtin())
    for i in range(100):
        template.render(raws([{"role": "user", "content": f"message {i}\n" * 10}]), None)
    assert template._tokens <= 500
    assert template._tokens == sum(len(t) for t in template._remembered.values())


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    ],
)
def test_what_cannot_be_rendered_is_said(message: dict) -> None:
    with pytest.raises(ChatError):
        Template(builtin()).render(raws([message]), None)
