"""Texts, and replayed prompts at full scale, have the tokens they should, by the served tokenizer's own count."""

from pathlib import Path

import msgspec
import pytest

from windtunnel.agents.prompt import Conversation, Dialect, Options, prepare
from windtunnel.simulator.engines.base import detect, open_session
from windtunnel.simulator.run.calibrate import Tokenizer, calibrate, learn_rendering, measure_texts, refine
from windtunnel.traces import text
from windtunnel.traces.model import KINDS
from windtunnel.traces.sources import load

SHARED = Path(__file__).parents[2] / ".." / "shared" / "traces"
SPREAD = 5
"""Calls looked at in each session: the first, the last, and some between."""
TOLERANCE = 0.03

pytestmark = pytest.mark.vllm


def chosen(calls, every: bool):
    known = [call for call in calls if call.usage.prompt]
    if every or len(known) <= SPREAD:
        return known
    step = (len(known) - 1) / (SPREAD - 1)
    return [known[round(k * step)] for k in range(SPREAD)]


async def worst_error(url: str, source: str, *, every: bool) -> tuple[float, int]:
    """Largest relative difference over the sessions of a source, and how many calls were counted."""
    worst, counted = 0.0, 0
    async with open_session() as session:
        resolved = await (await detect(url, session)).probe(session, url)
        tokenizer = Tokenizer(session, url, resolved.model)
        traces = load([str((SHARED / source).resolve())]).traces
        rendering = await learn_rendering(tokenizer, resolved, traces)
        for trace in traces:
            first = prepare(trace, "chat", rendering)
            prepared = prepare(trace, "chat", await refine(tokenizer, rendering, [first]))
            for call in chosen(trace.calls, every):
                conversation = Conversation(prepared, Options(resolved.model, Dialect(resolved.name)))
                request = msgspec.json.decode(b"".join(conversation.body(call.id).parts))
                count = await tokenizer.prove(request["messages"], request.get("tools") or ())
                error = count / call.usage.prompt - 1
                if abs(error) > TOLERANCE:
                    print(
                        f"{trace.header.id} call {call.id}: {count} tokens, recorded {call.usage.prompt} ({error:+.1%})"
                    )
                worst, counted = max(worst, abs(error)), counted + 1
    print(f"\n{source}: {len(traces)} sessions, {counted} calls, largest difference {worst:.2%}")
    return worst, counted


async def test_texts_counted_in_batches_count_as_alone(vllm_url):
    async with open_session() as session:
        tokenizer = Tokenizer(session, vllm_url, "tiny")
        assert await tokenizer.separator() is not None
        texts = {f"{kind}{n}": text.sample(kind)[n * 97 : n * 197] for kind in KINDS for n in range(1, 20)}
        texts["holds a separator"] = "before<|im_end|>after"
        counts = await measure_texts(tokenizer, texts)
        assert counts == {key: await tokenizer.count(value) for key, value in texts.items()}


async def test_regenerated_text_has_the_tokens_asked_for(vllm_url):
    async with open_session() as session:
        tokenizer = Tokenizer(session, vllm_url, "tiny")
        calibration = await calibrate(tokenizer, "tiny")
        for kind in KINDS:
            for tokens in (10, 100, 1000):
                block = text.regenerate(f"{kind}{tokens}", kind, tokens, calibration)
                assert abs(await tokenizer.count(block) - tokens) <= max(2, 0.02 * tokens), (kind, tokens)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared traces")
@pytest.mark.parametrize("source", ["claude-code", "codex"])
async def test_prompts_have_their_recorded_length(vllm_url, source):
    worst, counted = await worst_error(vllm_url, source, every=False)
    assert counted > 0
    assert worst <= TOLERANCE


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared traces")
@pytest.mark.parametrize("source", ["claude-code", "codex"])
async def test_full_prompts_have_their_recorded_length(vllm_url, source):
    worst, _ = await worst_error(vllm_url, source, every=True)
    assert worst <= TOLERANCE
