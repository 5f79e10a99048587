"""Anthropic's Messages as vLLM 0.32 reads them: turned into a chat request before anything else happens to them.

Facts of vllm/entrypoints/anthropic: which blocks count, how tool results become messages, which system text is dropped
(Claude Code's billing line, another on every request), and that `max_tokens` goes on as `max_completion_tokens`.
"""

import json
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from windtunnel.simulator.emulator.ask import ChatAsk, StreamOptions, invalid

_BILLING = "x-anthropic-billing-header"
_BLOCKS = {
    "text",
    "image",
    "tool_use",
    "tool_result",
    "tool_reference",
    "thinking",
    "redacted_thinking",
    "tool_addition",
    "tool_removal",
}

Block = dict[str, Any]


class Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class CountAsk(Struct):
    """What `/v1/messages/count_tokens` reads. Fields that change no token are left out here and below."""

    model: str
    messages: list[Message]
    system: str | list[Block] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesAsk(CountAsk, kw_only=True):
    max_tokens: int
    stream: bool | None = False
    cache_salt: str | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | float | None = None


def as_chat(ask: CountAsk, *, merges_system: bool) -> ChatAsk:
    """The chat request that vLLM makes of it. `merges_system`: the template takes a system message only in front."""
    _check(ask)
    chat = ChatAsk(
        model=ask.model,
        messages=[Raw(msgspec.json.encode(m)) for m in _messages(ask, merges_system=merges_system)],
        chat_template_kwargs=ask.chat_template_kwargs,
    )
    if ask.tools is not None:
        chat.tools = [Raw(msgspec.json.encode(_tool(tool))) for tool in ask.tools]
        chat.tool_choice = _choice(ask.tool_choice) or "auto"
    if ask.output_config:
        chat.reasoning_effort = ask.output_config.get("effort")
    if ask.thinking and ask.thinking.get("type") == "disabled":
        chat.reasoning_effort = "none"
    if isinstance(ask, MessagesAsk):
        chat.max_completion_tokens = chat.max_tokens = ask.max_tokens
        chat.cache_salt = ask.cache_salt
        chat.stream = ask.stream
        chat.stop = ask.stop_sequences
        chat.temperature, chat.top_p, chat.top_k = ask.temperature, ask.top_p, ask.top_k
        if ask.stream:
            chat.stream_options = StreamOptions(include_usage=True, continuous_usage_stats=True)
    return chat


def _check(ask: CountAsk) -> None:
    if not ask.model:
        raise invalid("body.model", "Model is required")
    for n, message in enumerate(ask.messages):
        for block in message.content if isinstance(message.content, list) else ():
            if block.get("type") not in _BLOCKS:
                raise invalid(f"body.messages.{n}.content", f"{block.get('type')!r} is no type of content block")
    if not isinstance(ask, MessagesAsk):
        return
    if ask.max_tokens <= 0:
        raise invalid("body.max_tokens", "max_tokens must be positive")
    thinking = ask.thinking or {}
    if thinking.get("type") == "enabled" and thinking.get("budget_tokens", 0) >= ask.max_tokens:
        raise invalid("body", "thinking.budget_tokens must be less than max_tokens")


def _messages(ask: CountAsk, *, merges_system: bool) -> Iterable[dict[str, Any]]:
    system = [] if ask.system is None else _system_texts(ask.system)
    if merges_system:
        system += [text for m in ask.messages if m.role == "system" for text in _system_texts(m.content)]
    if system:
        yield {"role": "system", "content": "".join(system)}
    for message in ask.messages:
        if message.role == "system":
            text = "".join(_system_texts(message.content))
            if text and not merges_system:
                yield {"role": "system", "content": text}
        elif isinstance(message.content, str):
            yield {"role": message.role, "content": message.content}
        else:
            yield from _blocks(message.role, message.content)


def _system_texts(content: str | list[Block]) -> list[str]:
    texts = [content] if isinstance(content, str) else [b.get("text") for b in content if b.get("type") == "text"]
    return [text for text in texts if text and not text.startswith(_BILLING)]


def _blocks(role: str, blocks: list[Block]) -> Iterable[dict[str, Any]]:
    """Tool results first, as messages of their own; then what is left of the message, if anything."""
    parts: list[Block] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for block in blocks:
        kind = block["type"]
        if kind == "text" and block.get("text"):
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "image" and block.get("source"):
            parts.append(_image(block["source"]))
        elif kind == "thinking" and block.get("thinking") is not None:
            thoughts.append(block["thinking"])
        elif kind == "tool_use":
            function = {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id") or "call_0", "type": "function", "function": function})
        elif kind == "tool_result" and role == "user":
            yield from _result(block)
        elif kind == "tool_result":
            parts.append({"type": "text", "text": f"Tool result: {block.get('content') or ''}"})
    message: dict[str, Any] = {"role": role}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if parts:
        alone = len(parts) == 1 and parts[0]["type"] == "text"
        message["content"] = parts[0]["text"] if alone else parts
    if parts or role != "user":
        yield message


def _result(block: Block) -> Iterable[dict[str, Any]]:
    content, ident = block.get("content"), block.get("tool_use_id") or ""
    items = [i for i in content if isinstance(i, dict)] if isinstance(content, list) else []
    text = content if isinstance(content, str) else "\n".join(i.get("text", "") for i in items if i["type"] == "text")
    yield {"role": "tool", "tool_call_id": ident, "content": text}
    images = [_image(item.get("source") or {}) for item in items if item.get("type") == "image"]
    if images:
        yield {"role": "user", "content": images}
    names = [i.get("tool_name") or i.get("name") for i in items if i.get("type") == "tool_reference"]
    references = [{"type": "tool_reference", "name": name} for name in names if name]
    if references:
        yield {"role": "tool", "tool_call_id": ident, "content": references}


def _image(source: dict[str, Any]) -> Block:
    return {"type": "image_url", "image_url": {"url": str(source.get("url") or source.get("media_type") or "")}}


def _choice(choice: dict[str, Any] | None) -> str | dict[str, Any] | None:
    if choice is None:
        return None
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return "required" if kind == "any" else str(kind)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema")
    if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
        raise invalid("body.tools", "each tool needs a `name` and an `input_schema`")
    schema.setdefault("type", "object")
    function = {"name": tool["name"], "description": tool.get("description"), "parameters": schema}
    function |= {key: tool[key] for key in ("strict", "defer_loading") if tool.get(key) is not None}
    return {"type": "function", "function": function}
