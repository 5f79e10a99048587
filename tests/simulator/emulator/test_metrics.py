"""The metrics page against vLLM's: every family that a text-only vLLM 0.32.0 shows, with its labels, is there."""

import re

import pytest

from windtunnel.simulator.emulator.flags import VLLM_VERSION

VLLM = {
    "0.32.0": """
estimated_flops_per_gpu estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu
num_requests_running num_requests_waiting num_requests_waiting_by_reason{reason} engine_sleep_state{sleep_state}
kv_cache_usage_perc prefix_cache_queries prefix_cache_hits external_prefix_cache_queries external_prefix_cache_hits
mm_cache_queries mm_cache_hits num_preemptions prompt_tokens prompt_tokens_by_source{source} prompt_tokens_cached
prompt_tokens_cached_by_source{source} generation_tokens request_success{finished_reason} admission_rejections{reason}
request_prompt_tokens request_generation_tokens iteration_tokens_total request_max_num_generation_tokens
request_params_n request_params_max_tokens time_to_first_token_seconds inter_token_latency_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds request_num_preemptions
request_prefill_kv_computed_tokens cache_config_info
"""
}
"""Families of the page of a real server on a CPU with default flags; those of Python, of its web server and `_created`
ones are no facts about the engine."""
SPECULATION = {
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
}
PARSER = {"tool_call_parser_invocations"}
WITH_FLAGS_NOT_MODELLED = {
    "corrupted_requests",
    "kv_block_idle_before_evict_seconds",
    "kv_block_lifetime_seconds",
    "kv_block_reuse_gap_seconds",
    "lora_requests_info",
}
"""Of the same source (v1/metrics/loggers.py), shown with flags that the emulator accepts and does not model."""


async def families(engine) -> dict[str, set[str]]:
    """Family to the names of its labels beside the two that all have."""
    _, page = await engine.get("/metrics")
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^vllm:(\w+?)(?:_bucket|_count|_sum)?\{([^}]*)\} ", page, re.MULTILINE):
        keys = set(re.findall(r'(\w+)="', labels)) - {"engine", "model_name", "le"}
        found.setdefault(name if name == "iteration_tokens_total" else name.removesuffix("_total"), set()).update(keys)
    return found


async def test_every_family_of_a_real_page_is_there_and_no_other(serve) -> None:
    shown = await families(await serve())
    real = {name: set(filter(None, keys.split(","))) for name, keys in _listed(VLLM[VLLM_VERSION])}
    assert set(shown) == set(real)
    assert {n: k for n, k in shown.items() if n != "cache_config_info"} == {
        n: k for n, k in real.items() if n != "cache_config_info"
    }
    assert {"block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching"} <= shown["cache_config_info"]
    assert not WITH_FLAGS_NOT_MODELLED & set(shown)


def _listed(text: str) -> list[tuple[str, str]]:
    return [(name, keys) for name, keys in re.findall(r"(\w+)(?:\{([^}]*)\})?", text)]


async def test_what_a_flag_brings_is_there_with_it(serve) -> None:
    plain = set(await families(await serve()))
    engine = await serve("--speculative-config", '{"method":"ngram","num_speculative_tokens":3}')
    shown = await families(engine)
    assert set(shown) - plain == SPECULATION
    assert shown["spec_decode_num_accepted_tokens_per_pos"] == {"position"}
    engine = await serve("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    shown = await families(engine)
    assert set(shown) - plain == PARSER
    assert shown["tool_call_parser_invocations"] == {"mode", "outcome", "request_type"}


async def test_the_parser_counts_its_looks(serve) -> None:
    engine = await serve("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    user = [{"role": "user", "content": "x"}]
    await engine.call(True, user, 7)
    await engine.post("/v1/chat/completions", {"messages": user, "max_tokens": 5})
    await engine.post("/v1/completions", {"prompt": "x", "max_tokens": 5})
    _, page = await engine.get("/metrics")
    assert 'mode="streaming",outcome="no_tool_call",request_type="chat_completions"} 7.0' in page
    assert 'mode="non_streaming",outcome="no_tool_call",request_type="chat_completions"} 1.0' in page


async def test_an_iteration_is_what_was_computed_and_generated(serve) -> None:
    engine = await serve()
    for _ in range(2):
        await engine.call(False, list(range(100)), 10)
    totals = await engine.counters()
    assert totals["iteration_tokens_total_count"] == 20
    assert totals["iteration_tokens_total_sum"] == 100 + (100 - 96) + 20
    assert totals["request_max_num_generation_tokens_sum"] == totals["request_generation_tokens_sum"] == 20
    assert totals["request_params_n_sum"] == 2


async def test_lateness_stands_beside_the_length_of_steps(serve) -> None:
    engine = await serve()
    before = engine.engine.now()
    await engine.call(False, [1, 2, 3], 50)
    _, page = await engine.get("/metrics")
    values = {name: float(value) for name, value in re.findall(r"^windtunnel:(\w+) (\S+)$", page, re.MULTILINE)}
    steps = values["step_seconds_total"]
    assert 50 * engine.engine.core.steptime.seconds(1, 1, 1) * 0.9 < steps < (engine.engine.now() - before) / 1e9
    assert values["step_behind_seconds_total"] >= 0
    assert values["step_late_seconds"] > 0


def test_a_machine_that_is_too_slow_is_counted_late() -> None:
    """A clock that jumps: every step is handed out 40 ms after its end."""
    from windtunnel.simulator.emulator.build import core_of
    from windtunnel.simulator.emulator.engine import TICK_NS, Engine
    from windtunnel.simulator.emulator.flags import parse
    from windtunnel.simulator.emulator.metrics import Metrics
    from windtunnel.simulator.emulator.request import Request
    from windtunnel.simulator.emulator.script import Words

    class Loop:
        """Timers are asked for and fired by hand."""

        def __init__(self) -> None:
            self.due = []

        def call_later(self, delay, call):
            self.due.append(call)

    import numpy as np

    clock, loop = [0], Loop()
    core = core_of(parse(["--gpu", "b200", "--model", "llama-3.1-8b"]))
    engine = Engine(core, Metrics(core.scheduler, "m", {}), lambda: clock[0], loop)
    prompt = np.arange(5, dtype=np.uint32)
    engine.submit(Request("r", prompt, Words(prompt, 0), 4, block_size=16), lambda output: None)
    steps = 0
    while core.due is not None:
        clock[0] = core.due + 40_000_000
        loop.due.pop()()
        steps += 1
    assert engine.late_ns == 40_000_000
    assert engine.behind_ns == steps * (40_000_000 - TICK_NS)
    assert engine.behind_ns > engine.steps_ns


@pytest.mark.parametrize("mode", ["1", None])
async def test_what_vllm_shows_to_developers_can_be_taken_away(serve, monkeypatch, mode) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "0")
    assert (await (await serve()).get("/server_info"))[0] == 404
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", mode) if mode else monkeypatch.delenv("VLLM_SERVER_DEV_MODE")
    assert (await (await serve()).get("/server_info"))[0] == 200


async def test_speculation_counts_its_drafts_and_every_token(serve) -> None:
    config = '{"method":"ngram","num_speculative_tokens":3,"rejection_sample_method":"synthetic","synthetic_acceptance_length":2.5}'
    engine = await serve("--model", "llama-3.1-8b", "--max-model-len", "8k", "--speculative-config", config)
    call = await engine.call(True, [{"role": "user", "content": "x"}], 200)
    assert len(call["ids"]) == call["usage"]["completion_tokens"] == 200
    totals = await engine.counters()
    assert totals["generation_tokens_total"] == 200
    drafts, accepted = totals["spec_decode_num_drafts_total"], totals["spec_decode_num_accepted_tokens_total"]
    assert totals["spec_decode_num_draft_tokens_total"] == pytest.approx(3 * drafts, abs=3)
    assert 1 + accepted / drafts == pytest.approx(2.5, abs=0.4)
    assert totals["spec_decode_num_accepted_tokens_per_pos_total"] == accepted
    assert totals["inter_token_latency_seconds_count"] < 120, "one for each output, which may be several tokens"
    plain = await serve("--model", "llama-3.1-8b", "--max-model-len", "8k")
    assert (await plain.call(True, [{"role": "user", "content": "x"}], 200))["ids"] == call["ids"]


async def test_what_host_memory_had_is_told_apart_from_the_gpus_cache(serve) -> None:
    # 40 blocks: the second prompt takes those of the first, which host memory still has.
    flags = ("--model", "llama-3.1-8b", "--num-gpu-blocks-override", "40", "--max-model-len", "600")
    engine = await serve(*flags, "--kv-offloading-size", "8")
    first, second = list(range(500)), list(range(1000, 1500))
    for prompt in (first, second, first):
        call = await engine.call(False, prompt, 2)
    hit = call["usage"]["prompt_tokens_details"]["cached_tokens"]
    totals = await engine.counters()
    loaded = totals["external_prefix_cache_hits_total"]
    assert 0 < loaded < totals["prompt_tokens_cached_total"] == hit > 400
    assert totals["external_prefix_cache_queries_total"] == 1500 - (hit - loaded)
    _, page = await engine.get("/metrics")
    told = {source: float(n) for source, n in re.findall(r'source="(\w+)"\} (\S+)$', page, re.MULTILINE)}
    assert told["external_kv_transfer"] == told["host"] == loaded
    assert told["local_cache_hit"] == told["device"] == hit - loaded
    assert told["local_compute"] == 1500 - hit
