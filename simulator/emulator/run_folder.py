"""A run folder of windtunnel's own as a measured run: its calls, as they came, with what the cache had of each.

What each prompt consisted of is not recorded, but how much of it the engine found in its cache is. So prompts are made
up that share exactly that: the cached part of a call repeats an earlier prompt (with its output) of the same thread
or, failing that, of any. The pool is made large enough to keep everything, so that what was evicted shows in the
recorded hits alone. A run in which requests waited for KV cache is therefore no good for a calibration.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.agents.events import CallEnd, EngineSample
from windtunnel.simulator.emulator.blocks import Tokens
from windtunnel.simulator.emulator.identity import gpu_of, model_of
from windtunnel.simulator.emulator.measured import Case, Open
from windtunnel.simulator.emulator.replay import Ask, Played
from windtunnel.simulator.emulator.trial import statistics
from windtunnel.simulator.results.store import RUN_FILE, RunFolder
from windtunnel.traces.errors import UsageError

_FLAGS = {
    "cache_config.block_size": "block-size",
    "cache_config.cache_dtype": "kv-cache-dtype",
    "model_config.max_model_len": "max-model-len",
    "parallel_config.tensor_parallel_size": "tensor-parallel-size",
    "scheduler_config.max_num_batched_tokens": "max-num-batched-tokens",
    "scheduler_config.max_num_seqs": "max-num-seqs",
    "scheduler_config.long_prefill_token_threshold": "long-prefill-token-threshold",
}
"""What an engine says of its settings, and the flag for it."""
_SWITCHES = {
    "cache_config.enable_prefix_caching": "enable-prefix-caching",
    "model_config.enforce_eager": "enforce-eager",
    "scheduler_config.async_scheduling": "async-scheduling",
}


def is_run_folder(path: Path) -> bool:
    return (path / RUN_FILE).is_file()


def read_run_folder(path: Path, gpu: str | None = None, model: str | None = None) -> Case:
    """UsageError where the folder does not say enough and `gpu` and `model` do not either, or say something else."""
    folder = RunFolder.open(path)
    flags, gpu, model = _flags(path, folder.run, gpu, model)
    events = list(folder.events())
    calls = [event for event in events if isinstance(event, CallEnd)]
    preempted = [e.preemptions for e in events if isinstance(e, EngineSample) and e.preemptions is not None]
    if preempted and preempted[-1] > preempted[0]:
        raise UsageError(f"{path} had preemptions, and what they computed again is not recorded: give a calmer run.")
    usable = sorted((call for call in calls if _usable(call)), key=lambda call: (call.t_sent or 0, call.agent))
    if not usable:
        raise UsageError(f"{path} has no completed call with its times: give a run that went on for longer.")
    asks = _asks(usable)
    room = sum(len(ask.prompt) + ask.output for ask in asks) // 16 + 2 * len(asks)
    # The engine wants room for its longest request, however short these are.
    longest = dict(pairwise(flags)).get("--max-model-len", "0")
    room = max(room, int(longest) // 16 + 2)
    flags = (*flags, "--num-gpu-blocks-override", str(room))
    times = np.array([(call.t_sent, call.t_first, call.t_last) for call in usable], dtype=np.int64)
    none = np.zeros(len(asks), dtype=np.int64)
    seen = Played(
        asked=times[:, 0],
        scheduled=none,
        first=times[:, 1],
        last=times[:, 2],
        output=np.array([ask.output for ask in asks]),
        prompt=np.array([len(ask.prompt) for ask in asks]),
        hit=np.array([call.cached_tokens or 0 for call in usable]),
        preemptions=0,
        steps=0,
    )
    return Case(
        id=path.name or path.resolve().name,
        flags=flags,
        load=Open(asks),
        measured=statistics(seen),
        gpu=gpu,
        model=model,
        source=str(path),
        emulated=_emulated(folder.run),
        seen=seen,
    )


def _emulated(run: dict[str, Any]) -> bool:
    engine = run.get("engine")
    return isinstance(engine, dict) and bool(engine.get("emulated"))


def _usable(call: CallEnd) -> bool:
    return (
        call.failure is None
        and not call.cut
        and None not in (call.t_sent, call.t_first, call.t_last)
        and bool(call.prompt_tokens)
        and bool(call.completion_tokens)
    )


def _asks(calls: list[CallEnd]) -> list[Ask]:
    """Prompts in the order in which they were sent; the output of call n is token n repeated, as Fill has it."""
    texts: list[Tokens] = []
    threads: dict[tuple[int, str, int], int] = {}
    asks: list[Ask] = []
    for number, call in enumerate(calls):
        size, cached = call.prompt_tokens or 1, call.cached_tokens or 0
        prompt = np.full(size, 1 << 31 | number, dtype=np.uint32)
        thread = (call.agent, call.session, call.thread)
        before = _with(texts, threads.get(thread), cached)
        if before is not None:
            shared = min(cached, len(before), size)
            prompt[:shared] = before[:shared]
        output = call.completion_tokens or 1
        texts.append(np.concatenate([prompt, np.full(output, number, dtype=np.uint32)]))
        threads[thread] = number
        asks.append(Ask(prompt, output, at=call.t_sent or 0))
    return asks


def _with(texts: list[Tokens], own: int | None, cached: int) -> Tokens | None:
    """An earlier text of at least that many tokens: the thread's own, or the latest."""
    if not cached or not texts:
        return None
    if own is not None and len(texts[own]) >= cached:
        return texts[own]
    return next((text for text in reversed(texts) if len(text) >= cached), max(texts, key=len))


def _flags(path: Path, run: dict[str, Any], gpu: str | None, model: str | None) -> tuple[tuple[str, ...], str, str]:
    engine = run.get("engine")
    about: dict[str, Any] = engine if isinstance(engine, dict) else {}
    emulation = about.get("emulation") or {}
    devices = run.get("gpu") or about.get("gpu") or {}
    device = devices.get("name") if isinstance(devices, dict) else None
    resolved = about.get("resolved") or {}
    emulated = _emulated(run)
    found = gpu_of(str(path), str(emulation.get("gpu") or device or ""), gpu, emulated=emulated)
    names = (emulation.get("model"),) if emulated else (about.get("model"), resolved.get("model_config.model"))
    known, quantization = model_of(str(path), tuple(str(name or "") for name in names), model, emulated=emulated)
    if about.get("speculation") or resolved.get("speculative_config.method"):
        raise UsageError(f"{path} speculated, and which drafts were accepted is not recorded: give a run without.")
    flags = ["--gpu", found, "--model", known]
    quantization = quantization or resolved.get("model_config.quantization")
    if quantization:
        flags += ["--quantization", str(quantization)]
    for key, flag in _FLAGS.items():
        if resolved.get(key) is not None:
            flags += [f"--{flag}", str(resolved[key])]
    for key, flag in _SWITCHES.items():
        if isinstance(resolved.get(key), bool):
            flags.append(("--" if resolved[key] else "--no-") + flag)
    return tuple(flags), found, known
