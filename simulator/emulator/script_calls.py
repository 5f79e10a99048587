"""Tool calls of the emulated model: rare, the same for the same prompt, and harmless whoever carries them out.

Only tools whose name says that they look and change nothing are called, with arguments that fit every working folder;
a shell gets `ls`. A client that offers no such tool gets words.
"""

import json
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.script import hasher
from windtunnel.simulator.emulator.tokenizer import Vocabulary

_LOOKING = ("read", "read_file", "view", "cat", "glob", "find", "list", "ls", "list_dir", "list_directory", "grep")
_SHELLS = ("bash", "shell", "exec_command", "run_shell_command", "terminal")
_VALUES = {
    "pattern": "*.md",
    "glob": "*.md",
    "query": "the",
    "command": "ls",
    "cmd": "ls",
    "file_path": "README.md",
    "filepath": "README.md",
    "file": "README.md",
    "path": ".",
    "description": "List files",
}
_READERS = ("read", "read_file", "view", "cat")


class CallScript:
    """Tokens of one call and their end; `shown[i]` is what token i adds to the arguments that a client sees."""

    def __init__(self, name: str, arguments: str, tokenizer: Vocabulary) -> None:
        self.name = name
        self.arguments = arguments
        self.ident = f"chatcmpl-tool-{secrets.token_hex(8)}"
        before, after = f'\n<tool_call>\n{{"name": "{name}", "arguments": ', "}\n</tool_call>"
        ids = tokenizer.encode(before + arguments + after).tolist()
        begin, end, at = len(before), len(before) + len(arguments), 0
        self.shown: list[str] = []
        self.opens = -1
        """The token with which the arguments begin: name and id are known then."""
        self.text = text = before + arguments + after
        """All that the model says for it."""
        for n, token in enumerate(ids):
            stop = at + len(tokenizer.piece(token).decode("utf-8", "replace"))
            self.shown.append(text[max(at, begin) : max(begin, min(stop, end))])
            if self.opens < 0 and stop > begin:
                self.opens = n
            at = stop
        self._ids = [*ids, tokenizer.stop]
        self.shown.append("")

    def __len__(self) -> int:
        return len(self._ids)

    def natural_length(self, _: int) -> int:
        return len(self._ids)

    def tokens(self, start: int, stop: int) -> list[int]:
        """Its tokens; after them, where a client forbids the end, its end again and again."""
        return self._ids[start:stop] + self._ids[-1:] * (stop - max(start, len(self._ids)))


def drawn(prompt: Tokens, seed: int, rate: float, tools: Sequence[Raw], tokenizer: Vocabulary) -> CallScript | None:
    """A call in a share `rate` of the prompts, by prompt and seed alone; None for words."""
    if rate <= 0 or not tools:
        return None
    digest = hasher(seed)
    digest.update(b"call")
    digest.update(prompt.tobytes())
    ticket = int.from_bytes(digest.digest()[:8], "big")
    if ticket >= rate * 2**64:
        return None
    calls = [call for call in map(_call, tools) if call is not None]
    if not calls:
        return None
    name, arguments = calls[ticket % len(calls)]
    return CallScript(name, json.dumps(arguments), tokenizer)


def _call(raw: Raw) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments for a tool that may be called."""
    function = msgspec.json.decode(raw).get("function") or {}
    name = str(function.get("name"))
    short = name.rsplit("__", 1)[-1].lower()
    if short not in _LOOKING and short not in _SHELLS:
        return None
    schema = function.get("parameters") or {}
    properties: dict[str, Any] = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    for key in schema.get("required") or ():
        kind = properties.get(key, {}).get("type")
        if key == "path" and short in _READERS:
            arguments[key] = "README.md"
        elif key.lower() in _VALUES and kind in ("string", None):
            arguments[key] = _VALUES[key.lower()]
        elif key in ("command", "cmd") and kind == "array":
            arguments[key] = ["ls"]
        else:
            return None
    return name, arguments
