"""How long an engine took from its start until it served, by phase, read from its log while it starts.

The phases follow one another and add up to the whole: `start` (process and imports), `load` (weights), `compile`
(compilation and autotuning), `capture` (graphs), `ready` (the rest until it serves). One begins when a line that tells
of it is first seen, so each is known to the time between two looks at the log. A phase that the log did not tell of is
null, and its time is in the phase before it. What an engine itself measured stands beside them.
"""

import itertools
import re
from collections.abc import Iterable

from msgspec import Struct

PHASES = ("start", "load", "compile", "capture", "ready")
BEGINS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "ready",
        re.compile(
            r"init engine \(profile|Starting vLLM server on|Application startup complete"  # vLLM
            r"|max_total_num_tokens=\d|The server is fired up"  # SGLang
            r"|srv .*model loaded"  # llama.cpp
        ),
    ),
    (
        "capture",
        re.compile(
            r"Capturing CUDA graph"  # vLLM
            r"|Capture .* begin\."  # SGLang
            r"|Creating CUDA graph instances for"  # TensorRT-LLM
        ),
    ),
    (
        "compile",
        re.compile(
            r"for vLLM's torch\.compile|Dynamo bytecode transform time|Compiling a graph for"  # vLLM
            r"|Running autotuner warmup|\[Autotuner\] Autotuning process starts"  # TensorRT-LLM, FlashInfer in others
        ),
    ),
    (
        "load",
        re.compile(
            r"Starting to load model"  # vLLM
            r"|Load weight begin"  # SGLang
            r"|[Uu]ses? [\d.]+ GB for model weights"  # TensorRT-LLM
            r"|load_model: loading model"  # llama.cpp
        ),
    ),
)
TOLD: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("load", re.compile(r"(Model loading) took .* and ([\d.]+) seconds")),  # vLLM
    ("load", re.compile(r"(Load weight) end\. elapsed=([\d.]+) s")),  # SGLang
    ("compile", re.compile(r"(torch\.compile) took ([\d.]+) s in total")),  # vLLM
    ("capture", re.compile(r"(Graph capturing) finished in ([\d.]+) secs")),  # vLLM
    ("capture", re.compile(r"Capture (.*) end\. elapsed=([\d.]+) s")),  # SGLang
    ("init", re.compile(r"(init engine) \(.*?\) took ([\d.]+) s")),  # vLLM
)


class ColdStart(Struct, frozen=True, kw_only=True):
    """For run.json. Seconds."""

    total_s: float
    start_s: float
    load_s: float | None = None
    compile_s: float | None = None
    capture_s: float | None = None
    ready_s: float | None = None
    told: dict[str, float] = {}
    """What the log itself says of phases, of several ranks the slowest; `init` is vLLM's whole of profiling, KV cache
    and warm-up."""


class Watch:
    """Give it the log's new lines with the time since the start; never goes back to an earlier phase."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {"start": 0.0}
        self._now = 0
        self._told: dict[tuple[str, str], float] = {}

    def look(self, lines: Iterable[str], at_s: float) -> None:
        for line in lines:
            for phase, pattern in BEGINS:
                if pattern.search(line):
                    number = PHASES.index(phase)
                    if number > self._now:
                        self._now = number
                        self._began[phase] = at_s
                    break
            for phase, pattern in TOLD:
                if (found := pattern.search(line)) is not None:
                    key = phase, found[1]
                    self._told[key] = max(self._told.get(key, 0.0), float(found[2]))

    def done(self, at_s: float) -> ColdStart:
        """The engine serves."""
        began = [*self._began.items(), ("", at_s)]
        lasted = {f"{phase}_s": round(end - begin, 3) for (phase, begin), (_, end) in itertools.pairwise(began)}
        told: dict[str, float] = {}
        for (phase, _), seconds in self._told.items():
            told[phase] = round(told.get(phase, 0.0) + seconds, 3)
        return ColdStart(total_s=round(at_s, 3), **lasted, told=told)
