"""Events taken together must say what they say one by one: streams of many kinds, parsed both ways."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from msgspec import structs

from windtunnel.agents import reads, sse_repeat
from windtunnel.agents.sse import Parsed, Parser
from windtunnel.agents.sse_repeat import Shape, learn
from windtunnel.agents.sse_shapes import decode_strictly

Piece = tuple[int, bytes]

WORDS = (
    " def",
    "self",
    "\n",
    '"',
    "\\",
    "é",
    "漢字",
    "🙂",
    "\t",
    "/",
    "a" * 300,
    " ",
    "\u2028",
    "\x7f",
    "{}",
    "data: ",
)


@pytest.fixture(params=["compiled", "python"], autouse=True)
def both_kinds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(sse_repeat, "alike", reads.python_alike)
    elif not reads.COMPILED:
        pytest.skip("installed without a C compiler")


def event(said: dict[str, object], usage: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": None, "token_ids": None}
    whole: dict[str, object] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_767_225_600}
    return {**whole, "model": "m2.5-30b", "choices": [choice], **({} if usage is None else {"usage": usage}), **more}


def sse(said: object, *, ascii_only: bool = True, spaced: bool = False) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return b"data: %b\n\n" % json.dumps(said, ensure_ascii=ascii_only, separators=separators).encode()


def usage(completion: int, prompt: int = 500, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion, **more}


def both_ways(pieces: list[Piece], cut: Callable[[], int]) -> tuple[Parsed, Parsed, int]:
    """One by one, and in runs of `cut()`; the last figure is how many events were taken together."""
    slow, fast = Parser(), Parser()
    for piece in pieces:
        slow.feed(*piece)
    taken = 0
    take = fast._take

    def counted(run: list[Piece], first: int) -> int:
        nonlocal taken
        found = take(run, first)
        taken += found
        return found

    fast._take = counted  # type: ignore[method-assign, assignment]
    at = 0
    while at < len(pieces):
        step = cut()
        fast.feed_all(pieces[at : at + step])
        at += step
    assert slow.tail == fast.tail
    assert slow.tokens_so_far == fast.tokens_so_far
    return slow.finish(), fast.finish(), taken


def plainly(parsed: Parsed) -> dict[str, object]:
    as_dict = structs.asdict(parsed)
    return {**as_dict, **{name: list(as_dict[name]) for name in ("chunk_t", "chunk_n", "token_ids")}}


def stream(rng: random.Random) -> Iterator[bytes]:
    """Mostly alike events, as servers send them, and now and then one that is not."""
    ascii_only, spaced = rng.random() < 0.5, rng.random() < 0.3
    counted, details, field = rng.random() < 0.6, rng.random() < 0.3, rng.choice(["content", "content", "reasoning"])
    most, odd = rng.choice([1, 1, 4]), rng.choice([0.0, 0.02, 0.2])
    completion = 0

    def told() -> dict[str, object] | None:
        more = {"prompt_tokens_details": {"cached_tokens": 64}} if details else {}
        return usage(completion, **more) if counted else None

    yield sse(event({"role": "assistant", "content": ""}, told()), ascii_only=ascii_only, spaced=spaced)
    for _ in range(rng.randrange(120)):
        completion += rng.randint(1, most)
        text = "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))
        said: dict[str, object] = {field: text}
        more: dict[str, object] = {}
        if rng.random() < odd:
            kind = rng.randrange(9)
            said = [said, {"content": ""}, {"reasoning_content": text}, {"content": text, "reasoning": text}, {}][
                min(kind, 4)
            ]
            if kind == 5:
                said = {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": text}}]}
            elif kind == 6:
                more = {"created": 1_767_225_601}
            elif kind == 7:
                completion -= rng.randint(0, most)
            elif kind == 8:
                field = "reasoning" if field == "content" else "content"
        whole = event(said, told(), **more)
        yield sse(whole, ascii_only=ascii_only, spaced=spaced)
        if rng.random() < odd / 4:
            yield rng.choice([b": still here\n\n", b"data: {broken\n\n", b'data: {"error": {"message": "no"}}\n\n'])
    end = event({})
    end["choices"] = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    yield sse(end)
    if rng.random() < 0.7:
        yield sse({"id": "chatcmpl-1", "choices": [], "usage": usage(completion)})
    yield b"data: [DONE]\n\n"


@pytest.mark.parametrize("seed", range(60))
def test_streams_say_the_same_both_ways(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        pieces = [(1000 + number * 7, data) for number, data in enumerate(stream(rng))]
        if rng.random() < 0.3:  # reads that end anywhere
            whole = b"".join(data for _, data in pieces)
            edges = sorted({0, len(whole), *(rng.randrange(len(whole)) for _ in range(rng.randrange(40)))})
            pieces = [(1000 + a, whole[a:b]) for a, b in pairwise(edges)]
        slow, fast, _ = both_ways(pieces, lambda: rng.randint(1, 40))
        assert plainly(fast) == plainly(slow)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_streams_say_the_same_both_ways(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [(1000 + number, data) for number, data in enumerate(stream(rng))]
    for _ in range(8):
        at = rng.randrange(len(pieces))
        damaged = bytearray(pieces[at][1])
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'"\\,:{}[]0199 \x00\xff\n')
        pieces[at] = (pieces[at][0], bytes(damaged))
    slow, fast, _ = both_ways(pieces, lambda: rng.randint(1, 40))
    assert plainly(fast) == plainly(slow)


def test_a_plain_stream_is_taken_together() -> None:
    """All but the events before something was learned: a path that is never taken would prove nothing."""
    pieces = [(i, sse(event({"content": f" w{i}\n"}, usage(3 * i)))) for i in range(1, 101)]
    slow, fast, taken = both_ways(pieces, lambda: 10)
    assert taken == 99
    assert plainly(fast) == plainly(slow)
    assert sum(fast.chunk_n) == 300
    assert fast.completion_tokens == 300


def test_without_usage_each_event_is_a_token() -> None:
    pieces = [(i, sse(event({"content": " x"}))) for i in range(50)]
    _, fast, taken = both_ways(pieces, lambda: 50)
    assert taken == 49
    assert list(fast.chunk_n) == [1] * 50


def test_a_change_of_any_other_number_is_seen() -> None:
    """Cached tokens that change in the middle are not a counter's growth."""
    details = [{"prompt_tokens_details": {"cached_tokens": 64 if i < 20 else 96}} for i in range(1, 41)]
    pieces = [(i, sse(event({"content": " x"}, usage(i, **details[i - 1])))) for i in range(1, 41)]
    slow, fast, _ = both_ways(pieces, lambda: 40)
    assert fast.cached_tokens == slow.cached_tokens == 96


def shape_of(whole: dict[str, object]) -> Shape | None:
    data = sse(whole)
    return learn(data, decode_strictly(data[6:]))


def test_what_is_not_learned_from() -> None:
    text = {"content": " x"}
    assert shape_of(event(text, usage(1))) is not None
    assert shape_of(event({"content": ""}, usage(1))) is None
    assert shape_of(event({"content": " x", "reasoning": "y"}, usage(1))) is None
    twice = event(text, usage(1))
    twice["choices"][0]["message"] = {"content": "another text"}  # type: ignore[index]
    assert shape_of(twice) is None
    assert shape_of(event(text, {"prompt_tokens": 5})) is None
    assert shape_of(event(text, usage(1), timings={"cache_n": 3})) is None
    with_ids = event(text, usage(1))
    with_ids["choices"][0]["token_ids"] = [7]  # type: ignore[index]
    assert shape_of(with_ids) is None
    finished = event(text, usage(1))
    finished["choices"][0]["finish_reason"] = "stop"  # type: ignore[index]
    assert shape_of(finished) is None


def test_halves_of_a_pair_in_two_events_are_joined() -> None:
    pieces = [(i, sse(event({"content": " x"}, usage(i)))) for i in range(1, 20)]
    first, second = json.dumps("🙂")[1:7].encode(), json.dumps("🙂")[7:13].encode()
    for at, half in ((10, first), (11, second), (15, first)):
        pieces[at] = (at + 1, pieces[at][1].replace(b'" x"', b'"%b"' % half))
    slow, fast, _ = both_ways(pieces, lambda: 19)
    assert fast.text == slow.text
    assert "🙂" in fast.text
    assert fast.text.count("\ufffd") == 1
