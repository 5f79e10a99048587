"""The words of a vLLM command line: spellings that mean the same, JSON given key by key, flags that are not modelled.

As vLLM's parser: underscores in names are dashes, `--flag=value` is two words, and `--json-flag.key value` (a value
may be JSON, `key+` appends to a list) makes one JSON argument of all such words, which comes last.
"""

import json
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from windtunnel.simulator.emulator.nearest import nearest
from windtunnel.simulator.emulator.shipped_text import shipped_text
from windtunnel.simulator.results.emulation import harmless
from windtunnel.traces.errors import UsageError

_LONG = {
    "-dcp": "--decode-context-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-pcp": "--prefill-context-parallel-size",
    "-r": "--node-rank",
}
"""Short names of flags that are not modelled: under two names one flag would make two configurations."""


class Words(Struct, frozen=True):
    modelled: list[str]
    ignored: list[str]
    """Real vLLM flags that are not modelled, as given; without the values of those that change nothing measured."""


class Unmodelled(Struct, frozen=True):
    values: frozenset[str]
    """Flags that take one word."""
    lists: frozenset[str]
    """Flags that take one word or more."""
    switches: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.values | self.lists | self.switches


@cache
def unmodelled() -> Unmodelled:
    text = shipped_text("vllm_flags.toml")
    return Unmodelled(**{kind: frozenset(names.split()) for kind, names in tomllib.loads(text).items()})


def sort(argv: Sequence[str], modelled: Iterable[str]) -> Words:
    """Words for the parser of the `modelled` flags, and the names of real flags that are left out.

    UsageError for a flag that vLLM does not have either.
    """
    known = frozenset(modelled)
    kept: list[str] = []
    ignored: list[str] = []
    nested: dict[str, dict[str, Any]] = {}
    words = _spelled(argv)
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        if not _is_flag(word):
            kept.append(word)
            continue
        flag, dot, path = flag.partition(".")
        if not _known(flag, known):
            raise _unknown(flag, known)
        if dot:
            if not equals:
                value = _next(words, word)
            if flag in known:
                _put(nested.setdefault(flag, {}), path, value)
            else:
                ignored.append(_given(word.partition("=")[0], [value]))
        elif flag in known:
            kept.append(word)
        else:
            ignored.append(_given(flag, [value] if equals else _values(words, flag)))
    for flag, values in nested.items():
        kept += [flag, json.dumps(values)]
    return Words(kept, list(dict.fromkeys(ignored)))


def _spelled(argv: Sequence[str]) -> list[str]:
    """Names with dashes, and long ones; `-O2` as the flag it stands for."""
    result: list[str] = []
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, path = name.partition(".")
            result.append(head.replace("_", "-") + dot + path + equals + value)
        elif word.startswith("-O") and word != "-O":
            result += ["--optimization-level", word[2:].removeprefix("=")]
        else:
            name, equals, value = word.partition("=")
            result.append("--optimization-level" if word == "-O" else _LONG.get(name, name) + equals + value)
    return result


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word[1] != "."


def _known(flag: str, modelled: frozenset[str]) -> bool:
    return flag in modelled or flag in unmodelled().names or flag.replace("--no-", "--", 1) in unmodelled().switches


def _unknown(flag: str, modelled: frozenset[str]) -> UsageError:
    meant = nearest(flag, [*modelled, *unmodelled().names])
    return UsageError(f"windtunnel engine: unrecognized arguments: {flag}{meant}; see windtunnel engine --help.")


def _given(name: str, values: Sequence[str]) -> str:
    """With its values, for two of them are two configurations. (Keys are among those without.)"""
    return name if harmless(name) else " ".join([name, *values])


def _values(words: list[str], flag: str) -> list[str]:
    """Taken off the words that follow it."""
    values = []
    if flag in unmodelled().values:
        values.append(_next(words, flag))
    elif flag in unmodelled().lists:
        while words and not _is_flag(words[0]):
            values.append(words.pop(0))
    return values


def _next(words: list[str], flag: str) -> str:
    if not words:
        raise UsageError(f"windtunnel engine: argument {flag}: expected one argument; see windtunnel engine --help.")
    return words.pop(0)


def _put(target: dict[str, Any], path: str, text: str) -> None:
    """One value at a dotted path."""
    if path.endswith("+"):
        path, value = path[:-1], list[Any](text.split(","))
    else:
        value = _value(text)
    *parents, last = path.split(".")
    for parent in parents:
        inner = target.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UsageError(f"windtunnel engine: {parent} is given as a value and as an object; give one of them.")
        target = inner
    if isinstance(value, list) and isinstance(before := target.get(last), list):
        value = before + value
    target[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
