"""Requests as clients send them, and vLLM's rules about what it refuses."""

import re
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.flags import Settings
from windtunnel.simulator.emulator.template import ChatError, Renderer
from windtunnel.simulator.emulator.tokenizer import Vocabulary

_NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of ours
    """An answer with an error: HTTP status, vLLM's error type, the parameter at fault."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
        value: object = None,
    ) -> None:
        """`value`: of the parameter; vLLM says both behind its sentence."""
        if value is not None:
            message += f" (parameter={param}, value={value})"
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


def misshapen(error: msgspec.DecodeError) -> Refusal:
    """A body of the wrong form: vLLM's web framework refuses it before the route sees it."""
    field = re.search(r"missing required field `(\w+)`", str(error))
    where = f"body.{field[1]}" if field else "body"
    what = "Field required" if field else str(error)
    return invalid(where, what)


def invalid(where: str, what: str) -> Refusal:
    """A body of the wrong form: answered by the server in front of the route, in the shape of the OpenAI routes."""
    return Refusal(f"1 validation error:\n  {where}: {what}", kind="Bad Request", param=where)


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Ask(Struct):
    """The fields that both generating routes share. Others are accepted and change nothing."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    seed: int | None = None
    priority: int = 0
    n: int | None = 1
    logprobs: bool | int | None = None
    prompt_logprobs: int | None = None
    echo: bool | None = False
    use_beam_search: bool = False
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None


class ChatAsk(Ask):
    messages: list[Raw] = []
    tools: list[Raw] | None = None
    tool_choice: str | dict[str, Any] | UnsetType | None = UNSET
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    """Conversations have them in their template."""
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    top_logprobs: int | None = None


class CompletionAsk(Ask):
    prompt: str | list[Any] | None = None
    add_special_tokens: bool = True


class TokenizeAsk(Struct):
    model: str | None = None
    prompt: str | None = None
    messages: list[Raw] | None = None
    tools: list[Raw] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    """None: for texts, not for conversations."""
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    return_token_strs: bool | None = False


class DetokenizeAsk(Struct):
    tokens: list[int]
    model: str | None = None


def check_model(model: str | None, settings: Settings) -> str:
    """The name to answer under."""
    if model and model not in settings.served:
        raise Refusal(
            f"The model `{model}` does not exist. Valid aliases: {', '.join(settings.served)}.",
            status=404,
            kind="NotFoundError",
            param="model",
        )
    return model or settings.served[0]


def chat_prompt(ask: ChatAsk, settings: Settings, template: Renderer) -> Tokens:
    """Token ids of a conversation."""
    if not ask.messages:
        raise Refusal("`messages` must hold at least one message.", param="messages")
    if ask.tools is not None and not ask.tools:
        raise Refusal(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
    choice = ask.tool_choice
    if choice is UNSET:
        choice = "auto" if ask.tools else None
    if choice not in (None, "none"):
        if not ask.tools:
            raise Refusal("When using `tool_choice`, `tools` must be set.", param="tool_choice")
        if isinstance(choice, str) and choice not in ("auto", "required"):
            raise Refusal(
                f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are '
                "supported.",
                param="tool_choice",
            )
        if not settings.auto_tools:
            wanted = (
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
                if choice == "auto"
                else f"tool_choice={choice!r} requires --tool-call-parser to be set"
            )
            raise Refusal(wanted)
    return rendered(ask, template)


def rendered(ask: ChatAsk | TokenizeAsk, template: Renderer) -> Tokens:
    """Token ids of a conversation, without a look at who may call what."""
    if ask.continue_final_message and ask.add_generation_prompt:
        raise Refusal("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    options = dict(ask.chat_template_kwargs or {})
    if ask.reasoning_effort is not None:
        options.setdefault("enable_thinking", ask.reasoning_effort != "none")
        options["reasoning_effort"] = ask.reasoning_effort
    try:
        return template.render(
            ask.messages or [],
            ask.tools,
            generate=ask.add_generation_prompt,
            goes_on=ask.continue_final_message,
            special=bool(ask.add_special_tokens),
            options=options,
        )
    except (ChatError, msgspec.DecodeError) as error:
        raise Refusal(str(error), param="messages") from None


def completion_prompt(ask: CompletionAsk, tokenizer: Vocabulary) -> Tokens:
    """Token ids of a completions prompt: text, ids, or a list with one of these."""
    prompt = ask.prompt
    if prompt == "":
        raise Refusal(_NO_PROMPT, param="prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, special=ask.add_special_tokens)
    if not isinstance(prompt, list) or not prompt:
        raise Refusal(_NO_PROMPT, param="prompt")
    try:
        ids = np.array(prompt, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        raise Refusal("The emulator takes one prompt a request: text or a list of token ids.", param="prompt") from None
    if ids.ndim != 1:
        raise Refusal("The emulator takes one prompt a request.", param="prompt")
    for worst in (int(ids.min()), int(ids.max())):
        if not 0 <= worst < tokenizer.bound:
            raise Refusal(f"Token id {worst} is out of vocabulary", param="prompt")
    return ids.astype(np.uint32)


def output_limits(
    ask: Ask, prompt_tokens: int, settings: Settings, limit: str = "max_completion_tokens"
) -> tuple[int, int]:
    """(max_tokens, min_tokens) as vLLM resolves them; Refusal where it refuses. `limit`: its name on a chat's route."""
    longest = settings.limits.max_model_len
    wanted, name = ask.max_tokens, "max_tokens"
    if isinstance(ask, ChatAsk):
        if ask.max_completion_tokens is not None:
            wanted, name = ask.max_completion_tokens, limit
    elif wanted is None:
        wanted = 16
    if ask.cache_salt is not None and not 0 < len(ask.cache_salt) <= 1024:
        raise Refusal("`cache_salt` must be a non-empty string of at most 1024 characters.", param="cache_salt")
    if wanted is not None and wanted > longest:
        raise Refusal(
            f"{name}={wanted} cannot be greater than max_model_len={longest}. Please request fewer output tokens.",
            param=name,
            value=wanted,
        )
    if prompt_tokens > longest:
        raise Refusal(
            f"This model's maximum context length is {longest} tokens. However, your prompt contains {prompt_tokens} "
            f"input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
            f"input prompt.",
            param="input_tokens",
            value=prompt_tokens,
        )
    most = longest - prompt_tokens if wanted is None else min(wanted, longest - prompt_tokens)
    if most < 1:
        raise Refusal(f"max_tokens must be at least 1, got {most}.", param="max_tokens", value=most)
    if ask.min_tokens < 0:
        raise Refusal(f"min_tokens must be greater than or equal to 0, got {ask.min_tokens}.", param="min_tokens")
    if ask.min_tokens > most:
        raise Refusal(
            f"min_tokens must be less than or equal to max_tokens={most}, got {ask.min_tokens}.", param="min_tokens"
        )
    if not prompt_tokens:
        raise Refusal("The decoder prompt cannot be empty")
    return most, ask.min_tokens
