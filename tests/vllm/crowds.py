"""Small crowds of agents that ask an engine, by token ids or by messages: the traffic of the comparison.

Everything an agent does follows from its seed and from what the engine answered, and is written down as it happened.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import numpy as np
from msgspec import Struct

IDS = (300, 8000)
"""Range of the token ids that prompts are made of: ordinary words of the tiny model."""


class Answer(Struct):
    """What a client saw of one call."""

    key: str
    prompt: list[int]
    ids: list[int]
    chunks: list[int]
    """Output tokens of each chunk."""
    finish: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached: int | None
    sent: int
    """ns of the monotonic clock, as is `done`: when the client had, or wanted, no more."""
    done: int
    leave_after: int | None


class Asks:
    """Whom a crowd asks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.answers: list[Answer] = []

    async def ask(
        self, prompt: list[int] | list[dict[str, str]], tokens: int, *, leave_after: int | None = None, **more: Any
    ) -> Answer:
        """One streamed call, by token ids or by messages. With `leave_after` the client goes away after so many chunks."""
        raise NotImplementedError

    def note(self, sent: int, leave_after: int | None, key: str | None = None) -> Answer:
        key = key or f"{self._name}-{len(self.answers)}"
        answer = Answer(key, [], [], [], None, None, None, None, sent, 0, leave_after)
        self.answers.append(answer)
        return answer


class Client(Asks):
    """An engine over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, url: str, name: str) -> None:
        super().__init__(name)
        self._session = session
        self._url = url

    async def ask(
        self, prompt: list[int] | list[dict[str, str]], tokens: int, *, leave_after: int | None = None, **more: Any
    ) -> Answer:
        chat = isinstance(prompt[0], dict)
        answer = self.note(time.monotonic_ns(), leave_after)
        body = {
            "model": "tiny", "stream": True, "temperature": 0, "max_tokens": tokens, "ignore_eos": True,
            "return_token_ids": True, "stream_options": {"include_usage": True},
            "messages" if chat else "prompt": prompt,
        } | more  # fmt: skip
        path = "/v1/chat/completions" if chat else "/v1/completions"
        async with self._session.post(self._url + path, json=body, headers={"X-Request-Id": answer.key}) as response:
            assert response.status == 200, await response.text()
            while leave_after is None or len(answer.chunks) < leave_after:
                line = await response.content.readline()
                if not line:
                    break
                if line.startswith(b"data: {"):
                    self._read(answer, json.loads(line[6:]))
            answer.done = time.monotonic_ns()
        return answer

    @staticmethod
    def _read(answer: Answer, told: dict[str, Any]) -> None:
        assert "error" not in told, told
        answer.prompt = told.get("prompt_token_ids") or answer.prompt
        for choice in told["choices"]:
            answer.prompt = choice.get("prompt_token_ids") or answer.prompt
            answer.finish = choice["finish_reason"] or answer.finish
            if ids := choice.get("token_ids"):
                answer.ids += ids
                answer.chunks.append(len(ids))
        if usage := told.get("usage"):
            answer.prompt_tokens, answer.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
            answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def words(rng: np.random.Generator, count: int) -> list[int]:
    return rng.integers(*IDS, size=count).tolist()


Crowd = Callable[[Asks], Awaitable[None]]


async def one_agent(client: Asks) -> None:
    """Six turns of a growing context."""
    rng = np.random.default_rng(1)
    prompt = words(rng, 700)
    for _ in range(6):
        prompt += (await client.ask(prompt, 40)).ids + words(rng, 150)


async def lock_step(client: Asks, agents: int = 8, turns: int = 3) -> None:
    """All agents send turn k at once, after all have had the answer to turn k - 1; they share their first 300 tokens."""
    rng = np.random.default_rng(2)
    shared = words(rng, 300)
    prompts = [shared + words(rng, 500 + 60 * agent) for agent in range(agents)]
    for _ in range(turns):
        answers = await asyncio.gather(*(client.ask(prompt, 140) for prompt in prompts))
        prompts = [prompt + answer.ids + words(rng, 130) for prompt, answer in zip(prompts, answers, strict=True)]


async def too_many(client: Asks) -> None:
    """Twelve short prompts that are all let in, and long answers for which there is no room: preemption after preemption."""
    rng = np.random.default_rng(7)
    prompts = [words(rng, 150 + 15 * n) for n in range(12)]
    await asyncio.gather(*(client.ask(prompt, 420) for prompt in prompts))


async def forks(client: Asks) -> None:
    """Four sub-agents go on from one context at the same time, twice, while their parent goes on as well."""
    rng = np.random.default_rng(3)
    parent = words(rng, 900)
    for _ in range(2):
        parent += (await client.ask(parent, 30)).ids
        children = [parent + words(rng, 200 + 64 * n) for n in range(4)]
        await asyncio.gather(*(client.ask(prompt, 50) for prompt in [parent + words(rng, 40), *children]))


async def duplicates(client: Asks) -> None:
    """The same prompt several times at once: unknown, known, and with an end that differs."""
    rng = np.random.default_rng(4)
    prompt = words(rng, 1000)
    await asyncio.gather(*(client.ask(prompt, 40) for _ in range(3)))
    await asyncio.gather(*(client.ask(prompt, 40) for _ in range(2)), client.ask(prompt + words(rng, 100), 10))
    salted = words(rng, 640)
    await asyncio.gather(*(client.ask(salted, 20, cache_salt=salt) for salt in ("a", "b", "a")))


async def aborts(client: Asks) -> None:
    """Clients go away: at once, in the prompt, among the tokens; others stay."""
    rng = np.random.default_rng(5)
    prompts = [words(rng, 600 + 150 * n) for n in range(8)]
    leave = [None, 3, 0, 11, None, 1, 0, None]
    await asyncio.gather(*(client.ask(p, 60, leave_after=n) for p, n in zip(prompts, leave, strict=True)))
    await asyncio.gather(*(client.ask(p + words(rng, 50), 10) for p in prompts[:4]))


async def ends(client: Asks) -> None:
    """Ends of every kind: one token, a stop token, a stop text, the model's length, by ids and by messages."""
    rng = np.random.default_rng(6)
    prompt = words(rng, 500)
    said = (await client.ask(prompt, 30)).ids
    await asyncio.gather(
        client.ask(prompt, 1),
        client.ask(prompt, 30, stop_token_ids=[said[9]]),
        client.ask(words(rng, 4096 - 20), 20),
        client.ask(words(rng, 384), 129),
    )
    talk = [{"role": "system", "content": "Answer in short words. " * 40}, {"role": "user", "content": "What is it?"}]
    first = await client.ask(talk, 40)
    await asyncio.gather(
        client.ask(talk, 40, stop_token_ids=[first.ids[20]]),
        client.ask([*talk, {"role": "assistant", "content": "It is"}, {"role": "user", "content": "Well?"}], 25),
    )


CROWDS: dict[str, Crowd] = {
    "one agent": one_agent,
    "eight agents in lock-step": lock_step,
    "more answers than fit": too_many,
    "forked prefixes": forks,
    "duplicates in flight": duplicates,
    "aborted requests": aborts,
    "ends by length and stop": ends,
}
