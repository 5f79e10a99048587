"""What is an answer without an end, and what only looks like one."""

import pytest

from windtunnel.agents.client import asked_for
from windtunnel.agents.endless import WORDLESS_S, Watch
from windtunnel.agents.http import RawStream
from windtunnel.agents.sse import Parser

S = 1_000_000_000
ASKED = 100


@pytest.fixture
def watched(say):
    """A stream that gets these events, looked at twice a second: the verdict and when it was given (s), or None."""

    def run(*looks, keep_text=True, status=200, pieces=(), size=0, **headers):
        raw = RawStream(request_id="r", status=status, most_tokens=ASKED, headers=headers)
        raw.pieces = list(pieces)
        parser, watch = Parser(keep_text=keep_text), Watch()
        for look, events in enumerate(looks):
            for event in events:
                parser.feed(look, event)
            found = watch.verdict(raw, parser, size, look * S // 2)
            if found is not None:
                return *found, look / 2
        return None

    return run


def said(say, text, *, ids=None, usage=None, finish=None):
    fields = {} if usage is None else {"usage": {"prompt_tokens": 1, "completion_tokens": usage, "total_tokens": 0}}
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return say.event(choices=[choice if ids is None else {**choice, "token_ids": ids}], **fields)


def test_counted_tokens_may_go_a_little_beyond_what_was_asked_for(watched, say):
    limit = ASKED + ASKED // 8 + 64
    assert watched([said(say, "a b c", ids=[1, 2, 3])] * (limit // 3)) is None
    found = watched([said(say, "a b c", ids=[1, 2, 3])] * (limit // 3 + 1))
    assert found == ("endless", "177 tokens and no end where at most 100 tokens were asked for", 0)


def test_without_counts_a_letter_at_a_time_is_no_endless_answer(watched, say):
    """100 tokens of 7 letters each, every letter in an event of its own."""
    letters = [said(say, "x")] * (7 * ASKED)
    assert watched(letters) is None
    assert watched(letters, keep_text=False) is None
    words = [said(say, "word ")] * (7 * ASKED)
    assert watched(words)[:2] == (
        "endless",
        "700 pieces and no end where at most 100 tokens were asked for",
    )
    assert watched(words, keep_text=False) is None
    assert watched(words * 3, keep_text=False)[0] == "endless"


def test_tools_without_end_are_counted_though_their_names_are_no_text(watched, say):
    named = [{"index": n, "id": f"c{n}", "function": {"name": "look", "arguments": ""}} for n in range(1825)]
    calls = [say.event(choices=[{"index": 0, "delta": {"tool_calls": [one]}}]) for one in named]
    assert watched(calls[:1824]) is None
    assert watched(calls)[:2] == (
        "endless",
        "1,825 pieces and no end where at most 100 tokens were asked for",
    )


def test_usage_that_stands_still_hides_nothing(watched, say):
    counted = [said(say, "word ", usage=n) for n in range(1, 51)]
    assert watched([*counted, *[said(say, "word ", usage=50)] * 600], [])[0] == "endless"


def test_megabytes_that_say_nothing_are_given_up(watched):
    assert watched([], size=(1 << 26) + ASKED * 16_384) is None
    assert watched([], size=(1 << 26) + ASKED * 16_384 + 1) == (
        "endless",
        "65 MiB and no end where at most 100 tokens were asked for",
        0,
    )


def test_time_counts_from_the_look_that_saw_the_last_token(watched, say):
    last = [said(say, "a", finish="stop")]
    assert watched(last, *[[b": usage is on its way\n\n"]] * 58, [b"data: [DONE]\n\n"], *[[]] * 9) is None
    # Half a second more: the look that sees a token looks for nothing else.
    assert watched(last, *[[]] * 70)[2] == 30.5
    assert watched(last, *[[]] * 40, last, *[[]] * 70)[2] == 41 / 2 + 30.5
    comments = [[b": waiting\n\n"]] * round(2 * WORDLESS_S + 10)
    assert watched(*comments) == ("read_timeout", "bytes, but no token for 3,600 s", WORDLESS_S)


def test_a_refusal_of_megabytes_is_cut_short(watched):
    assert watched([], status=503, pieces=[(0, b"x" * 1_000_000)]) is None
    name, detail, _ = watched([], status=503, pieces=[(0, b"x" * 1_100_000)])
    assert (name, detail) == ("http_503", "x" * 299 + "…")


@pytest.mark.parametrize(
    ("parts", "asked"),
    [
        ([b'{"prompt":["a"],"max_tokens":12,"min_tokens":12,"stream":true}'], 12),
        ([b'{"prompt":["a"', b'],"max_tokens":7}'], 7),
        ([b'{"max_tokens":7,"messages":[', b'{"content":",\\"max_tokens\\":9,"}]}'], None),
        ([b'{"tools":[{"properties":{"a":{},"max_tokens":{"type":"integer"}}}],"stream":true}'], None),
        ([b'{"tools":[],"max_tokens":5,"max_tokens_in":["max_tokens",3]}'], 5),
        ([b"{}"], None),
        ([], None),
    ],
)
def test_what_a_body_asks_for(parts, asked):
    assert asked_for(parts) == asked


def test_what_is_no_stream_and_has_no_end_is_named(watched):
    page = {"content-type": "text/html"}
    looks = [[b"<p>wait\n"]] * 30
    assert watched(*looks[:20], **page) is None
    assert watched(*looks, **page) == ("not_sse", "text/html, still open after 10 s", 10.0)
    for kind in ("text/event-stream; charset=utf-8", "text/plain"):
        assert watched(*looks, **{"content-type": kind}) is None
