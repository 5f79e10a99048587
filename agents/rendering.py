"""What the served engine makes of a prompt: tokens its template adds, tokens of recorded texts, pools of token ids.

Learnt before a run by a handful of `/tokenize` calls (`PROBES`, `texts_to_measure`), so that nothing is tokenised in
it. Where an engine has no `/tokenize` the typical figures of a ChatML-like template stand in.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from windtunnel.agents import schemas
from windtunnel.traces.model import ToolSet, Trace, digest_of
from windtunnel.traces.text import Calibration

TYPICAL_MESSAGE = 5
"""Tokens of a ChatML-like template around one message."""


def typical_messages() -> dict[str, int]:
    return dict.fromkeys(("system", "user", "assistant", "tool"), TYPICAL_MESSAGE)


class Rendering(Struct, frozen=True):
    """Everything `prepare` has to know of the engine. Tokens throughout."""

    calibration: Calibration
    message_overhead: dict[str, int] = field(default_factory=typical_messages)
    """By role: what the template puts around one message; negative where texts alone count more than in messages."""
    fixed_overhead: int = 3
    """Once per prompt: BOS and the generation prompt."""
    default_system: int = 0
    """Added by the template when a prompt has no system message."""
    tool_call_overhead: int = 12
    """Per tool call, besides its arguments."""
    tool_turn_overhead: int = 0
    """Once per assistant message with tool calls."""
    tools_overhead: int = 0
    """Once per prompt with `tools`, besides their own tokens."""
    system_first: bool = False
    """The template writes the system message in front of the tools: with another one no tool is found in the cache."""
    wrapper_tokens: int = 5
    """`{"input": ""}` around regenerated arguments."""
    salt_tokens: int = 0
    """Tokens reserved for the run's salt in the text; 0 when the engine takes `cache_salt`."""
    tag_tokens: int = 0
    """Tokens reserved for the tag of a trace's copy."""
    measured: dict[str, int] | None = None
    """Tokens of recorded texts by `text_key`, as the served tokenizer counts them."""

    def measured_tokens(self, text: str) -> int | None:
        return None if self.measured is None else self.measured.get(text_key(text))


def text_key(text: str) -> str:
    """Key of a text in `Rendering.measured`."""
    return digest_of(text)


def offered_tools(trace: Trace, toolset: ToolSet) -> list[dict[str, Any]] | None:
    """The tools of a set as a request carries them; None where a schema was not recorded or none can be used."""
    texts = [trace.blocks[b].text for b in toolset.blocks]
    if any(text is None for text in texts):
        return None
    return [tool for text in texts for tool in schemas.openai_tools(schemas.clean(text or "")) or ()] or None


def texts_to_measure(traces: Iterable[Trace]) -> dict[str, str]:
    """All recorded texts as they will be rendered, by key: what a run has to count once with the served tokenizer."""
    out: dict[str, str] = {}
    for trace in traces:
        arguments = {call.arguments for message in trace.messages for call in message.tool_calls}
        for toolset in trace.toolsets:
            tools = offered_tools(trace, toolset) or []
            lines = [schemas.rendered_tools(tools), *map(schemas.rendered_tool, tools)] if tools else []
            out |= {text_key(rendered): rendered for rendered in lines}
        for block in trace.blocks:
            if block.text is None:
                continue
            text = schemas.clean(block.text)
            if block.id in arguments:
                written = schemas.rendered_arguments(text)
                if written is not None:
                    out.setdefault(text_key(written), written)
                    continue
            out.setdefault(text_key(text), text)
    return out


class Probe(Struct, frozen=True):
    """A small prompt for `/tokenize`, with the generation prompt."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()


def _calls(count: int) -> dict[str, Any]:
    calls = [
        {"id": f"probe000{i}", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
        for i in range(count)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


_SYSTEM = {"role": "system", "content": "a"}
_USER = {"role": "user", "content": "a"}
_ASSISTANT = {"role": "assistant", "content": "a"}


def _results(count: int) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": f"probe000{i}", "content": "a"} for i in range(count)]


PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "Bash", "description": "a", "parameters": {"type": "object", "properties": {}}},
}
PROBES: dict[str, Probe] = {
    "user": Probe((_USER,)),
    "system": Probe((_SYSTEM, _USER)),
    "turn": Probe((_SYSTEM, _USER, _ASSISTANT, _USER)),
    "call": Probe((_SYSTEM, _USER, _calls(1), *_results(1))),
    "calls": Probe((_SYSTEM, _USER, _calls(2), *_results(2))),
    "tools": Probe((_SYSTEM, _USER), (PROBE_TOOL,)),
}
ORDER_PROBES: tuple[Probe, Probe, Probe] = (
    PROBES["tools"],
    Probe((_SYSTEM, _USER), ({**PROBE_TOOL, "function": {**PROBE_TOOL["function"], "name": "Read"}},)),
    Probe(({**_SYSTEM, "content": "b"}, _USER), (PROBE_TOOL,)),
)
"""A prompt, the same with another tool, the same with another system message: which of the two begins more like it?"""
PROBE_TEXTS: dict[str, str] = {"a": "a", "{}": "{}", "wrapper": '{"input": "a"}', "tool": schemas.dumps(PROBE_TOOL)}
"""Counted without special tokens."""


def learn(
    calibration: Calibration,
    prompts: Mapping[str, int],
    texts: Mapping[str, int],
    measured: dict[str, int] | None = None,
    *,
    salt_tokens: int = 0,
    tag_tokens: int = 0,
    system_first: bool = False,
) -> Rendering:
    """The rendering from the token counts of `PROBES` and `PROBE_TEXTS`; a probe that the template refused is absent.

    Only sums can be told apart: the tokens of a user and an assistant message are split evenly, and what a turn with
    tool calls costs more than its calls and results is put on the turn.
    """
    one = texts.get("a", 1)
    with_system = prompts.get("system", prompts["user"])
    pair = prompts["turn"] - with_system - 2 * one if "turn" in prompts and "system" in prompts else 2 * TYPICAL_MESSAGE
    user, assistant = pair // 2, pair - pair // 2
    fixed = prompts["user"] - user - one
    default_system = 0
    system = user
    if "system" in prompts:
        added = prompts["system"] - prompts["user"] - one
        if added < 0 or added < user // 2:  # the template has a system text of its own
            default_system = user - added
            fixed -= default_system
        else:
            system = added
    call, turn, tool = 12, 0, user
    if "call" in prompts and "calls" in prompts and "system" in prompts:
        each = prompts["calls"] - prompts["call"] - one
        call, tool = each - each // 2, each // 2
        turn = prompts["call"] - prompts["system"] - one - each - assistant
    tools = 0
    if "tools" in prompts and "system" in prompts:
        tools = prompts["tools"] - prompts["system"] - texts.get("tool", 0)
    return Rendering(
        calibration=calibration,
        message_overhead={"system": system, "user": user, "assistant": assistant, "tool": tool},
        fixed_overhead=max(0, fixed),
        default_system=default_system,
        tool_call_overhead=call - texts.get("{}", 1),
        tool_turn_overhead=turn,
        tools_overhead=tools,
        system_first=system_first,
        wrapper_tokens=texts.get("wrapper", 5 + one) - one,
        salt_tokens=salt_tokens,
        tag_tokens=tag_tokens,
        measured=measured,
    )
