"""The engine's own counters against what its answers said, over one run without warm-up."""

from pathlib import Path

from windtunnel.agents.events import CallEnd, EngineSample
from windtunnel.simulator.results.store import RunFolder


def assert_counters_agree(run: Path, *, tokens: int) -> None:
    """Prompt, cached and generated tokens are equal to a token; `tokens` were asked for."""
    events = list(RunFolder.open(run).events())
    samples = [event for event in events if isinstance(event, EngineSample)]
    calls = [event for event in events if isinstance(event, CallEnd)]
    first, last = samples[0], samples[-1]
    assert sum(call.completion_tokens for call in calls) == tokens
    assert last.generation_tokens - first.generation_tokens == tokens
    assert last.prompt_tokens - first.prompt_tokens == sum(call.prompt_tokens for call in calls)
    assert last.prefix_hits - first.prefix_hits == sum(call.cached_tokens for call in calls)
