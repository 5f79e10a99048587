"""The counts of an OpenHands V1 conversation: `stats.usage_to_metrics` of its `base_state.json`."""

from collections.abc import Iterator

from msgspec import Struct

from windtunnel.traces.importers.pieces import Draft, Exchange
from windtunnel.traces.importers.records import Notes, count, instant_s, seconds, table, tables, text

SUB_AGENT = ("task:", "delegate:")
"""Usage ids under which a sub-agent's counts stand with its parent's."""


class Figures(Struct):
    """One response as the statistics count it. Times are Unix seconds."""

    usage_id: str
    response: str
    prompt: int | None
    cached: int | None
    created: int | None
    completion: int | None
    reasoning: int | None
    model: str | None
    end: float | None
    latency: float | None
    used: bool = False

    def fill(self, exchange: Exchange) -> None:
        self.used = True
        exchange.prompt, exchange.cached, exchange.created = self.prompt, self.cached, self.created
        exchange.completion, exchange.reasoning = self.completion, self.reasoning
        exchange.model = self.model or exchange.model
        if self.end is not None:
            exchange.end = self.end
        if exchange.end is not None and self.latency is not None:
            exchange.start, exchange.marks["start"] = exchange.end - self.latency, "derived"
        if exchange.output is None and self.completion:
            exchange.output = Draft("assistant")


def read_figures(state: dict[str, object], notes: Notes) -> list[Figures]:
    """In order of the responses, usage id by usage id."""
    metrics = table(table(state.get("stats")).get("usage_to_metrics"))
    return [figures for usage_id, value in metrics.items() for figures in _of(usage_id, table(value), notes)]


def _of(usage_id: str, metrics: dict[str, object], notes: Notes) -> Iterator[Figures]:
    usages = list(tables(metrics.get("token_usages")))
    latencies = {
        text(r.get("response_id")): seconds(r.get("latency")) for r in tables(metrics.get("response_latencies"))
    }
    costs = list(tables(metrics.get("costs")))
    moments = [instant_s(c.get("timestamp")) for c in costs] if len(costs) == len(usages) else [None] * len(usages)
    for usage, end in zip(usages, moments, strict=True):
        counts = [
            count(usage.get(name), notes, None, name)
            for name in (
                "prompt_tokens",
                "cache_read_tokens",
                "cache_write_tokens",
                "completion_tokens",
                "reasoning_tokens",
            )
        ]
        prompt, cached, created, completion, reasoning = counts
        response = text(usage.get("response_id"))
        yield Figures(
            usage_id=usage_id,
            response=response,
            prompt=prompt or None,
            cached=cached,
            created=created,
            completion=completion if completion or prompt else None,
            reasoning=None if reasoning is None or completion is None else min(reasoning, completion),
            model=text(usage.get("model")) or text(metrics.get("model_name")) or None,
            end=end,
            latency=latencies.get(response),
        )
