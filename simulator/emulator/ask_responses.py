"""OpenAI's Responses as vLLM 0.32 reads them: items become the messages of a chat.

Facts of vllm/entrypoints/openai/responses: which items join the message before them, which tools a model is shown
(functions, functions of a namespace, free-form custom tools as functions with one string), and what is refused.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from windtunnel.simulator.emulator.ask import ChatAsk, Refusal

Item = dict[str, Any]

_FREE_FORM = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What vLLM shows a model for a tool that takes plain text; its description counts as tokens."""


class ResponsesAsk(Struct):
    input: str | list[Item]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] = "auto"
    stream: bool | None = False
    store: bool | None = True
    background: bool | None = False
    previous_response_id: str | None = None
    previous_input_messages: list[Any] | None = None
    parallel_tool_calls: bool | None = True
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    service_tier: str = "auto"
    truncation: str | None = "disabled"
    max_tool_calls: int | None = None
    user: str | None = None
    include: list[str] | None = None
    cache_salt: str | None = None
    seed: int | None = None
    priority: int = 0
    ignore_eos: bool = False
    repetition_penalty: float | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    chat_template_kwargs: dict[str, Any] | None = None


def check(ask: ResponsesAsk, *, stores: bool) -> None:
    """Refusal where vLLM refuses before it looks at the input."""
    if ask.prompt is not None:
        raise Refusal("prompt template is not supported (parameter=prompt)", param="prompt")
    if ask.background and not ask.store:
        raise Refusal(
            "background can only be used when `store` is true (parameter=background)",
            param="background",
        )
    for tool in ask.tools:
        if tool.get("type") == "custom" and (tool.get("format") or {}).get("type") == "grammar":
            raise Refusal(
                "Custom tools with a grammar format are not supported; only free-form text custom tools are accepted. "
                "(parameter=tools)",
                param="tools",
            )
    named = isinstance(ask.tool_choice, dict) and ask.tool_choice.get("type") in ("function", "custom")
    if not ask.tools and ask.tool_choice == "required":
        raise Refusal(
            "Tool choice 'required' must be specified with 'tools' parameter. (parameter=tool_choice)",
            param="tool_choice",
        )
    if named and ask.tool_choice["name"] not in shown(ask.tools):  # type: ignore[index]
        raise Refusal(
            "Tool choice 'function' not found in 'tools' parameter. (parameter=tool_choice)", param="tool_choice"
        )
    if ask.background and not stores:
        raise Refusal(
            "This vLLM engine does not support `store=True` and therefore does not support the background mode. To "
            "enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching "
            "the vLLM server.",
            kind="invalid_request_error",
            param="background",
        )
    if ask.background:
        raise Refusal("The emulator does not model the background mode.", param="background")
    if "message.output_text.logprobs" in (ask.include or ()):
        raise Refusal("The emulator does not model `logprobs`.", param="include")
    if ask.previous_input_messages and ask.previous_response_id:
        raise Refusal(
            "Only one of `previous_input_messages` and `previous_response_id` can be set.",
            kind="invalid_request_error",
            param="previous_response_id",
        )


def missing(ident: str) -> Refusal:
    return Refusal(
        f"Response with id '{ident}' not found.", status=404, kind="invalid_request_error", param="response_id"
    )


def as_chat(ask: ResponsesAsk, before: list[Item]) -> ChatAsk:
    """The chat that the model sees; `before` are the messages of the response that this one goes on from."""
    effort = (ask.reasoning or {}).get("effort")
    goes_on = isinstance(ask.input, list) and bool(ask.input) and _partial(ask.input[-1])
    tools = [Raw(msgspec.json.encode(tool)) for tool in shown(ask.tools).values()]
    return ChatAsk(
        model=ask.model,
        messages=[Raw(msgspec.json.encode(message)) for message in messages(ask, before)],
        tools=tools or None,
        tool_choice="none" if ask.tool_choice == "none" else None,
        max_completion_tokens=ask.max_output_tokens,
        stream=ask.stream,
        ignore_eos=ask.ignore_eos,
        cache_salt=ask.cache_salt,
        seed=ask.seed,
        priority=ask.priority,
        stop=ask.stop or None,
        stop_token_ids=ask.stop_token_ids,
        include_stop_str_in_output=ask.include_stop_str_in_output,
        temperature=ask.temperature,
        top_p=ask.top_p,
        top_k=ask.top_k,
        min_p=ask.min_p,
        presence_penalty=ask.presence_penalty,
        frequency_penalty=ask.frequency_penalty,
        repetition_penalty=ask.repetition_penalty,
        chat_template_kwargs=ask.chat_template_kwargs,
        reasoning_effort=effort,
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
        add_special_tokens=True,
    )


def _partial(item: Item) -> bool:
    return item.get("type", "message") in ("message", "reasoning") and item.get("status") in (
        "in_progress",
        "incomplete",
    )


def messages(ask: ResponsesAsk, before: list[Item]) -> list[Item]:
    """Instructions, what went before without its instructions, and the new input."""
    out: list[Item] = [{"role": "system", "content": ask.instructions}] if ask.instructions else []
    out += [message for message in before if message.get("role") != "system"]
    if isinstance(ask.input, str):
        return [*out, {"role": "user", "content": ask.input}]
    fresh: list[Item] = []
    for item in ask.input:
        last = fresh[-1] if fresh and fresh[-1].get("role") == "assistant" else None
        message = _message(item, last)
        if message is not None:
            fresh.append(message)
    return out + fresh


def _message(item: Item, last: Item | None) -> Item | None:
    """The message of one item; None where it became part of the assistant's message before it."""
    kind, role = item.get("type"), item.get("role")
    if kind in ("function_call", "custom_tool_call"):
        call = _call(item)
        if last is not None:
            last.setdefault("tool_calls", []).append(call)
            return None
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "reasoning":
        return _joined(last, "reasoning", _thought(item))
    if kind in ("function_call_output", "custom_tool_call_output"):
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    if role == "assistant":
        content = item.get("content")
        text = content[0].get("text") if isinstance(content, list) and content else content
        if isinstance(text, str):
            return _joined(last, "content", text)
    if isinstance(role, str):
        return {key: value for key, value in item.items() if key != "type"}
    raise Refusal(f"Unsupported input item type: {kind} (parameter=input)", param="input")


def _joined(last: Item | None, key: str, text: str) -> Item | None:
    if last is not None and last.get(key) is None:
        last[key] = text
        return None
    return {"role": "assistant", key: text}


def _thought(item: Item) -> str:
    if item.get("encrypted_content"):
        raise Refusal("Encrypted content is not supported. (parameter=input)", param="input")
    for key in ("content", "summary"):
        parts = item.get(key)
        if parts:
            return str(parts[0].get("text", ""))
    return ""


def _call(item: Item) -> dict[str, Any]:
    name = str(item.get("name", ""))
    if item.get("namespace"):
        name = flat(str(item["namespace"]), name)
    arguments = item.get("arguments")
    if item.get("type") == "custom_tool_call":
        arguments = json.dumps({"input": item.get("input") or ""}, ensure_ascii=False)
    return {"id": item.get("call_id"), "function": {"name": name, "arguments": arguments}, "type": "function"}


def flat(namespace: str, name: str) -> str:
    return f"{namespace}__{name}"


def shown(tools: list[dict[str, Any]]) -> Mapping[str, dict[str, Any]]:
    """The tools that the model is shown, by name, as chat templates get them."""
    out: dict[str, dict[str, Any]] = {}
    for tool in tools:
        kind, name = tool.get("type"), str(tool.get("name"))
        if kind == "function":
            out[name] = _function(name, tool)
        elif kind == "namespace":
            inner = [t for t in tool.get("tools") or () if t.get("type") == "function"]
            out |= {flat(name, t["name"]): _function(flat(name, t["name"]), t) for t in inner}
        elif kind == "custom":
            out[name] = _function(name, {"description": tool.get("description"), "parameters": _FREE_FORM})
    return out


def _function(name: str, tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": tool.get("description"), "parameters": tool.get("parameters")}
    function |= {key: tool[key] for key in ("strict", "defer_loading") if tool.get(key) is not None}
    return {"type": "function", "function": function}
