"""A model's own chat template, from its folder, rendered as vLLM 0.32 has Hugging Face's library render it.

Facts of vllm/renderers and transformers/utils/chat_template_utils.py: what a message holds when the template sees it,
which functions and filters a template has, when contents are lists, and how developer messages are shown to templates
that know none.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.template import ChatError
from windtunnel.simulator.emulator.template_contents import environment, lists_contents
from windtunnel.simulator.emulator.tokenizer_folder import INSTALL, FolderTokenizer, config
from windtunnel.traces.errors import UsageError

Message = dict[str, Any]

_OPEN = "CONTINUE_FINAL_MESSAGE_TAG "
_TEXTS = ("text", "input_text", "output_text", "refusal", "thinking")
_BILLING = "x-anthropic-billing-header"


class FolderTemplate:
    def __init__(self, folder: Path, tokenizer: FolderTokenizer) -> None:
        try:
            import jinja2
        except ImportError:
            raise UsageError(INSTALL) from None
        self._tokenizer = tokenizer
        self._errors = jinja2.TemplateError
        sources = _sources(folder)
        try:
            self._plain = _compiled(sources.get("default") or next(iter(sources.values())))
            self._tools = _compiled(sources["tool_use"]) if "tool_use" in sources else self._plain
        except jinja2.TemplateError as error:
            raise UsageError(f"The chat template of {folder} is no template: {error}.") from None
        texts = {id(self._plain): sources.get("default") or next(iter(sources.values()))}
        texts[id(self._tools)] = sources.get("tool_use", texts[id(self._plain)])
        self._texts = texts
        self._lists = {key: lists_contents(text) for key, text in texts.items()}
        self.merges_system = any(_only_in_front(text) for text in texts.values())

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
        text = self.text(messages, tools, generate=generate, goes_on=goes_on, options=options)
        return self._tokenizer.encode(text, special=special)

    def text(
        self,
        messages: Sequence[Raw],
        tools: Sequence[Raw] | None,
        *,
        generate: bool = True,
        goes_on: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt before it becomes tokens."""
        given = dict(options or {})
        unexpected = {"chat_template", "tokenize"} & set(given)
        if unexpected:
            raise ChatError(f"Found unexpected chat template kwargs from request: {unexpected}")
        template = self._tools if tools is not None else self._plain
        lists = self._lists[id(template)]
        talk = [_message(msgspec.json.decode(raw), lists=lists) for raw in messages]
        source = self._texts[id(template)]
        if "'developer'" not in source and '"developer"' not in source:
            talk = _without_developers(talk)
        if goes_on:
            _leave_open(talk)
        shown = None if tools is None else [_tool(msgspec.json.decode(raw)) for raw in tools]
        variables = {**self._tokenizer.special, "documents": None, **given}
        variables |= {"messages": talk, "tools": shown, "add_generation_prompt": generate}
        try:
            text: str = template.render(**variables)
        except (self._errors, TypeError, ValueError, KeyError, IndexError) as error:
            raise ChatError(str(error)) from None
        return _opened(text) if goes_on else text


def _sources(folder: Path) -> dict[str, str]:
    """Templates by name: the file beside the tokenizer goes before the one in its configuration."""
    beside = folder / "chat_template.jinja"
    found: Any = config(folder, "tokenizer_config.json").get("chat_template")
    sources = {"default": found} if isinstance(found, str) else {}
    if isinstance(found, list):
        sources = {str(row["name"]): str(row["template"]) for row in found}
    if beside.is_file():
        sources = {"default": beside.read_text(encoding="utf-8")}
    more = folder / "additional_chat_templates"
    sources |= {path.stem: path.read_text(encoding="utf-8") for path in sorted(more.glob("*.jinja"))}
    if not sources:
        raise UsageError(
            f"--tokenizer {folder}: there is no chat template in it, neither as chat_template.jinja nor in "
            f"tokenizer_config.json."
        )
    return sources


def _compiled(source: str) -> Any:
    from jinja2 import TemplateError

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    made = environment()
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return made.from_string(source)


def _only_in_front(source: str) -> bool:
    """Whether a second system message fails, tried as vLLM tries it: without the functions that templates may use."""
    from jinja2 import TemplateError

    talk = [{"role": role, "content": "t"} for role in ("system", "user") * 2]
    try:
        environment().from_string(source).render(messages=talk, add_generation_prompt=False)
    except TemplateError:
        return True
    return False


def _message(given: Any, *, lists: bool) -> Message:
    """What a template sees of a message."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ChatError("Invalid message: each needs a `role`.")
    role = given["role"]
    parts = _parts(given.get("content"), role)
    message: Message = {"role": role, "content": parts if lists else "\n".join(p["text"] for p in parts)}
    if role == "assistant":
        if given.get("tool_calls"):
            message["tool_calls"] = [_call(call) for call in given["tool_calls"]]
        if given.get("reasoning") is not None:
            message["reasoning"] = message["reasoning_content"] = given["reasoning"]
    elif role == "tool":
        if "tool_call_id" in given:
            message["tool_call_id"] = given["tool_call_id"]
        if lists and all(part["type"] == "text" for part in parts):
            message["content"] = "\n".join(part["text"] for part in parts)
    if isinstance(given.get("name"), str):
        message["name"] = given["name"]
    if role == "developer":
        message["tools"] = given.get("tools")
    return message


def _parts(content: Any, role: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ChatError("Invalid message: `content` is neither text nor a list.")
    parts = []
    for given in content:
        part = {"type": "text", "text": given} if isinstance(given, str) else given
        kind = part.get("type")
        if kind == "tool_reference":
            parts.append({"type": kind, "name": part.get("name"), "text": str(part.get("name"))})
            continue
        if kind not in _TEXTS:
            raise ChatError("At most 0 image(s) may be provided in one prompt.")
        text = part.get(kind if kind in ("refusal", "thinking") else "text")
        if text is None:
            continue
        if role == "system" and text.startswith(_BILLING):
            text = text.partition("\n")[2]
            if not text:
                continue
        parts.append({"type": "text", "text": text})
    return parts


def _call(call: Any) -> dict[str, Any]:
    """Arguments become an object, an empty one where they are none."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise ChatError("chat completions only support assistant tool_calls of type 'function'.")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = None
    function = {**function, "arguments": arguments if isinstance(arguments, dict) else {}}
    return {**call, "function": function}


def _tool(given: Any) -> dict[str, Any]:
    """The fields that vLLM knows, in its order: a template may print the whole object."""
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict):
        raise ChatError("Each tool must be an object with a `function`.")
    shown = {key: function.get(key) for key in ("name", "description", "parameters")}
    later = function.get("defer_loading", given.get("defer_loading"))
    shown |= {k: v for k, v in (("strict", function.get("strict")), ("defer_loading", later)) if v is not None}
    tool: dict[str, Any] = {"type": "function", "function": shown}
    if given.get("defer_loading") is not None:
        tool["defer_loading"] = given["defer_loading"]
    return tool


def _without_developers(talk: list[Message]) -> list[Message]:
    """Developers' messages become the system's, and all of these one in front."""
    if not any(message["role"] == "developer" for message in talk):
        return talk
    texts, others = [], []
    for message in talk:
        if message["role"] in ("developer", "system"):
            content = message["content"]
            texts.append(content if isinstance(content, str) else "\n".join(part["text"] for part in content))
        else:
            others.append(message)
    if len(texts) == 1 and talk[0]["role"] in ("developer", "system"):
        return [{k: v for k, v in talk[0].items() if k != "tools"} | {"role": "system"}, *others]
    return [{"role": "system", "content": "\n\n".join(text for text in texts if text)}, *others]


def _leave_open(talk: list[Message]) -> None:
    """A mark behind the last message's text: what the template puts after it is cut off."""
    content = talk[-1].get("content") if talk else None
    if isinstance(content, list) and content and "text" in content[-1]:
        content[-1]["text"] += _OPEN
    elif isinstance(content, str):
        talk[-1]["content"] = content + _OPEN
    else:
        raise ChatError("continue_final_message is set but the final message has no content to continue!")


def _opened(text: str) -> str:
    at = text.rfind(_OPEN.strip())
    if at < 0:
        raise ChatError("continue_final_message is set but the final message does not appear in the chat.")
    return text[:at] if text[at : at + len(_OPEN)] == _OPEN else text[:at].rstrip()
