"""What is learnt from `/tokenize`: counts of texts, overheads of the template, and how little is asked for it."""

from types import SimpleNamespace

import pytest

from windtunnel.simulator.engines.base import Answer, detect
from windtunnel.simulator.run import calibrate
from windtunnel.simulator.run.calibrate import Tokenizer, batches, learn_rendering, measure_texts, refine, system_first
from windtunnel.traces import text
from windtunnel.traces.errors import EngineError


def texts(count: int) -> dict[str, str]:
    return {f"k{n}": " ".join(f"w{n}x{i}" for i in range(n % 7 + 1)) + "\n" for n in range(count)}


def expected(values: dict[str, str]) -> dict[str, int]:
    return {key: len(value.split()) for key, value in values.items()}


async def test_a_thousand_texts_are_counted_in_a_handful_of_requests(fake_engine):
    session, url, engine = await fake_engine()
    told = []
    values = texts(1000)
    counts = await measure_texts(
        Tokenizer(session, url, "tiny"), values, lambda done, total: told.append((done, total))
    )
    assert counts == expected(values)
    assert len(engine.bodies) < 20
    assert told[-1] == (sum(map(len, values.values())),) * 2


async def test_texts_that_hold_the_separator_are_counted_alone(fake_engine):
    session, url, _ = await fake_engine()
    values = {**texts(10), "odd": "one <|turn|> two"}
    assert await measure_texts(Tokenizer(session, url, "tiny"), values) == {**expected(values), "odd": 3}


async def test_without_special_tokens_every_text_is_counted_alone(fake_engine):
    session, url, engine = await fake_engine(special=False)
    values = texts(30)
    assert await measure_texts(Tokenizer(session, url, "tiny"), values) == expected(values)
    assert len(engine.bodies) >= 30


def test_batches_stay_below_the_limit(monkeypatch):
    monkeypatch.setattr(calibrate, "BATCH_CHARS", 100)
    made = batches({str(n): "x" * 40 for n in range(5)} | {"long": "y" * 500}, "<|s|>")
    assert [len(batch.keys) for batch in made] == [2, 2, 1, 1]
    assert [len(batch.keys) for batch in batches({"a": "x", "b": "y"}, None)] == [1, 1]


async def test_the_rendering_foretells_a_prompt(fake_engine):
    session, url, _ = await fake_engine()
    resolved = await (await detect(url, session)).probe(session, url)
    tokenizer = Tokenizer(session, url, "tiny")
    rendering = await learn_rendering(tokenizer, resolved, tag_tokens=4)
    assert rendering.calibration.measured
    assert rendering.tag_tokens == 4
    conversation = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "how many files are there"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "thanks"},
    ]
    words = sum(len(m["content"].split()) for m in conversation)
    around = sum(rendering.message_overhead[m["role"]] for m in conversation)
    assert await tokenizer.prove(conversation) == words + around + rendering.fixed_overhead


async def test_a_template_without_tool_roles_still_gives_a_rendering(fake_engine):
    session, url, _ = await fake_engine(refuses=("tool", "system"))
    resolved = await (await detect(url, session)).probe(session, url)
    tokenizer = Tokenizer(session, url, "tiny")
    rendering = await learn_rendering(tokenizer, resolved)
    assert rendering.message_overhead["user"] > 0
    with pytest.raises(EngineError, match=r"the chat template refuses the messages .*no such role"):
        await tokenizer.prove([{"role": "tool", "content": "x"}])


async def test_without_the_route_the_stored_figures_stand_in(fake_engine):
    session, url, _ = await fake_engine(tokenize=False)
    resolved = await (await detect(url, session)).probe(session, url)
    rendering = await learn_rendering(Tokenizer(session, url, "tiny"), resolved)
    assert rendering.calibration == text.stored()
    assert rendering.measured is None


@pytest.mark.parametrize("told", [b'{"count": -5}', b'{"count": true}', b'{"count": 3.5}', b"{}", b"[]"])
async def test_what_is_no_count_of_tokens_is_not_taken_for_one(monkeypatch, told):
    async def answers(*_given):
        return Answer(200, told)

    monkeypatch.setattr(calibrate, "fetch", answers)
    tokenizer = Tokenizer(None, "http://host:1", "tiny")
    with pytest.raises(EngineError, match=r"^http://host:1/tokenize: counting a text failed \(HTTP 200: .*\)$"):
        await tokenizer.count("a text")
    with pytest.raises(EngineError, match=r"the chat template refuses the messages \(HTTP 200"):
        await tokenizer.prove([{"role": "user", "content": "x"}])


async def test_cut_texts_are_counted_for_a_second_preparation(fake_engine):
    session, url, _ = await fake_engine()
    resolved = await (await detect(url, session)).probe(session, url)
    tokenizer = Tokenizer(session, url, "tiny")
    rendering = await learn_rendering(tokenizer, resolved)
    first = SimpleNamespace(fitted_texts=lambda: {"key": "one two three"})
    assert (await refine(tokenizer, rendering, [first])).measured["key"] == 3
    assert await refine(tokenizer, rendering, []) is rendering


@pytest.mark.parametrize(
    ("order", "first"), [(("system", "tools"), True), (("tools", "system"), False), ((), False), (("system",), True)]
)
async def test_what_the_template_writes_first_is_told_by_two_changes(order, first):
    class Told:
        async def rendered_ids(self, probe):
            parts = {"system": probe.messages[0]["content"], "tools": probe.tools[0]["function"]["name"]}
            return [ord(c) for part in order for c in f"<{part}>{parts[part]}"]

    assert await system_first(Told()) is first
