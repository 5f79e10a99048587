"""The built-in chat template: ChatML in additive pieces, tools in front.

Each message is tokenised for itself and remembered under the bytes it came in, so that a turn of a long session costs
what it adds.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec import Raw, Struct

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.tokenizer import START, STOP, Vocabulary

_REMEMBERED = 1 << 24
"""Tokens kept of rendered messages: 64 MiB."""


class _Function(Struct):
    name: str = ""
    arguments: str | dict[str, Any] | None = None


class _Call(Struct):
    function: _Function


class _Part(Struct):
    type: str = "text"
    text: str = ""


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class ChatError(ValueError):
    """A message that the template cannot render; the text is what the client is told."""


class Renderer(Protocol):
    """A chat template: from a conversation to the token ids of its prompt."""

    @property
    def merges_system(self) -> bool:
        """Whether a system message may only stand in front: Messages' inline ones are then moved there."""
        ...

    def render(
        self,
        messages: Sequence[Raw],
        tools: Sequence[Raw] | None,
        *,
        generate: bool = True,
        goes_on: bool = False,
        special: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Tokens:
        """The prompt: tools, messages, and the opening of the answer when `generate`.

        `goes_on`: the last message stays open for the model to continue. `special`: the tokenizer may add its own
        tokens, such as a first one. `options`: further variables of the template. ChatError where it cannot.
        """
        ...


class Template:
    """The built-in one. It has no variables."""

    merges_system = False

    def __init__(self, tokenizer: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._remembered: OrderedDict[bytes, Tokens] = OrderedDict()
        self._tokens = 0
        self._message = msgspec.json.Decoder(_Message)

    def render(
        self,
        messages: Sequence[Raw],
        tools: Sequence[Raw] | None,
        *,
        generate: bool = True,
        goes_on: bool = False,
        special: bool = False,  # noqa: ARG002 - it adds none
        options: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Tokens:
        pieces = []
        if tools:
            pieces.append(self._wrapped("system", "# Tools\n\nYou may call one or more of these functions:\n<tools>\n"))
            pieces += [self._seen(b"tool", tool) for tool in tools]
            pieces.append(self._fixed("</tools>\n", STOP, "\n"))
        pieces += [self._seen(b"message", message) for message in messages]
        if generate:
            pieces.append(self._wrapped("assistant", ""))
        if goes_on and messages:
            pieces[-1] = pieces[-1][: -len(self._fixed(STOP, "\n"))]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint32)

    def _seen(self, kind: bytes, raw: Raw) -> Tokens:
        key = blake2b(memoryview(raw), digest_size=16, person=kind).digest()
        tokens = self._remembered.get(key)
        if tokens is not None:
            self._remembered.move_to_end(key)
            return tokens
        tokens = self._render_message(raw) if kind == b"message" else self._render_tool(raw)
        self._remembered[key] = tokens
        self._tokens += len(tokens)
        while self._tokens > _REMEMBERED and len(self._remembered) > 1:
            _, dropped = self._remembered.popitem(last=False)
            self._tokens -= len(dropped)
        return tokens

    def _render_message(self, raw: Raw) -> Tokens:
        try:
            message = self._message.decode(raw)
        except msgspec.ValidationError as error:
            raise ChatError(f"Invalid message: {error}") from None
        content = message.content
        if isinstance(content, list):
            if any(part.type not in ("text", "input_text", "output_text", "refusal") for part in content):
                raise ChatError("At most 0 image(s) may be provided in one prompt.")
            content = "".join(part.text for part in content)
        reasoning = message.reasoning or message.reasoning_content
        text = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
        text += content or ""
        for call in message.tool_calls or ():
            arguments = call.function.arguments
            if not isinstance(arguments, str):
                arguments = msgspec.json.encode(arguments or {}).decode()
            text += f'\n<tool_call>\n{{"name": "{call.function.name}", "arguments": {arguments}}}\n</tool_call>'
        return np.concatenate([self._wrapped(message.role, text), self._fixed(STOP, "\n")])

    def _render_tool(self, raw: Raw) -> Tokens:
        schema = msgspec.json.decode(raw)
        if not isinstance(schema, dict) or not isinstance(schema.get("function"), dict):
            raise ChatError("Each tool must be an object with a `function`.")
        return self._tokenizer.encode(msgspec.json.encode(schema).decode() + "\n")

    def _wrapped(self, role: str, text: str) -> Tokens:
        return np.concatenate([self._fixed(START, f"{role}\n"), self._tokenizer.encode(text)])

    def _fixed(self, *pieces: int | str) -> Tokens:
        return np.concatenate(
            [np.array([p], dtype=np.uint32) if isinstance(p, int) else self._tokenizer.encode(p) for p in pieces]
        )
