"""Where two texts part, and what stands there: a date, a time, an id, a line of `git status`."""

import re
from collections.abc import Iterator

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
_DATE = re.compile(
    rf"\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}"
    rf"|{_DAY}{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|{_DAY}\d{{1,2}}\.? {_MONTH}\.?,? \d{{4}}"
)
_TIME = re.compile(r"T?\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp][Mm]\b)?|\b1[6-9]\d{8}(?:\d{3})?\b")
_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b(?=[\w-]*\d)[A-Za-z0-9][\w-]{11,}\b")
_GIT = re.compile(r"(?i)git ?status|<git|\bcurrent branch\b|\bmain branch\b|\brecent commits\b|\bgit repo\w*: ")
_ENVIRONMENT = re.compile(
    r"<env>|<environment_\w+>|^#+ environment\b|\bworking directory\b|^\s*<cwd>", re.IGNORECASE | re.MULTILINE
)
_INSTRUCTIONS = re.compile(r"(?i)\b(?:CLAUDE|AGENTS|GEMINI|QWEN|MEMORY)\.md\b")
_SIGNS = {"\n": "\u21b5", "\t": "\u2192"}
_BACK = 4000
"""Characters looked back from a difference for the words that say what section it stands in."""
_AROUND = 80
"""Characters on either side of a difference in which a date or an id that covers it may begin and end."""


def common_length(a: str, b: str) -> int:
    """Characters that both texts begin with."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:  # halving compares whole slices: quick even for texts of megabytes
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_end(a: str, b: str, at: int) -> int:
    """Characters that both texts end with, not counting their first `at`."""
    return common_length(a[at:][::-1], b[at:][::-1])


def alike(a: str, b: str) -> bool:
    """One text with a change in it, rather than two texts."""
    at = common_length(a, b)
    return at + common_end(a, b, at) >= min(len(a), len(b)) / 2


def value_at(a: str, b: str, at: int) -> tuple[str, str, str] | None:
    """(`date`, `time` or `id`; its old and new value) where the texts part inside one, else None."""
    for name, pattern in (("date", _DATE), ("time", _TIME), ("id", _ID)):
        old, new = _covering(pattern, a, at), _covering(pattern, b, at)
        if old is not None and new is not None and old != new:
            return name, old, new
    return None


def _covering(pattern: re.Pattern[str], text: str, at: int) -> str | None:
    begin = max(0, at - _AROUND)
    for match in pattern.finditer(text, begin, min(len(text), at + _AROUND)):
        if match.start() <= at <= match.end():
            return match.group()
    return None


def section_at(text: str, at: int) -> str | None:
    """`git`, `environment` or `instructions`: what the nearest words before a place say it is part of."""
    end = text.find("\n", at)
    seen = text[max(0, at - _BACK) : end if end >= 0 else len(text)]
    found: list[tuple[int, str]] = []
    for name, pattern in (("git", _GIT), ("environment", _ENVIRONMENT), ("instructions", _INSTRUCTIONS)):
        found.extend((match.start(), name) for match in pattern.finditer(seen))
    return max(found)[1] if found else None


def shown(text: str) -> str:
    """A text on one line: line ends, tabs and control characters as visible signs, one character each."""
    return "".join(c if c.isprintable() else _SIGNS.get(c, "\u00b7") for c in text)


def window(text: str, at: int, width: int) -> tuple[str, int]:
    """A cut of `width` columns with the character at `at` in view, on one line; and where that character is in it."""
    if width < 8 or not text:
        return shown(text)[: max(0, width)], 0
    begin = 0 if at < width * 2 // 3 else at - width // 3
    cut = shown(text[begin : begin + width])
    place = at - begin
    if begin:
        cut = "\u2026" + cut[1:]
    if begin + width < len(text):
        cut = cut[: width - 1] + "\u2026"
    return cut, place


def runs(a: str, b: str, at: int) -> Iterator[str]:
    """The differing middle of either text."""
    end = common_end(a, b, at)
    yield a[at : len(a) - end]
    yield b[at : len(b) - end]
