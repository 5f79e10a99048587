"""Which engine is recognised, what is read from it, and what is said when it cannot be."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from windtunnel.simulator.engines import pages
from windtunnel.simulator.engines.base import Resolved, detect, fetch, root_of
from windtunnel.simulator.engines.emulator import Emulator
from windtunnel.simulator.engines.external import External
from windtunnel.simulator.engines.launch import free_port
from windtunnel.simulator.engines.vllm import Vllm, match_unit
from windtunnel.traces.errors import EngineError, UsageError

from ..conftest import FakeEngine  # noqa: TID252 -- tests are no package


@pytest.mark.parametrize(
    ("typed", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://host/prefix/v1/", "https://host/prefix"),
    ],
)
def test_a_target_is_reduced_to_its_root(typed, root):
    assert root_of(typed) == root


@pytest.mark.parametrize("typed", ["ftp://host", "http://", "http:///v1", ""])
def test_a_target_that_is_no_url_is_wrong_use(typed):
    with pytest.raises(UsageError, match="give a URL such as"):
        root_of(typed)


async def test_vllm_in_development_mode(fake_engine):
    session, url, _ = await fake_engine()
    adapter = await detect(url + "/v1", session)
    assert isinstance(adapter, Vllm)
    found = await adapter.probe(session, url)
    assert (found.name, found.version, found.model, found.max_model_len) == ("vllm", "0.32.0", "tiny", 4096)
    assert (found.block_size, found.kv_tokens, found.num_blocks, found.prefix_caching) == (128, 8960, 70, True)
    seen = found.capabilities
    assert all(getattr(seen, name) for name in seen.__struct_fields__), seen
    assert found.flags["scheduler_config.max_num_seqs"] == 128
    assert found.flags["model_config.model"] == "/models/tiny"
    assert not any("port" in name or "instance" in name or "quantization" in name for name in found.flags)


async def test_vllm_without_development_mode_is_read_from_its_metrics(fake_engine):
    session, url, _ = await fake_engine(dev_mode=False, details=False)
    found = await (await detect(url, session)).probe(session, url)
    assert (found.block_size, found.kv_tokens, found.num_blocks, found.prefix_caching) == (128, 8960, 70, True)
    seen = found.capabilities
    assert not seen.reset
    assert not seen.server_info
    assert not seen.prompt_token_details
    assert not seen.continuous_usage
    assert seen.token_prompts
    assert seen.metrics
    assert seen.ignore_eos
    assert found.flags["cache_config.num_gpu_blocks"] == "70"


async def test_a_plain_openai_server(fake_engine):
    session, url, _ = await fake_engine(
        version=None, metrics=False, dev_mode=False, tokenize=False, completions=False, strict=True
    )
    adapter = await detect(url, session)
    assert isinstance(adapter, External)
    found = await adapter.probe(session, url)
    assert (found.name, found.kv_tokens, found.prefix_caching) == ("openai", None, None)
    seen = found.capabilities
    assert seen.prompt_token_details
    missing = (seen.token_prompts, seen.ignore_eos, seen.cache_salt, seen.tokenize, seen.metrics)
    assert not any(missing)
    assert seen.continuous_usage
    assert await adapter.reset(session, url) == (False, f"{url} has no known way to reset its cache")


async def test_a_server_that_ignores_the_forced_length_is_found_out(fake_engine):
    session, url, _ = await fake_engine(version=None, metrics=False, stops_after=3)
    found = await External().probe(session, url)
    assert not found.capabilities.ignore_eos
    assert not found.capabilities.cache_salt
    assert found.capabilities.token_prompts


async def test_usage_in_the_last_chunk_only_is_not_continuous(fake_engine):
    session, url, _ = await fake_engine(continuous=False)
    found = await Vllm().probe(session, url)
    assert not found.capabilities.continuous_usage
    assert found.capabilities.prompt_token_details


async def test_the_emulator_says_that_it_is_one(fake_engine):
    session, url, _ = await fake_engine(version="0.32.0+windtunnel", emulation={"gpu": "H100"})
    adapter = await detect(url, session)
    assert isinstance(adapter, Emulator)
    found = await adapter.probe(session, url)
    assert found.emulated
    assert found.emulation == {"gpu": "H100"}
    assert found.name == "windtunnel-emulator"


async def test_a_reset_counts_only_when_the_body_says_success(fake_engine):
    session, url, engine = await fake_engine()
    assert (await Vllm().reset(session, url))[0] is True
    engine.reset_success = False
    done, why = await Vllm().reset(session, url)
    assert not done
    assert "requests still hold blocks" in why


async def test_a_reset_without_development_mode_says_how_to_get_one(fake_engine):
    session, url, _ = await fake_engine(dev_mode=False)
    done, why = await Vllm().reset(session, url)
    assert not done
    assert "VLLM_SERVER_DEV_MODE=1" in why


async def test_a_model_that_is_not_served_names_those_that_are(fake_engine):
    session, url, _ = await fake_engine(models=[{"id": "a"}, {"id": "b"}])
    adapter = await detect(url, session)
    assert (await adapter.probe(session, url, "b")).model == "b"
    assert (await adapter.probe(session, url)).models == ("a", "b")
    with pytest.raises(EngineError, match=r"does not serve the model 'c'; it serves a, b"):
        await adapter.probe(session, url, "c")


async def test_nothing_listens():
    url = f"http://127.0.0.1:{free_port()}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineError, match="nothing listens there") as caught:
            await detect(url, session)
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_server_that_wants_a_key(fake_engine):
    session, url, _ = await fake_engine(key="secret")
    with pytest.raises(EngineError, match="pass it as --api-key"):
        await External().probe(session, url)


async def test_a_server_that_is_no_model_server(fake_engine):
    session, url, _ = await fake_engine(models=[{"object": "model"}])
    with pytest.raises(EngineError, match="no OpenAI-compatible server"):
        await External().probe(session, url)


async def test_an_empty_list_of_models_is_told_as_one(fake_engine):
    session, url, _ = await fake_engine(models=[])
    with pytest.raises(EngineError) as error:
        await External().probe(session, url)
    said = "the server's list of models is empty; load one, or wait until it has loaded"
    assert str(error.value) == f"{url}/v1/models: {said}"


@pytest.mark.parametrize(
    ("body", "damage"),
    [
        (b'{"data":[{"id":"m","max_model_len":NaN}]}', r"\(invalid character \(byte 35\)\); mend the server's answer$"),
        (b'{"data":[{"id":"m"', r"is no valid JSON \(Input data was truncated\); mend"),
        (b'{"data":' + b"[" * 100_000, r"is no valid JSON \(nested too deep\); mend"),
        (b"<html>Hello</html>", "no OpenAI-compatible server answers there"),
    ],
)
async def test_a_damaged_list_of_models_is_told_as_one(fake_engine, monkeypatch, body, damage):
    monkeypatch.setattr(FakeEngine, "_models", answering(body.decode()))
    session, url, _ = await fake_engine()
    with pytest.raises(EngineError, match=damage):
        await External().probe(session, url)


async def test_a_byte_order_mark_before_a_list_of_models_is_no_damage(fake_engine, monkeypatch):
    monkeypatch.setattr(FakeEngine, "_models", answering('\ufeff{"data":[{"id":"m"}]}'))
    session, url, _ = await fake_engine()
    assert (await External().probe(session, url)).model == "m"


async def test_names_of_models_are_shortened_in_a_message(fake_engine):
    session, url, _ = await fake_engine(models=[{"id": "q" * 200_000}])
    with pytest.raises(EngineError) as error:
        await External().probe(session, url, "w" * 100)
    names = f"the model '{'w' * 80}...'; it serves {'q' * 80}...: pass one"
    assert str(error.value) == f"{url} does not serve {names} of these as --model"


def test_hybrid_models_match_in_larger_units_than_a_block():
    assert (
        match_unit({"block_size": 16, "effective_attention_block_size": 528, "cache_hit_alignment_tokens": 8320})
        == 8320
    )
    assert match_unit({"block_size": "128", "cache_hit_alignment_tokens": None}) == 128
    assert match_unit({}) is None


PAGE = "vllm:num_requests_running 0\n%s\n"


def answering(text):
    async def answer(*_):
        return web.Response(text=text)

    return answer


@pytest.mark.parametrize("size", ["-16", "0", "\x1b[31m", "nan", "1e999", "9" * 40])
async def test_settings_that_cannot_be_are_not_reported(fake_engine, monkeypatch, size):
    told = f'vllm:cache_config_info{{block_size="{size}",num_gpu_blocks="{size}",enable_prefix_caching="x"}} 1'
    monkeypatch.setattr(FakeEngine, "_metrics", answering(PAGE % told))
    session, url, _ = await fake_engine(dev_mode=False, models=[{"id": "tiny", "max_model_len": -1}])
    found = await (await detect(url, session)).probe(session, url)
    assert isinstance(found, Resolved)
    assert (found.name, found.block_size, found.num_blocks, found.kv_tokens) == ("vllm", None, None, None)
    assert (found.max_model_len, found.prefix_caching, found.capabilities.metrics) == (None, None, True)


@pytest.mark.parametrize("line", ["vllm:cache_config_info{", 'vllm:cache_config_info{block_size="16"} one'])
async def test_a_damaged_line_of_settings_says_nothing(fake_engine, monkeypatch, line):
    monkeypatch.setattr(FakeEngine, "_metrics", answering(PAGE % line))
    session, url, _ = await fake_engine(dev_mode=False)
    found = await (await detect(url, session)).probe(session, url)
    assert (found.block_size, found.max_model_len, found.flags) == (None, 4096, {})


async def test_resolved_settings_that_cannot_be_are_not_reported_either(fake_engine):
    session, url, _ = await fake_engine(cache={"block_size": True, "num_gpu_blocks": 1e300})
    found = await (await detect(url, session)).probe(session, url)
    assert (found.block_size, found.num_blocks, found.capabilities.server_info) == (None, None, True)
    session, url, _ = await fake_engine(cache=[1])
    assert (await (await detect(url, session)).probe(session, url)).block_size == 128


@pytest.mark.parametrize("length", [0, -1, True, "lots", 1e308, 10**30])
async def test_a_length_that_no_model_has_is_not_reported(fake_engine, length):
    session, url, _ = await fake_engine(version=None, metrics=False, models=[{"id": "m", "max_model_len": length}])
    assert (await External().probe(session, url)).max_model_len is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "0", "1e300", "x"])
def test_a_gauge_that_is_no_count_is_not_reported(value):
    page = f'other 1\nsglang:page_size{{a="b"}} {value}\n'.encode()
    assert pages.whole(pages.gauge(page, "sglang:page_size")) is None
    assert pages.whole(pages.gauge(page.replace(value.encode(), b"64.0"), "sglang:page_size")) == 64


async def test_a_connection_that_was_kept_and_then_closed_is_opened_anew():
    """llama-server does so after a stream; a question of ours must not fail for it."""
    asked: list[bytes] = []

    async def serve(reader, writer):
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            asked.append(head.split(b" ")[0])
            if len(asked) == 2:  # the second question on the first connection
                break
            await reader.read(2)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    async with aiohttp.ClientSession() as session, server:
        assert (await fetch(session, url, {})).status == 200
        assert (await fetch(session, url, {})).status == 200
    assert asked == [b"POST"] * 3
