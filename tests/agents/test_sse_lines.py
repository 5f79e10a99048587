"""Long lines: nothing that is wanted is lost, and what nobody wants is not kept."""

import json

import pytest

from windtunnel.agents.sse import parse
from windtunnel.agents.sse_lines import Events

IDS = [*range(90_000), 7]


def line(value, end="\n\n"):
    return f"data: {json.dumps(value)}{end}".encode()


def cut(data, size):
    return [(number, data[at : at + size]) for number, at in enumerate(range(0, len(data), size))]


def events(data, size):
    reader = Events()
    found = [event for _, piece in cut(data, size) for event in reader.feed(piece)]
    return [event if isinstance(event, bytes) else event.plain() for event in found]


def choice(**fields):
    return {"index": 0, "delta": {"content": "a"}, "finish_reason": None, **fields}


SIZES = [1_000, 16_384, 65_537, 262_144]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "value",
    [
        {"prompt_token_ids": IDS, "choices": [choice()]},
        {"choices": [choice()], "prompt_token_ids": IDS, "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
        {"choices": [choice(prompt_token_ids=IDS, token_ids=[5])]},
    ],
)
def test_of_the_prompt_s_ids_it_is_kept_that_they_came(value, size):
    (event,) = events(line(value), size)
    kept = json.loads(event)
    holder = kept if "prompt_token_ids" in kept else kept["choices"][0]
    ids = holder.pop("prompt_token_ids")
    assert ids[0] == 0
    assert ids[-1] == 7
    assert set(ids) <= set(IDS)
    original = json.loads(json.dumps(value))
    (original if "prompt_token_ids" in original else original["choices"][0]).pop("prompt_token_ids")
    assert kept == original
    end = line({"choices": [choice(delta={}, finish_reason="stop")]}) + b"data: [DONE]\n\n"
    got = parse(cut(line(value) + end, size))
    assert (got.failure, got.text, got.prompt_token_ids_seen, got.t_first) == (
        None,
        "a",
        True,
        (len(line(value)) - 1) // size,
    )


@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : "), (", ", ": ")])
def test_ten_megabytes_of_them_take_no_room(separators):
    value = {"choices": [choice()], "prompt_token_ids": list(range(100_000, 1_500_000))}
    data = f"data: {json.dumps(value, separators=separators)}\r\n\r\n".encode()
    assert len(data) > 9_800_000
    reader = Events()
    most, found = 0, []
    for _, piece in cut(data, 65_536):
        found += reader.feed(piece)
        most = max(most, sum(map(len, reader._held)))
    assert most < 300_000
    (event,) = found
    assert json.loads(event)["choices"] == value["choices"]
    assert len(event) < 300_000


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "value",
    [
        {"choices": [choice(token_ids=IDS)]},
        {"choices": [choice(delta={"content": ', "prompt_token_ids": [' + ", ".join(map(str, IDS))})]},
        {"choices": [choice(delta={"content": '{"prompt_token_ids":[' + "1, " * 200_000})]},
        {"choices": [choice(delta={"content": "1, " * 200_000})]},
        {"choices": [choice(delta={"content": "1" * 500_000})], "prompt_token_ids": [1, 2]},
        {"prompt_token_ids": [int("1" * 4000)] * 100, "choices": []},
    ],
)
def test_everything_else_arrives_as_it_was_sent(value, size):
    (event,) = events(line(value), size)
    kept = json.loads(event)
    if value["choices"] and value.get("prompt_token_ids") != [1, 2]:
        assert kept == value
    else:
        assert kept["choices"] == value["choices"]


def test_a_list_that_never_ends_is_what_it_was():
    data = line({"prompt_token_ids": IDS}, end="")[:-100]
    reader = Events()
    assert not [event for _, piece in cut(data, 20_000) for event in reader.feed(piece)]
    rest = reader.rest()
    assert rest.startswith(b'{"prompt_token_ids": [0, 1, 2, ')
    assert rest.endswith(data[data.rfind(b",") + 1 :])
    assert json.loads(rest + b"]}")["prompt_token_ids"][0] == 0
    assert reader.feed(b"data: x\n\n") == [b"x"]


@pytest.mark.parametrize("begin", [b": ", b"", b"dat", b"event: "])
def test_a_line_of_megabytes_that_says_nothing_is_not_kept(begin):
    reader = Events()
    most = 0
    for _, piece in cut(begin + b"x" * 8_000_000, 16_384):
        assert reader.feed(piece) == []
        most = max(most, sum(map(len, reader._held)))
    assert most < 200_000
    assert reader.feed(b"data: no data\ndata: a\n\ndata: b\n\n") == [b"a", b"b"]
    assert reader.clean


@pytest.mark.parametrize("size", [1, 5, 100_000, 400_000])
def test_a_long_line_of_data_is_kept_however_it_begins_to_come(size):
    said = b'"' + b"x" * 300_000 + b'"'
    data = b"data: " + said + b"\n\n"
    reader = Events()
    head = [event for at in range(0, 300, size) for event in reader.feed(data[at : min(300, at + size)])]
    rest = [event for at in range(300, len(data), 70_000) for event in reader.feed(data[at : at + 70_000])]
    (event,) = head + rest
    assert (event if isinstance(event, bytes) else event.plain()) == said


def test_blank_lines_between_events_are_nothing():
    reader = Events()
    assert reader.feed(b"\n" * 100_001) == []
    assert reader.feed(b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n\n") == [b"a", b"b"]
    assert reader.clean
