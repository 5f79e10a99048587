"""One-token requests that show what a server can do, so that a run knows beforehand which figures it will have."""

from typing import Any

import aiohttp
import msgspec

from windtunnel.simulator.engines.base import Capabilities, fetch

SALT = "windtunnel-probe"
TEXT = "def probe():\n    return 1\n"
EXTRAS = {"ignore_eos": True, "min_tokens": 2, "return_token_ids": True}
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def chunks(body: bytes) -> list[dict[str, Any]]:
    """The JSON events of a finished stream; damaged ones are left out."""
    found = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        if not event.startswith(b"data:"):
            continue
        try:
            data = msgspec.json.decode(event[5:])
        except msgspec.DecodeError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


async def tokenizer(session: aiohttp.ClientSession, root: str, model: str) -> tuple[tuple[int, ...], bool]:
    """Ids of a short text by `/tokenize`, and whether token strings come with them; no ids without the route."""
    body = {"model": model, "prompt": TEXT, "add_special_tokens": False, "return_token_strs": True}
    data = (await fetch(session, f"{root}/tokenize", body)).record()
    ids = data.get("tokens")
    if not isinstance(ids, list) or not ids:
        return (), False
    return tuple(ids), isinstance(data.get("token_strs"), list)


async def capabilities(session: aiohttp.ClientSession, root: str, model: str) -> Capabilities:
    """Try each of them with requests of two output tokens. Costs two short requests on the engine."""
    ids, strings = await tokenizer(session, root, model)
    prompt = list(ids) or [10, 11, 12, 13]
    request = {"model": model, "max_tokens": 2, "temperature": 0, **STREAM}
    by_ids = await fetch(session, f"{root}/v1/completions", {**request, **EXTRAS, "prompt": prompt, "cache_salt": SALT})
    seen = chunks(by_ids.body) if by_ids.status == 200 else []
    token_prompts = _usage(seen).get("prompt_tokens") == len(prompt)
    salted = by_ids.status == 200
    if not token_prompts:
        chat = {**request, "messages": [{"role": "user", "content": TEXT}]}
        answer = await fetch(session, f"{root}/v1/chat/completions", {**chat, **EXTRAS, "cache_salt": SALT})
        salted = answer.status == 200
        if answer.status != 200:  # strict servers refuse fields they do not know
            answer = await fetch(session, f"{root}/v1/chat/completions", chat)
        seen = chunks(answer.body) if answer.status == 200 else []
    usage = _usage(seen)
    return Capabilities(
        tokenize=bool(ids),
        token_strings=strings,
        token_prompts=token_prompts,
        return_token_ids=any(_choice(c).get("token_ids") for c in seen),
        prompt_token_details=isinstance(usage.get("prompt_tokens_details"), dict)
        and usage["prompt_tokens_details"].get("cached_tokens") is not None,
        cache_salt=salted,
        ignore_eos=salted and usage.get("completion_tokens") == 2,
        continuous_usage=any(c.get("usage") and _choice(c) for c in seen),
    )


def _choice(chunk: dict[str, Any]) -> dict[str, Any]:
    choices = chunk.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _usage(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The last usage of a stream."""
    for chunk in reversed(seen):
        if isinstance(chunk.get("usage"), dict):
            usage: dict[str, Any] = chunk["usage"]
            return usage
    return {}
