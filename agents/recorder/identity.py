"""What a request says about who sent it: the client, its session, its sub-agent, and ids that must not be kept.

Seen on the wire: Claude Code 2.1 (`X-Claude-Code-Session-Id`, `x-claude-code-agent-id`, before those only
`metadata.user_id`), Codex 0.171 (`session-id`, `thread-id`, `x-codex-parent-thread-id`, `x-codex-turn-metadata`),
opencode 1.18 (`x-session-id`, `x-parent-session-id`), pi on the Responses API (`session_id`). Many clients say nothing.
`prompt_cache_key` is no session: parents and children share it.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from windtunnel.agents.recorder.asked import as_text, decode_object
from windtunnel.agents.recorder.redact import DEVICE_KEYS
from windtunnel.traces.importers.records import table

SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "conversation_id")
THREAD_HEADERS = ("x-claude-code-agent-id", "thread-id")
PARENT_HEADERS = ("x-codex-parent-thread-id", "x-parent-session-id")
_AGENTS = (
    (re.compile(r"claude-cli/([\w.-]+)"), "claude-code"),
    (re.compile(r"codex[\w-]*/([\w.-]+)"), "codex"),
    (re.compile(r"opencode/([\w.-]+)"), "opencode"),
    (re.compile(r"(?i)qwen-?code/([\w.-]+)"), "qwen-code"),
    (re.compile(r"(?i)gemini-?cli/([\w.-]+)"), "gemini-cli"),
    (re.compile(r"(?i)\bcline/([\w.-]+)"), "cline"),
    (re.compile(r"(?i)\bpi(?:-coding-agent)?/([\w.-]+)"), "pi"),
    (re.compile(r"(?i)openhands[\w-]*/([\w.-]+)"), "openhands"),
)
_SAID_TO_BE = (("operating inside pi,", "pi"), ("You are opencode", "opencode"), ("You are Claude Code", "claude-code"))
"""System prompts that name the client where the wire does not."""
_OLD_USER = re.compile(r"^user_([0-9a-f]+)_account_([\w-]*)_session_([\w-]+)$")
TAG_KEY = re.compile(r"^(?:Bearer )?(?:sk-)?windtunnel-tag-([\w.-]+)$")
"""An API key that names a run, for clients whose URL cannot."""


class Hints(Struct):
    client: str = ""
    version: str | None = None
    session: str | None = None
    thread: str | None = None
    """The sub-agent's own id; None where the wire names none."""
    parent: str | None = None
    """Id of the parent's thread or session."""
    purpose: str | None = None
    """What the client says the request is for, where that is no turn."""
    tag: str = ""

    @property
    def key(self) -> str | None:
        """Of the sub-agent's thread: its own id, or the session id of a session that has a parent."""
        return self.thread if self.thread is not None or self.parent is None else self.session


def read_hints(headers: dict[str, str], metadata: dict[str, Any], tag: str) -> Hints:
    hints = Hints(tag=tag or _tag_of(headers))
    for pattern, name in _AGENTS:
        match = pattern.search(headers.get("user-agent", ""))
        if match:
            hints.client, hints.version = name, match.group(1)
            break
    user = _user(metadata)
    hints.session = _first(headers, SESSION_HEADERS) or as_text(user.get("session_id")) or None
    hints.session = hints.session or as_text(metadata.get("session_id")) or None
    hints.thread = _first(headers, THREAD_HEADERS)
    hints.parent = _first(headers, PARENT_HEADERS)
    turn = decode_object(headers.get("x-codex-turn-metadata", "").encode())
    kind = as_text(turn.get("request_kind"))
    hints.purpose = kind if kind not in ("", "turn") else None
    if hints.thread is not None and hints.thread == hints.session:
        hints.thread = None
    return hints


def client_of(system: str) -> str:
    return next((name for words, name in _SAID_TO_BE if words in system[:4000]), "")


def device_ids(headers: dict[str, str], metadata: dict[str, Any]) -> Iterator[str]:
    """Ids of devices, accounts and installations, wherever a request carries them."""
    turn = decode_object(headers.get("x-codex-turn-metadata", "").encode())
    for place in (_user(metadata), metadata, turn, headers):
        for key in DEVICE_KEYS:
            value = place.get(key)
            if isinstance(value, str) and value:
                yield value


def _user(metadata: dict[str, Any]) -> dict[str, Any]:
    """`metadata.user_id` of Claude Code: JSON, or three ids in one word."""
    said = as_text(metadata.get("user_id"))
    old = _OLD_USER.match(said)
    if old:
        return {"device_id": old.group(1), "account_uuid": old.group(2), "session_id": old.group(3)}
    return table(decode_object(said.encode()))


def _first(headers: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((headers[name] for name in names if headers.get(name)), None)


def _tag_of(headers: dict[str, str]) -> str:
    for name in ("authorization", "x-api-key"):
        match = TAG_KEY.match(headers.get(name, ""))
        if match:
            return match.group(1)
    return ""
