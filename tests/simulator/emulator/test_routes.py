"""The routes as a client sees them, against a real server on the loopback."""

import asyncio
import json
import time

import pytest

USER = [{"role": "user", "content": "Please read the file and say what it does.\n"}]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


async def test_a_chat_stream_has_the_shape_of_vllms(serve) -> None:
    engine = await serve()
    body = {"messages": USER, "max_tokens": 4, "ignore_eos": True, "return_token_ids": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    events = await engine.stream("/v1/chat/completions", body, **{"X-Request-Id": "run-7"})
    assert events[-1] == "[DONE]"
    role, *tokens, usage = events[:-1]
    assert {e["id"] for e in events[:-1]} == {"chatcmpl-run-7"}
    assert {e["object"] for e in events[:-1]} == {"chat.completion.chunk"}
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert role["choices"][0]["finish_reason"] is None
    prompt = len(role["prompt_token_ids"])
    assert role["usage"] == {
        "prompt_tokens": prompt,
        "total_tokens": prompt,
        "completion_tokens": 0,
        "completion_tokens_details": None,
    }
    assert [len(t["choices"][0]["token_ids"]) for t in tokens] == [1, 1, 1, 1]
    assert [t["usage"]["completion_tokens"] for t in tokens] == [1, 2, 3, 4]
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None, None, None, "length"]
    assert all(t["choices"][0]["delta"]["content"] for t in tokens)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_completions_stream_takes_and_gives_token_ids(serve) -> None:
    engine = await serve()
    ids = [5, 6, 7, 200_000]
    body = {"prompt": ids, "max_tokens": 3, "ignore_eos": True, "return_token_ids": True}
    events = await engine.stream("/v1/completions", body)
    choices = [e["choices"][0] for e in events[:-1]]
    assert [c["prompt_token_ids"] for c in choices] == [ids, None, None]
    assert [len(c["token_ids"]) for c in choices] == [1, 1, 1]
    assert [c["finish_reason"] for c in choices] == [None, None, "length"]
    assert all("usage" not in e for e in events[:-1])
    _, text = await engine.post("/detokenize", {"tokens": [i for c in choices for i in c["token_ids"]]})
    assert text["prompt"] == "".join(c["text"] for c in choices)


async def test_without_asking_no_ids_are_sent(serve) -> None:
    engine = await serve()
    events = await engine.stream("/v1/chat/completions", {"messages": USER, "max_tokens": 2, "ignore_eos": True})
    assert all(e["choices"][0].get("token_ids") is None for e in events[:-1])
    assert events[0]["prompt_token_ids"] is None


async def test_whole_answers_equal_streamed_ones(serve) -> None:
    engine = await serve()
    streamed = await engine.call(True, USER, 9)
    status, whole = await engine.post(
        "/v1/chat/completions", {"messages": USER, "max_tokens": 9, "ignore_eos": True, "return_token_ids": True}
    )
    assert status == 200
    choice = whole["choices"][0]
    assert choice["message"]["content"] == streamed["text"]
    assert choice["token_ids"] == streamed["ids"]
    assert whole["usage"]["prompt_tokens"] == streamed["usage"]["prompt_tokens"]
    status, whole = await engine.post("/v1/completions", {"prompt": "def main():\n", "max_tokens": 5})
    assert whole["usage"]["completion_tokens"] <= 5
    assert whole["object"] == "text_completion"


async def test_the_model_stops_by_itself_unless_told_not_to(serve) -> None:
    engine = await serve()
    body = {"prompt": "x", "max_tokens": 5000, "return_token_ids": True}
    _, answer = await engine.post("/v1/completions", body)
    assert answer["choices"][0]["finish_reason"] == "stop"
    length = answer["usage"]["completion_tokens"]
    assert length == len(answer["choices"][0]["token_ids"]) < 5000
    _, longer = await engine.post("/v1/completions", body | {"min_tokens": length + 50})
    assert longer["usage"]["completion_tokens"] >= length + 50


async def test_pinned_lengths_are_kept_exactly(serve) -> None:
    engine = await serve()
    lengths = [1, 2, 16, 17, 33]
    calls = [engine.call(bool(i % 2), USER if i % 2 else [i, i, i], n) for i, n in enumerate(lengths)]
    for call, length in zip(await asyncio.gather(*calls), lengths, strict=True):
        assert call["usage"]["completion_tokens"] == len(call["ids"]) == length
        assert call["finish"] == "length"


@pytest.mark.parametrize("chat", [True, False])
async def test_a_growing_conversation_hits_what_it_left(serve, chat: bool) -> None:
    engine = await serve("--block-size", "16")
    history = [{"role": "user", "content": "Start here.\n" * 20}] if chat else list(range(300))
    cached, prompts = [], []
    for _ in range(4):
        call = await engine.call(chat, history, 40)
        prompts.append(call["usage"]["prompt_tokens"])
        cached.append(call["usage"]["prompt_tokens_details"]["cached_tokens"])
        if chat:
            history = [*history, {"role": "assistant", "content": call["text"]}, *USER]
        else:
            history = [*history, *call["ids"], 7, 7, 7]
    assert cached[0] == 0
    # All known tokens but the last one were computed; their full blocks are there again. Generated text that comes
    # back in a chat is read as the same tokens, so it hits too.
    assert cached[1:] == [(prompt + 40 - 1) // 16 * 16 for prompt in prompts[:-1]]


async def test_salts_isolate_and_a_reset_forgets(serve) -> None:
    engine = await serve()
    prompt = list(range(200))
    seen = []
    for salt in (None, "one", "one", "two", None):
        call = await engine.call(False, prompt, 2, **({"cache_salt": salt} if salt else {}))
        seen.append(call["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert seen == [0, 0, 192, 0, 192]
    assert await engine.post("/reset_prefix_cache", {}) == (200, {"success": True})
    assert (await engine.call(False, prompt, 2))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_reset_fails_while_a_request_holds_blocks(serve) -> None:
    engine = await serve()
    running = asyncio.create_task(engine.call(False, [1, 2, 3], 400))
    while not (await engine.counters())["num_requests_running"]:
        await asyncio.sleep(0)
    assert await engine.post("/reset_prefix_cache", {}) == (200, {"success": False})
    assert await engine.post("/reset_prefix_cache?reset_running_requests=true", {}) == (200, {"success": True})
    call = await running
    assert call["usage"]["completion_tokens"] == len(call["ids"]) == 400


async def test_counters_equal_the_sums_of_usage_under_preemption(serve) -> None:
    # 60 blocks for 16 conversations of up to 300 tokens each: they push each other out.
    engine = await serve("--num-gpu-blocks-override", "60", "--max-model-len", "448", "--max-num-batched-tokens", "256")

    async def agent(index: int) -> list[dict]:
        calls, history = [], [*range(40), index]
        for _ in range(3):
            calls.append(await engine.call(False, history, 30 + index))
            history = [*history, *calls[-1]["ids"], index]
        return calls

    calls = [call for calls in await asyncio.gather(*map(agent, range(16))) for call in calls]
    usage = [call["usage"] for call in calls]
    totals = await engine.counters()
    prompt = sum(u["prompt_tokens"] for u in usage)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    completion = sum(u["completion_tokens"] for u in usage)
    assert totals["num_preemptions_total"] > 0
    assert totals["prompt_tokens_total"] == totals["prefix_cache_queries_total"] == prompt
    assert totals["prefix_cache_hits_total"] == totals["prompt_tokens_cached_total"] == cached > 0
    assert totals["generation_tokens_total"] == completion == sum(len(call["ids"]) for call in calls)
    assert totals["prompt_tokens_by_source_total"] == prompt
    assert totals["request_success_total"] == len(calls) == 48
    assert totals["time_to_first_token_seconds_count"] == 48
    assert totals["inter_token_latency_seconds_count"] == completion - 48
    assert totals["request_num_preemptions_sum"] == totals["num_preemptions_total"]
    assert totals["num_requests_running"] == totals["num_requests_waiting"] == totals["kv_cache_usage_perc"] == 0


async def test_a_client_that_goes_away_frees_its_blocks(serve) -> None:
    engine = await serve()
    running = asyncio.create_task(engine.call(False, list(range(100)), 5000))
    # Not before it has written something: a machine that is busy may take its first step later than the scrape.
    while not (await engine.counters())["generation_tokens_total"]:
        await asyncio.sleep(0)
    running.cancel()
    deadline = time.monotonic() + 5
    while (await engine.counters())["num_requests_running"] and time.monotonic() < deadline:
        await asyncio.sleep(0)
    totals = await engine.counters()
    assert totals["kv_cache_usage_perc"] == 0
    assert totals["generation_tokens_total"] > 0
    assert totals["request_success_total"] == totals["request_prompt_tokens_count"] == 0, "vLLM forgets it"


async def test_tokens_come_at_the_models_pace_and_never_before(serve) -> None:
    engine = await serve("--gpu", "h100", "--model", "llama-3.1-8b", "--max-model-len", "8k")
    begun = time.perf_counter()
    await engine.call(False, list(range(64)), 60)
    spent = time.perf_counter() - begun
    step = engine.engine.core.steptime.seconds(1, 1, 100)
    assert spent >= 60 * step * 0.98
    totals = await engine.counters()
    mean = totals["inter_token_latency_seconds_sum"] / totals["inter_token_latency_seconds_count"]
    assert mean == pytest.approx(step, rel=0.02)


async def test_tokenize_agrees_with_what_prompts_count(serve) -> None:
    engine = await serve()
    for body, call in (
        ({"messages": USER, "tools": TOOLS}, {"messages": USER, "tools": TOOLS, "tool_choice": "none"}),
        ({"messages": USER}, {"messages": USER}),
    ):
        _, tokenised = await engine.post("/tokenize", body | {"return_token_strs": True})
        _, answer = await engine.post("/v1/chat/completions", call | {"max_tokens": 1})
        assert tokenised["count"] == len(tokenised["tokens"]) == answer["usage"]["prompt_tokens"]
        assert "".join(tokenised["token_strs"]).endswith("<|im_start|>assistant\n")
        assert tokenised["max_model_len"] == 131_072
    _, tokenised = await engine.post("/tokenize", {"prompt": "def main():\n"})
    _, answer = await engine.post("/v1/completions", {"prompt": "def main():\n", "max_tokens": 1})
    assert tokenised["count"] == answer["usage"]["prompt_tokens"]
    assert tokenised["token_strs"] is None


REFUSED = [
    ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1, got 0."),
    ("/v1/completions", {"prompt": [1] * 70}, 400, "maximum context length is 64 tokens"),
    ("/v1/completions", {"prompt": [1] * 64}, 400, "max_tokens must be at least 1, got 0."),
    ("/v1/completions", {"prompt": [1], "max_tokens": 65}, 400, "cannot be greater than max_model_len=64"),
    (
        "/v1/completions",
        {"prompt": [1], "max_tokens": 5, "min_tokens": 6},
        400,
        "min_tokens must be less than or equal",
    ),
    ("/v1/completions", {"prompt": [1, -5]}, 400, "Token id -5 is out of vocabulary"),
    ("/v1/completions", {"prompt": []}, 400, "must be provided and non-empty"),
    ("/v1/completions", {"prompt": ["a", "b"]}, 400, "one prompt"),
    ("/v1/completions", {"prompt": "x", "n": 2}, 400, "does not model"),
    ("/v1/completions", {"prompt": "x", "cache_salt": ""}, 400, "cache_salt"),
    ("/v1/completions", {"prompt": "x", "model": "other"}, 404, "The model `other` does not exist."),
    ("/v1/chat/completions", {"messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"messages": USER, "tools": []}, 400, "`tools` must not be an empty array"),
    ("/v1/chat/completions", {"messages": USER, "tools": TOOLS}, 400, '"auto" tool choice requires'),
    (
        "/v1/chat/completions",
        {"messages": USER, "tools": TOOLS, "tool_choice": "required"},
        400,
        "requires --tool-call",
    ),
    ("/v1/chat/completions", {"messages": USER, "tool_choice": "auto"}, 400, "`tools` must be set"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": 3}]}, 400, "Invalid message"),
    ("/tokenize", {}, 400, "Either `prompt` or `messages`"),
    ("/v1/embeddings", {}, 404, "Not Found"),
]


async def test_refusals_are_those_of_vllm(serve) -> None:
    engine = await serve("--max-model-len", "64")
    for path, body, status, message in REFUSED:
        got, answer = await engine.post(path, body)
        assert got == status, (path, body, answer)
        assert message in answer["error"]["message"]
        assert answer["error"]["code"] == status
    async with engine.session.post(engine.url("/v1/completions"), data=b"{not json") as response:
        assert response.status == 400


async def test_max_tokens_are_clamped_to_what_the_context_leaves(serve) -> None:
    engine = await serve("--max-model-len", "64")
    _, answer = await engine.post("/v1/completions", {"prompt": [1] * 60, "max_tokens": 30, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 4


async def test_tools_are_allowed_where_the_parser_is_switched_on(serve) -> None:
    engine = await serve("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    status, _ = await engine.post("/v1/chat/completions", {"messages": USER, "tools": TOOLS, "max_tokens": 1})
    assert status == 200


async def test_a_large_prompt_is_taken(serve) -> None:
    engine = await serve()
    text = "    return open(path).read()  # a line of code\n" * 8000
    assert len(text) > 350_000
    call = await engine.call(True, [{"role": "user", "content": text}], 2)
    assert 60_000 < call["usage"]["prompt_tokens"] < 131_000


async def test_what_describes_the_engine(serve) -> None:
    engine = await serve(
        *("--model", "llama-3.1-8b", "--num-gpu-blocks-override", "9000", "--served-model-name", "m"),
        *("--dtype", "auto"),
    )
    assert (await engine.get("/version"))[1]["version"] == "0.32.0+windtunnel.emulator"
    _, models = await engine.get("/v1/models")
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [("m", 131_072)]
    _, info = await engine.get("/server_info?config_format=json")
    cache = info["vllm_config"]["cache_config"]
    assert (cache["num_gpu_blocks"], cache["block_size"], cache["kv_cache_size_tokens"]) == (9000, 16, 144_000)
    assert info["emulator"]["emulated"] is True
    assert info["emulator"]["calibrated"] is False
    assert info["emulator"]["error_bar"] == 0.2
    assert {row["name"] for row in info["emulator"]["assumptions"]} >= {"cpu_step_ms", "piecewise_layer_us"}
    assert info["emulator"]["ignored_flags"] == ["--dtype auto"]
    for path in ("/health", "/ping"):
        assert (await engine.get(path))[0] == 200
    assert await engine.get("/load") == (200, {"server_load": 0})
    _, page = await engine.get("/metrics")
    assert 'num_gpu_blocks="9000"' in page
    _, text = await engine.get("/server_info")
    assert isinstance(text["vllm_config"], str)


async def test_the_page_is_what_prometheus_parses(serve) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    engine = await serve()
    await engine.call(False, [1, 2, 3], 5)
    _, page = await engine.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(page)}
    for name in [
        "num_requests_running",
        "num_requests_waiting",
        "num_requests_waiting_by_reason",
        "kv_cache_usage_perc",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "num_preemptions",
        "prompt_tokens",
        "prompt_tokens_by_source",
        "prompt_tokens_cached",
        "generation_tokens",
        "request_success",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_kv_computed_tokens",
        "iteration_tokens_total",
        "cache_config_info",
    ]:
        assert f"vllm:{name}" in families, name
    assert all(s.labels["model_name"] == "gpt-oss-20b" for s in families["vllm:generation_tokens"].samples)
    assert families["windtunnel:step_late_seconds"].samples[0].value < 1
    buckets = [s.value for s in families["vllm:inter_token_latency_seconds"].samples if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4


async def test_without_details_cached_tokens_are_not_reported(serve) -> None:
    engine = await serve("--no-enable-prompt-tokens-details")
    call = await engine.call(True, USER, 2)
    assert "prompt_tokens_details" not in call["usage"]


async def test_odd_text_survives_json(serve) -> None:
    engine = await serve()
    call = await engine.call(True, [{"role": "user", "content": 'quo"te \\ \u2028 \x07 é 🎉'}], 30)
    assert json.loads(json.dumps(call["text"])) == call["text"]


@pytest.mark.parametrize(("chat", "prompt"), [(True, USER), (False, list(range(300, 5300)))])
async def test_queue_and_first_token_of_a_call_are_told_beside_its_usage(serve, chat: bool, prompt: object) -> None:
    engine = await serve()
    path = "/v1/chat/completions" if chat else "/v1/completions"
    body = {"max_tokens": 6, "ignore_eos": True, "messages" if chat else "prompt": prompt}
    events = await engine.stream(path, body | {"stream_options": {"include_usage": True}})
    assert [event for event in events[:-2] if "metrics" in event] == []
    told = events[-2]["metrics"]
    assert told["queue_time_ms"] == 0
    assert told["mean_itl_ms"] == pytest.approx(told["generation_time_ms"] / 5)
    lasted = told["time_to_first_token_ms"] + told["generation_time_ms"]
    assert told["tokens_per_second"] == pytest.approx(6000 / lasted)
    page = await engine.counters()
    assert page["request_prefill_time_seconds_sum"] == pytest.approx(told["time_to_first_token_ms"] / 1e3)
    # Its way to the scheduler is in the time to first token of the metrics page, and in neither of the two here.
    front = page["time_to_first_token_seconds_sum"] - told["time_to_first_token_ms"] / 1e3
    assert front > engine.engine.front(page["prompt_tokens_total"]) / 1e9 > 0


async def test_without_them_they_are_not(serve) -> None:
    engine = await serve("--no-enable-per-request-metrics")
    events = await engine.stream(
        "/v1/chat/completions", {"max_tokens": 2, "messages": USER, "stream_options": {"include_usage": True}}
    )
    assert "metrics" not in events[-2]
    assert events[-2]["usage"]["completion_tokens"] >= 1
