"""Learning the served tokenizer and template through `/tokenize` once, so that no run tokenises anything.

One ~50 kB sample per kind of text gives the calibration, a handful of small prompts the template's overheads, and the
recorded texts are counted in batches: joined by a special token of the template, at which no tokenizer merges.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from windtunnel.agents.prompt import Prepared
from windtunnel.agents.rendering import ORDER_PROBES, PROBE_TEXTS, PROBES, Probe, Rendering, learn, texts_to_measure
from windtunnel.simulator.engines.base import Answer, Resolved, fetch, root_of
from windtunnel.traces import text
from windtunnel.traces.errors import EngineError
from windtunnel.traces.model import KINDS, TextKind, Trace

if TYPE_CHECKING:
    import aiohttp

BATCH_CHARS = 200_000
"""Recorded text per request: well below the body limits of servers, and a few tenths of a second of their time."""
PARALLEL = 4
CHECKED = 6
"""Texts of the first batch that are also counted alone, to see that batching counts right."""


class Tokenizer:
    """The `/tokenize` route of one model."""

    def __init__(self, session: "aiohttp.ClientSession", base_url: str, model: str) -> None:
        self._session = session
        self._url = f"{root_of(base_url)}/tokenize"
        self._model = model
        self._free = asyncio.Semaphore(PARALLEL)

    async def ask(self, **fields: Any) -> Answer:
        async with self._free:
            return await fetch(self._session, self._url, {"model": self._model, **fields})

    async def tokens(self, prompt: str) -> tuple[list[int], list[str] | None]:
        """Ids of a text without special tokens around it, and their strings where the server gives them."""
        answer = await self.ask(prompt=prompt, add_special_tokens=False, return_token_strs=True)
        ids = answer.record().get("tokens")
        if not isinstance(ids, list):
            raise EngineError(f"{self._url}: counting a text failed ({answer.complaint()})")
        strings = answer.record().get("token_strs")
        return ids, strings if isinstance(strings, list) else None

    async def count(self, prompt: str) -> int:
        answer = await self.ask(prompt=prompt, add_special_tokens=False)
        count = _counted(answer)
        if count is None:
            raise EngineError(f"{self._url}: counting a text failed ({answer.complaint()})")
        return count

    async def prove(self, messages: Iterable[Mapping[str, Any]], tools: Iterable[Mapping[str, Any]] = ()) -> int:
        """Prompt tokens of a chat request as the server renders it, generation prompt included.

        Raises EngineError with the template's own words when it refuses the messages.
        """
        count, complaint = await self.rendered(list(messages), list(tools))
        if count is None:
            raise EngineError(f"{self._url}: the chat template refuses the messages ({complaint})")
        return count

    async def rendered(self, messages: list[Any], tools: list[Any]) -> tuple[int | None, str]:
        """Tokens of the rendered prompt, or None and what the server said."""
        fields: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        answer = await self.ask(**fields, **({"tools": tools} if tools else {}))
        count = _counted(answer)
        return (count, "") if count is not None else (None, answer.complaint())

    async def rendered_ids(self, probe: Probe) -> list[int]:
        """Ids of the rendered prompt; none where the server does not tell them."""
        answer = await self.ask(messages=list(probe.messages), tools=list(probe.tools), add_generation_prompt=True)
        ids = answer.record().get("tokens")
        return ids if isinstance(ids, list) else []

    async def separator(self) -> tuple[str, int] | None:
        """A special token of the template, text and id, at which text can be joined and cut without merging."""
        data = (await self.ask(messages=[{"role": "user", "content": "a"}], return_token_strs=True)).record()
        strings, ids = data.get("token_strs"), data.get("tokens")
        if not isinstance(strings, list) or not isinstance(ids, list):
            return None
        alone, _ = await self.tokens("a\n")
        for string, token in dict(zip(strings, ids, strict=False)).items():
            if len(string) > 2 and string[0] in "<[" and string[-1] in ">]":
                joined, _ = await self.tokens(f"a\n{string}a\n")
                if joined == [*alone, token, *alone]:
                    return string, token
        return None


def _counted(answer: Answer) -> int | None:
    """Tokens; None where the answer tells none, or a number that is no count."""
    count = answer.record().get("count")
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


class Batch(Struct, frozen=True):
    """Texts that are counted together."""

    keys: tuple[str, ...]
    texts: tuple[str, ...]


def batches(texts: Mapping[str, str], separator: str | None) -> list[Batch]:
    """Texts in groups of about BATCH_CHARS; alone where there is no separator or the text holds it."""
    out: list[Batch] = []
    keys: list[str] = []
    held: list[str] = []
    size = 0
    for key, value in texts.items():
        if separator is None or separator in value:
            out.append(Batch((key,), (value,)))
            continue
        if held and size + len(value) > BATCH_CHARS:
            out.append(Batch(tuple(keys), tuple(held)))
            keys, held, size = [], [], 0
        keys.append(key)
        held.append(value)
        size += len(value)
    if held:
        out.append(Batch(tuple(keys), tuple(held)))
    return out


async def measure_texts(
    tokenizer: Tokenizer, texts: Mapping[str, str], progress: Callable[[int, int], None] | None = None
) -> dict[str, int]:
    """Exact token counts of texts, each as if alone. `progress` gets counted and total characters."""
    separator = await tokenizer.separator()
    if separator is not None and not await _trusted(tokenizer, texts, separator):
        separator = None
    total = sum(map(len, texts.values()))
    counts: dict[str, int] = {}
    done = 0

    async def one(batch: Batch) -> None:
        nonlocal done
        counts.update(await _count(tokenizer, batch, separator))
        done += sum(map(len, batch.texts))
        if progress is not None:
            progress(done, total)

    await asyncio.gather(*map(one, batches(texts, separator[0] if separator else None)))
    return counts


async def _count(tokenizer: Tokenizer, batch: Batch, separator: tuple[str, int] | None) -> dict[str, int]:
    if separator is None or len(batch.keys) == 1:
        return {batch.keys[0]: await tokenizer.count(batch.texts[0])}
    ids, _ = await tokenizer.tokens(separator[0].join(batch.texts))
    cuts = [i for i, token in enumerate(ids) if token == separator[1]]
    if len(cuts) != len(batch.keys) - 1:
        each = await asyncio.gather(*map(tokenizer.count, batch.texts))
        return dict(zip(batch.keys, each, strict=True))
    edges = [-1, *cuts, len(ids)]
    spans = itertools.pairwise(edges)
    return {key: end - begin - 1 for key, (begin, end) in zip(batch.keys, spans, strict=True)}


async def _trusted(tokenizer: Tokenizer, texts: Mapping[str, str], separator: tuple[str, int]) -> bool:
    """Whether a joined batch counts as its texts do alone."""
    chosen = [(k, v) for k, v in texts.items() if separator[0] not in v and len(v) < 4000][:CHECKED]
    if len(chosen) < 2:
        return True
    batch = Batch(tuple(k for k, _ in chosen), tuple(v for _, v in chosen))
    together = await _count(tokenizer, batch, separator)
    return all([together[key] == await tokenizer.count(value) for key, value in chosen])


async def calibrate(tokenizer: Tokenizer, name: str) -> text.Calibration:
    """Token costs of regenerated text and a pool of ordinary token ids, from one sample per kind of text."""
    tokenised: dict[TextKind, tuple[list[int], list[str] | None]] = {}
    for kind in KINDS:
        tokenised[kind] = await tokenizer.tokens(text.sample(kind))
    return text.calibrate(name, tokenised)


async def learn_rendering(
    tokenizer: Tokenizer | None,
    resolved: Resolved,
    traces: Iterable[Trace] = (),
    *,
    salt_tokens: int = 0,
    tag_tokens: int = 0,
    known: Callable[[str], text.Calibration] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rendering:
    """Everything a run has to know of the served tokenizer and template; stored figures without a `/tokenize`.

    `known`: what `calibrate` would find for a model's name, where that was found before.
    """
    if tokenizer is None or not resolved.capabilities.tokenize:
        return Rendering(calibration=text.stored(), salt_tokens=salt_tokens, tag_tokens=tag_tokens)
    calibration = await calibrate(tokenizer, resolved.model) if known is None else known(resolved.model)
    prompts: dict[str, int] = {}
    for name, probe in PROBES.items():
        count, _ = await tokenizer.rendered(list(probe.messages), list(probe.tools))
        if count is not None:
            prompts[name] = count
    texts = {name: await tokenizer.count(value) for name, value in PROBE_TEXTS.items()}
    first = "tools" in prompts and await system_first(tokenizer)
    measured = await measure_texts(tokenizer, texts_to_measure(traces), progress)
    if "user" not in prompts:  # the model has no chat template: the token route is the only one
        return Rendering(calibration=calibration, measured=measured, salt_tokens=salt_tokens, tag_tokens=tag_tokens)
    return learn(
        calibration, prompts, texts, measured, salt_tokens=salt_tokens, tag_tokens=tag_tokens, system_first=first
    )


async def system_first(tokenizer: Tokenizer) -> bool:
    """Whether the template writes the system message in front of the tools; tools first where the ids are not told."""
    one, other_tool, other_system = [await tokenizer.rendered_ids(probe) for probe in ORDER_PROBES]
    return _common(one, other_tool) > _common(one, other_system)


def _common(one: Iterable[int], other: Iterable[int]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


async def refine(tokenizer: Tokenizer, rendering: Rendering, prepared: Iterable[Prepared]) -> Rendering:
    """The rendering with the texts counted that a first preparation had cut or continued; prepare again with it.

    A cut text's length is foretold by proportion, which can be some percent off for a single text.
    """
    texts: dict[str, str] = {}
    for one in prepared:
        texts.update(one.fitted_texts())
    if not texts:
        return rendering
    counted = await measure_texts(tokenizer, texts)
    return msgspec.structs.replace(rendering, measured={**(rendering.measured or {}), **counted})
