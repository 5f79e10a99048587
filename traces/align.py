"""Where in a text each of its tokens starts, from the token strings a server gives back.

Vocabularies write their tokens in their own ways: byte-level BPE maps bytes to letters, SentencePiece writes spaces as
U+2581 and odd bytes as `<0x0A>`, WordPiece marks inner parts with `##` and forgets whitespace.
"""

import re
from collections.abc import Sequence

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_RESYNC = 120
"""Characters looked ahead for the next token after one that is not found in the text."""
_MISSED = 0.02
"""Share of tokens, and of text, that may stay unmatched."""


def _byte_letters() -> dict[str, str]:
    """The letters byte-level BPE writes for bytes: printable Latin-1 as it is, the rest counted up from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [b for b in range(256) if b not in printable]
    letters = {chr(b): chr(b) for b in printable}
    return letters | {chr(0x100 + i): chr(b) for i, b in enumerate(rest)}


_BYTE_LETTERS = _byte_letters()


def plain_strings(strings: Sequence[str]) -> list[str]:
    """Token strings as the characters they stand for (ASCII texts only)."""
    if any("\u0120" in s or "\u010a" in s for s in strings):
        return ["".join(_BYTE_LETTERS.get(c, c) for c in s) for s in strings]
    if any("\u2581" in s for s in strings):
        return [_BYTE.sub(lambda m: chr(int(m[1], 16)), s.replace("\u2581", " ")) for s in strings]
    if any(s.startswith("##") for s in strings):
        return [s[2:] if s.startswith("##") and len(s) > 2 else s for s in strings]
    return list(strings)


def align(text: str, strings: Sequence[str]) -> list[int | None] | None:
    """Start of each token in the text, ascending; None for special tokens at either end. None if they do not fit."""
    found: list[int | None] = []
    at = 0
    misses = 0
    lost = False
    low = text.lower()
    for piece in plain_strings(strings):
        if piece and text.startswith(piece, at):
            found.append(at)
            at += len(piece)
            lost = False
            continue
        core = piece.strip().lower()
        begin = at
        while begin < len(text) and text[begin].isspace():
            begin += 1
        if lost and core:
            later = low.find(core, begin, begin + _RESYNC)
            begin = later if later >= 0 else begin
        if core and low.startswith(core, begin):
            found.append(begin)
            at = begin + len(core)
            lost = False
        else:
            found.append(None)
            misses += 1
            lost = True
    if misses > _MISSED * len(found) + 2 or len(text[at:].strip()) > _MISSED * len(text):
        return None
    return _kept(found)


def _kept(found: list[int | None]) -> list[int | None]:
    """Unmatched tokens inside the text (unknown words) count where the token before them ended."""
    inner = [i for i, start in enumerate(found) if start is not None]
    if not inner:
        return found
    previous = 0
    for i in range(inner[0], inner[-1] + 1):
        start = found[i]
        if start is None:
            found[i] = previous
        else:
            previous = start
    return found
