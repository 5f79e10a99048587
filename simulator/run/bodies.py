"""Requests read without a socket: what a body asks for, at the cost of what it adds to its thread's request before.

A prompt of token ids comes in the parts that its session put together, packed (`agents.ids.packed_ids`), most of them
the same objects as in the call before: their block hashes and the digest up to their end are remembered. Chat messages
are rendered by the emulator's own template, which remembers each of them; their hashes are kept up to where the new
prompt differs.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import numpy as np
from msgspec import Struct

from windtunnel.agents.prompt import PACKED
from windtunnel.simulator.emulator.ask import (
    Ask,
    ChatAsk,
    CompletionAsk,
    Refusal,
    chat_prompt,
    check_model,
    completion_prompt,
    output_limits,
)
from windtunnel.simulator.emulator.blocks import Hashes, Tokens, chain_hashes, salt_seed
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.script import hasher
from windtunnel.simulator.emulator.template import Renderer
from windtunnel.simulator.emulator.tokenizer import Vocabulary

ROOM = 1 << 25
"""Tokens of threads' prompts that are remembered: 128 MiB, and as much again for hashes."""


class Wanted(Struct, frozen=True):
    """A request as the emulator sees it."""

    ask: Ask
    prompt: Tokens
    """Valid until the thread's next request is read."""
    hashes: Hashes
    """Of the prompt's full blocks."""
    digest: bytes | None
    """What `hasher` says of the prompt; None where it was not kept."""
    most: int
    """Output tokens."""
    least: int


class _Thread:
    """The last prompt of one thread."""

    __slots__ = ("digests", "ends", "hashes", "ids", "parts", "salt", "seed", "size")

    def __init__(self, salt: str | None, seed: int) -> None:
        self.salt = salt
        self.seed = seed
        self.parts: list[bytes] = []
        self.ends: list[int] = []
        """Tokens up to the end of each part."""
        self.digests: list[blake2b] = []
        """Of the prompt up to the end of each part, where they are wanted."""
        self.ids: Tokens = np.empty(1024, dtype=np.uint32)
        """The first `size` are the prompt."""
        self.size = 0
        self.hashes: list[int] = []

    def cut(self, parts: int) -> None:
        del self.parts[parts:], self.ends[parts:], self.digests[parts:]
        self.size = self.ends[-1] if parts else 0

    def add(self, parts: Sequence[bytes], *, digests: bool) -> None:
        data = b"".join(parts)
        start, end = self.size, self.size + len(data) // 4
        if end > len(self.ids):
            grown = np.empty(max(end, 2 * len(self.ids)), dtype=np.uint32)
            grown[:start] = self.ids[:start]
            self.ids = grown
        self.ids[start:end] = np.frombuffer(data, dtype=np.uint32)
        self.size = end
        self.parts += parts
        for part in parts:
            start += len(part) // 4
            self.ends.append(start)
            if digests:
                digest = self.digests[-1].copy() if self.digests else hasher(self.seed)
                digest.update(part)
                self.digests.append(digest)

    def rehash(self, same: int, block_size: int) -> Hashes:
        """Hashes of the whole prompt, of which the first `same` tokens are those of the one before."""
        if same // block_size < len(self.hashes):
            self.hashes = self.hashes[: same // block_size]  # another list: requests hold the longer one
        kept = len(self.hashes)
        parent = self.hashes[-1] if kept else salt_seed(self.salt)
        self.hashes += chain_hashes(self.ids[kept * block_size : self.size], block_size, parent)
        return Hashes(self.hashes)


class Bodies:
    def __init__(self, settings: Settings, template: Renderer, tokenizer: Vocabulary, *, digests: bool = True) -> None:
        """`digests`: what words are drawn from is worked out part by part, where there are parts."""
        self._settings = settings
        self._digests = digests
        self._template = template
        self._tokenizer = tokenizer
        self.block_size = settings.limits.hash_block_size
        self._threads: OrderedDict[str, _Thread] = OrderedDict()
        self._held = 0
        """Tokens in `_threads`."""
        self._chat = msgspec.json.Decoder(ChatAsk)
        self._completion = msgspec.json.Decoder(CompletionAsk)

    def read(self, path: str, parts: Sequence[bytes], thread: str) -> Wanted:
        """The request of these parts; Refusal for what the emulator refuses. `thread` names the one it belongs to."""
        try:
            if path.endswith("/chat/completions"):
                return self._of_messages(b"".join(parts), thread)
            if parts[0].endswith(PACKED):
                return self._of_ids(parts, thread)
            return self._of_prompt(b"".join(parts), thread)
        except msgspec.DecodeError as error:
            raise Refusal(str(error)) from None

    def _of_ids(self, parts: Sequence[bytes], thread: str) -> Wanted:
        ask = self._completion.decode(parts[0] + parts[-1])
        check_model(ask.model, self._settings)
        held = self._thread(thread, ask)
        given = parts[1:-1]
        known, same = held.parts, len(held.parts)
        if known != given[:same]:
            same = next(at for at, part in enumerate(known) if at == len(given) or part != given[at])
            held.cut(same)
        kept = held.size
        held.add(given[same:], digests=self._digests)
        self._remember(held)
        hashes = held.rehash(kept, self.block_size)
        digest = held.digests[-1].digest() if held.digests else None
        return self._wanted(ask, held.ids[: held.size], hashes, digest)

    def _of_prompt(self, body: bytes, thread: str) -> Wanted:
        ask = self._completion.decode(body)
        check_model(ask.model, self._settings)
        return self._compared(ask, completion_prompt(ask, self._tokenizer), thread)

    def _of_messages(self, body: bytes, thread: str) -> Wanted:
        ask = self._chat.decode(body)
        check_model(ask.model, self._settings)
        return self._compared(ask, chat_prompt(ask, self._settings, self._template), thread)

    def _compared(self, ask: Ask, prompt: Tokens, thread: str) -> Wanted:
        held = self._thread(thread, ask)
        least = min(held.size, len(prompt))
        differs = np.flatnonzero(held.ids[:least] != prompt[:least])
        same = int(differs[0]) if len(differs) else least
        held.ids, held.size = prompt, len(prompt)
        self._remember(held)
        return self._wanted(ask, prompt, held.rehash(same, self.block_size), None)

    def _wanted(self, ask: Ask, prompt: Tokens, hashes: Hashes, digest: bytes | None) -> Wanted:
        most, least = output_limits(ask, len(prompt), self._settings)
        return Wanted(ask, prompt, hashes, digest, most, least)

    def seed_of(self, ask: Ask) -> int:
        """What the answer is drawn from, beside the prompt."""
        return self._settings.seed if ask.seed is None else ask.seed

    def _thread(self, name: str, ask: Ask) -> _Thread:
        """What is known of a thread; it is counted again by `_remember`."""
        seed = self.seed_of(ask)
        held = self._threads.pop(name, None)
        if held is not None:
            self._held -= held.size
        if held is None or (held.salt, held.seed) != (ask.cache_salt, seed):
            held = _Thread(ask.cache_salt, seed)
        self._threads[name] = held
        return held

    def forget(self, front: str) -> None:
        """Threads whose names begin so will ask no more."""
        for name in [name for name in self._threads if name.startswith(front)]:
            self._held -= self._threads.pop(name).size

    def _remember(self, held: _Thread) -> None:
        self._held += held.size
        while self._held > ROOM and len(self._threads) > 1:
            self._held -= self._threads.popitem(last=False)[1].size
