"""Engines that do not run here, against answers written from their sources: recognised, read, reset, named, and what
they lack is null."""

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from windtunnel.simulator.engines import signatures
from windtunnel.simulator.engines.base import detect
from windtunnel.simulator.engines.coldstart import Watch
from windtunnel.simulator.engines.llamacpp import LlamaCpp
from windtunnel.simulator.run.scrape import Scraper, names_on, read_page
from windtunnel.traces.errors import EngineError

from .constructed import ENGINES, Server, load


@pytest.fixture
async def served():
    """Call with an engine's name or an application: -> (session, url)."""
    servers = []
    async with aiohttp.ClientSession() as session:

        async def start(what):
            server = TestServer(what if isinstance(what, web.Application) else what.app())
            await server.start_server()
            servers.append(server)
            return session, str(server.make_url("/")).rstrip("/")

        yield start
        for server in servers:
            await server.close()


async def probed(served, engine):
    session, url = await served(Server(engine))
    adapter = await detect(url, session)
    return adapter, await adapter.probe(session, url)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_transcript_says_that_it_is_constructed_and_from_where(engine):
    told = load(engine)
    assert told["constructed"] is True
    lines = [line for part in (*told["page"], *told.get("log", [])) for line in part["lines"]]
    assert lines
    assert all(len(line) == 2 and ".py" in line[1] + ".py" * (".cpp:" in line[1]) for line in lines)
    assert all(answer["source"] for answer in told["answer"])


@pytest.mark.parametrize("engine", ENGINES)
async def test_it_is_recognised_by_what_it_answers(served, engine):
    session, url = await served(Server(engine))
    assert (await detect(url, session)).name == engine


async def test_sglang_is_known_without_its_metrics_by_the_owner_of_its_models(served):
    server = Server("sglang")
    server.transcript["page"] = []
    session, url = await served(server)
    adapter = await detect(url, session)
    assert adapter.name == "sglang"
    assert not (await adapter.probe(session, url)).capabilities.metrics


async def test_sglang_as_it_stands(served):
    _, found = await probed(served, "sglang")
    assert (found.version, found.model, found.max_model_len) == ("0.5.23", "tiny", 32768)
    assert (found.block_size, found.kv_tokens, found.num_blocks, found.prefix_caching) == (64, 131072, 2048, True)
    assert (found.speculation, found.speculative_tokens) == ("eagle", 3)
    seen = found.capabilities
    assert seen.reset
    assert seen.metrics
    assert seen.server_info
    assert seen.ignore_eos
    assert seen.cache_salt
    assert seen.return_token_ids
    assert seen.prompt_token_details
    assert found.flags["server_args.chunked_prefill_size"] == 8192


async def test_settings_of_one_configuration_are_equal_whenever_it_was_started(served):
    """Ports, seeds and times differ between the two."""
    for engine in ("sglang", "llama.cpp"):
        session, url = await served(Server(engine))
        adapter = await detect(url, session)
        one, other = [await adapter.probe(session, url) for _ in range(2)]
        assert one.flags == other.flags
        assert one.flags
        assert not any("seed" in name or "port" in name or "key" in name for name in one.flags)


async def test_tensorrt_llm_as_it_stands(served):
    """It refuses fields that it does not know, and heeds the others."""
    _, found = await probed(served, "tensorrt-llm")
    assert (found.version, found.block_size, found.kv_tokens, found.num_blocks) == ("1.2.1", 32, 131072, 4096)
    assert (found.prefix_caching, found.speculation, found.max_model_len) == (True, "MTP", None)
    seen = found.capabilities
    assert seen.token_prompts
    assert seen.ignore_eos
    assert seen.continuous_usage
    assert seen.prompt_token_details
    assert seen.metrics
    assert not seen.reset
    assert not seen.cache_salt
    assert not seen.return_token_ids
    assert found.flags["parallel_config.tp_size"] == "2"


async def test_llama_cpp_as_it_stands(served):
    _, found = await probed(served, "llama.cpp")
    assert (found.version, found.max_model_len, found.kv_tokens, found.block_size) == ("b11434-abc", 2048, 4096, 1)
    assert found.capabilities.ignore_eos
    assert found.capabilities.metrics
    assert not found.capabilities.cache_salt
    assert not found.capabilities.reset
    assert found.flags["props.total_slots"] == 2


async def test_a_build_of_llama_cpp_that_takes_ignore_eos_and_stops_is_found_out(served):
    server = Server("llama.cpp")
    server.stops_after = 3
    session, url = await served(server)
    assert not (await LlamaCpp().probe(session, url)).capabilities.ignore_eos


async def test_dynamo_as_it_stands(served):
    _, found = await probed(served, "dynamo")
    assert (found.max_model_len, found.block_size, found.kv_tokens, found.version) == (32768, 16, 131072, None)
    assert (found.prefix_caching, found.speculation) == (None, None)
    assert found.capabilities.metrics
    assert not found.capabilities.prompt_token_details
    assert found.flags["frontend.model_max_num_seqs"] == 256


SAMPLES = {
    "sglang": {
        "running": 3,
        "waiting": 2,
        "kv_usage": 0.5,
        "preemptions": 4,
        "prompt_tokens": 1000,
        "prefix_queries": 1000,
        "prefix_hits": 700,
        "generation_tokens": 200,
        "requests_finished": 10,
        "cache_hit_rate": 0.75,
        "spec_accept_length": 2.5,
        "spec_drafts": None,
        "spec_accepted": None,
    },
    "tensorrt-llm": {
        "running": 3,
        "waiting": 2,
        "kv_usage": 0.5,
        "preemptions": None,
        "prompt_tokens": 1000,
        "prefix_hits": 700,
        "generation_tokens": 200,
        "requests_finished": 10,
        "cache_hit_rate": 0.75,
        "spec_drafts": None,
        "spec_draft_tokens": 90,
        "spec_accepted": 45,
        "spec_accept_length": 2.5,
    },
    "llama.cpp": {
        "running": 3,
        "waiting": 2,
        "kv_usage": None,
        "preemptions": None,
        "prompt_tokens": 1000,
        "prefix_queries": 1000,
        "prefix_hits": 700,
        "generation_tokens": 200,
        "requests_finished": None,
        "spec_drafts": 30,
        "spec_draft_tokens": 90,
        "spec_accepted": 45,
    },
    "dynamo": {
        "running": 5,
        "waiting": None,
        "kv_usage": None,
        "preemptions": None,
        "prompt_tokens": 1000,
        "prefix_hits": 700,
        "generation_tokens": 200,
        "requests_finished": 10,
        "spec_drafts": None,
    },
}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_sample_has_what_the_engine_tells_and_null_for_the_rest(served, engine):
    server = Server(engine)
    session, url = await served(server)
    adapter = await detect(url, session)
    server.asked.clear()
    sample = await Scraper(session, url, adapter.metric_names, path=adapter.metrics_path).once(7)
    assert {name: getattr(sample, name) for name in SAMPLES[engine]} == SAMPLES[engine]
    assert sample.apart is None
    assert server.asked == [f"GET {adapter.metrics_path}"]  # TensorRT-LLM's other page is emptied by reading it


async def test_replicas_are_summed_and_kept_apart(served):
    one, other = Server("sglang"), Server("sglang")
    other.transcript["page"][0]["lines"] = [
        ('sglang:num_running_reqs{tp_rank="0"} 1.0', ""),
        ('sglang:token_usage{tp_rank="0"} 0.1', ""),
    ]
    session, url = await served(one)
    _, second = await served(other)
    urls = (f"{url}/metrics", f"{second}/metrics")
    scraper = Scraper(session, "http://balancer", await names_on(session, urls), urls=urls)
    sample = await scraper.once(0)
    assert (sample.running, sample.waiting, sample.kv_usage, sample.prompt_tokens) == (4, 2, 0.3, 1000)
    apart = {url.partition("://")[2]: (3, 0.5), second.partition("://")[2]: (1, 0.1)}
    assert {name: (v["running"], v["kv_usage"]) for name, v in sample.apart.items()} == apart


async def test_a_replica_that_does_not_answer_makes_no_sample_that_lacks_it(served):
    session, url = await served(Server("sglang"))
    empty, dead = await served(web.Application())
    scraper = Scraper(empty, url, {"sglang:num_running_reqs": "running"}, urls=(f"{url}/metrics", f"{dead}/metrics"))
    assert await scraper.once(0) is None
    assert f"{dead}/metrics: HTTP 404" in scraper.failed
    with pytest.raises(EngineError, match="HTTP 404"):
        await names_on(session, (f"{dead}/metrics",))
    with pytest.raises(EngineError, match="no metrics of an engine that is known"):
        await names_on(session, (f"{url}/v1/models",))


async def test_data_parallel_engines_of_one_page_are_kept_apart(served):
    app = web.Application()
    page = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 5.0\n'

    async def metrics(_):
        return web.Response(text=page)

    app.router.add_get("/metrics", metrics)
    session, url = await served(app)
    sample = await Scraper(session, url, {"vllm:num_requests_running": "running"}).once(0)
    host = url.partition("://")[2]
    assert sample.running == 7
    assert sample.apart == {f"{host} 0": {"running": 2.0}, f"{host} 1": {"running": 5.0}}


@pytest.mark.parametrize("suffix", ["", "_total"])
def test_counters_are_known_with_and_without_total(suffix):
    page = f'sglang:cached_tokens{suffix}{{cache_source="device"}} 5.0\n'.encode()
    assert read_page(page, {"sglang:cached_tokens": "prefix_hits"}) == {"prefix_hits": 5.0}


async def test_sglang_flushes_and_its_body_says_so(served):
    server = Server("sglang")
    session, url = await served(server)
    adapter = await detect(url, session)
    assert await adapter.reset(session, url) == (True, "radix cache flushed, host tier included")
    server.answers["POST /flush_cache"] = {"status": 400, "body": "Flush cache failed.\n", "type": "text/plain"}
    done, why = await adapter.reset(session, url)
    assert not done
    assert "HTTP 400: Flush cache failed." in why


async def test_sglangs_storage_backend_is_cleared_too_or_the_reset_did_not_happen(served):
    server = Server("sglang")
    info = server.answers["GET /server_info"]
    info["body"] = info["body"].replace('"hicache_storage_backend": null', '"hicache_storage_backend": "file"')
    cleared = "POST /hicache/storage-backend/clear"
    server.answers[cleared] = {"route": cleared, "body": "Hierarchical cache storage backend cleared.\n"}
    session, url = await served(server)
    adapter = await detect(url, session)
    assert await adapter.reset(session, url) == (True, "radix cache flushed, host tier and storage backend included")
    assert server.asked[-1] == cleared
    server.answers[cleared]["status"] = 400
    done, why = await adapter.reset(session, url)
    assert not done
    assert "kept what is in its storage backend" in why


@pytest.mark.parametrize(
    ("engine", "says"), [("tensorrt-llm", "only when it is started again"), ("dynamo", "no route")]
)
async def test_an_engine_without_a_reset_says_so(served, engine, says):
    session, url = await served(Server(engine))
    done, why = await (await detect(url, session)).reset(session, url)
    assert not done
    assert says in why


class Slots:
    """llama-server's slots and its cache in memory, after server-context.cpp:1755 and :2865."""

    def __init__(self, slots, *, saves, cache_ram):
        self.saves, self.cache_ram = saves, cache_ram
        self.slots = [None] * slots
        self.memory = set()
        self.turn = 0

    def app(self):
        app = web.Application()
        app.router.add_get("/props", self._props)
        app.router.add_post("/slots/{slot}", self._act)
        app.router.add_post("/completion", self._complete)
        return app

    async def _props(self, _):
        return web.json_response({"total_slots": len(self.slots)})

    async def _act(self, request):
        if not self.saves:
            return web.json_response({"error": {"message": "Start it with `--slot-save-path`"}}, status=501)
        if request.query["action"] != "erase":
            return web.json_response({"error": {"message": "Invalid action"}}, status=400)
        self.slots[int(request.match_info["slot"])] = None
        return web.json_response({"id_slot": 0, "n_erased": 12})

    async def _complete(self, request):
        prompt = (await request.json())["prompt"]
        at = self.turn = (self.turn + 1) % len(self.slots)
        if self.cache_ram and self.slots[at]:
            self.memory.add(self.slots[at])
        known = prompt in self.slots or prompt in self.memory
        self.slots[at] = prompt
        return web.json_response({"timings": {"cache_n": 90 if known else 0}})


@pytest.mark.parametrize(
    ("saves", "cache_ram", "done", "says"),
    [
        (True, False, True, "2 slots erased"),
        (True, True, False, "--cache-ram 0"),
        (False, False, False, "--slot-save-path DIR"),
    ],
)
async def test_llama_cpps_slots_are_erased_and_its_cache_in_memory_is_found(served, saves, cache_ram, done, says):
    slots = Slots(2, saves=saves, cache_ram=cache_ram)
    session, url = await served(slots)
    assert await LlamaCpp()._can_reset(session, url) is saves
    found, why = await LlamaCpp().reset(session, url)
    assert found is done
    assert says in why
    if done:
        assert slots.slots == [None, None]


@pytest.mark.parametrize(
    ("engine", "phases", "told"),
    [
        ("sglang", {"start_s": 1, "load_s": 2, "capture_s": 4, "ready_s": 3}, {"load": 12.5, "capture": 5.25}),
        ("tensorrt-llm", {"start_s": 1, "load_s": 1, "compile_s": 2, "capture_s": 2}, {}),
        ("llama.cpp", {"start_s": 1, "load_s": 1, "ready_s": 2}, {}),
    ],
)
def test_a_cold_start_by_phase(engine, phases, told):
    """One line a second, and a second and one more until it serves."""
    [log] = [part for part in load(engine)["log"] if part["what"] == "start"]
    watch = Watch()
    for number, (line, _) in enumerate(log["lines"], start=1):
        watch.look([line], float(number))
    found = watch.done(len(log["lines"]) + 2.0)
    names = ("start_s", "load_s", "compile_s", "capture_s", "ready_s")
    assert {name: getattr(found, name) for name in names if getattr(found, name) is not None} == phases
    assert sum(phases.values()) == found.total_s
    assert found.told == told


FAILURES = [
    (engine, line, part["says"])
    for engine in ENGINES
    for part in load(engine).get("log", [])
    if part["what"] == "failure"
    for line, _ in part["lines"]
]


@pytest.mark.parametrize(("engine", "line", "says"), FAILURES)
def test_a_failure_becomes_one_sentence(engine, line, says):
    assert signatures.reason(f"{engine} starts\n{line}\n", 1) == says
