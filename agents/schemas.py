"""Tool schemas and tool-call arguments in the one shape that strict servers and templates accept."""

import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def dumps(value: Any) -> str:
    """JSON as chat templates write it: spaces after separators, no escapes for non-ASCII."""
    return clean(json.dumps(value, ensure_ascii=False))


def clean(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates become replacement characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def call_id(recorded: str) -> str:
    """Nine letters and digits, as the strictest template wants; equal ids stay equal."""
    number = int.from_bytes(blake2b(recorded.encode("utf-8", "replace"), digest_size=8).digest(), "big")
    letters = []
    for _ in range(9):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


def tool_name(recorded: str) -> str:
    return _NAME.sub("_", recorded)[:64] or "tool"


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, with broad JSON (NaN, control characters in strings) read too; else None."""
    try:
        value = json.loads(text, strict=False, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def rendered_arguments(text: str) -> str | None:
    """Recorded arguments as templates write them; None when they are no JSON object."""
    value = parse_object(text)
    return None if value is None else dumps(value)


def arguments_json(value: dict[str, Any]) -> bytes:
    """The arguments as a JSON string's inside: escaped JSON."""
    return escape(dumps(value))


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def escape(text: str) -> bytes:
    """A text as the inside of a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def longest_string(value: Any) -> tuple[list[Any], str] | None:
    """Path and text of the longest string inside a JSON value."""
    best: tuple[list[Any], str] | None = None
    for path, text in _strings(value, []):
        if best is None or len(text) > len(best[1]):
            best = (path, text)
    return best


def _strings(value: Any, path: list[Any]) -> Iterator[tuple[list[Any], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, [*path, key])
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _strings(inner, [*path, index])


def with_string(value: dict[str, Any], path: list[Any], text: str) -> dict[str, Any]:
    """`value` with the string at `path` replaced; changes `value`."""
    inner: Any = value
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = text
    return value


def openai_tools(text: str) -> list[dict[str, Any]] | None:
    """Recorded schemas (OpenAI chat, OpenAI responses or Anthropic shape) as OpenAI chat tools; None when unusable.

    The text is one schema or a list of them.
    """
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    items = value if isinstance(value, list) else [value]
    out = [tool for tool in (_openai_tool(item) for item in items) if tool is not None]
    return out or None


def _openai_tool(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, dict):
        return None
    function = item.get("function")
    inner = function if isinstance(function, dict) else item
    name = inner.get("name")
    if not isinstance(name, str):
        return None
    description = inner.get("description")
    parameters = inner.get("parameters", inner.get("input_schema"))
    if not isinstance(parameters, dict):
        parameters = {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {
            "name": tool_name(name),
            "description": description if isinstance(description, str) else "",
            "parameters": parameters,
        },
    }


def rendered_tool(tool: dict[str, Any]) -> str:
    """A tool roughly as a template writes it: its JSON on a line. The line's end goes with it, as tokenizers merge it
    with the brackets before it and not with what follows.
    """
    return dumps(tool) + "\n"


def rendered_tools(tools: list[dict[str, Any]]) -> str:
    """All tools of a request, a line each."""
    return "".join(map(rendered_tool, tools)).removesuffix("\n")
