"""Requests that are lists of block hashes (Weka's KV-cache traces, Mooncake's) become a trace; sub-agents are chains.

A prompt is kept at block granularity: one block of the trace for each hash, so that equal prefixes stay equal inside
a trace or, where the hashes mean the same in several, across them (`Origin.scope`). The tokens after the last full
block get the digest that the next request gives the same block, else that of their own hash (Weka has none for them).
When a request purely extends the one before it, what came between is the previous output and new input; the hash
blocks there are cut at that border.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windtunnel.traces.importers.ledger import Ledger
from windtunnel.traces.importers.pieces import Draft, Piece
from windtunnel.traces.model import Call, Cause, Header, Mark, Role, TextKind, Thread, Trace, Usage, Wait, digest_of

TIME_SLACK_S = 1.5
"""Top-level times are whole seconds."""
_KINDS: tuple[TextKind, ...] = ("code", "code", "code", "prose", "prose", "log", "log", "json")


class Origin(Struct, frozen=True):
    """Where the requests of a trace come from."""

    format: str
    """Name of the importer."""
    id: str
    scope: tuple[str, ...]
    """Traces with equal scopes share their hashes."""
    block: int
    """Tokens of a full block."""
    source: str
    started_at: float | None = None
    notes: tuple[str, ...] = ()


class Request(Struct, frozen=True):
    """One request of a chain; times are seconds since the trace's start."""

    hashes: tuple[int, ...]
    prompt: int
    out: int | None
    start: float | None
    first: float | None
    end: float | None
    think: float | None
    cause: Cause
    """Of `think`."""
    stop: str | None = None
    model: str | None = None
    tail: int | None = None
    """Hash of the tokens after the last full block, where the format has one."""
    think_mark: Mark = "recorded"


class Chain(Struct):
    """The main agent or a sub-agent: requests that build on each other."""

    requests: list[Request] = []
    front: int = 0
    """Tokens of tools and system prompt."""
    name: str | None = None
    agent: str = ""
    begin: float | None = None
    end: float | None = None


class _Placed(Struct):
    chain: int
    request: Request
    keep: int
    append: tuple[int, ...]
    output: int | None = None


class Builder:
    def __init__(self, origin: Origin, chains: list[Chain]) -> None:
        self.origin = origin
        self.id = origin.id
        self.chains = chains
        self.ledger = Ledger(self.id)

    def trace(self) -> Trace:
        placed = [p for i, chain in enumerate(self.chains) for p in self._place(i, chain)]
        begins = _monotone([(p.chain, p.request.start) for p in placed])
        order = sorted(range(len(placed)), key=lambda i: (begins[i], i))
        calls: list[Call] = []
        last: dict[int, int] = {}
        for at in order:
            p = placed[at]
            calls.append(_call(len(calls), p, last.get(p.chain)))
            last[p.chain] = calls[-1].id
        threads, joins = self._threads(calls)
        calls = [_joined(c, joins.get(c.id, ())) for c in calls]
        requests = {new: placed[at].request for new, at in enumerate(order)}
        return Trace(
            header=Header(
                id=self.id,
                agent=self.origin.format,
                models=tuple(dict.fromkeys(c.model for c in calls if c.model)),
                source=self.origin.source,
                started_at=self.origin.started_at,
                shape_only=True,
                title=self.id,
                notes=self.origin.notes,
            ),
            blocks=tuple(self.ledger.blocks),
            messages=tuple(self.ledger.messages),
            threads=tuple(threads),
            calls=tuple(calls),
            waits=tuple(_waits(calls, requests)),
        )

    def _place(self, number: int, chain: Chain) -> Iterator[_Placed]:
        ids: list[int] = []
        sums = [0]
        before: Request | None = None
        held: _Placed | None = None
        for at, request in enumerate(chain.requests):
            following = chain.requests[at + 1] if at + 1 < len(chain.requests) else None
            tail = self._tail(request, following, number, at)
            keep, new, output = self._difference(request, before, tail, ids, sums, chain.front)
            if held is not None:
                held.output = self._output(held.request, number, at) if output is None else output
                yield held
            del ids[keep:], sums[keep + 1 :]
            for message in new:
                ids.append(message)
                sums.append(sums[-1] + self.ledger.tokens(message))
            held = _Placed(number, request, keep, tuple(new))
            before = request
        if held is not None:
            held.output = self._output(held.request, number, len(chain.requests))
            yield held

    def _difference(
        self, request: Request, before: Request | None, tail: Piece | None, ids: list[int], sums: list[int], front: int
    ) -> tuple[int, list[int], int | None]:
        """Messages kept of the previous prompt, messages added, and which of these is the previous output."""
        if before is None:
            pieces = self._pieces(request, tail, 0)
            at = min(len(pieces), -(-front // self.origin.block))
            return 0, self._messages([("system", pieces[:at]), ("user", pieces[at:])]), None
        same = _common(before.hashes, request.hashes)
        growth = request.prompt - before.prompt
        if same == len(before.hashes) and growth > 0:
            wrote = min(before.out or 0, growth - 1)
            rest = self._pieces(request, tail, before.prompt)
            said, new = _split(rest, wrote)
            added = self._messages([("assistant", said), ("user", new)])
            return len(ids), added, added[0] if said else None
        keep = bisect_right(sums, same * self.origin.block) - 1
        head = []
        if keep < len(ids):
            cut = self.ledger.cut(ids[keep], same * self.origin.block - sums[keep]).head
            head = [] if cut is None else [cut]
        return keep, head + self._messages([("user", self._pieces(request, tail, same * self.origin.block))]), None

    def _messages(self, parts: Sequence[tuple[Role, Sequence[Piece]]]) -> list[int]:
        return [self.ledger.message(Draft(role, tuple(pieces))) for role, pieces in parts if pieces]

    def _pieces(self, request: Request, tail: Piece | None, begin: int) -> list[Piece]:
        """A prompt from token `begin` on; its first piece is what is left of the block in which that falls."""
        at = min(begin // self.origin.block, len(request.hashes))
        pieces = [self._hashed(h) for h in request.hashes[at:]] + ([tail] if tail else [])
        return _split(pieces, begin - at * self.origin.block)[1]

    def _hashed(self, value: int) -> Piece:
        return block_piece(digest_of(self.origin.format, *self.origin.scope, str(value)), self.origin.block, "derived")

    def _tail(self, request: Request, following: Request | None, chain: int, at: int) -> Piece | None:
        """The tokens after the last full block."""
        tokens = request.prompt - len(request.hashes) * self.origin.block
        if not tokens:
            return None
        full = len(request.hashes)
        if following is not None and len(following.hashes) > full and following.hashes[:full] == request.hashes:
            return replace(self._hashed(following.hashes[full]), tokens=tokens)
        if request.tail is not None:
            return replace(self._hashed(request.tail), tokens=tokens)
        return block_piece(digest_of(self.origin.format, self.id, "tail", str(chain), str(at)), tokens, "derived")

    def _output(self, request: Request, chain: int, at: int) -> int | None:
        if not request.out:
            return None
        piece = block_piece(
            digest_of(self.origin.format, self.id, "output", str(chain), str(at)), request.out, "recorded"
        )
        return self.ledger.message(Draft("assistant", (piece,)))

    def _threads(self, calls: list[Call]) -> tuple[list[Thread], dict[int, tuple[int, ...]]]:
        """Sub-agents by time: started by the last main call that had ended, joined by the first that came after."""
        main = [c for c in calls if c.thread == 0]
        threads = [Thread(id=0)]
        joins: dict[int, tuple[int, ...]] = {}
        for number, chain in enumerate(self.chains[1:], start=1):
            begin, end = chain.begin, chain.end
            own = next((c.id for c in calls if c.thread == number), len(calls))
            ended = [c for c in main if c.id < own and c.end_s is not None]
            before = [c for c in ended if begin is not None and (c.end_s or 0.0) <= begin + TIME_SLACK_S]
            spawn = before[-1] if before else None
            after = [c for c in main if end is not None and c.start_s is not None and c.start_s >= end - TIME_SLACK_S]
            later = [c for c in after if spawn is None or c.id > spawn.id]
            if later:
                joins[later[0].id] = (*joins.get(later[0].id, ()), number)
            following = next((c for c in main if spawn is None or c.id > spawn.id), None)
            began = 0.0 if spawn is None or spawn.end_s is None or begin is None else begin - spawn.end_s
            threads.append(
                Thread(
                    id=number,
                    parent=0,
                    spawn_call=None if spawn is None else spawn.id,
                    spawn_delay_s=round(max(0.0, began if spawn is not None else begin or 0.0), 6),
                    name=chain.name,
                    background=not later or following is None or later[0].id != following.id,
                )
            )
        return threads, joins


def block_piece(digest: str, tokens: int, mark: Mark) -> Piece:
    return Piece(digest, _KINDS[int(digest[:2], 16) % len(_KINDS)], tokens, mark=mark)


def _rest_of(piece: Piece, tokens: int) -> Piece:
    """What follows the first `tokens` tokens of a block: other text, told by its own digest."""
    digest = digest_of(piece.digest, "from", str(tokens))
    return Piece(digest, piece.kind, piece.tokens - tokens, mark=piece.mark)


def _split(pieces: Sequence[Piece], tokens: int) -> tuple[list[Piece], list[Piece]]:
    left = tokens
    for at, piece in enumerate(pieces):
        if piece.tokens > left:
            head = [Piece(piece.digest, piece.kind, left, mark=piece.mark)] if left else []
            return [*pieces[:at], *head], [_rest_of(piece, left) if left else piece, *pieces[at + 1 :]]
        left -= piece.tokens
    return list(pieces), []


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    most = min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    return next(i for i in range(most) if a[i] != b[i])


def _monotone(starts: Sequence[tuple[int, float | None]]) -> list[float]:
    latest: dict[int, float] = {}
    out = []
    for chain, start in starts:
        latest[chain] = max(latest.get(chain, 0.0), start or 0.0)
        out.append(latest[chain])
    return out


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _call(number: int, p: _Placed, base: int | None) -> Call:
    r = p.request
    # a sub-agent's times count from its start, which is its end less its duration; lengths give the other moments
    derived = {"start": r.start if p.chain else None, "first": r.first, "end": r.end}
    return Call(
        id=number,
        thread=p.chain,
        append=p.append,
        base=base,
        keep=p.keep if base is not None else 0,
        output=p.output,
        usage=Usage(prompt=r.prompt, completion=r.out),
        start_s=_rounded(r.start),
        first_s=_rounded(r.first),
        end_s=_rounded(r.end),
        stop=r.stop,
        model=r.model,
        marks={figure: "derived" for figure, moment in derived.items() if moment is not None},
    )


def _joined(call: Call, threads: tuple[int, ...]) -> Call:
    return replace(call, joins=threads) if threads else call


def _waits(calls: list[Call], requests: dict[int, Request]) -> Iterator[Wait]:
    """Think time by its cause; what a join covers of it is the sub-agents'."""
    last: dict[int, Call] = {}
    ends: dict[int, float] = {}
    for call in calls:
        if call.end_s is not None:
            ends[call.thread] = max(ends.get(call.thread, 0.0), call.end_s)
    for call in calls:
        before, request = last.get(call.thread), requests[call.id]
        last[call.thread] = call
        if before is None:
            continue
        rest = request.think
        if call.joins:
            done = max((ends[t] for t in call.joins if t in ends), default=None)
            known = rest is not None and done is not None and before.end_s is not None
            joined = min(rest or 0.0, max(0.0, (done or 0.0) - (before.end_s or 0.0))) if known else None
            yield Wait(call.id, "subagent", _rounded(joined), mark="derived")
            rest = None if rest is None else rest - (joined or 0.0)
        yield Wait(call.id, request.cause, _rounded(rest), mark="derived" if call.joins else request.think_mark)
