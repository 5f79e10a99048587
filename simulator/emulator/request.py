"""One request as the scheduler sees it: known tokens, computed tokens, blocks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from windtunnel.simulator.emulator.blocks import Hashes, Tokens, chain_hashes, salt_seed
from windtunnel.simulator.emulator.ring import Chain

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.course import Course
    from windtunnel.simulator.emulator.rhythm import Rhythm

_AHEAD = 512
"""So many output tokens ahead are hashed, where there are that many."""

FinishReason = Literal["stop", "length", "abort"]


class Script(Protocol):
    """The tokens that the emulated model will produce for one request, the same on every ask."""

    def tokens(self, start: int, stop: int) -> Sequence[int]:
        """Output tokens `start` to `stop - 1`."""
        ...


class Speculates(Script, Protocol):
    """A script that also says which draft tokens are accepted; without it none is."""

    def accepted(self, position: int, drafted: int) -> int:
        """How many of `drafted` drafts for output tokens from `position` on are accepted, the same on every ask."""
        ...


class Drafts(Script, Protocol):
    """A script that also says how many drafts there are; without it as many as are allowed. An n-gram may find none."""

    def drafted(self, position: int, most: int) -> int:
        """How many draft tokens are made for output tokens from `position` on, at most `most`."""
        ...


class Request:
    """Mutable state of one request. Token counts throughout; positions count from the prompt's first token."""

    __slots__ = (
        "_rest",
        "accepts",
        "alarm",
        "arrival",
        "beats",
        "block_size",
        "blocks",
        "chunk",
        "computed",
        "course",
        "created",
        "drafts",
        "ends",
        "ends_at",
        "finished",
        "first_at",
        "got",
        "hashes",
        "hit",
        "in_flight",
        "key",
        "known",
        "last_at",
        "left",
        "max_tokens",
        "noted_from",
        "order",
        "parked",
        "placeholders",
        "preemptions",
        "prefilling",
        "priority",
        "produced",
        "prompt_tokens",
        "proposes",
        "queued_at",
        "reason",
        "returned_from",
        "returns_at",
        "rhythm",
        "rising",
        "scheduled_at",
        "scheduled_from",
        "script",
        "seed",
        "steady",
        "taken",
        "wakes_at",
    )

    def __init__(
        self,
        key: str,
        prompt: Tokens,
        script: Script,
        max_tokens: int,
        *,
        block_size: int,
        ends: int | None = None,
        salt: str | None = None,
        priority: int = 0,
        arrival: int = 0,
        hashes: Hashes | list[int] | None = None,
    ) -> None:
        """`hashes`, where they are known: those of `chain_hashes` for the prompt's full blocks; not to be changed."""
        self.key = key
        self.script = script
        self.accepts: Callable[[int, int], int] | None = getattr(script, "accepted", None)
        self.proposes: Callable[[int, int], int] | None = getattr(script, "drafted", None)
        self.max_tokens = max_tokens
        self.ends = max_tokens if ends is None else min(ends, max_tokens)
        """Output length at which the request is over."""
        self.reason: FinishReason = "stop" if ends is not None and ends <= max_tokens else "length"
        self.priority = priority
        self.arrival = arrival
        """ns, as are the times below; they do not matter to scheduling, but for the order of equal priorities."""
        self.queued_at = arrival
        """When the scheduler got it."""
        self.scheduled_at: int | None = None
        self.first_at = 0
        self.last_at = 0
        self.prompt_tokens = len(prompt)
        self.known = len(prompt)
        """Prompt and returned output tokens."""
        self.computed = 0
        """Tokens whose KV is computed or being computed by a scheduled step."""
        self.in_flight = 0
        """Tokens, drafts included, in steps that are scheduled and have not returned."""
        self.placeholders = 0
        """Output tokens that scheduled steps will produce and that have not returned."""
        self.drafts = 0
        """Draft tokens to be verified in the next step."""
        self.prefilling = False
        """Its last step did not reach the end of what was known, so it brings no token."""
        self.produced = 0
        """Output tokens that have returned."""
        self.blocks = Chain()
        """Where all layers share one table."""
        self.preemptions = 0
        self.finished: FinishReason | None = None
        self.hit: int | None = None
        """Prompt tokens found in the prefix cache at the first admission; None before it."""
        self.created: int | None = None
        """Prompt tokens that this request put into the cache, as of its first output token."""
        self.order = 0
        """Place among the running requests: later ones have higher numbers."""
        # What `parking` remembers of a request.
        self.parked = False
        self.rising = False
        """Its context is shorter than the sliding window."""
        self.steady = 0
        """Steps without a gap between them that were decode steps with all their drafts."""
        self.alarm = self.returns_at = -1
        """Numbers of the steps in which something happens to it again: when it is decided, when it returns."""
        self.wakes_at = -1
        """Number of the step in which it has to be walked through again."""
        self.scheduled_from = self.returned_from = self.noted_from = 0
        """Numbers of the first steps that are not booked as scheduled, as returned, in `got`."""
        self.ends_at = -1
        """Parked to its end: number of the step that brings its last token."""
        self.left = False
        """So parked and no longer part of the steps, while that one has not returned."""
        self.chunk = 0
        """So parked: tokens of its last prefill step, while that one has not returned."""
        self.course: Course | None = None
        """With drafts: how it goes on."""
        self.rhythm: Rhythm | None = None
        """When it takes and gives back blocks, where that is counted only, and at which places of the beat."""
        self.beats: tuple[int, ...] = ()
        self.got: list[tuple[int, int, list[int] | None]] = []
        """Steps that returned tokens, where that is kept: from and to which number, how many each (None: one)."""
        self.taken = 0
        """Output tokens that have been handed out, where they are handed out on demand."""
        self.block_size = block_size
        self.seed = salt_seed(salt)
        if not isinstance(hashes, Hashes):
            hashes = Hashes(chain_hashes(prompt, block_size, self.seed) if hashes is None else hashes)
        self.hashes = hashes.shared()
        self._rest = prompt[len(self.hashes) * block_size :].tolist()
        """The prompt's tokens after its last full block."""

    @property
    def output(self) -> Sequence[int]:
        """The output tokens that have returned."""
        return self.script.tokens(0, self.produced)

    def append(self, count: int) -> Sequence[int]:
        """The next `count` output tokens return."""
        done = self.produced
        self.advance(count)
        return self.script.tokens(done, done + count)

    def advance(self, count: int) -> None:
        """The same where nobody asks which; blocks that became full have hashes then."""
        self.produced += count
        self.known += count
        if self.known >= (len(self.hashes) + 1) * self.block_size:
            self._hash()

    def _hash(self) -> None:
        """Hashes of the blocks that became full, and of more to come: one pass over many costs no more than one."""
        size, prompt, done = self.block_size, self.prompt_tokens, len(self.hashes) * self.block_size
        stop = min(prompt + self.ends, self.known + _AHEAD)
        start = max(done - prompt, 0)
        first: Callable[[int], NDArray[np.int64]] | None = getattr(self.script, "first", None)
        said = self.script.tokens(start, stop - prompt) if first is None else first(stop - prompt)[start:]
        ids = np.array(said, dtype=np.uint32)
        if done < prompt and self._rest:
            ids = np.concatenate((np.array(self._rest, dtype=np.uint32), ids))
        self.hashes.own += chain_hashes(ids, size, self.hashes[-1] if self.hashes else self.seed)

    def foreseen(self, block: int) -> int | None:
        """Hash of a block that is not full yet; None where the request ends before."""
        if block >= len(self.hashes):
            self._hash()
        return self.hashes[block] if block < len(self.hashes) else None

    def accepted(self, drafted: int) -> int:
        """How many of the drafts for the next output tokens are accepted."""
        return self.accepts(self.produced, drafted) if self.accepts else 0

    def drafted(self, most: int) -> int:
        """How many drafts are made for the next output tokens."""
        return self.proposes(self.produced, most) if self.proposes else most
