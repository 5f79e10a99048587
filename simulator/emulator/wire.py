"""What a stream looks like on the wire: vLLM's chunks, put together from parts that are encoded once.

Field order and presence are those of vLLM 0.32: a chat stream opens with an empty role chunk beside the first token,
the last token's chunk carries the finish reason, usage follows in a chunk without choices.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.request import FinishReason
from windtunnel.simulator.emulator.tokenizer import Tokenizer

_json = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


class Style(Struct, frozen=True):
    """What one request asked its stream to carry."""

    chat: bool
    token_ids: bool = False
    usage: bool = False
    continuous: bool = False
    """Usage beside every chunk."""
    details: bool = True
    """Cached tokens in the last usage."""


class Pieces:
    """JSON text of each token, without quotes, encoded when first seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._seen: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        seen = self._seen.get(token)
        if seen is None:
            seen = self._seen[token] = _json(self._tokenizer.decode([token]))[1:-1]
        return seen


class Wire:
    """One stream's chunks as bytes."""

    def __init__(self, style: Style, pieces: Pieces, ident: str, created: int, model: str, prompt_tokens: int) -> None:
        self._style = style
        self._pieces = pieces
        self._prompt_tokens = prompt_tokens
        self._count = 0
        kind = b"chat.completion.chunk" if style.chat else b"text_completion"
        self._head = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            _json(ident),
            kind,
            created,
            _json(model),
        )
        opening = b'{"index":0,"delta":{"content":"' if style.chat else b'{"index":0,"text":"'
        self._before = self._head + opening

    def opening(self, prompt: Sequence[int] | None) -> bytes:
        """The role chunk of a chat stream; nothing on the completions route."""
        if not self._style.chat:
            return b""
        return (
            b'%b{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]%b%b}\n\n'
            % (
                self._head,
                b',"prompt_token_ids":%b,"prompt_text":null' % (b"null" if prompt is None else _json(prompt)),
                self._usage_now(),
            )
        )

    def token(self, token: int, finished: FinishReason | None, prompt: Sequence[int] | None = None) -> bytes:
        """One output token; `prompt` are the ids to show with it (completions route, first chunk)."""
        self._count += 1
        style = self._style
        ids = b"[%d]" % token if style.token_ids else b"null"
        reason = b"null" if finished is None else b'"%b"' % finished.encode()
        if style.chat:
            stop = b"" if finished is None else b',"stop_reason":null'
            rest = b'"},"logprobs":null,"finish_reason":%b%b,"token_ids":%b}]' % (reason, stop, ids)
        else:
            shown = b"null" if prompt is None else _json(prompt)
            rest = b'","logprobs":null,"finish_reason":%b,"stop_reason":null,"prompt_token_ids":%b,"token_ids":%b}]' % (
                reason,
                shown,
                ids,
            )
        return b"%b%b%b%b}\n\n" % (self._before, self._pieces[token], rest, self._usage_now())

    def closing(self, cached: int, created: int) -> bytes:
        """The usage chunk, where asked for, and the end marker."""
        if not self._style.usage:
            return DONE
        body = usage(self._style, self._prompt_tokens, self._count, cached, created)
        return b'%b],"usage":%b}\n\n%b' % (self._head, _json(body), DONE)

    def _usage_now(self) -> bytes:
        if not self._style.continuous:
            return b""
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
            self._prompt_tokens,
            self._prompt_tokens + self._count,
            self._count,
        )


def usage(style: Style, prompt: int, completion: int, cached: int, created: int) -> dict[str, object]:
    """The usage object of a finished request."""
    out: dict[str, object] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
    if style.details:
        details = {"cached_tokens": cached}
        if style.chat:
            details["created_cache_tokens"] = created
        out["prompt_tokens_details"] = details
    return out
