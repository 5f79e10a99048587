"""From traces to ready prompts: which route, what fits, how the served tokenizer counts, and proof that it fits.

Everything that tokenises, renders or measures happens here, before the run; a turn then only joins ready bytes.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windtunnel.agents.isolation import as_text, make_salt, make_tag
from windtunnel.agents.prompt import Conversation, Dialect, Options, Prepared, Route, history_on, prepare
from windtunnel.agents.rendering import Rendering
from windtunnel.simulator.engines.base import Resolved
from windtunnel.simulator.engines.patience import patiently
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run.calibrate import Tokenizer, learn_rendering, refine
from windtunnel.simulator.run.config import RunConfig
from windtunnel.simulator.run.link import Link
from windtunnel.traces.calibration import Calibration
from windtunnel.traces.errors import EngineError, UsageError
from windtunnel.traces.fit import FitCounts, fit
from windtunnel.traces.format import fingerprint
from windtunnel.traces.model import Trace

Talk = Callable[[str], None]
PROOFS = 4
"""A session whose largest call turns out too long is fitted again with less room, at most this often."""
NEAR = 0.01
"""A largest call off by more than this share of its recorded prompt is rendered again with counted texts."""
TELL_S = 5.0
"""A preparation that takes long tells how far it is this often."""
PREPARE_S, PROOF_S = 600.0, 2.0
"""All questions of a preparation together take at most so long, and so much longer for each session."""
SPARE = 16
"""Tokens of extra room when a session is fitted again."""


class Seldom:
    """Tells how far something is, every few seconds at most."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.time() + TELL_S

    def __call__(self, text: str) -> None:
        now = self._loop.time()
        if now >= self._next:
            self._talk(text)
            self._next = now + TELL_S


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collections: what is prepared stays, and to look through all of it takes long, also once."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()


class Isolation(Struct, frozen=True):
    """How this run is kept apart from what the engine cached before; written to run.json."""

    mode: Literal["reset", "cache_salt", "text_salt", "none"]
    reset: bool = False
    """The engine confirmed that its cache was emptied."""
    salt: str | None = None
    note: str = ""


class Preparation(Struct, frozen=True):
    """What a run replays, ready to be sent."""

    traces: tuple[Trace, ...]
    prepared: tuple[Prepared, ...]
    route: Route
    rendering: Rendering
    max_context: int | None
    counts: FitCounts
    lengths_from: tuple[str, ...]
    options: Options
    isolation: Isolation
    proven: dict[str, int]
    """Tokens of each session's largest call, prompt as counted by the server + pinned output, by trace id."""

    def in_words(self) -> str:
        """How many sessions there are and what was done to them."""
        done = (
            (self.counts.scaled, "scaled down"),
            (self.counts.compacted, "compacted"),
            (self.counts.filtered, "left out"),
        )
        parts = [f"{count} {what} for a context of {self.max_context:,} tokens" for count, what in done if count]
        return ", ".join([f"{count(len(self.traces), 'session')} to draw from", *parts])

    def describe(self, paths: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The part of run.json that says what was replayed; `paths` are the traces' files by trace id."""
        changes: Counter[str] = Counter()
        for prepared in self.prepared:
            changes.update(prepared.changes)
        return {
            "route": self.route,
            "history": self.options.history or history_on(self.route),
            "max_context": self.max_context,
            "fit": msgspec.to_builtins(self.counts),
            "lengths_from": list(self.lengths_from),
            "isolation": msgspec.to_builtins(self.isolation),
            "prompt_changes": dict(sorted(changes.items())),
            "calibration": {
                "name": self.rendering.calibration.name,
                "measured": self.rendering.calibration.measured,
                "chars_per_token": self.rendering.calibration.ratio,
                "message_overhead": self.rendering.message_overhead,
                "fixed_overhead": self.rendering.fixed_overhead,
            },
            "traces": [
                {
                    "id": trace.header.id,
                    "title": trace.header.title,
                    "agent": trace.header.agent,
                    "source": trace.header.source,
                    "path": (paths or {}).get(trace.header.id),
                    "fingerprint": fingerprint(trace),
                    "synthetic": trace.header.synthetic,
                    "shape_only": trace.header.shape_only,
                    "calls": len(trace.calls),
                    "largest_call_tokens": self.proven.get(trace.header.id),
                }
                for trace in self.traces
            ],
        }


def choose_route(config: RunConfig, traces: Sequence[Trace], resolved: Resolved) -> Route:
    """`--api`, or: token ids where nothing readable would be lost and the engine takes them."""
    can = resolved.capabilities.token_prompts and resolved.capabilities.tokenize
    if config.api == "tokens" and not can:
        raise UsageError(
            "--api tokens: this server does not take token ids on /v1/completions together with /tokenize; "
            "use --api chat"
        )
    if config.api != "auto":
        return config.api
    return "tokens" if can and all(trace.header.shape_only for trace in traces) else "chat"


def room(config: RunConfig, resolved: Resolved) -> int | None:
    """Largest context in tokens: the flag, the server's limit, or None where neither says."""
    served = resolved.max_model_len
    if config.max_context is None:
        return served
    if served is not None and config.max_context > served:
        raise UsageError(f"--max-context {config.max_context}: the server takes at most {served} tokens")
    return config.max_context


async def isolate(config: RunConfig, link: Link, run_id: str) -> Isolation:
    """Empty the engine's cache if it can be, else salt the prompts; `--isolate` can insist on either."""
    if config.isolate == "none":
        return Isolation("none")
    note = ""
    if config.isolate in ("auto", "reset"):
        done, note = await link.adapter.reset(link.session, link.root)
        if done:
            return Isolation("reset", reset=True, note=note)
        if config.isolate == "reset":
            raise EngineError(f"--isolate reset: {note}")
    salt = make_salt(run_id)
    if link.resolved.capabilities.cache_salt and link.resolved.name != "openai":
        return Isolation("cache_salt", salt=salt, note=note)
    return Isolation("text_salt", salt=salt, note=note)


async def prepare_run(
    config: RunConfig,
    traces: Sequence[Trace],
    link: Link,
    *,
    run_id: str,
    talk: Talk,
    packed: bool = False,
    known: Callable[[str], Calibration] | None = None,
) -> Preparation:
    """All of it; raises UsageError when no session fits, EngineError when the server refuses or takes for ever.

    `packed`: prompts of token ids are not made into JSON. `known`: as for `learn_rendering`.
    """
    async with patiently(talk, link.root, PREPARE_S + PROOF_S * len(traces)):
        return await _prepared(config, traces, link, run_id, talk, packed=packed, known=known)


async def _prepared(
    config: RunConfig,
    traces: Sequence[Trace],
    link: Link,
    run_id: str,
    talk: Talk,
    *,
    packed: bool,
    known: Callable[[str], Calibration] | None,
) -> Preparation:
    resolved = link.resolved
    route = choose_route(config, traces, resolved)
    limit = room(config, resolved)
    tokenizer = Tokenizer(link.session, link.root, resolved.model) if resolved.capabilities.tokenize else None
    fitted = _fit(config, traces, limit, resolved)
    isolation = await isolate(config, link, run_id)
    seldom = Seldom(talk)
    talk("learning how the server counts tokens")
    tag_tokens, salt_tokens = await _label_tokens(tokenizer, isolation, run_id)
    rendering = await learn_rendering(
        tokenizer,
        resolved,
        [trace for _, trace in fitted] if route == "chat" else (),
        salt_tokens=salt_tokens,
        tag_tokens=tag_tokens,
        known=known,
        progress=lambda done, total: seldom(f"counted {done / 1e6:.1f} of {total / 1e6:.1f} MB of recorded text"),
    )
    options = _options(config, route, resolved, isolation)
    talk(f"preparing {count(len(fitted), 'session')}")
    prepared: list[Prepared] = []
    proven: dict[str, int] = {}
    changed = 0
    prove = Proof(config, route, rendering, options, limit, tokenizer, packed)
    with uncollected():
        for number, (original, trace) in enumerate(fitted):
            result = await prove.trace(trace)
            seldom(f"prepared {number + 1} of {count(len(fitted), 'session')}")
            if result is not None:
                prepared.append(result[0])
                proven[trace.header.id] = result[1]
                changed += result[0].trace is not original
    if not prepared:
        raise UsageError(
            f"no session fits a context of {limit} tokens with its template: {_room(config, resolved, ('scale',))}"
        )
    kept = tuple(one.trace for one in prepared)
    models = {model for trace in kept for model in trace.header.models}
    return Preparation(
        traces=kept,
        prepared=tuple(prepared),
        route=route,
        rendering=rendering,
        max_context=limit,
        counts=FitCounts(
            kept=len(kept) - changed,
            filtered=len(traces) - len(kept),
            scaled=changed if config.fit == "scale" else 0,
            compacted=changed if config.fit == "compact" else 0,
        ),
        lengths_from=tuple(sorted(models)),
        options=options,
        isolation=isolation,
        proven=proven,
    )


def _fit(
    config: RunConfig, traces: Sequence[Trace], limit: int | None, resolved: Resolved
) -> list[tuple[Trace, Trace]]:
    """Each session that fits, or was made to: as given, and as it will be replayed."""
    if limit is None:
        return [(trace, trace) for trace in traces]
    pairs = [(trace, fitted) for trace in traces for fitted in fit([trace], limit, config.fit)[0]]
    if not pairs:
        who = "the session does not fit" if len(traces) == 1 else f"none of the {len(traces)} sessions fits"
        raise UsageError(f"{who} a context of {limit} tokens: {_room(config, resolved, ('scale', 'compact'))}")
    return pairs


def _room(config: RunConfig, resolved: Resolved, modes: Sequence[str]) -> str:
    """What makes sessions fit that do not: of the modes those that were not given, and more context."""
    ways = " or ".join(f"--fit {mode}" for mode in modes if mode != config.fit)
    full = resolved.max_model_len is not None and config.max_context in (None, resolved.max_model_len)
    more = "a server that takes longer contexts" if full else "a larger --max-context"
    return f"use {ways}, or {more}" if ways else f"use {more}"


async def _label_tokens(tokenizer: Tokenizer | None, isolation: Isolation, run_id: str) -> tuple[int, int]:
    """Tokens that the tag of a trace's copy and a salt in the text cost."""
    tag = as_text(make_tag(run_id, "", 0))
    salt = as_text(isolation.salt) if isolation.mode == "text_salt" and isolation.salt else ""
    if tokenizer is None:
        return len(tag) // 4, len(salt) // 4
    return await tokenizer.count(tag), await tokenizer.count(salt) if salt else 0


def _options(config: RunConfig, route: Route, resolved: Resolved, isolation: Isolation) -> Options:
    """Request fields that this server was seen to take."""
    seen = resolved.capabilities
    dialect = Dialect(
        resolved.name,
        continuous_usage=seen.continuous_usage,
        ignore_eos=seen.ignore_eos,
        min_tokens=seen.ignore_eos,
        token_ids=seen.return_token_ids,
        cache_salt=isolation.mode == "cache_salt",
        sampling=seen.ignore_eos,
    )
    return Options(
        model=resolved.model,
        dialect=dialect,
        salt=isolation.salt if isolation.mode == "cache_salt" else None,
        text_salt=isolation.salt if isolation.mode == "text_salt" else None,
        history=None if config.history == "auto" else config.history,
        # On the chat route usage in each chunk counts as well, and the answer does not repeat the whole prompt's ids.
        token_ids=route == "tokens" or not seen.continuous_usage,
        natural=config.lengths == "natural",
    )


def tagged(options: Options, run_id: str, trace_id: str, copy: int) -> Options:
    """The options of one replay: its tag keeps it apart from other replays of the same trace."""
    return msgspec.structs.replace(options, tag=make_tag(run_id, trace_id, copy))


class Proof(Struct, frozen=True):
    """Has the server count each session's largest call, as it will be sent, before anything is replayed."""

    config: RunConfig
    route: Route
    rendering: Rendering
    options: Options
    limit: int | None
    tokenizer: Tokenizer | None
    packed: bool = False

    async def trace(self, trace: Trace) -> tuple[Prepared, int] | None:
        """The rendered trace and the tokens of its largest call; None when it cannot be made to fit."""
        room = self.limit
        for _ in range(PROOFS):
            prepared, total = await self._rendered(trace)
            if self.limit is None or room is None or total <= self.limit:
                return prepared, total
            room -= total - self.limit + SPARE
            fitted = fit([trace], room, self.config.fit)[0] if room > SPARE else []
            if not fitted:
                return None
            trace = fitted[0]
        return None

    async def _rendered(self, trace: Trace) -> tuple[Prepared, int]:
        """Rendered so that the largest call's prompt is as long as the trace says, and that call's tokens.

        A recorded text that is cut or continued to its recorded length is cut by proportion; where that missed, the
        results are counted and rendered once more.
        """
        prepared = prepare(trace, self.route, self.rendering, packed=self.packed)
        largest = max((c.id for c in trace.calls), key=lambda c: prepared.prompt_tokens(c) + prepared.pinned[c])
        prompt = await self.count(prepared, largest)
        wanted = trace.prompt_tokens()[largest]
        if self.tokenizer is not None and abs(prompt - wanted) > NEAR * wanted:
            closer = await refine(self.tokenizer, self.rendering, [prepared])
            if closer is not self.rendering:
                prepared = prepare(trace, self.route, closer, packed=self.packed)
                prompt = await self.count(prepared, largest)
        return prepared, prompt + prepared.pinned[largest]

    async def count(self, prepared: Prepared, call: int) -> int:
        """Prompt tokens of one call. Its history is what was recorded: nothing was generated yet."""
        if self.route == "tokens" or self.tokenizer is None:
            return prepared.prompt_tokens(call)
        options = tagged(self.options, "proof", prepared.trace.header.id, 0)
        request = msgspec.json.decode(b"".join(Conversation(prepared, options).body(call).parts))
        return await self.tokenizer.prove(request["messages"], request.get("tools") or ())
