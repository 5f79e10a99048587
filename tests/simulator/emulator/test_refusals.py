"""What a client is refused: values out of their range, prompts that can never be scheduled, closed endpoints."""

import asyncio
from typing import Any

import pytest

USER = [{"role": "user", "content": "Please read the file and say what it does.\n"}]
CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"


# Values that vLLM refuses.


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"temperature": -1}, "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"),
        ({"temperature": 2.5}, "temperature must be in [0, 2], got 2.5. (parameter=temperature, value=2.5)"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0."),
        ({"top_p": 1.5}, "top_p must be in (0, 1], got 1.5."),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2."),
        ({"min_p": 1.5}, "min_p must be in [0, 1], got 1.5."),
        ({"presence_penalty": 3}, "presence_penalty must be in [-2, 2], got 3.0."),
        ({"frequency_penalty": -2.5}, "frequency_penalty must be in [-2, 2], got -2.5."),
        ({"repetition_penalty": 0}, "repetition_penalty must be greater than zero, got 0.0."),
        ({"min_tokens": 9}, "min_tokens must be less than or equal to max_tokens=4, got 9."),
        ({"n": 0}, "n must be at least 1, got 0."),
        ({"n": 2}, "The emulator does not model `n` above 1."),
        ({"stop": ""}, "stop cannot contain an empty string."),
        ({"stop": ["a", ""]}, "stop cannot contain an empty string."),
        ({"stop_token_ids": [-1, 5]}, "token_id(s) [-1] in stop_token_ids contain out-of-vocab token ids."),
        ({"prompt_logprobs": 1}, "The emulator does not model `prompt_logprobs`."),
        ({"use_beam_search": True}, "The emulator does not model `use_beam_search`."),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0."),
        ({"echo": True}, "The emulator does not model `echo`."),
        ({"stop": ["a", "b", "c", "d", "e"]}, "List should have at most 4 items after validation, not 5"),
        ({"seed": 2**63}, "Input should be less than or equal to 9223372036854775807"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_values_that_vllm_refuses(serve, path: str, more: dict[str, Any], words: str) -> None:
    engine = await serve()
    prompt = {"messages": USER} if path == CHAT else {"prompt": "hello"}
    status, body = await engine.post(path, prompt | {"max_tokens": 4} | more)
    assert status == 400
    assert words in body["error"]["message"]


async def test_values_that_mean_nothing_are_taken(serve) -> None:
    engine = await serve()
    plain = {"temperature": 0, "top_p": 1, "top_k": -1, "presence_penalty": 2, "stop": [], "n": 1, "min_p": 0}
    unsaid = dict.fromkeys((*plain, "repetition_penalty", "stop_token_ids", "logprobs", "prompt_logprobs"))
    for path, prompt in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "hello"})):
        for more in (plain, unsaid, {"top_k": 20.0, "temperature": 2}):
            status, _ = await engine.post(path, prompt | {"max_tokens": 4} | more)
            assert status == 200


async def test_options_of_a_stream_need_a_stream(serve) -> None:
    engine = await serve()
    for path, prompt in ((CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "hello"})):
        ask = prompt | {"max_tokens": 4, "stream_options": {"include_usage": True}}
        status, answer = await engine.post(path, ask)
        assert status == 400
        assert answer["error"]["param"] == "stream_options"
        assert "Stream options can only be defined when `stream=True`" in answer["error"]["message"]
        assert (await engine.post(path, ask | {"stream_options": {}}))[0] == 200
    anthropic = {"model": "m", "messages": USER, "max_tokens": 4}
    assert (await engine.post("/v1/messages", anthropic))[0] != 400


async def test_logprobs_are_refused_in_each_routes_way(serve) -> None:
    engine = await serve()
    chat, text = {"messages": USER, "max_tokens": 4}, {"prompt": "hello", "max_tokens": 4}
    refused = [
        (CHAT, chat | {"logprobs": False, "top_logprobs": 2}, "when using `top_logprobs`, `logprobs` must be set to"),
        (CHAT, chat | {"top_logprobs": -2}, "`top_logprobs` must be a positive value or -1."),
        (CHAT, chat | {"logprobs": True}, "The emulator does not model `logprobs`."),
        (COMPLETIONS, text | {"logprobs": 0}, "The emulator does not model `logprobs`."),
        (COMPLETIONS, text | {"logprobs": -2}, "`logprobs` must be a positive value or -1."),
    ]
    for path, body, words in refused:
        status, answer = await engine.post(path, body)
        assert status == 400
        assert words in answer["error"]["message"]
    assert (await engine.post(CHAT, chat | {"logprobs": False, "top_logprobs": 0}))[0] == 200
    body = {"input": "x", "max_output_tokens": 4}
    assert (await engine.post(RESPONSES, body | {"include": ["message.output_text.logprobs"]}))[0] == 400
    assert (await engine.post(RESPONSES, body | {"include": ["reasoning.encrypted_content"]}))[0] == 200


async def test_messages_and_responses_refuse_them_in_their_shape(serve) -> None:
    engine = await serve()
    body = {"model": "gpt-oss-20b", "messages": USER, "max_tokens": 4}
    status, answer = await engine.post(MESSAGES, body | {"temperature": -1})
    assert status == 400
    assert answer["type"] == "error"
    assert "temperature must be non-negative" in answer["error"]["message"]
    for more in ({"top_p": 0}, {"top_k": -2}, {"stop_sequences": [""]}, {"stop_sequences": ["a"] * 5}):
        assert (await engine.post(MESSAGES, body | more))[0] == 400
    for more in ({"top_p": 0}, {"presence_penalty": 3}, {"temperature": 9}, {"stop": ["a", ""]}, {"seed": 2**64}):
        assert (await engine.post(RESPONSES, {"input": "x", "max_output_tokens": 4} | more))[0] == 400


# What can never be scheduled.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": [""]}),
        (COMPLETIONS, {"prompt": [""], "stream": True}),
        (COMPLETIONS, {"prompt": [[]]}),
        (COMPLETIONS, {"prompt": []}),
        (COMPLETIONS, {"prompt": ["a", ""]}),
        (COMPLETIONS, {"prompt": [[1], []]}),
        (COMPLETIONS, {"prompt": "", "echo": True}),
        (COMPLETIONS, {"prompt": "", "ignore_eos": True}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": [], "stream": True}),
        (MESSAGES, {"model": "gpt-oss-20b", "messages": []}),
    ],
)
async def test_an_empty_prompt_is_refused(serve, path: str, body: dict[str, Any]) -> None:
    engine = await serve()
    async with asyncio.timeout(5):
        status, answer = await engine.post(path, body | {"max_tokens": 4})
    assert status == 400
    assert "empty" in answer["error"]["message"] or "one" in answer["error"]["message"]
    assert engine.engine.in_flight == 0


async def test_an_empty_text_has_vllms_words(serve) -> None:
    engine = await serve()
    _, answer = await engine.post(COMPLETIONS, {"prompt": "", "max_tokens": 4})
    assert answer["error"]["message"].startswith("Either prompt or prompt_embeds must be provided and non-empty.")
    _, answer = await engine.post(COMPLETIONS, {"prompt": [""], "max_tokens": 4})
    assert answer["error"] == {
        "message": "The decoder prompt cannot be empty",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


async def test_the_longest_prompt_that_is_taken_fits_the_smallest_cache(serve) -> None:
    engine = await serve("--max-model-len", "1024", "--num-gpu-blocks-override", "200", "--block-size", "16")
    async with asyncio.timeout(20):
        status, answer = await engine.post(COMPLETIONS, {"prompt": [7] * 1000, "max_tokens": 24, "ignore_eos": True})
    assert status == 200
    assert answer["usage"]["total_tokens"] == 1024
    assert (await engine.post(COMPLETIONS, {"prompt": [7] * 1024, "max_tokens": 1}))[0] == 400


# Endpoints that vLLM keeps closed.

CLOSED = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
SCALE_OUT = [
    "/inference/v1/generate",
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/v1/completions/render",
    "/v1/completions/derender",
    "/v1/messages/render",
    "/v1/responses/render",
]


async def test_scale_out_is_forbidden_without_its_flag(serve) -> None:
    engine = await serve()
    for path in SCALE_OUT:
        status, body = await engine.post(path, {"token_ids": [1]})
        assert status == 403
        assert body["error"] == {"message": CLOSED, "type": "PermissionDeniedError", "param": None, "code": 403}


@pytest.mark.parametrize("flag", ["--enable-scale-out", "--tokens-only"])
async def test_scale_out_is_not_modelled_with_its_flag(serve, flag: str) -> None:
    engine = await serve(flag)
    for path in SCALE_OUT:
        status, body = await engine.post(path, {"token_ids": [1]})
        assert status == 501
        assert body["error"]["type"] == "NotImplementedError"
        assert "does not model" in body["error"]["message"]
        assert path in body["error"]["message"]
