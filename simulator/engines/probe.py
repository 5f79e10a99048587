"""Short requests that show what a server can do, so that a run knows beforehand which figures it will have."""

from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.simulator.engines.base import Capabilities, fetch

if TYPE_CHECKING:
    import aiohttp

SALT = "windtunnel-probe"
TEXT = "def probe():\n    return 1\n"
TERSE = "Answer with the single word: yes"
"""A model that is not made to go on stops after a token or two."""
EXTRAS: tuple[tuple[str, Any], ...] = (("return_token_ids", True), ("cache_salt", SALT))
"""Fields without which a request still means the same."""
SHORT, LONG = 2, 24
STREAM = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def chunks(body: bytes) -> list[dict[str, Any]]:
    """The JSON events of a finished stream; damaged ones are left out."""
    found = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        if not event.startswith(b"data:"):
            continue
        try:
            data = msgspec.json.decode(event[5:])
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


async def tokenizer(session: "aiohttp.ClientSession", root: str, model: str) -> tuple[tuple[int, ...], bool]:
    """Ids of a short text by `/tokenize`, and whether token strings come with them; no ids without the route."""
    body = {"model": model, "prompt": TEXT, "add_special_tokens": False, "return_token_strs": True}
    data = (await fetch(session, f"{root}/tokenize", body)).record()
    ids = data.get("tokens")
    if not isinstance(ids, list) or not ids:
        return (), False
    return tuple(ids), isinstance(data.get("token_strs"), list)


async def capabilities(
    session: "aiohttp.ClientSession",
    root: str,
    model: str,
    *,
    known: bool,
    salts: bool | None = None,
    quiet: bool = False,
) -> Capabilities:
    """Try each of them, by one request of token ids and, where something is left open, one of chat messages.

    `known`: the server is of a kind that means what it accepts. Others may ignore fields that they do not know, so
    there a forced length has to show in the output, and a salt is not relied on. `salts`: of a kind that has salts
    where it takes the field (default: as `known`). `quiet`: nothing is tried.
    """
    if quiet:
        return Capabilities()
    ids, strings = await tokenizer(session, root, model)
    prompt = list(ids) or [10, 11, 12, 13]
    extras, salted = EXTRAS, known if salts is None else salts
    completions = {"model": model, "prompt": prompt}
    by_ids = await _ask(session, f"{root}/v1/completions", {**completions, **forced(SHORT)})
    if not by_ids:  # strict servers refuse fields they do not know
        by_ids = await _ask(session, f"{root}/v1/completions", {**completions, **forced(SHORT, ())})
        extras = () if by_ids else EXTRAS
    token_prompts = _usage(by_ids).get("prompt_tokens") == len(prompt)
    seen, pinned = by_ids, _usage(by_ids).get("completion_tokens") == SHORT
    if not token_prompts or not known:
        chat = {"model": model, "messages": [{"role": "user", "content": TERSE}]}
        url = f"{root}/v1/chat/completions"
        by_chat = await _ask(session, url, {**chat, **forced(LONG, extras)})
        if not by_chat and extras:
            extras = ()
            by_chat = await _ask(session, url, {**chat, **forced(LONG, extras)})
        pinned = _usage(by_chat).get("completion_tokens") == LONG
        if not by_chat:
            by_chat = await _ask(session, url, {**chat, "max_tokens": LONG})
        seen = by_ids if token_prompts else by_chat
    details = _usage(seen).get("prompt_tokens_details")
    carrying = [chunk for chunk in seen if _choice(chunk)]
    return Capabilities(
        tokenize=bool(ids),
        token_strings=strings,
        token_prompts=token_prompts,
        return_token_ids=any(_choice(chunk).get("token_ids") for chunk in seen),
        prompt_token_details=isinstance(details, dict) and details.get("cached_tokens") is not None,
        cache_salt=salted and bool(extras) and bool(seen),
        ignore_eos=pinned,
        continuous_usage=bool(carrying) and all(chunk.get("usage") for chunk in carrying),
    )


def forced(tokens: int, extras: tuple[tuple[str, Any], ...] = EXTRAS) -> dict[str, Any]:
    """Fields that pin the output length and, as `extras`, ask for token ids and salt the cache."""
    return {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, **dict(extras)}


async def _ask(session: "aiohttp.ClientSession", url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a streamed answer; none when the server refused."""
    answer = await fetch(session, url, {**body, "temperature": 0, **STREAM})
    return chunks(answer.body) if answer.status == 200 else []


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
