"""An engine's command line as something that can be changed flag by flag.

Leading NAME=VALUE words are environment, as a shell takes them. Flags are told apart by their name alone: a flag that
is set again replaces all earlier ones of that name, `_` and `-` in it being the same.
"""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.simulator.engines.launch import take_environment
from windtunnel.traces.errors import UsageError

Value = str | int | float | bool | list[Any] | dict[str, Any]
"""Of a flag: true is the bare flag, false its `--no-` form, a list several words, a table JSON."""
_SETTINGS = frozenset({".toml", ".json", ".yaml", ".yml", ".jinja"})


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """(environment, words) of a command line."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"command {command!r}: the quotes do not match") from error
    env = take_environment(words)
    if not words:
        raise UsageError(f"command {command!r}: there is nothing to start in it")
    return env, words


def join(env: Mapping[str, str], words: Sequence[str]) -> str:
    """One line that the launcher, or a shell, takes. `{port}` stays readable."""
    head = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    return " ".join([*head, *(word if word == "{port}" else shlex.quote(word) for word in words)])


def changed(words: Sequence[str], flags: Mapping[str, Value], without: Sequence[str] = ()) -> list[str]:
    """The words with `flags` set and those in `without` taken out, each with its values; the rest keeps its order."""
    left = list(words)
    for name in without:
        left = _removed(left, name, values=True)
    for name, value in flags.items():
        left = _removed(left, name, values=not isinstance(value, bool))
        left += _written(name, value)
    return left


def flags_of(words: Sequence[str], short: Mapping[str, str] | None = None) -> dict[str, str]:
    """Flags by name with their values joined by spaces; a bare flag has an empty one. The last of a name counts.

    Long names are written with dashes; `short` has the long names of others, like `-tp`: their value follows after a
    space or a `=`, or a single letter at once.
    """
    long = short or {}
    found: dict[str, str] = {}
    name = None
    for word in words:
        if _is_flag(word):
            head, given, value = word.partition("=")
            head = _plain(head) if head.startswith("--") else head
            if head not in long and head[:2] in long:
                head, given, value = word[:2], "=", word[2:]
            name = long.get(head, head)
            found[name] = value
            name = None if given else name
        elif name is not None:
            found[name] = f"{found[name]} {word}".strip()
    return found


def _written(name: str, value: Value) -> list[str]:
    match value:
        case True:
            return [name]
        case False:
            return ["--no-" + name.removeprefix("--")]
        case dict():
            return [name, msgspec.json.encode(value).decode()]
        case list():
            return [name, *map(str, value)]
        case _:
            return [name, str(value)]


def _removed(words: Sequence[str], name: str, *, values: bool) -> list[str]:
    """Without every `name`, its `--no-` form and `name=value`; with `values` also without the words that follow it."""
    wanted = {_plain(name), "--no-" + _plain(name).removeprefix("--"), "--" + _plain(name).removeprefix("--no-")}
    kept: list[str] = []
    inside = False
    for word in words:
        if _is_flag(word):
            head, given, _ = word.partition("=")
            mine = _plain(head) in wanted
            inside = mine and values and not given
            if mine:
                continue
        elif inside:
            continue
        kept.append(word)
    return kept


def _plain(name: str) -> str:
    return name.replace("_", "-")


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word[1] != "."


def files_of(words: Sequence[str]) -> dict[str, str]:
    """Settings that a command takes from files, a profile or a model's folder: what it names, and a digest of what it
    holds. Two commands that read alike are not the same where one of these has changed.
    """
    found = {}
    for word in words:
        named = word.partition("=")[2] if _is_flag(word) else word
        if not named or "\0" in named:
            continue
        path = Path(named)
        path = path / "config.json" if path.is_dir() else path
        if path.suffix in _SETTINGS and path.is_file():
            with suppress(OSError):  # it says so itself when it is used
                found[named] = blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found
