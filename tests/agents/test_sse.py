import msgspec
import pytest

from windtunnel.agents.sse import Parser, check_length, parse


def chat(content=None, finish=None, **more):
    delta = {"content": content} if content is not None else {}
    delta.update(more.pop("delta", {}))
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more.pop("choice", {})}], **more}


def usage(completion, prompt=10, **more):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


def encode(*chunks, end="\n", done=True):
    parts = [b"data: " + (c if isinstance(c, bytes) else msgspec.json.encode(c)) for c in chunks]
    parts += [b"data: [DONE]"] if done else []
    return b"".join(p + end.encode() * 2 for p in parts)


ROLE = chat("", delta={"role": "assistant"})


def read(*chunks, **more):
    """Each chunk arrives alone, at 1000, 2000, ..."""
    events = [encode(c, done=False) for c in chunks] + [encode()]
    return parse([((i + 1) * 1000, e) for i, e in enumerate(events)], **more)


def test_a_plain_chat_stream():
    got = read(ROLE, chat("Hel"), chat("lo", "stop"), {"choices": [], "usage": usage(2)})
    assert (got.text, got.finish, got.failure, got.ended) == ("Hello", "stop", None, True)
    assert (got.t_first, got.t_first_visible, got.t_last) == (2000, 2000, 3000)
    assert (list(got.chunk_t), list(got.chunk_n)) == ([2000, 3000], [1, 1])
    assert (got.prompt_tokens, got.completion_tokens, got.usage_reported) == (10, 2, True)
    assert got.t_first_tool is None


def test_the_empty_role_chunk_is_no_token():
    assert read(ROLE, chat(None, "stop")).t_first is None
    assert list(read(ROLE, chat("", "stop"), {"choices": [], "usage": usage(0)}).chunk_n) == []


def test_several_tokens_in_a_chunk_are_counted_by_usage_and_spread():
    got = read(ROLE, chat("a b c"), chat("d e f"), chat("g h", "length"), {"choices": [], "usage": usage(8)})
    assert got.completion_tokens == 8
    assert sum(got.chunk_n) == 8
    assert list(got.chunk_n) == [3, 3, 2]
    assert got.counted_by == "usage_spread"


def test_token_ids_count_the_tokens_of_each_chunk_also_without_text():
    got = read(
        {**ROLE, "prompt_token_ids": [1, 2, 3]},
        chat("", choice={"token_ids": [5, 6, 7]}),
        chat("abc", choice={"token_ids": [8]}),
        chat("", "length", choice={"token_ids": [9]}),
        {"choices": [], "usage": usage(5)},
    )
    assert list(got.token_ids) == [5, 6, 7, 8, 9]
    assert list(got.chunk_n) == [3, 1, 1]
    assert (got.t_first, got.t_first_visible, got.t_last) == (2000, 3000, 4000)
    assert got.counted_by == "token_ids"
    assert got.prompt_token_ids_seen


def test_token_ids_count_where_usage_is_never_reported():
    got = read(chat("a", "stop", choice={"token_ids": [1, 2]}))
    assert (got.completion_tokens, got.usage_reported, got.prompt_tokens) == (2, False, None)


def test_continuous_usage_gives_the_tokens_of_each_chunk():
    got = read(
        {**ROLE, "usage": usage(0)},
        chat("ab", usage=usage(2)),
        chat("", usage=usage(5)),
        chat("c", "stop", usage=usage(6)),
        {"choices": [], "usage": usage(6)},
    )
    assert (list(got.chunk_n), got.counted_by, list(got.chunk_t)) == ([2, 3, 1], "usage_deltas", [2000, 3000, 4000])


def test_usage_beside_choices_once_at_the_end_is_no_burst():
    got = read(ROLE, chat("a"), chat("b"), chat("c"), chat(None, "stop", usage=usage(6)))
    assert (list(got.chunk_n), got.completion_tokens, got.t_last) == ([2, 2, 2], 6, 4000)
    got = read(ROLE, chat("a"), chat("b"), chat("c", "stop", usage=usage(3)))
    assert (list(got.chunk_n), got.completion_tokens) == ([1, 1, 1], 3)


def test_missing_usage_is_not_zero():
    got = read(ROLE, chat("a"), chat("b", "stop"))
    assert (got.prompt_tokens, got.cached_tokens, got.completion_tokens, got.reasoning_tokens) == (None,) * 4
    assert (got.usage_reported, got.counted_by, list(got.chunk_n), got.failure) == (False, "chunks", [1, 1], None)
    assert check_length(got, 500) is None


def test_usage_before_the_last_content_and_details():
    details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 1}}
    got = read({"choices": [], "usage": usage(2, **details)}, chat("a"), chat("b", "stop"))
    assert (got.cached_tokens, got.reasoning_tokens, got.completion_tokens, list(got.chunk_n)) == (8, 1, 2, [1, 1])
    assert read(chat("a", "stop"), {"choices": [], "usage": usage(1)}).cached_tokens is None
    null = {"choices": [], "usage": usage(1, prompt_tokens_details=None, completion_tokens_details=None)}
    assert read(chat("a", "stop"), null).cached_tokens is None
    assert read(chat("a", "stop"), {"choices": [], "usage": usage(1, reasoning_tokens=4)}).reasoning_tokens == 4


def test_llama_cpp_timings_tell_the_cached_tokens():
    got = read(chat("a", "stop", timings={"cache_n": 3, "prompt_n": 4}))
    assert got.cached_tokens == 3


def test_reasoning_content_and_tool_calls_have_times_of_their_own():
    def tool(**part):
        return chat(delta={"tool_calls": [part]})

    got = read(
        ROLE,
        chat(delta={"reasoning": "hm"}),
        chat(delta={"reasoning_content": "m"}),
        chat("Look: "),
        tool(index=0, id="c1", type="function", function={"name": "Bash", "arguments": ""}),
        tool(index=0, function={"arguments": '{"a":'}),
        tool(index=0, function={"arguments": "1}"}),
        tool(index=1, id="c2", function={"name": "Read", "arguments": "{}"}),
        chat(None, "tool_calls"),
    )
    assert (got.t_first, got.t_first_visible, got.t_first_tool) == (2000, 4000, 5000)
    assert (got.reasoning, got.text) == ("hmm", "Look: ")
    assert got.tool_calls == (("c1", "Bash", '{"a":1}'), ("c2", "Read", "{}"))
    assert got.t_last == 8000
    assert sum(got.chunk_n) == 7


def test_a_tool_parser_that_buffers_many_tokens():
    call = {"index": 0, "id": "c", "function": {"name": "Write", "arguments": "x" * 900}}
    got = read(ROLE, chat("I write."), chat(None, "tool_calls", delta={"tool_calls": [call]}), {"usage": usage(200)})
    assert (got.completion_tokens, sum(got.chunk_n), got.t_last) == (200, 200, 3000)


def test_tool_calls_without_index():
    got = read(
        chat(delta={"tool_calls": [{"id": "a", "function": {"name": "F", "arguments": "1"}}]}),
        chat(delta={"tool_calls": [{"function": {"arguments": "2"}}]}),
        chat(None, "tool_calls", delta={"tool_calls": [{"id": "b", "function": {"name": "G", "arguments": "3"}}]}),
    )
    assert got.tool_calls == (("a", "F", "12"), ("b", "G", "3"))


def test_the_completions_route():
    def text(t, finish=None, **more):
        return {"choices": [{"index": 0, "text": t, "finish_reason": finish, **more}]}

    got = read(
        text("de", token_ids=[4], prompt_token_ids=[1, 2]),
        text("f", token_ids=[5, 6]),
        text("", "length", token_ids=[7]),
        {"choices": [], "usage": usage(4)},
    )
    assert (got.text, got.finish, got.failure, list(got.chunk_n)) == ("def", "length", None, [1, 2, 1])
    assert (got.t_first, got.t_first_visible, got.t_last) == (1000, 1000, 3000)
    assert got.prompt_token_ids_seen
    assert not read(text("a", "stop", prompt_token_ids=None)).prompt_token_ids_seen


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_lines_and_characters_may_be_split_anywhere(end, size):
    stream = (
        f": ping{end}{end}event: message{end}id: 7{end}".encode()
        + encode(ROLE, chat("Grüße "), chat("🎈 \u2028\u0085 ende"), end=end, done=False)
        + f'data:{{{end}data: "choices":[]}}{end}{end}: late{end}{end}'.encode()
        + encode(chat("!", "stop"), {"choices": [], "usage": usage(3)}, end=end)
    )
    got = parse([(i, stream[i : i + size]) for i in range(0, len(stream), size)])
    assert (got.text, got.failure, got.completion_tokens) == ("Grüße 🎈 \u2028\u0085 ende!", None, 3)


def test_an_event_counts_from_the_piece_that_completes_it():
    first, second = encode(chat("a"), done=False), encode(chat("b", "stop"))
    got = parse([(10, first[:20]), (20, first[20:] + second[:30]), (30, second[30:])])
    assert list(got.chunk_t) == [20, 30]


def test_many_events_in_one_read_are_all_seen():
    got = parse([(5, encode(ROLE, *[chat(f"{i} ") for i in range(50)], chat("", "stop")))])
    assert (got.text, len(got.chunk_t), set(got.chunk_t)) == ("".join(f"{i} " for i in range(50)), 50, {5})


def test_a_line_of_ten_megabytes():
    ids = b",".join(b"%d" % (i % 90_000) for i in range(1_800_000))
    first = msgspec.json.encode(ROLE)[:-1] + b',"prompt_token_ids":[' + ids + b"]}"
    stream = encode(first, chat("a", "stop"), {"choices": [], "usage": usage(1)})
    assert len(stream) > 10_000_000
    got = parse([(i, stream[i : i + 65_536]) for i in range(0, len(stream), 65_536)])
    assert (got.text, got.failure, got.prompt_token_ids_seen, got.completion_tokens) == ("a", None, True, 1)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "the parser gave up", "type": "BadRequestError", "code": 400}},
        {"error": "the parser gave up"},
        {"object": "error", "message": "the parser gave up", "code": 500},
    ],
)
def test_an_error_event_is_a_failure_even_when_the_stream_ends_properly(error):
    got = read(ROLE, chat("a"), error)
    assert (got.failure, got.detail) == ("error_event", "the parser gave up")
    assert read(ROLE, error, stream_failure="connection_closed").failure == "error_event"


def test_an_engine_that_aborts_says_so_in_the_finish_reason():
    assert read(ROLE, chat("a", "abort")).failure == "error_event"


def test_no_finish_reason_and_no_end_marker_are_failures_of_their_own():
    assert read(ROLE, chat("a")).failure == "no_finish_reason"
    assert parse([(1, encode(ROLE, chat("a", "stop"), done=False))]).failure == "no_end_marker"
    assert parse([]).failure == "no_end_marker"


def test_an_end_marker_without_its_blank_line_counts():
    got = parse([(1, encode(chat("a", "stop"), done=False) + b"data: [DONE]\n")])
    assert (got.failure, got.ended) == (None, True)
    assert parse([(1, encode(chat("a", "stop"), done=False) + b"data: [DONE]")]).failure is None


def test_what_is_no_event_stream():
    assert parse([(1, b'{"choices": []}')]).failure == "not_sse"
    got = parse([(1, encode(ROLE, b'{"choices": [', chat("a", "stop")))])
    assert got.failure == "malformed_stream"
    assert '{"choices": [' in got.detail
    assert read(ROLE, {"choices": [{"index": 0, "delta": {"content": {"a": 1}}}]}).failure == "malformed_stream"
    deep = read(ROLE, b'{"a":' * 200_000, chat("a", "stop"))
    assert deep.failure == "malformed_stream"
    assert "nested too deeply" in deep.detail


@pytest.mark.parametrize("absurd", [usage(-1), usage(10**25), usage(1, prompt=-5), usage(1, prompt=10**12)])
def test_absurd_counts_are_no_counts(absurd):
    got = read(ROLE, chat("a", "stop"), {"choices": [], "usage": absurd})
    assert (got.failure, got.completion_tokens, got.prompt_tokens) == ("malformed_stream", None, None)


def test_absurd_details_are_as_good_as_not_reported():
    details = {
        "prompt_tokens_details": {"cached_tokens": -1},
        "completion_tokens_details": {"reasoning_tokens": 10**25},
    }
    got = read(ROLE, chat("a", "stop"), {"choices": [], "usage": usage(1, **details)})
    assert (got.failure, got.cached_tokens, got.reasoning_tokens, got.completion_tokens) == (None, None, None, 1)


def test_a_token_id_that_is_none():
    assert read(chat("a", "stop", choice={"token_ids": [10**30]})).failure == "malformed_stream"


def test_a_broken_transport_names_the_failure_unless_the_stream_had_ended():
    cut = parse([(1, encode(ROLE, chat("a"), done=False))], "connection_reset", "reset by peer")
    assert (cut.failure, cut.detail, cut.text) == ("connection_reset", "reset by peer", "a")
    assert parse([(1, encode(ROLE, chat("a", "stop")))], "connection_closed").failure is None
    assert parse([(1, b'{"error": {"message": "no"}}')], "http_400", "no").failure == "http_400"


def test_a_stream_cut_inside_an_event_is_named_by_its_end_not_by_its_json():
    assert parse([(1, encode(ROLE, chat("a"), done=False) + b'data: {"choi')]).failure == "no_end_marker"


def test_the_pinned_length():
    got = read(ROLE, chat("a", "stop"), {"choices": [], "usage": usage(3)})
    assert check_length(got, 3) is None
    assert check_length(got, 4) == "wrong_length"
    assert check_length(got, 0) is None


def test_live_counters():
    parser = Parser()
    parser.feed(1, encode(ROLE, chat("x" * 150), done=False))
    assert (parser.tokens_so_far, parser.tail) == (1, "x" * 150)
    parser.feed(2, encode(chat("y" * 150, choice={"token_ids": [1, 2, 3]}), done=False))
    assert parser.tokens_so_far == 4
    assert parser.tail == "x" * 50 + "y" * 150


def test_without_text_only_the_tail_is_kept():
    parser = Parser(keep_text=False)
    for i in range(2000):
        parser.feed(i, encode(chat("word "), done=False))
    assert parser.tail == "word " * 40
    got = parser.finish()
    assert (got.text, sum(got.chunk_n)) == ("", 2000)


def test_halves_of_a_surrogate_pair_in_two_events():
    halves = [b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % h for h in (rb"\ud83c", rb"\udf88")]
    assert read(*halves, chat("!", "stop")).text == "🎈!"
    assert read(halves[0], chat("!", "stop")).text == "\ufffd!"


def test_other_choices_are_not_this_call():
    other = {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]}
    got = read(ROLE, chat("a"), other, chat("b", "length"))
    assert (got.text, got.finish) == ("ab", "length")


@pytest.mark.parametrize(
    ("metrics", "seconds"),
    [
        ('{"queue_time_ms": 125.5, "mean_itl_ms": 3}', 0.1255),
        ("{}", None),
        ('"none"', None),
        ('{"queue_time_ms": "x"}', None),
        ('{"queue_time_ms": -1}', None),
    ],
)
def test_the_time_in_the_engines_queue_is_read_where_it_is_told(metrics, seconds):
    parser = Parser()
    parser.feed(1, b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n')
    parser.feed(2, b'data: {"choices": [], "metrics": %s}\n\n' % metrics.encode())
    parser.feed(3, b"data: [DONE]\n\n")
    parsed = parser.finish()
    assert parsed.failure is None
    assert parsed.queued_s == seconds
    assert parsed.prefilled_s is None


def test_the_time_from_scheduling_to_the_first_token_is_read_where_it_is_told():
    parser = Parser()
    told = b'{"queue_time_ms": 2.5, "time_to_first_token_ms": 61.25, "generation_time_ms": 900}'
    parser.feed(1, b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n')
    parser.feed(2, b'data: {"choices": [], "metrics": %s}\n\ndata: [DONE]\n\n' % told)
    parsed = parser.finish()
    assert (parsed.queued_s, parsed.prefilled_s) == (0.0025, 0.06125)
