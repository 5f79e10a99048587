"""KV offload to host memory: full prompt blocks are copied to a host tier and loaded from there when the GPU lost them.

As vLLM 0.32's own connector does it (`--kv-offloading-backend native`): prompts only, one GPU block a piece, least
recently used pieces give way. A load is asynchronous: its request holds its blocks and waits, while others run. When a
transfer ends is up to the link's speed; each direction carries one transfer after the other.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from windtunnel.simulator.emulator.kv import Hit, KvCache
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.ring import Chain

if TYPE_CHECKING:
    from windtunnel.simulator.emulator.step import Limits

_WRITING = -1


class HostTier:
    """Pieces in host memory by their hash. Those being written or read are not given up."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._pieces: OrderedDict[int, int] = OrderedDict()
        """Hash to how many loads read it, or that it is being written; least recently used first."""

    def __len__(self) -> int:
        return len(self._pieces)

    def state(self, key: int) -> Literal["there", "coming", "missing"]:
        readers = self._pieces.get(key)
        return "missing" if readers is None else "coming" if readers == _WRITING else "there"

    def prefix(self, keys: Sequence[int]) -> tuple[int, bool]:
        """How many of `keys` are there from the first on, and whether one of these is still being written."""
        readers = list(map(self._pieces.get, keys))
        count = readers.index(None) if None in readers else len(readers)
        return count, _WRITING in readers[:count]

    def store(self, keys: Sequence[int]) -> list[int] | None:
        """Make room for those of `keys` that are missing: these are to be written. None where there is no room."""
        pieces = self._pieces
        missing = [key for key in dict.fromkeys(keys) if key not in pieces]
        lacking = len(pieces) + len(missing) - self.capacity
        if lacking > 0:
            asked = set(keys)
            victims: list[int] = []
            for key, readers in pieces.items():
                if len(victims) == lacking:
                    break
                if readers == 0 and key not in asked:
                    victims.append(key)
            if len(victims) < lacking:
                return None
            for key in victims:
                del pieces[key]
        for key in missing:
            pieces[key] = _WRITING
        return missing

    def stored(self, keys: Iterable[int]) -> None:
        for key in keys:
            if self._pieces.get(key) == _WRITING:
                self._pieces[key] = 0

    def load(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._pieces[key] += 1

    def loaded(self, keys: Iterable[int]) -> None:
        for key in keys:
            if self._pieces.get(key, 0) > 0:
                self._pieces[key] -= 1

    def used(self, keys: Sequence[int]) -> None:
        """A request that touched these, first block first, is over: its first block is given up last."""
        for key in reversed(keys):
            if key in self._pieces:
                self._pieces.move_to_end(key)

    def clear(self) -> None:
        self._pieces.clear()


class Transfer(Struct, frozen=True):
    request: Request
    keys: list[int]
    load: bool


class Traced:
    """What the connector knows of a request."""

    __slots__ = ("busy", "seen", "stored")

    def __init__(self) -> None:
        self.stored = 0
        """Leading blocks that were offered to the host tier, or came from it."""
        self.seen: dict[int, int] = {}
        """Pieces it wrote, read or found there, and their places in its text."""
        self.busy = 0
        """Its transfers that have not ended."""


class OffloadKv(KvCache):
    """One group of full attention with a host tier."""

    def __init__(self, limits: "Limits") -> None:
        super().__init__(limits)
        self.host = HostTier(limits.offload_blocks)
        self._arrived: set[Request] = set()
        """Their load has ended."""
        self._ready: set[Request] = set()
        """What was loaded for them is findable."""
        self.load_ns = self.store_ns = round(limits.offload_block_s * 1e9)
        """A block's way from and to the host."""
        self._traced: dict[Request, Traced] = {}
        self._ended: list[tuple[Request, Traced]] = []
        """Over since the last step was decided."""
        self._drafting = 1 + limits.speculative_tokens + limits.lookahead if limits.speculative_tokens else 0
        """Tokens that a step with drafts may need room for."""
        self._loading: set[int] = set()
        self._deferred: deque[tuple[int, Chain]] = deque()
        """Blocks, and the number of steps that must have returned before they are free."""
        self._defers = False
        self._scheduled = self._returned = 0
        self._filling: set[Request] = set()
        """Their load is under way."""
        self._orphans: dict[Request, Chain] = {}
        """Blocks of those that ended meanwhile."""
        self._new: list[Transfer] = []
        self._later: list[Transfer] = []
        """Copies to the host; they begin with the step after the one that fills their blocks."""
        self._running: dict[bool, list[tuple[int, Transfer]]] = {True: [], False: []}
        """For each direction (True: loads) when a transfer ends, ns, in order."""

    # What the scheduler asks.

    def begin(self, *, asynchronous: bool) -> None:
        self._defers = asynchronous

    def find(self, request: Request) -> Hit:
        local = super().find(request)
        traced = self._traced.setdefault(request, Traced())
        if traced.busy:
            return Hit(local.tokens, local.blocks, waits=True)
        keys = request.hashes[local.tokens // self._size : request.known // self._size]
        more, coming = self.host.prefix(keys)
        coming = coming or not self._loading.isdisjoint(keys[:more])
        return Hit(local.tokens, local.blocks, external=more * self._size, waits=coming)

    def lacking(self, request: Request, *, beside: bool) -> int:
        """0: a lookup here also says what the host tier has, and is made in each step."""
        del request, beside
        return 0

    def load(self, request: Request, hit: Hit, others: Iterable[Request], *, beside: bool) -> bool:
        """Begin the load of what the host has of a waiting request; False where its blocks find no room.

        `others` are being prefilled or loaded: what they still need for their known tokens is left free.
        """
        whole = min(request.known, self._longest)
        kept = self._watermark if beside else 0
        found = hit.blocks[0]
        revived, held = self.pool.held_by_none(found), found.count
        if self._whole and -(-whole // self._size) - held + revived + kept > self.pool.free_count:
            return False
        total = hit.tokens + hit.external
        reserved = -(-self._drafting // self._size)
        for one in others:
            reserved += max(0, -(-(min(one.known, self._longest) + self._drafting) // self._size) - len(one.blocks))
        fresh = total // self._size - held
        if fresh + revived + kept > self.pool.free_count - reserved:
            return False
        request.blocks = self.pool.begin(found)
        self.pool.extend(request.blocks, fresh)
        request.computed = total
        keys = request.hashes[held : held + fresh]
        self.host.load(keys)
        traced = self._traced[request]
        traced.stored = held + fresh
        traced.seen.update(zip(keys, range(held, held + fresh), strict=True))
        self._loading.update(keys)
        self._filling.add(request)
        self._send(traced, Transfer(request, keys, load=True))
        return True

    def resume(self, request: Request, new: int, *, beside: bool) -> bool:
        """Room for `new` tokens after those that were loaded."""
        kept = self._watermark if beside else 0
        whole = -(-min(request.known, self._longest) // self._size) - len(request.blocks)
        if self._whole and whole + kept > self.pool.free_count:
            return False
        lacking = self._needed(request.computed + new) - len(request.blocks)
        if max(0, lacking) + kept > self.pool.free_count:
            return False
        self._ready.discard(request)
        return self.grow(request, new)

    def ready(self, request: Request) -> bool:
        """Whether a request's load has ended. What was loaded becomes findable; one token at least is computed."""
        if request in self._arrived:
            self._arrived.discard(request)
            self._ready.add(request)
            self.cache(request, request.computed)
            request.computed = min(request.computed, request.known - 1)
        return request in self._ready

    def booked(self, requests: Collection[Request]) -> None:
        """A step with these is decided: the prompt's blocks that it fills are copied to the host."""
        self._scheduled += bool(requests)
        for request in requests:
            self._store(request, self._traced.setdefault(request, Traced()))
        for request, traced in self._ended:
            self._store(request, traced)
        for _, traced in self._ended:
            self.host.used(sorted(traced.seen, key=traced.seen.__getitem__))
        self._ended.clear()

    def _store(self, request: Request, traced: Traced) -> None:
        if (traced.stored + 1) * self._size > request.prompt_tokens:
            return
        full = min(request.computed, request.known, request.prompt_tokens) // self._size
        keys = request.hashes[traced.stored : full]
        if not keys:
            return
        for place, key in enumerate(keys, traced.stored):
            if self.host.state(key) != "coming":
                traced.seen[key] = place
        fresh = self.host.store(keys)
        if fresh is None:
            # No room now: they are offered again in the next step.
            return
        traced.stored = full
        if fresh:
            self._send(traced, Transfer(request, fresh, load=False))

    def returned(self) -> None:
        """A step has returned: blocks that it may have written to come free."""
        self._returned += 1
        while self._deferred and self._deferred[0][0] <= self._returned:
            self.pool.free(self._deferred.popleft()[1])

    def free(self, request: Request) -> None:
        """Blocks that a step in flight or a load writes to come free when that is over."""
        flies = self._defers and request.in_flight
        if flies or request in self._filling:
            if flies:
                self._deferred.append((self._scheduled, request.blocks))
            else:
                self._orphans[request] = request.blocks
            request.blocks = Chain()
        super().free(request)
        self._arrived.discard(request)
        self._ready.discard(request)
        if request.finished is not None:
            traced = self._traced.pop(request, None)
            if traced is not None:
                self._ended.append((request, traced))

    # Time.

    def launch(self, now: int) -> None:
        """What was decided begins at `now`, ns, behind what its direction still carries."""
        for transfer in self._later + [new for new in self._new if new.load]:
            queue = self._running[transfer.load]
            begins = max(now, queue[-1][0]) if queue else now
            queue.append((begins + len(transfer.keys) * (self.load_ns if transfer.load else self.store_ns), transfer))
        self._later = [new for new in self._new if not new.load]
        self._new.clear()

    def advance(self, now: int) -> None:
        """Transfers that end by `now`, ns, are over."""
        for queue in self._running.values():
            while queue and queue[0][0] <= now:
                self._end(queue.pop(0)[1])

    @property
    def arrival(self) -> int | None:
        """When the next load ends, ns."""
        loads = self._running[True]
        return loads[0][0] if loads else None

    def _send(self, traced: Traced, transfer: Transfer) -> None:
        traced.busy += 1
        self._new.append(transfer)

    def _end(self, transfer: Transfer) -> None:
        traced = self._traced.get(transfer.request)
        if traced is not None:
            traced.busy -= 1
        if not transfer.load:
            self.host.stored(transfer.keys)
            return
        self.host.loaded(transfer.keys)
        self._loading.difference_update(transfer.keys)
        self._filling.discard(transfer.request)
        if transfer.request.finished is None:
            self._arrived.add(transfer.request)
        else:
            self.pool.free(self._orphans.pop(transfer.request, Chain()))
