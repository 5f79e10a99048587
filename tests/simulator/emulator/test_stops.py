"""Where stop strings and stop tokens end an answer, and what is held back in a stream."""

import json
from typing import Any

import pytest

from windtunnel.simulator.emulator.ask import Ask
from windtunnel.simulator.emulator.script_stops import Held, Stops, ended, stops_of
from windtunnel.simulator.emulator.tokenizer import builtin
from windtunnel.simulator.emulator.wire import Pieces

USER = [{"role": "user", "content": "Please read the file and say what it does.\n"}]
CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
ENDLESS = {"ignore_eos": True, "max_tokens": 40}


class Fixed:
    """Says this text, a token a word, again and again nothing new."""

    def __init__(self, text: str) -> None:
        self.ids = builtin().encode(text).tolist()

    def tokens(self, start: int, stop: int) -> list[int]:
        return self.ids[start:stop]


def stops(*strings: str, ids: tuple[int, ...] = (), included: bool = False, least: int = 0) -> Stops:
    return Stops(list(strings), frozenset(ids), included=included, least=least)


def end_of(text: str, wanted: Stops) -> Any:
    script = Fixed(text)
    return ended(script, len(script.ids), Pieces(builtin()), wanted)


def pieces_of(text: str) -> list[str]:
    return [builtin().piece(i).decode() for i in Fixed(text).ids]


def said(end: Any, sizes: list[int]) -> list[str]:
    held = Held(end)
    return [json.loads(b'"%b"' % held.of([0] * size)) for size in sizes]


# Where an answer ends.

WORDS = " one two three four five six"


def test_an_answer_ends_with_the_token_that_completes_a_stop_string() -> None:
    words = pieces_of(WORDS)
    assert words == [" one", " two", " three", " four", " five", " six"]
    end = end_of(WORDS, stops("wo th"))
    assert (end.tokens, end.reason, end.text) == (3, "wo th", " one t")
    end = end_of(WORDS, stops("wo th", included=True))
    assert (end.tokens, end.reason, end.text) == (3, "wo th", " one two th")


def test_the_string_that_is_complete_first_wins_and_then_the_order_of_the_list() -> None:
    assert end_of(WORDS, stops("three", "two")).reason == "two"
    assert end_of(WORDS, stops("two three", "thre")).reason == "thre", "both are complete in one token"
    assert end_of(WORDS, stops("o three", "three")).reason == "o three"
    assert end_of(WORDS, stops("three", "o three")).reason == "three"


def test_text_of_the_first_min_tokens_completes_nothing() -> None:
    end = end_of(WORDS, stops(" ", least=3))
    assert (end.tokens, end.text) == (4, " one two three")
    end = end_of(WORDS, stops("e f", least=3))
    assert (end.tokens, end.text) == (4, " one two thre"), "part of it may be older"
    assert end_of(WORDS, stops("two", least=3)).reason is None


def test_a_stop_token_counts_and_its_text_is_left_out() -> None:
    ids = Fixed(WORDS).ids
    end = end_of(WORDS, stops(ids=(ids[2], ids[4])))
    assert (end.tokens, end.reason, end.text) == (3, ids[2], " one two")
    assert end_of(WORDS, stops(ids=(ids[2],), included=True)).text == " one two three"
    assert end_of(WORDS, stops(ids=(ids[1], ids[4]), least=2)).tokens == 5
    assert end_of(WORDS, stops("two", ids=(ids[2],))).reason == "two", "the earlier one"
    assert end_of(WORDS, stops("two", ids=(ids[1],))).reason == ids[1], "that text is left out, so nothing completes it"
    assert end_of(WORDS, stops("two", ids=(ids[1],), included=True)).reason == "two"


def test_where_nothing_stops_it_and_nothing_is_held_back_there_is_nothing_to_do() -> None:
    assert end_of(WORDS, stops("z")) is None
    assert end_of(WORDS, stops("nothing", included=True)) is None
    assert end_of(WORDS, stops(ids=(5,))) is None
    asked = Ask(stop_token_ids=[5, 9])
    assert stops_of(Ask(), 0, 9) is None
    assert stops_of(asked, 0, 9) == stops(ids=(5,)), "the model's own end is no stop token: it has no stop_reason"
    end = end_of(WORDS, stops("nothing"))
    assert (end.tokens, end.reason, end.text) == (6, None, WORDS)


def test_a_stop_far_into_a_long_answer_is_found() -> None:
    text = " one two" * 1000 + " three" + " one two" * 1000
    end = end_of(text, stops("o three o"))
    assert (end.tokens, end.text) == (2002, (" one two" * 1000)[:-1])


# What a stream shows meanwhile.


def test_a_stream_holds_back_what_may_begin_a_stop_string() -> None:
    end = end_of(WORDS, stops("three four"))
    assert said(end, [1] * 4) == ["", "", " one ", "two "]
    never = end_of(WORDS, stops("abcdef"))
    assert said(never, [1] * 6) == ["", " on", "e two ", "three", " four", " five six"]


def test_outputs_of_several_tokens_are_cut_in_the_same_places() -> None:
    end = end_of(WORDS, stops("three four"))
    assert said(end, [2, 2]) == ["", " one two "]
    assert "".join(said(end_of(WORDS, stops("four", included=True)), [3, 1])) == " one two three four"


# Over HTTP.


async def _words(engine: Any, count: int = 40) -> dict[str, Any]:
    return await engine.call(True, USER, count)


@pytest.mark.parametrize("chat", [True, False])
async def test_whole_and_streamed_answers_end_at_a_stop_string(serve, chat: bool) -> None:
    engine = await serve()
    prompt = USER if chat else "Some text.\n"
    plain = await engine.call(chat, prompt, 40)
    path, key = (CHAT, "messages") if chat else (COMPLETIONS, "prompt")
    body = {key: prompt, "stop": [plain["text"][30:36]], "return_token_ids": True, **ENDLESS}
    expected = plain["text"][: plain["text"].index(body["stop"][0])]
    _, whole = await engine.post(path, body)
    choice = whole["choices"][0]
    assert (choice["message"]["content"] if chat else choice["text"]) == expected
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", body["stop"][0])
    count = whole["usage"]["completion_tokens"]
    assert choice["token_ids"] == plain["ids"][:count]
    assert count < 40
    events = await engine.stream(path, body | {"stream_options": {"include_usage": True}})
    choices = [e["choices"][0] for e in events[:-1] if e["choices"]]
    text = "".join(c["delta"]["content"] if chat else c["text"] for c in choices)
    assert text == expected
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", body["stop"][0])
    assert [i for c in choices for i in c.get("token_ids") or ()] == plain["ids"][:count]
    assert events[-2]["usage"]["completion_tokens"] == count
    counters = await engine.counters()
    assert counters["generation_tokens_total"] == 40 + 2 * count


async def test_a_space_stops_at_the_first_word(serve) -> None:
    engine = await serve()
    _, whole = await engine.post(COMPLETIONS, {"prompt": "x", "stop": [" "], "max_tokens": 5})
    choice = whole["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", " ")
    assert whole["usage"]["completion_tokens"] == 1
    _, whole = await engine.post(
        COMPLETIONS, {"prompt": "x", "stop": " ", "max_tokens": 5, "include_stop_str_in_output": True}
    )
    assert whole["choices"][0]["text"] == " "


async def test_a_stop_token_ends_an_answer(serve) -> None:
    engine = await serve()
    plain = await _words(engine)
    token = plain["ids"][7]
    at = plain["ids"].index(token)
    body = {"messages": USER, "stop_token_ids": [token], "return_token_ids": True, **ENDLESS}
    _, whole = await engine.post(CHAT, body)
    choice = whole["choices"][0]
    assert choice["token_ids"] == plain["ids"][: at + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", token)
    _, text = await engine.post("/detokenize", {"tokens": plain["ids"][:at]})
    assert choice["message"]["content"] == text["prompt"]


async def test_messages_tell_which_sequence_stopped_them(serve) -> None:
    engine = await serve()
    body: dict[str, Any] = {"model": "gpt-oss-20b", "messages": USER, "max_tokens": 40}
    _, whole = await engine.post(MESSAGES, body)
    text = whole["content"][0]["text"]
    assert "stop_sequence" not in whole
    cut = text[25:31]
    _, whole = await engine.post(MESSAGES, body | {"stop_sequences": [cut, "never"]})
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", cut)
    assert whole["content"][0]["text"] == text[: text.index(cut)]
    events = await engine.events(MESSAGES, body | {"stop_sequences": [cut]})
    deltas = [e["delta"]["text"] for name, e in events if name == "content_block_delta"]
    assert all(deltas), "held back is not sent empty"
    assert "".join(deltas) == text[: text.index(cut)]
    last = next(e for name, e in events if name == "message_delta")
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": cut}
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    _, never = await engine.post(MESSAGES, body | {"stop_sequences": ["\n\nHuman:"]})
    assert never["content"][0]["text"] == text, "one that does not occur changes nothing"


async def test_responses_end_at_a_stop_string(serve) -> None:
    engine = await serve()
    body = {"input": "Say something.\n", "max_output_tokens": 40}
    _, whole = await engine.post(RESPONSES, body)
    text = whole["output"][0]["content"][0]["text"]
    cut = text[25:31]
    _, whole = await engine.post(RESPONSES, body | {"stop": cut})
    assert whole["status"] == "completed"
    assert whole["output"][0]["content"][0]["text"] == text[: text.index(cut)]
    events = await engine.events(RESPONSES, body | {"stop": [cut]})
    assert "".join(e["delta"] for name, e in events if name.endswith("text.delta")) == text[: text.index(cut)]
    assert events[-1][1]["response"]["status"] == "completed"


async def test_speculation_ends_within_the_tokens_of_a_step(serve) -> None:
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 5})
    engine = await serve("--speculative-config", config)
    plain = await _words(engine)
    cut = plain["text"][40:46]
    _, whole = await engine.post(CHAT, {"messages": USER, "stop": cut, "return_token_ids": True, **ENDLESS})
    choice = whole["choices"][0]
    assert choice["message"]["content"] == plain["text"][: plain["text"].index(cut)]
    events = await engine.stream(CHAT, {"messages": USER, "stop": cut, "return_token_ids": True, **ENDLESS})
    shown = [e["choices"][0] for e in events[:-1]]
    assert "".join(c["delta"]["content"] for c in shown) == choice["message"]["content"]
    assert [i for c in shown for i in c.get("token_ids") or ()] == choice["token_ids"]


async def test_a_call_that_a_stop_would_cut_is_not_made(serve) -> None:
    engine = await serve("--tool-calls", "1", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    body = {"messages": USER, "tools": [tool], "max_tokens": 200}
    _, whole = await engine.post(CHAT, body | {"stop": ["\n\nHuman:"]})
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    _, whole = await engine.post(CHAT, body | {"stop": ["arguments"]})
    assert whole["choices"][0]["message"].get("tool_calls") is None
