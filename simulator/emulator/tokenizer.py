"""The built-in tokenizer: invertible, fast, the same on every machine, additive over lines.

A token never crosses a line end, so count(a + b) = count(a) + count(b) whenever `a` ends with one; templates and
prompts put together from blocks can therefore be counted block by block. The vocabulary is built by rule: bytes, pairs
of punctuation with and without a leading space, runs of spaces, short line ends, numbers up to three digits, pieces of
words by their pattern of consonants and vowels, and some thousand whole words. 3 to 4 characters a token on code and
prose.
"""

import re
from functools import cache
from itertools import chain, product
from typing import Protocol

import numpy as np

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.words import frequent, known

_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_VOWELS = "aeiouy"
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_OPENINGS = (
    "bl",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "fr",
    "gl",
    "gr",
    "pl",
    "pr",
    "sc",
    "sh",
    "sk",
    "sl",
    "sm",
    "sn",
    "sp",
    "st",
    "sw",
    "th",
    "tr",
    "tw",
    "wh",
    "wr",
)
_ENDINGS = (
    "ch",
    "ck",
    "ct",
    "ft",
    "ld",
    "ll",
    "lt",
    "mp",
    "nd",
    "ng",
    "nk",
    "nt",
    "pt",
    "rd",
    "rk",
    "rm",
    "rn",
    "rs",
    "rt",
    "sh",
    "sk",
    "ss",
    "st",
    "th",
    "ts",
    "ns",
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, START, STOP = 256, 257, 258
"""Ids of the special tokens: end of text, start and end of a message. Text never produces them."""

_REMEMBERED = 300_000
"""Different pieces of text kept with their tokens."""

_SPLIT = re.compile(
    r"[ _.]?[A-Za-z]+"  # a word
    r"|[!-/:-@\[-`{-~]{0,2}\r?\n"  # a line end with up to two signs before it
    r"| ?[0-9]{1,3}"
    r"| ?[!-/:-@\[-`{-~]{1,2}"
    r"| +(?= [^ ])| +"  # spaces; the last one belongs to what follows
    r"|[^ -~\n]+"  # anything else goes by bytes
    r"|."
)


def _words() -> list[str]:
    """Each word alone and after a space; capitalised too; the common ones also behind a sign and in capitals."""
    out: list[str] = []
    for word in known():
        out += [word, " " + word, "_" + word, "." + word]
        if word.isalpha():
            out += [word.capitalize(), " " + word.capitalize(), word.upper(), " " + word.upper(), "_" + word.upper()]
    for word in frequent():
        out += [word, " " + word, word.capitalize(), " " + word.capitalize(), "_" + word]
    return out


def _vocabulary() -> list[str]:
    signs = [*_PUNCTUATION, *map("".join, product(_PUNCTUATION, repeat=2))]
    pieces = [
        *map("".join, product(_LETTERS, repeat=2)),
        *map("".join, product(_LETTERS, repeat=3)),
        *map("".join, product(_CONSONANTS, "aeio", _CONSONANTS, "aei")),
        *map("".join, product("aeio", _CONSONANTS, "aeio", "cdlmnrstvx")),
        *map("".join, product(_CONSONANTS, _VOWELS, _ENDINGS)),
        *map("".join, product(_OPENINGS, _VOWELS, _CONSONANTS)),
    ]
    capitals = [
        *map("".join, product(_LETTERS.upper(), _LETTERS)),
        *map("".join, product(_LETTERS.upper(), repeat=2)),
        *map("".join, product(_LETTERS.upper(), _VOWELS, _LETTERS)),
    ]
    numbers = [f"{n:0{width}d}" for width in (2, 3) for n in range(10**width)]
    ends = [sign + end for end in ("\n", "\r\n") for sign in ["", *signs]]
    return [
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *SPECIAL,
        *dict.fromkeys(
            [
                *ends,
                *(" " * n for n in range(2, 65)),
                *signs[32:],
                *(" " + sign for sign in signs),
                *numbers,
                *(" " + number for number in [*"0123456789", *numbers]),
                *(" " + letter for letter in _LETTERS + _LETTERS.upper()),
                *pieces,
                *(" " + piece for piece in pieces),
                *capitals,
                *(" " + piece for piece in capitals),
                *_words(),
            ]
        ),
    ]


class Vocabulary(Protocol):
    """A tokenizer as the routes use it."""

    stop: int
    """Id of the token that ends an answer."""
    bound: int
    """Ids in prompts are below it."""

    def encode(self, text: str, *, special: bool = False) -> Tokens:
        """Ids of a text; with `special`, between the tokens that the tokenizer puts around a text by itself."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of ids; special tokens have none."""
        ...

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes that one token adds to a text; none for special tokens."""
        ...

    def strings(self, ids: list[int]) -> list[str]:
        """Each token as it is called; of special ones, too."""
        ...

    def spoken(self, texts: list[str]) -> list[int]:
        """Ids of those texts that are one token each, wherever they stand."""
        ...


class Tokenizer:
    """Text to token ids and back; whole pieces of text are remembered, so that a second look costs a dict lookup."""

    stop = STOP
    bound = 1 << 31
    """Recorded ids of any tokenizer may be sent."""

    def __init__(self) -> None:
        self._text = _vocabulary()
        first = 256 + len(SPECIAL)
        ids = dict(zip(self._text[first:], range(first, len(self._text)), strict=True))
        ids |= {chr(byte): byte for byte in range(128)}
        self._ids = ids
        self._known: dict[str, tuple[int, ...]] = {}

    @property
    def size(self) -> int:
        """Vocabulary size."""
        return len(self._text)

    def encode(self, text: str, *, special: bool = False) -> Tokens:  # noqa: ARG002 - it adds none
        known = self._known
        parts = _SPLIT.findall(text)
        try:
            ids = [known[part] for part in parts]
        except KeyError:
            if len(known) > _REMEMBERED:
                known.clear()
            for part in set(parts):
                if part not in known:
                    known[part] = self._cut(part)
            ids = [known[part] for part in parts]
        return np.fromiter(chain.from_iterable(ids), np.uint32)

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def strings(self, ids: list[int]) -> list[str]:
        """The text of each token; joined they give the text. Tokens inside one character: the first of them has it."""
        words = self._text
        if not any(128 <= token < 256 or token >= len(words) for token in set(ids)):
            return [words[token] if token >= 256 else chr(token) for token in ids]
        out: list[str] = []
        run = bytearray()
        for token in [*ids, END]:
            if 128 <= token < 256:
                run.append(token)
                continue
            for character in run.decode("utf-8", "replace"):
                out += [character, *[""] * (len(_bytes(character)) - 1)]
            run.clear()
            out.append(self._text[token] if 256 <= token < len(self._text) else self.piece(token).decode())
        return out[:-1]

    def decode(self, ids: list[int]) -> str:
        """Text of token ids; ids outside the vocabulary are shown by their number."""
        raw = bytearray()
        for i in ids:
            raw += self.piece(i)
        return raw.decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes of one token; nothing for special ones."""
        if token < 256:
            return bytes((token,))
        if token < 256 + len(SPECIAL):
            return b""
        if token < len(self._text):
            return self._text[token].encode()
        return f" #{token}".encode()

    def spoken(self, texts: list[str]) -> list[int]:
        return [self._ids[text] for text in texts if text in self._ids]

    def _cut(self, part: str) -> tuple[int, ...]:
        """A piece of text in the longest vocabulary entries from its left."""
        ids = self._ids
        if part in ids:
            return (ids[part],)
        if not part.isascii():
            return tuple(_bytes(part))
        out: list[int] = []
        at = 0
        while at < len(part):
            for width in range(min(64, len(part) - at), 0, -1):
                token = ids.get(part[at : at + width])
                if token is not None:
                    out.append(token)
                    at += width
                    break
        return tuple(out)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@cache
def builtin() -> Tokenizer:
    """The one instance of this process."""
    return Tokenizer()
