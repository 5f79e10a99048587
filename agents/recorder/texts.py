"""What the text of a request gives away: whether a person typed it, whether a title or a summary is asked for."""

import re
from collections.abc import Iterator, Sequence

from windtunnel.agents.recorder.asked import Request, Said
from windtunnel.traces.importers.pieces import Draft
from windtunnel.traces.importers.records import parse_json, table

SHORT_PROMPT = 12_000
"""Characters; a longer prompt without tools is a conversation, not a title being asked for."""
LONGEST_NAME = 60
SHORTEST_PROMPT = 8
"""A sub-agent's task in fewer characters could stand anywhere."""
_WRAPPED = re.compile(r"^\s*<([A-Za-z][\w-]*)[^<>]*>.*</\1>\s*$", re.DOTALL)
_NOT_TYPED = (
    "<system-reminder>",
    "<task-notification>",
    "<subagent_notification>",
    "<environment_context>",
    "<local-command-",
    "<bash-stdout>",
    "[Request interrupted",
    "<turn_aborted>",
    "# AGENTS.md",
    "[Subagent hand-back]",
)
_COMMAND = "<command-"
_SMALL_TASK = re.compile(
    r"(?i)\b(title|summar\w+|commit message|branch name|topic|quota|suggest\w*|slug|short name|classif\w+)\b"
)
_COMPACT = re.compile(
    r"(?i)\b(?:create|write|provide|produce|generate|give)\b[^.\n]{0,80}\bsummar"
    r"|\bcompact(?:ion|ed)?\b|\bhandoff summary\b"
)


def visible(draft: Draft) -> str:
    return "\n".join(p.text for p in draft.pieces if p.text)


def typed(draft: Draft) -> str:
    """What of a user message a person may have typed; empty for reminders, notices and environment."""
    if draft.role != "user":
        return ""
    parts = [p.text for p in draft.pieces if p.text]
    own = [
        p for p in parts if not p.lstrip().startswith(_NOT_TYPED) and (p.startswith(_COMMAND) or not _WRAPPED.match(p))
    ]
    return "\n".join(own).strip()


def since_answer(asked: Sequence[Said]) -> list[Draft]:
    """The messages after the last one the model wrote: what is new in a next turn."""
    new: list[Draft] = []
    for s in reversed(asked):
        if s.draft.role == "assistant":
            break
        new.append(s.draft)
    return new[::-1]


def system_text(request: Request) -> str:
    return "\n".join(visible(s.draft) for s in request.said if s.draft.role == "system")


def first_typed(request: Request) -> str:
    return next((text for s in request.said if (text := typed(s.draft))), "")


def size(request: Request) -> int:
    return sum(len(visible(s.draft)) for s in request.said)


def small_task(request: Request) -> bool:
    """A title, a commit message, a quota check: no tools, a short prompt, words that say so (or a shape asked for)."""
    if request.schemas is not None or size(request) > SHORT_PROMPT:
        return False
    limit = request.params.max_tokens
    users = [visible(s.draft) for s in request.said if s.draft.role == "user"]
    said = f"{system_text(request)}\n{users[0] if users else ''}"
    return request.structured or (limit is not None and limit <= 16) or bool(_SMALL_TASK.search(said[:6000]))


def asks_summary(request: Request) -> bool:
    """The last message asks to sum the conversation up."""
    last = request.said[-1].draft if request.said else None
    if last is None or last.role != "user" or len(request.said) < 4:
        return False
    return bool(_COMPACT.search(visible(last)[:4000]))


def argument_label(arguments: str) -> str | None:
    """A short name among a tool call's arguments, for a sub-agent."""
    try:
        value = table(parse_json(arguments.encode()))
    except ValueError:
        return None
    named = (value.get(key) for key in ("description", "name", "title", "subagent_type", "agent_type", "nickname"))
    return next((n for n in named if isinstance(n, str) and 0 < len(n) <= LONGEST_NAME), None)


def argument_texts(arguments: str) -> Iterator[str]:
    """The longer strings among a tool call's arguments: a prompt for a sub-agent may be one of them."""
    try:
        value = parse_json(arguments.encode())
    except ValueError:
        value = arguments
    held = [value]
    while held:
        item = held.pop()
        if isinstance(item, dict):
            held.extend(item.values())
        elif isinstance(item, list):
            held.extend(item)
        elif isinstance(item, str) and len(item.strip()) >= SHORTEST_PROMPT:
            yield item.strip()
