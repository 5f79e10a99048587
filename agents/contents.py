"""Texts and arguments of a trace, each brought to a token count of the served tokenizer and encoded once."""

from collections import Counter

import msgspec

from windtunnel.agents import schemas
from windtunnel.agents.rendering import Rendering, text_key
from windtunnel.traces.model import Block, Trace
from windtunnel.traces.text import fit_text, regenerate_escaped, regenerate_inline

UNMEASURED_RANGE = (0.5, 2.0)
"""A recorded text whose count under the served tokenizer is unknown stays as it is when its estimate lies this near."""


class Contents:
    """`text` and `arguments` give a JSON string's inside and the tokens it really costs, as far as they are known."""

    def __init__(self, trace: Trace, rendering: Rendering, changes: Counter[str]) -> None:
        self.trace = trace
        self.rendering = rendering
        self.changes = changes
        self._held: dict[tuple[int, int, bool], tuple[bytes, int]] = {}
        self._changed = False
        self._fitted_keys: list[tuple[int, int, bool]] = []

    def text(self, block_id: int, tokens: int) -> tuple[bytes, int]:
        key = (block_id, tokens, False)
        held = self._held.get(key)
        if held is not None:
            return held
        block = self.trace.blocks[block_id]
        if block.text is None:
            tokens = max(0, tokens)
            held = regenerate_escaped(block.digest, block.kind, tokens, self.rendering.calibration), tokens
            self._held[key] = held
            return held
        text, cost = self._fitted(schemas.clean(block.text), block, tokens) if tokens > 0 else ("", 0)
        self._hold(key, schemas.escape(text), cost)
        return self._held[key]

    def after(self, before: bytes, block: Block, tokens: int) -> tuple[bytes, int]:
        """These bytes and the `text` of a block, of at least one token, behind them."""
        if block.text is None:
            return regenerate_escaped(block.digest, block.kind, tokens, self.rendering.calibration, before), tokens
        data, cost = self.text(block.id, tokens)
        return before + data, cost

    def arguments(self, block_id: int, tokens: int) -> tuple[bytes, int]:
        key = (block_id, tokens, True)
        if key not in self._held:
            value, cost = self._arguments(self.trace.blocks[block_id], tokens)
            self._hold(key, schemas.arguments_json(value), cost)
        return self._held[key]

    def fitted_texts(self) -> dict[str, str]:
        """By `text_key`, the texts that were cut or continued: to be counted for a second, closer preparation."""
        out = {}
        for key in self._fitted_keys:
            text: str = msgspec.json.decode(b'"' + self._held[key][0] + b'"')
            out[text_key(text)] = text
        return out

    def release(self) -> None:
        """Forgets what the finished tree holds already."""
        self._held = {key: self._held[key] for key in self._fitted_keys}

    def _hold(self, key: tuple[int, int, bool], data: bytes, cost: int) -> None:
        self._held[key] = (data, cost)
        if self._changed:
            self._fitted_keys.append(key)
            self._changed = False

    def _fitted(self, text: str, block: Block, tokens: int) -> tuple[str, int]:
        measured = self.rendering.measured_tokens(text)
        if measured is None:
            measured = self._estimate(text, block)
            low, high = UNMEASURED_RANGE
            if low * tokens <= measured <= high * tokens:
                self.changes["text_not_measured"] += 1
                return text, tokens
        fitted, change = fit_text(text, measured, block, tokens, self.rendering.calibration)
        if change is None:
            return fitted, measured
        self.changes[f"text_{change}"] += 1
        return fitted, self._recounted(fitted, tokens)

    def _recounted(self, text: str, planned: int) -> int:
        """What a cut or continued text really costs, where it was counted after an earlier preparation."""
        counted = self.rendering.measured_tokens(text)
        self._changed = True
        return planned if counted is None else counted

    def _estimate(self, text: str, block: Block) -> int:
        return max(1, round(len(text) / self.rendering.calibration.ratio[block.kind]))

    def _arguments(self, block: Block, tokens: int) -> tuple[dict[str, object], int]:
        """An object of about `tokens`; what it costs more or less is made up for in the texts that follow."""
        wrapper = self.rendering.wrapper_tokens
        if block.text is None:
            if tokens <= wrapper:
                return {}, 1
            return {"input": regenerate_inline(block.digest, tokens - wrapper, self.rendering.calibration)}, tokens
        text = schemas.clean(block.text)
        value = schemas.parse_object(text)
        if value is None:
            self.changes["arguments_wrapped"] += 1
            fitted, cost = self._fitted(text, block, max(1, tokens - wrapper))
            return {"input": fitted}, cost + wrapper
        return self._fitted_object(value, block, tokens)

    def _fitted_object(self, value: dict[str, object], block: Block, tokens: int) -> tuple[dict[str, object], int]:
        """A recorded object, its longest string cut or continued when the count is off by more than a little."""
        rendered = schemas.dumps(value)
        measured = self.rendering.measured_tokens(rendered)
        if measured is None:
            measured = self._estimate(rendered, block)
            low, high = UNMEASURED_RANGE
            if low * tokens <= measured <= high * tokens:
                self.changes["arguments_not_measured"] += 1
                return value, tokens
        missing = tokens - measured
        if abs(missing) <= max(2, tokens // 50):
            return value, measured
        longest = schemas.longest_string(value)
        if longest is None:
            return value, measured
        path, text = longest
        share = max(1, round(measured * len(text) / len(rendered)))
        if missing > 0:
            more = regenerate_inline(f"{block.digest}+", missing, self.rendering.calibration)
            self.changes["arguments_padded"] += 1
            value = schemas.with_string(value, path, f"{text} {more}")
            return value, self._recounted(schemas.dumps(value), tokens)
        kept = max(0, share + missing)
        self.changes["arguments_cut"] += 1
        cut, _ = fit_text(text, share, block, kept, self.rendering.calibration) if kept else ("", None)
        value = schemas.with_string(value, path, cut)
        return value, self._recounted(schemas.dumps(value), measured - share + kept)
