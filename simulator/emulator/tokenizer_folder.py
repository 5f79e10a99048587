"""A model's own tokenizer, from its folder: token counts are then those of a vLLM that serves this model.

The files are those of Hugging Face: tokenizer.json with the tokenizer, tokenizer_config.json with its special tokens.
Text between two special tokens is cut on its own, so a long history is cut once and remembered.
"""

import json
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.traces.errors import UsageError

_REMEMBERED = 1 << 24
"""Tokens kept of pieces of text: 64 MiB."""
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SAMPLES = (" a", "a b", "b\n", "\n\n  c", "é1", "")
"""Pieces by which it is tried whether text between special tokens is cut on its own."""

INSTALL = "--tokenizer needs two more packages: pip install 'windtunnel[tokenizer]'."


class FolderTokenizer:
    """`stop` is the end of a turn by generation_config.json or the tokenizer's `eos_token`."""

    def __init__(self, folder: Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise UsageError(INSTALL) from None
        self.config = config(folder, "tokenizer_config.json")
        made = config(folder, "tokenizer.json")
        if not isinstance(made.get("model"), dict):
            raise UsageError(f"--tokenizer {folder}: there is no tokenizer.json with a tokenizer in it.")
        self._inner: Any = tokenizers.Tokenizer.from_str(json.dumps(made))
        self._inner.no_truncation()
        self._inner.no_padding()
        self.special = {key: _text(self.config.get(key)) for key in _SPECIAL if self.config.get(key)}
        """Names of special tokens to the tokens, as templates use them."""
        self._add(tokenizers)
        self.bound = self._inner.get_vocab_size(with_added_tokens=True)
        self.stop = self._end(folder)
        self._remembered: OrderedDict[str, Tokens] = OrderedDict()
        self._tokens = 0
        self._before, self._after = self._affixes()
        self._cuts = self._separable()
        self._anchor = self._raw("a")[:1]
        self._anchored = len(self._inner.decode(self._anchor))

    def encode(self, text: str, *, special: bool = False) -> Tokens:
        parts = [text] if self._cuts is None else self._cuts.split(text)
        pieces = [self._piece(part) for part in parts if part]
        if special:
            pieces = [np.array(self._before, dtype=np.uint32), *pieces, np.array(self._after, dtype=np.uint32)]
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint32)

    def decode(self, ids: list[int]) -> str:
        text: str = self._inner.decode([i for i in ids if i < self.bound], skip_special_tokens=True)
        return text

    def piece(self, token: int) -> bytes:
        # Behind another token: alone, some tokenizers would leave out a leading space.
        text: str = self._inner.decode([*self._anchor, token], skip_special_tokens=True)
        return text[self._anchored :].encode("utf-8", "replace")

    def strings(self, ids: list[int]) -> list[str]:
        return [self._inner.id_to_token(i) or "" for i in ids]

    def spoken(self, texts: list[str]) -> list[int]:
        """Those that are one token behind a word, and give that word back."""
        found = []
        for text in texts:
            ids = self._raw("a" + text)[len(self._anchor) :]
            if len(ids) == 1 and self.piece(ids[0]) == text.encode():
                found.append(ids[0])
        return found

    def _raw(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def _piece(self, text: str) -> Tokens:
        known = self._remembered.get(text)
        if known is not None:
            self._remembered.move_to_end(text)
            return known
        tokens = np.array(self._raw(text), dtype=np.uint32)
        self._remembered[text] = tokens
        self._tokens += len(tokens)
        while self._tokens > _REMEMBERED and len(self._remembered) > 1:
            _, dropped = self._remembered.popitem(last=False)
            self._tokens -= len(dropped)
        return tokens

    def _add(self, tokenizers: Any) -> None:
        """Tokens that only tokenizer_config.json knows."""
        for row in (self.config.get("added_tokens_decoder") or {}).values():
            if self._inner.token_to_id(row["content"]) is None:
                flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
                given = {key: row[key] for key in flags if key in row}
                self._inner.add_tokens([tokenizers.AddedToken(row["content"], **given)])
        self._inner.add_special_tokens([text for text in self.special.values() if text])

    def _end(self, folder: Path) -> int:
        ends = config(folder, "generation_config.json").get("eos_token_id")
        first = ends[0] if isinstance(ends, list) and ends else ends
        if isinstance(first, int) and 0 <= first < self.bound:
            return first
        known = self._inner.token_to_id(self.special.get("eos_token", ""))
        if known is None:
            raise UsageError(
                f"--tokenizer {folder}: neither generation_config.json nor the tokenizer names an end token."
            )
        return int(known)

    def _affixes(self) -> tuple[list[int], list[int]]:
        """What is put around a text: by the configuration's word, or by what the tokenizer itself does."""
        if "add_bos_token" in self.config or "add_eos_token" in self.config:
            ends = [("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")]
            found = [
                [self._inner.token_to_id(self.special[name])] if self.config.get(flag) and name in self.special else []
                for flag, name in ends
            ]
            return found[0], found[1]
        plain = self._raw("a")
        around: list[int] = self._inner.encode("a", add_special_tokens=True).ids
        at = next((n for n in range(len(around)) if around[n : n + len(plain)] == plain), 0)
        return around[:at], around[at + len(plain) :]

    def _separable(self) -> re.Pattern[str] | None:
        """Special tokens at which a text can be cut in parts that are tokenised apart; None where that is not so."""
        rows = self._inner.get_added_tokens_decoder().values()
        exact = [t.content for t in rows if t.special and not (t.lstrip or t.rstrip or t.single_word or t.normalized)]
        if not exact:
            return None
        cuts = re.compile("(" + "|".join(re.escape(text) for text in sorted(exact, key=len, reverse=True)) + ")")
        for token in exact[:8]:
            for left in _SAMPLES:
                for right in _SAMPLES:
                    parts = [i for part in (left, token, right) if part for i in self._raw(part)]
                    if parts != self._raw(left + token + right):
                        return None
        return cuts


def config(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of a model's folder; an empty one where the file is not there."""
    path = folder / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    return found if isinstance(found, dict) else {}


def _text(token: Any) -> str:
    """A special token is named by its text or by an object that has it."""
    return str(token["content"] if isinstance(token, dict) else token)
