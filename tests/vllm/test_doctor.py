"""The doctor, the adapter and the tokenizer's calibration against the real vLLM."""

import pytest

from windtunnel.simulator.engines.base import detect, open_session
from windtunnel.simulator.run.calibrate import Tokenizer, calibrate, measure_texts
from windtunnel.traces import text
from windtunnel.traces.model import KINDS

pytestmark = pytest.mark.vllm


async def test_a_served_model_is_understood(vllm_url):
    async with open_session() as session:
        adapter = await detect(vllm_url, session)
        found = await adapter.probe(session, vllm_url)
        assert (found.name, found.version, found.model, found.max_model_len) == ("vllm", "0.32.0", "tiny", 4096)
        assert (found.block_size, found.prefix_caching) == (128, True)
        seen = found.capabilities
        assert all(getattr(seen, name) for name in seen.__struct_fields__), seen
        assert await adapter.reset(session, vllm_url) == (True, "prefix cache reset, external tier included")


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
