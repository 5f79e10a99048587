"""Text and token ids from a digest and a count: what a shape-only trace is replayed with.

Equal digests give equal beginnings: the pieces of a text are drawn by the digest alone, the count only decides where it
ends. So a block cut in the middle keeps its digest, and prefixes that were shared in the recording are shared again.
"""

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from windtunnel.traces.calibration import (
    STORED_RATIO,
    Calibration,
    Table,
    calibrate,
    rough_tokens,
    sample,
    stored,
)
from windtunnel.traces.model import Block, TextKind
from windtunnel.traces.seeded import u16, u16_few, u16_many

__all__ = [
    "Calibration",
    "calibrate",
    "estimate_tokens",
    "fit_text",
    "id_array",
    "kind_of",
    "regenerate",
    "regenerate_escaped",
    "regenerate_inline",
    "sample",
    "stored",
    "token_ids",
]

_JSON_START = re.compile(r"[\[{]\s*(?:[\[{\"\]}\d]|$)")
_LOG_START = re.compile(
    r"\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d:\d\d|\[?(?:INFO|DEBUG|WARN|WARNING|ERROR)\b|[\w./-]+:\d+:|[-d]r[w-]"
    r"|E  |=====|\d+[\t→:]|Traceback|\?\? |[ MAD][ MD] [\w.]"
)
_CODE_STARTS = (
    "def ", "class ", "import ", "from ", "return", "async ", "await ", "func ", "fn ", "pub ", "const ", "let ",
    "var ", "function ", "export ", "if (", "for (", "while ", "elif ", "else:", "try:", "except ", "with ", "raise ",
    "self.", "#include", "@", "//", "/*", "* ", "</", "+++ ", "--- ", "+", "SELECT ", "package ", "type ",
    "interface ", "use ",
)  # fmt: skip
_CODE_ENDS = ("{", "}", ";", "(", "[", "):", "),", "],", "},", "]", "()", "\\", '",', "',", ">")
_CODE_SIGNS = (" = ", "->", "=>", " == ", "::", "(self", "&&", "</")


_FEW = 128
"""So many numbers are sooner dealt with one by one than as an array."""


def regenerate(digest: str, kind: TextKind, tokens: int, cal: Calibration) -> str:
    """Text of about `tokens` tokens in the calibrated tokenizer; whole lines when there are at least 8 of them."""
    if tokens <= 0:
        return ""
    table = cal.tables[kind]
    order, left = _whole_pieces(f"{kind}\0{digest}", tokens, table)
    body = "".join([table.pieces[i] for i in order[:-1]])
    return body + _tail(table, order[-1], left, at_start=not body, newline=tokens >= 8)


def regenerate_escaped(digest: str, kind: TextKind, tokens: int, cal: Calibration, before: bytes = b"") -> bytes:
    """The text of `regenerate` as it stands inside a JSON string, with what is to stand before it."""
    if tokens <= 0:
        return before
    table = cal.tables[kind]
    order, left = _whole_pieces(f"{kind}\0{digest}", tokens, table)
    escaped = table.escaped
    last = order.pop()
    tail = _tail(table, last, left, at_start=not order, newline=tokens >= 8)
    return b"".join([before, *[escaped[i] for i in order], msgspec.json.encode(tail)[1:-1]])


def regenerate_inline(digest: str, tokens: int, cal: Calibration) -> str:
    """Prose in a single line without quotes, backslashes or line ends: the same inside a JSON string as outside."""
    if tokens <= 0:
        return ""
    table = cal.tables["inline"]
    order, left = _whole_pieces(f"inline\0{digest}", tokens, table)
    body = " ".join([table.pieces[i] for i in order[:-1]])
    tail = _tail(table, order[-1], left, at_start=not body, newline=False)
    return f"{body} {tail}" if body and tail else body + tail


def token_ids(digest: str, tokens: int, cal: Calibration) -> list[int]:
    """`tokens` ordinary token ids; fewer of the same digest are a prefix of more."""
    ids: list[int] = id_array(digest, tokens, cal).tolist()
    return ids


def id_array(digest: str, tokens: int, cal: Calibration) -> NDArray[np.int64]:
    """The same as an array."""
    return cal.drawn.take(u16_many(f"ids\0{digest}", max(0, tokens)))


def fit_text(text: str, measured_tokens: int, block: Block, tokens: int, cal: Calibration) -> tuple[str, str | None]:
    """Recorded text of `measured_tokens` in the engine's tokenizer, brought to `tokens`.

    The second value says how: "cut", "padded" (continued by regenerated text), or None for counts that are near enough
    (one token or half a percent).
    """
    if abs(measured_tokens - tokens) <= max(1.0, tokens / 200):
        return text, None
    if measured_tokens < tokens:
        joint = "" if not text or text.endswith("\n") else "\n"
        more = regenerate(f"{block.digest}+", block.kind, tokens - measured_tokens - len(joint), cal)
        return text + joint + more, "padded"
    if tokens <= 0:
        return "", "cut"
    starts, weights = rough_tokens(text)
    cumulative = np.cumsum(weights)
    at = int(np.searchsorted(cumulative, cumulative[-1] * tokens / measured_tokens, side="right"))
    return text[: int(starts[min(max(1, at), len(starts) - 1)])] or text[:1], "cut"


def kind_of(text: str) -> TextKind:
    """What a text looks like, by its first lines."""
    head = text[:2048].lstrip("\ufeff\n ")
    if _JSON_START.match(head):
        return "json"
    lines = [stripped for line in head.split("\n")[:40] if (stripped := line.strip())]
    logs = sum(1 for line in lines if _LOG_START.match(line))
    code = sum(1 for line in lines if _is_code(line))
    if logs * 3 > len(lines) and logs * 2 >= code:
        return "log"
    return "code" if code * 2 > len(lines) else "prose"


def _is_code(line: str) -> bool:
    return line.startswith(_CODE_STARTS) or line.endswith(_CODE_ENDS) or any(sign in line for sign in _CODE_SIGNS)


def estimate_tokens(text: str, kind: TextKind | None = None) -> int:
    """Tokens of a text by the stored ratio of its kind; characters beyond ASCII count two thirds of a token each."""
    if not text:
        return 0
    wide = 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
    return max(1, round((len(text) - wide) / STORED_RATIO[kind or kind_of(text)] + wide / 1.5))


def _whole_pieces(key: str, tokens: int, table: Table) -> tuple[list[int], float]:
    """Pieces that fit into the count, then the one that does not any more, and the tokens left for it."""
    count = int(tokens / table.mean * 1.1) + 8
    if count <= _FEW:
        size, costs, limit = len(table.pieces), table.cost_list, tokens + 0.5
        few, spent = [], 0.0
        for draw in u16_few(key, count):
            piece = draw * size >> 16
            few.append(piece)
            more = spent + costs[piece]
            if more >= limit:
                return few, tokens - spent
            spent = more
        count *= 2
    while True:
        order: NDArray[np.int64] = (u16(key, count).astype(np.int64) * len(table.pieces)) >> 16
        sums = np.cumsum(table.costs[order])
        whole = int(np.searchsorted(sums, tokens + 0.5, side="left"))
        if whole < count:
            return order[: whole + 1].tolist(), tokens - float(sums[whole - 1] if whole else 0.0)
        count *= 2


def _tail(table: Table, piece: int, left: float, *, at_start: bool, newline: bool) -> str:
    """The beginning of a piece, filled up with single words, that costs `left` tokens."""
    end = "\n" if newline else ""
    left -= table.newline if newline else 0.0
    if left < 0.5 and not at_start:
        return ""
    place = 0
    for at, cost in zip(table.places[piece], table.cuts[piece], strict=True):
        if cost > left + 0.25:
            break
        place, spent = at, cost
    if place:
        text = table.pieces[piece][:place]
        left -= spent
    else:
        text = table.starts[piece % len(table.starts)]
        left -= table.start
    more = max(0, round(left / table.word))
    words = [table.words[(piece + i) % len(table.words)] for i in range(more)]
    return " ".join((text, *words)) + end
