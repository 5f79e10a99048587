"""What a log says, before its token counts are settled: the form that readers hand to the assembler.

A reader turns its format into threads of exchanges: what came into the prompt since the exchange before, what the
model wrote, and the recorded figures. Token counts here are estimates; `ledger` settles them against the recorded
prompt sizes.
"""

import base64
import binascii
import re

from msgspec import Struct

from windtunnel.traces.importers.records import dumps, parse_json
from windtunnel.traces.model import CallKind, Mark, Role, TextKind, digest_of
from windtunnel.traces.text import estimate_tokens, kind_of

IMAGE_TOKENS = 1_500
"""For an image whose size cannot be told."""
_PIXELS_PER_TOKEN = 750
_PNG_HEADER = 24


class Piece(Struct, frozen=True):
    """A stretch of prompt or output text with an estimated token count."""

    digest: str
    kind: TextKind
    tokens: int
    text: str | None = None
    media: str | None = None
    filler: bool = False
    mark: Mark = "estimated"


class Asked(Struct, frozen=True):
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: Piece


class Draft(Struct, frozen=True):
    """A message whose tokens are estimates."""

    role: Role
    pieces: tuple[Piece, ...] = ()
    reasoning: tuple[Piece, ...] = ()
    calls: tuple[Asked, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def visible(self) -> int:
        return sum(p.tokens for p in self.pieces) + sum(c.arguments.tokens for c in self.calls)

    def hidden(self) -> int:
        return sum(p.tokens for p in self.reasoning)

    def is_empty(self) -> bool:
        return not (self.pieces or self.reasoning or self.calls)


class ToolSchemas(Struct, frozen=True):
    names: tuple[str, ...]
    piece: Piece
    """The JSON text of all of them."""

    def each(self) -> tuple[Piece, ...]:
        """A piece for each tool, without marks of a provider's cache; the whole text where it is no list of tools.

        A namespace is one piece with several names.
        """
        try:
            value = parse_json((self.piece.text or "").encode("utf-8", "surrogatepass"))
        except ValueError:
            return (self.piece,)
        tools = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
        if not isinstance(value, list) or not 1 < len(tools) == len(value) <= len(self.names):
            return (self.piece,)
        bare = ({k: v for k, v in tool.items() if k != "cache_control"} for tool in tools)
        return tuple(text_piece(dumps(tool), "json") for tool in bare)


class Tool(Struct):
    """One run of a tool. Times are Unix seconds."""

    id: str
    name: str
    start: float | None = None
    end: float | None = None
    took: float | None = None
    """Its length in seconds, where the source says that but not when."""
    error: bool = False
    thread: str | None = None
    """Key of the sub-agent thread that it started."""
    blocking: bool = False
    """Its result is the sub-agent's: the parent waited for the thread."""
    mark: Mark = "recorded"


class Exchange(Struct):
    """One LLM request and its answer. Times are Unix seconds, None where unknown."""

    key: str
    line: int = 0
    fresh: list[Draft] = []
    """What came into the prompt since the exchange before, the previous output apart."""
    output: Draft | None = None
    prompt: int | None = None
    cached: int | None = None
    created: int | None = None
    """Tokens written to the provider's cache, where it says."""
    completion: int | None = None
    placeholder: int | None = None
    """The recorded completion, where `completion` is an estimate instead."""
    reasoning: int | None = None
    start: float | None = None
    first: float | None = None
    """When the first byte of the answer came."""
    end: float | None = None
    arrived: float | None = None
    """When the last of `fresh` came."""
    asked_at: float | None = None
    """When a person's prompt among `fresh` came; None when there was none."""
    human: bool = False
    """A person's prompt is among `fresh`."""
    model: str | None = None
    stop: str | None = None
    max_tokens: int | None = None
    effort: str | None = None
    kind: CallKind = "turn"
    aborted: bool = False
    reset: bool = False
    """The context begins anew: the one before it was compacted."""
    aside: bool = False
    """A request with a system prompt and a context of its own: the thread's prompt goes on as if it had not been."""
    whole: bool = False
    """The source states that the previous prompt is a prefix of this one."""
    ttl_s: float = 300.0
    """How long the provider keeps what the exchange wrote to its cache, where it does so reliably."""
    tools: list[Tool] = []
    schemas: ToolSchemas | None = None
    joins: list[str] = []
    """Keys of the threads whose end this exchange waited for."""
    copied: tuple[str, str] | None = None
    """Session and thread that made the request, where the log only repeats it as history: no call of its own."""
    marks: dict[str, Mark] = {}

    def wrote(self, output: Draft) -> None:
        """What the model wrote; nothing at all where nothing was counted. A count that is not known is estimated."""
        self.output = None if output.is_empty() and not self.completion else output
        if self.completion is None and not self.aborted:
            self.completion = max(1, output.visible() + output.hidden())
            self.marks["completion"] = "estimated"


class ThreadDraft(Struct):
    key: str
    exchanges: list[Exchange] = []
    parent: str | None = None
    tool_call_id: str | None = None
    """The parent's tool call that started it."""
    name: str | None = None
    role: str = "main"
    """What its system prompt depends on: main, or the kind of sub-agent."""
    background: bool = False


def text_piece(text: str, kind: TextKind | None = None) -> Piece:
    kind = kind or kind_of(text)
    return Piece(digest=digest_of(text), kind=kind, tokens=estimate_tokens(text, kind), text=text)


def filler_piece(tokens: int, *key: str, kind: TextKind = "prose") -> Piece:
    """Stands for `tokens` tokens of text that the log does not hold."""
    return Piece(digest=digest_of("filler", *key), kind=kind, tokens=tokens, filler=True, mark="derived")


def media_piece(media: str, data: str) -> Piece:
    """A stand-in for an image or document given as base64 or by address."""
    return Piece(digest=digest_of("media", data), kind="prose", tokens=_media_tokens(media, data), media=media)


def _media_tokens(media: str, data: str) -> int:
    """Pixels over 750 for a PNG, whose size stands at its start (Anthropic's rule of thumb); a usual size otherwise."""
    if media != "image/png":
        return IMAGE_TOKENS
    try:
        head = base64.b64decode(data[: _PNG_HEADER * 2], validate=False)
    except (binascii.Error, ValueError):
        return IMAGE_TOKENS
    if len(head) < _PNG_HEADER or head[12:16] != b"IHDR":
        return IMAGE_TOKENS
    pixels = int.from_bytes(head[16:20], "big") * int.from_bytes(head[20:24], "big")
    return max(64, min(pixels // _PIXELS_PER_TOKEN, IMAGE_TOKENS))


_TAG = re.compile(r"<[^<>]{0,200}>")
_SPACE = re.compile(r"\s+")


def title_of(prompt: str, most: int = 40) -> str | None:
    """The first words of a prompt, without markup, at most `most` characters."""
    plain = _SPACE.sub(" ", _TAG.sub(" ", prompt[:2_000])).strip()
    if len(plain) > most:
        plain = plain[: most + 1].rpartition(" ")[0] or plain[:most]
    return plain or None
