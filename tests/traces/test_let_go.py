"""What a server's cache let go between two calls, and how much of a prompt stands for what the log does not hold."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from windtunnel.traces.breakers import find
from windtunnel.traces.model import Usage
from windtunnel.traces.sources import load

from .planted import Plant

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def growing(cached, *, filler=True):
    """A session of calls that each add a message: a filler of 40,000 tokens, 1,000 for each call. A minute each, the
    last one after ten.
    """
    plant = Plant()
    filling = plant.block("x" * 160_000, filler=filler)
    messages, at = [plant.say("system", filling)], 0.0
    for number in range(len(cached)):
        at += 600.0 if number == len(cached) - 1 else 60.0
        messages.append(plant.say("user", f"{number}" * 4000))
        plant.call(*messages, start_s=at, end_s=at + 10.0)
    trace = plant.trace()
    calls = tuple(replace(c, usage=Usage(prompt=41_000, cached=n)) for c, n in zip(trace.calls, cached, strict=True))
    return replace(trace, calls=calls)


def test_less_than_half_of_what_was_there_is_let_go():
    report = find(growing([0, 41_000, 20_400, 0]))
    assert report.breaks == ()
    # the third found 20,400 of 42,000 fifty seconds after its predecessor, the last nothing of 43,000
    told = [(gone.call, gone.common_tokens, gone.cached_tokens, gone.idle_s) for gone in report.let_go]
    assert told == [(2, 42_000, 20_400, 50.0), (3, 43_000, 0, 590.0)]
    assert [gone.missed_tokens for gone in report.let_go] == [21_600, 43_000]


def test_a_server_that_finds_more_or_says_nothing_has_let_nothing_go():
    assert find(growing([0, 41_000, 21_100, 43_000])).let_go == ()
    assert find(growing([None, None, None, None])).let_go == ()
    assert find(growing([0, 0, 0, 0])).let_go == (), "it never cached anything"


def test_the_time_since_the_last_use_is_told_where_the_log_tells_it():
    trace = growing([0, 41_000, 0, 43_000])
    guessed = replace(trace, calls=tuple(replace(c, marks={"start": "estimated"}) for c in trace.calls))
    assert [gone.idle_s for gone in find(guessed).let_go] == [None]
    counted = replace(trace, calls=tuple(replace(c, marks={"cached": "estimated"}) for c in trace.calls))
    assert find(counted).let_go == (), "what is only guessed tells nothing of a cache"


def test_filler_is_counted_in_every_prompt():
    report = find(growing([0, 41_000, 42_000, 43_000]))
    assert (report.filler_tokens, report.prompt_tokens) == (160_000, 4 * 40_000 + 10_000)
    assert find(growing([0, 41_000, 42_000, 43_000], filler=False)).filler_tokens == 0


def test_a_break_says_how_much_of_its_figures_is_filler():
    plant = Plant()
    system, old, new, tail = (
        plant.say("system", plant.block("s" * 8000, filler=True)),
        plant.say("user", "old " * 500),
        plant.say("user", "new " * 500),
        plant.say("assistant", plant.block("t" * 4000, filler=True)),
    )
    last = plant.say("user", "go on")
    plant.call(system, old, tail, last)
    plant.call(system, new, tail, last)
    (found,) = find(plant.trace()).breaks
    assert (found.common_filler, found.lost_filler) == (2000, 1000)
    assert found.lost_tokens == 500 + 1000 + 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("claude-code/entire-2.0.76-compact.jsonl", [(2, 463), (3, 580), (5, 1347)]),
        ("claude-code/entire-2.1.29-growing-1.jsonl", None),
    ],
)
def test_recorded_sessions_of_a_provider_s_api(path, expected):
    """Anthropic's API found nothing of prompts of 150,000 tokens after eight minutes and more, and all before that."""
    if not (TRACES / path).exists():
        pytest.skip(f"{path} of ../shared/traces is not here")
    for trace in load([str(TRACES / path)]).traces:
        report = find(trace)
        assert all(gone.cached_tokens == 0 and gone.idle_s > 300 for gone in report.let_go)
        if expected is not None:
            assert [(gone.call, round(gone.idle_s)) for gone in report.let_go] == expected
            assert report.filler_tokens / report.prompt_tokens > 0.9
