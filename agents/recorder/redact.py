"""What must not be written down: credentials, and ids of a device or an installation.

Every text passes here before it is kept in any form. A replacement depends on the text alone, so that texts that were
equal stay equal, and has the length of what it replaces, so that token counts stay about right.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "x-auth-token"}
)
DEVICE_KEYS = ("device_id", "account_uuid", "installation_id", "x-codex-installation-id", "machine_id", "userID")
_SHORTEST = 12
"""A value shorter than this is a word ("local"), and a text full of holes would be the price."""

_LONG = 256
_REMEMBERED = 50_000

_TOKENS = re.compile(
    r"\b(?:"
    r"sk-(?=[\w-]*\d)[A-Za-z0-9_-]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,}|npm_[A-Za-z0-9]{30,}"
    r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r")"
)
_SCHEME = re.compile(r"(?i)(\b(?:bearer|basic)\s+)([A-Za-z0-9+/_.~-]{16,}={0,2})")
_NAMED = re.compile(
    r"(?i)((?:api[_-]?key|secret|password|passwd|access[_-]?token|auth[_-]?token)[\"']?\s*[:=]\s*[\"']?)"
    r"(?=[^\s\"']*\d)([A-Za-z0-9+/_.~-]{16,}={0,2})"
)
"""A value with a digit in it: without one it is more often the name of a variable."""
_PRIVATE = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(.*?)(-----END [A-Z ]*PRIVATE KEY-----)", re.DOTALL)
_DEVICE = re.compile(
    rf"((?:{'|'.join(DEVICE_KEYS)})(?:\\*[\"'])?\s*[:=]\s*(?:\\*[\"'])?)"
    r"(?=[\w.-]*\d)([A-Za-z0-9._-]{8,})"
)


class Redactor:
    """Knows the secrets that requests were sent with; a text that repeats one loses it.

    A request repeats the whole conversation: what was looked through once is told by its digest.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._seen: dict[bytes, str | None] = {}
        """Digest of a long text to what it became, None where nothing was found."""

    def learn(self, headers: Iterable[tuple[str, str]], ids: Iterable[str] = ()) -> None:
        """Take in the credentials of a request's headers, and ids of devices found in it."""
        found = {part for name, value in headers if name in SECRET_HEADERS for part in _values(value)}
        found |= {value for value in ids if len(value) >= _SHORTEST}
        new = found - self._known
        if new:
            self._known |= new
            self._seen.clear()
            longest_first = sorted(self._known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        if len(text) < _LONG:
            return self._redacted(text)
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                self._seen.pop(next(iter(self._seen)))
            clean = self._redacted(text)
            self._seen[key] = None if clean == text else clean
        known = self._seen[key]
        return text if known is None else known

    def _redacted(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(_blank, text)
        text = _TOKENS.sub(_blank, text)
        text = _SCHEME.sub(_value, text)
        text = _NAMED.sub(_value, text)
        if "PRIVATE KEY-----" in text:
            text = _PRIVATE.sub(lambda m: m.group(1) + _hole(m.group(2)) + m.group(3), text)
        return _DEVICE.sub(_value, text)

    def words(self, words: Sequence[str]) -> tuple[str, ...]:
        """A command line."""
        return tuple(self.text(word) for word in words)


def _values(value: str) -> list[str]:
    """The secret itself, with and without its scheme; cookies one by one."""
    parts = [value, value.rpartition(" ")[2], *(item.partition("=")[2] for item in value.split(";"))]
    return [part.strip() for part in parts if len(part.strip()) >= _SHORTEST]


def _value(match: re.Match[str]) -> str:
    return match.group(1) + _hole(match.group(2))


def _blank(match: re.Match[str]) -> str:
    return _hole(match.group())


def _hole(secret: str) -> str:
    word = "[redacted]"
    return word + "x" * (len(secret) - len(word)) if len(secret) >= len(word) else "x" * len(secret)
