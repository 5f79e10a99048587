"""Who made two prompts part: a name for it, and a sentence with the particulars."""

import json
import re
from collections.abc import Sequence

from msgspec import Struct

from windtunnel.traces.client_lines import has_billing_line
from windtunnel.traces.differing import alike, common_end, section_at, value_at
from windtunnel.traces.model import Trace
from windtunnel.traces.prompt_parts import TOOLS, Part, Parting, Prompt

CULPRITS: dict[str, str] = {
    "billing_line": "billing line of the client",
    "date": "date in the prompt",
    "time": "time of day in the prompt",
    "git_status": "git status in the prompt",
    "environment": "environment block",
    "instructions": "instruction or memory file",
    "random_id": "id that is new each time",
    "tool_inserted": "tool inserted",
    "tool_removed": "tool removed",
    "tools_reordered": "tools reordered",
    "tool_schema": "tool schema changed",
    "reordered_arguments": "tool call's arguments reordered",
    "changed_arguments": "tool call sent back changed",
    "dropped_reasoning": "reasoning dropped",
    "changed_reasoning": "reasoning sent back changed",
    "compaction": "compaction or cut history",
    "tool_result_cut": "old tool result cut or cleared",
    "reminder": "reminder inserted, moved or taken out",
    "image": "picture changed",
    "system_prompt": "system prompt changed",
    "message_inserted": "message inserted in the history",
    "message_removed": "message taken out of the history",
    "answer_changed": "answer sent back changed",
    "history_changed": "history changed",
    "rewound": "went back to an earlier place",
    "not_recorded": "part that the log does not hold",
}
"""Every name, and what it is called in a table."""

SHRUNK = 0.85
"""A prompt with a smaller share of the tokens of the one before lost history."""
FEW = 3
"""Messages: a person who goes back to an earlier place adds no more than these before the next call."""
_NEAR = 12
"""Messages looked through for the one that two histories go on with."""
_SUMMARY = re.compile(
    r"(?i)session is being continued from a previous conversation|another language model started to solve"
    r"|<summary>|conversation (?:history )?(?:was|has been) (?:compacted|summari[sz]ed|truncated)"
)
_CLEARED = re.compile(r"(?i)\b(?:cleared|truncated|omitted|removed|elided|pruned|persisted-output)\b")


class Scene(Struct, frozen=True):
    """Two prompts and the place where they part."""

    trace: Trace
    old: Prompt
    new: Prompt
    place: int
    """Of the message, in both; TOOLS for the tool schemas."""
    parting: Parting
    compacted: bool
    """One of the two, or a call between them, sums the history up."""
    only_reasoning: bool
    """But for reasoning the two messages are the same."""


def name(scene: Scene) -> tuple[str, str]:
    """The culprit's name (a key of CULPRITS) and its particulars, possibly none."""
    if scene.compacted:
        request = scene.new.call.kind == "compaction"
        return "compaction", "the request for the summary has a prompt of its own" if request else _shrunk(scene)
    if scene.place == TOOLS:
        return _tools(scene)
    new = scene.parting.new
    if new is not None and _SUMMARY.search((new.block.text or "")[:3000]):
        return "compaction", _shrunk(scene)
    found = _by_parts(scene) or _by_text(scene)
    if found is not None:
        return found
    if _went_back(scene):
        return "rewound", f"{len(scene.old.messages) - scene.place} messages were dropped"
    if _lost_history(scene):
        return "compaction", f"{_shrunk(scene)}; no request for a summary was recorded".removeprefix("; ")
    return _by_messages(scene)


def _lost_history(scene: Scene) -> bool:
    return scene.new.tokens[-1] < SHRUNK * scene.old.tokens[-1]


def _went_back(scene: Scene) -> bool:
    """What follows the conversation so far is little, and a person's."""
    known = scene.trace.messages
    kept, tail = scene.new.messages[: scene.place], scene.new.messages[scene.place :]
    spoken = any(known[m].role == "assistant" for m in kept)
    return spoken and len(tail) <= FEW < len(scene.old.messages) - scene.place and known[tail[0]].role == "user"


def _shrunk(scene: Scene) -> str:
    before, after = len(scene.old.messages), len(scene.new.messages)
    return f"{before} messages became {after}" if after < before else ""


def _tools(scene: Scene) -> tuple[str, str]:
    names = [() if p.call.tools is None else scene.trace.toolsets[p.call.tools].names for p in (scene.old, scene.new)]
    old, new = names
    added = [n for n in new if n not in old]
    gone = [n for n in old if n not in new]
    if added:
        first = new.index(added[0])
        where = f"after {new[first - 1]}" if first else "in front"
        also = f"; {_listed(gone)} removed" if gone else ""
        return "tool_inserted", f"{_listed(added)} {where}, place {first + 1} of {len(new)}{also}"
    if gone:
        return "tool_removed", f"{_listed(gone)}, place {old.index(gone[0]) + 1} of {len(old)}"
    if old != new:
        first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        return "tools_reordered", f"from place {first + 1} of {len(new)} on"
    return "tool_schema", _schema_named(scene.parting)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _schema_named(parting: Parting) -> str:
    if parting.new is not None and parting.new.name:
        return f"in {parting.new.name}"
    text = parting.new.block.text if parting.new is not None else None
    if text is None:
        return ""
    before = re.findall(r'"name":\s*"([^"]+)"', text[: parting.at + 1])
    return f"in {before[-1]}" if before else ""


def _by_parts(scene: Scene) -> tuple[str, str] | None:
    old, new = scene.parting.old, scene.parting.new
    for part in (old, new):
        if part is not None and part.block.media is not None:
            return "image", part.block.media
    if scene.only_reasoning:
        if old is not None and old.kind == "reasoning" and (new is None or new.kind != "reasoning"):
            return "dropped_reasoning", f"{old.block.tokens:,} tokens here, and all that follow it moved"
        return None if _lost_history(scene) else ("changed_reasoning", "")
    if old is not None and new is not None and old.kind == new.kind == "call" and old.name == new.name:
        return _arguments(old, new)
    return None


def _arguments(old: Part, new: Part) -> tuple[str, str]:
    before, after = _object(old), _object(new)
    if before is None or after is None:
        return "changed_arguments", f"of {new.name}"
    if before == after:
        return "reordered_arguments", f"of {new.name}: {', '.join(before)} became {', '.join(after)}"
    added = [key for key in after if key not in before]
    return "changed_arguments", f"of {new.name}" + (f": {_listed(added)} added by the client" if added else "")


def _object(part: Part) -> dict[str, object] | None:
    try:
        value = json.loads(part.block.text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _by_text(scene: Scene) -> tuple[str, str] | None:
    """What the words at the difference say, where one text changed in place."""
    old, new, _, at = scene.parting
    if old is None or new is None or old.kind != "text" or new.kind != "text":
        return None
    a, b = old.block.text, new.block.text
    if a is None or b is None:
        return None
    if has_billing_line(a) or has_billing_line(b):
        return "billing_line", "in front of the system prompt" if scene.place == 0 else ""
    if not alike(a, b):
        return None
    section = section_at(b, at) or section_at(a, at)
    value = value_at(a, b, at)
    if value is not None and value[0] in ("date", "time"):
        return value[0], f"{value[1]} became {value[2]}"
    if section == "git":
        return "git_status", ""
    if value is not None:
        return "random_id", f"{value[1]} became {value[2]}"[:120]
    if section == "environment":
        return "environment", ""
    if section == "instructions":
        return "instructions", ""
    end = common_end(a, b, at)
    return ("system_prompt", f"{len(b) - end - at:,} characters in it") if _role(scene) == "system" else None


def _role(scene: Scene) -> str:
    return scene.trace.messages[scene.new.messages[scene.place]].role


def _by_messages(scene: Scene) -> tuple[str, str]:
    """What became of whole messages."""
    place = scene.place
    old, new = scene.old.prints[place + 1 :], scene.new.prints[place + 1 :]
    in_place = bool(old) and bool(new) and old[1:2] == new[1:2] != ()
    put_in = None if in_place else _found(old[:1], new)
    taken = None if in_place else _found(new[:1], old)
    if put_in is not None and (taken is None or put_in <= taken):
        return _moved(scene, scene.new.messages[place : place + put_in], "message_inserted")
    if taken is not None:
        return _moved(scene, scene.old.messages[place : place + taken], "message_removed")
    was, now = scene.parting.old, scene.parting.new
    if any(p is not None and _reminder(p) for p in (was, now)):
        return "reminder", ""
    role = _role(scene)
    if was is None and now is None:
        return "history_changed", "the same words in another role"
    if role == "tool" and _cut(was, now):
        return "tool_result_cut", _sizes(was, now)
    if any(p is not None and p.block.filler for p in (was, now)):
        return "not_recorded", _unseen(scene)
    if role == "system":
        return "system_prompt", ""
    return ("answer_changed" if role == "assistant" else "history_changed"), _sizes(was, now)


def _unseen(scene: Scene) -> str:
    cached = scene.new.call.usage.cached
    if not cached or cached < scene.new.tokens[scene.place + 1]:
        return "it changed, says the recording"
    begin, end = scene.new.call.start_s, scene.old.call.end_s
    gap = "" if begin is None or end is None else f" after {max(0.0, begin - end):,.0f} s without a call"
    return f"the provider found {cached:,} tokens in its cache{gap}: the rest had changed, or was dropped there"


def _found(first: tuple[int, ...], among: tuple[int, ...]) -> int | None:
    return among[1:_NEAR].index(first[0]) + 1 if first and first[0] in among[1:_NEAR] else None


def _moved(scene: Scene, messages: Sequence[int], culprit: str) -> tuple[str, str]:
    known = scene.trace.messages
    roles = ", ".join(known[m].role for m in messages[:3])
    texts = [scene.trace.blocks[b].text or "" for m in messages for b in known[m].blocks]
    if texts and all(t.lstrip().startswith("<system-reminder>") for t in texts):
        return "reminder", "inserted" if culprit == "message_inserted" else "taken out"
    return culprit, f"{len(messages)} ({roles})" if len(messages) > 1 else roles


def _reminder(part: Part) -> bool:
    return (part.block.text or "").lstrip().startswith("<system-reminder>")


def _cut(old: Part | None, new: Part | None) -> bool:
    if old is None or new is None:
        return new is None
    if new.block.text and (old.block.text or "").startswith(new.block.text):
        return True
    shorter = new.block.tokens < old.block.tokens
    return shorter and (new.block.tokens * 2 < old.block.tokens or bool(_CLEARED.search(new.block.text or "")))


def _sizes(old: Part | None, new: Part | None) -> str:
    before, after = (0 if p is None else p.block.tokens for p in (old, new))
    return f"{before:,} tokens became {after:,}" if before != after else ""
