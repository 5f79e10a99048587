"""What a real vLLM is found to be and to take."""

import pytest

from windtunnel.simulator.engines.base import detect, open_session

pytestmark = pytest.mark.vllm


async def test_a_served_model_is_understood(vllm_url):
    async with open_session() as session:
        adapter = await detect(vllm_url, session)
        found = await adapter.probe(session, vllm_url)
        assert (found.name, found.version, found.model, found.max_model_len) == ("vllm", "0.32.0", "tiny", 4096)
        assert (found.block_size, found.prefix_caching, found.speculation) == (128, True, None)
        seen = found.capabilities
        assert all(getattr(seen, name) for name in seen.__struct_fields__), seen
        assert await adapter.reset(session, vllm_url) == (True, "prefix cache reset, external tier included")
