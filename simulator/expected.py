"""What the emulator expects of a lever before anybody has pulled it: room in its cache, the time of a step, and what of
that is assumed. A flag that buys room may cost time, and then the answer of a capacity search is not the whole answer.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from windtunnel.simulator.emulator.flags import Settings, parse
from windtunnel.simulator.emulator.speculation import UNVERIFIED
from windtunnel.simulator.emulator.steptime import StepTime
from windtunnel.simulator.engines import levers
from windtunnel.simulator.engines.levers import Kind, Lever
from windtunnel.simulator.results.text import count
from windtunnel.simulator.run.virtual import emulator_flags
from windtunnel.traces.errors import WindtunnelError

OFFLOAD = "--kv-offloading-size"
WHOLE_BITS = 16
"""Of a weight that is not quantised."""
LEAST = 0.01
"""Relative differences below this are not worth a word."""


def expected(command: str, lever: str, *, running: float | None, cached: float | None) -> str:
    """A few words on the emulator of `command` with the flags of `lever`; empty where it expects nothing to say.

    `running`: requests of a step; `cached`: tokens of context that they have together.
    """
    try:
        environ, words = emulator_flags(command)
        before, after = parse(words, environ), parse([*words, *shlex.split(lever)], environ)
    except (WindtunnelError, ValueError):  # "a higher ..." has no value yet; some models do not take every flag
        return ""
    said = []
    if _room(after) != _room(before) and abs(after.kv_tokens - before.kv_tokens) > LEAST * before.kv_tokens:
        said.append(f"{after.kv_tokens:,} tokens of KV cache in place of {before.kv_tokens:,}")
    elif after.kv_dtype != before.kv_dtype:
        said.append(f"no more than {before.kv_tokens:,} tokens of KV cache, for its size is set")
    drafts = after.speculation
    if drafts is not None and before.speculation is None:
        basis = "assumed" if UNVERIFIED in drafts.source else "given" if drafts.synthetic else "published"
        said.append(f"{drafts.length:.2f} tokens a step by {basis} acceptance ({drafts.source})")
    elif running and cached:
        was, is_ = (_step_ms(settings, round(running), round(cached)) for settings in (before, after))
        if abs(is_ / was - 1) > LEAST:
            load = f"a decode step of {count(round(running), 'request')} over {cached:,.0f} cached tokens"
            said.append(f"{is_:.1f} ms for {load} in place of {was:.1f} ({is_ / was - 1:+.0%})")
    return f"the emulator expects {' and '.join(said)}" if said else ""


def settings_with_weights(command: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved settings with the weights' own format where the emulator of `command` has a checkpoint of fewer bits.

    vLLM takes that format from the checkpoint, tells it among its settings, and refuses another `--quantization`.
    """
    try:
        environ, words = emulator_flags(command)
        model = parse(words, environ).model
    except WindtunnelError:
        return dict(settings)
    own = min(model.weight_bits, model.expert_bits if model.experts else model.weight_bits)
    known = {} if own >= WHOLE_BITS else {"model_config.quantization": f"the checkpoint's {own:g} bits"}
    return known | {name: value for name, value in settings.items() if value is not None}


def left(engine: str, kind: Kind, command: str, settings: Mapping[str, Any]) -> list[Lever]:
    """Levers that are not pulled yet, best first, and that the emulator of `command` can be moved by.

    No offload is named where it is not modelled, or where the GPU's memory is the host's too.
    """
    found = levers.left(engine, kind, command, settings_with_weights(command, settings))
    try:
        environ, words = emulator_flags(command)
        able = parse(words, environ).can_offload
    except WindtunnelError:
        return found
    return [lever for lever in found if able or lever.flag != OFFLOAD]


def _room(settings: Settings) -> tuple[int, int]:
    """Blocks and bytes. The tokens that vLLM prints are of requests of the full length: they change without these."""
    return settings.pool.blocks, settings.pool.bytes


def _step_ms(settings: Settings, running: int, cached: int) -> float:
    time = StepTime(settings.gpu, settings.model, settings.mode, reached=settings.reached, figures=settings.figures)
    sequences = max(1, running)
    return 1e3 * time.seconds(sequences, sequences, cached)
