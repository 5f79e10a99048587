"""An engine without a socket, behind the same `stream` as the real client's: for tests and runs on the virtual clock.

It answers in vLLM's words, at times worked out from the request alone, and remembers every prompt it was sent, so that
its cached tokens are those of a cache that never forgets.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.agents.clock import Clock
from windtunnel.agents.failures import Failure
from windtunnel.agents.http import RawStream

FIRST_ID, IDS_A_CALL = 1_000_000, 10_000
"""Generated ids differ between requests and are none of those that prompts are made of."""


class Asked(Struct, frozen=True):
    """One request as it arrived."""

    number: int
    """From 0, in order of arrival."""
    t: int
    path: str
    request_id: str
    body: dict[str, Any]
    cached: int
    """Tokens of the prompt's longest beginning that was sent or generated before; 0 for a prompt that is text."""

    @property
    def prompt(self) -> Any:
        """Token ids, or the messages."""
        return self.body.get("prompt", self.body.get("messages"))


class Answer(Struct, frozen=True):
    """What becomes of a request. Times in seconds, tokens otherwise."""

    first_s: float = 0.5
    token_s: float = 0.01
    """After the first token."""
    tokens: int | None = None
    """None: as many as were asked for."""
    per_chunk: int = 1
    reasoning: int = 0
    """So many of the first tokens are reasoning, on the chat route."""
    tool: int = 0
    """So many of the last tokens are a tool call, on the chat route."""
    prompt: int | None = None
    """Prompt tokens to report; None: the length of the prompt."""
    cached: int | None = None
    """None: those of `Asked.cached`, in whole units."""
    reports: bool = True
    """Usage is reported."""
    ids: bool = True
    """Token ids come with the chunks."""
    failure: Failure | None = None
    """How the connection ends, in place of the end of the stream."""
    fails_s: float = 0.0


class FakeClient:
    """`answer` decides about each request; all of them are kept in `asked`."""

    def __init__(self, clock: Clock, answer: Callable[[Asked], Answer] = lambda _: Answer(), *, unit: int = 1) -> None:
        self.clock = clock
        self.answer = answer
        self.unit = unit
        """Match unit of the prefix cache."""
        self.asked: list[Asked] = []
        self.in_flight = self.most_in_flight = 0
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        """The engine's own counters."""
        self.blocked = 0
        """There are no sockets; a test may say otherwise."""
        self._known: dict[int, Any] = {}
        """Every prompt seen, as a tree of ids."""

    async def stream(
        self,
        path: str,
        parts: Sequence[bytes],
        *,
        request_id: str,
        headers: Sequence[tuple[str, str]] = (),
        on_start: Callable[[RawStream], None] | None = None,
    ) -> RawStream:
        """As `StreamClient.stream`. `headers` change nothing."""
        del headers
        now = self.clock.now_ns()
        body = msgspec.json.decode(b"".join(parts))
        ids = body.get("prompt", [])
        asked = Asked(len(self.asked), now, path, request_id, body, self._remember(ids))
        self.asked.append(asked)
        answer = self.answer(asked)
        raw = RawStream(request_id=request_id, t_start=now)
        if on_start is not None:
            on_start(raw)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self._exchange(raw, asked, answer)
        finally:
            self.in_flight -= 1
            if raw.t_end is None:
                raw.failure, raw.t_end = Failure.ABORTED.value, self.clock.now_ns()
        return raw

    async def close(self) -> None:
        """Nothing is open."""

    async def _exchange(self, raw: RawStream, asked: Asked, answer: Answer) -> None:
        if answer.failure is not Failure.CONNECT_REFUSED:
            raw.t_write = raw.t_sent = asked.t
            raw.status = 200
        gone = None if answer.failure is None else asked.t + round(answer.fails_s * 1e9)
        wanted = int(asked.body["max_tokens"])
        total = wanted if answer.tokens is None else answer.tokens
        ids = [FIRST_ID + IDS_A_CALL * asked.number + i for i in range(total)]
        for start in range(0, total, answer.per_chunk):
            due = asked.t + round((answer.first_s + start * answer.token_s) * 1e9)
            if gone is not None and gone <= due:
                break
            await self.clock.sleep_until(due)
            chunk = ids[start : start + answer.per_chunk]
            finish = None if start + len(chunk) < total else "length"
            said = _said(asked.path, chunk, start < answer.reasoning, start >= total - answer.tool)
            ids_too = {"token_ids": chunk} if answer.ids else {}
            raw.pieces.append((due, _event(choices=[{"index": 0, **said, "finish_reason": finish, **ids_too}])))
            self.generated_tokens += len(chunk)
        if gone is not None:
            await self.clock.sleep_until(gone)
            raw.failure, raw.t_end = str(answer.failure), gone
            return
        self._remember([*asked.body.get("prompt", []), *ids[:-1]])  # the last token is never fed back
        end = self.clock.now_ns()
        if answer.reports:
            raw.pieces.append((end, _event(choices=[], usage=self._usage(asked, answer, total))))
        raw.pieces.append((end, b"data: [DONE]\n\n"))
        raw.t_end = end

    def _usage(self, asked: Asked, answer: Answer, total: int) -> dict[str, Any]:
        prompt = len(asked.prompt) if answer.prompt is None else answer.prompt
        cached = answer.cached
        if cached is None:  # the last token of a prompt is always computed
            cached = max(0, min(asked.cached, prompt - 1)) // self.unit * self.unit
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        details = {"cached_tokens": cached}
        return {"prompt_tokens": prompt, "completion_tokens": total, "prompt_tokens_details": details}

    def _remember(self, ids: Sequence[int]) -> int:
        """Tokens that were known already."""
        node, known, matching = self._known, 0, True
        for token in ids:
            matching = matching and token in node
            known += matching
            node = node.setdefault(token, {})
        return known


def _said(path: str, chunk: list[int], reasons: bool, calls: bool) -> dict[str, Any]:
    text = "".join(f"w{token % IDS_A_CALL} " for token in chunk)
    if not path.endswith("/chat/completions"):
        return {"text": text}
    if calls:
        return {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}}
    return {"delta": {"reasoning" if reasons else "content": text}}


def _event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"
