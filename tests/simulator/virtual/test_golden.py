"""Ten small runs whose whole event streams are kept. They change only with a reason, which the commit says.

`make golden` writes them anew. Text is left out but for one run, which keeps the files small.
"""

import difflib
import os
from pathlib import Path

import pytest

from windtunnel.simulator.run.config import Warmup
from windtunnel.simulator.run.virtual import virtual_run

from ..run.conftest import Sketch, chain  # noqa: TID252 -- tests are no package
from .conftest import config_of, loaded

GOLDEN = Path(__file__).parent / "golden"
REWRITE = os.environ.get("WINDTUNNEL_GOLDEN") == "write"
ENGINE = "emulator --gpu B200 --model qwen3-coder-30b-a3b --max-model-len 8192"
DENSE = "emulator --gpu H200 --model llama-3.1-8b --max-model-len 8192"


def with_sub_agent():
    sketch = Sketch("fork", system=500, user=60)
    first = sketch.call()
    thread = sketch.thread(first, delay=0.2)
    sketch.call(thread=thread, out=40)
    sketch.call(("tool", 0.4), thread=thread)
    sketch.call(("tool", 0.7), joins=(thread,))
    return sketch.trace()


def some(count=3, calls=3, **more):
    return [chain(f"t{n}", calls, wait=0.3 + n / 4, out=16 + 5 * n, system=400, user=90, **more) for n in range(count)]


CASES = {
    "token-route": ([with_sub_agent(), *some(2)], {"sessions": 3}),
    "chat-route": (some(2), {"sessions": 2, "api": "chat", "text": True}),
    "interrupted-by-duration": (some(2, 40), {"duration_s": 2.0, "warmup": Warmup(calls=2)}),
    "fit-scale": (some(2, 6), {"sessions": 2, "max_context": 450, "fit": "scale"}),
    "preemption": (
        [chain(f"p{n}", 2, wait=0.0, out=180, system=60, user=40) for n in range(4)],
        {"sessions": 4, "agents": 4, "engine": DENSE + " --max-model-len 512 --num-gpu-blocks-override 36"},
    ),
    "chunked-prefill": (
        [chain(f"c{n}", 2, wait=0.2, out=12, system=2000 + 300 * n, user=100) for n in range(3)],
        {
            "sessions": 3,
            "agents": 3,
            "ramp_s": 0.0,
            "engine": DENSE + " --max-num-batched-tokens 512 --long-prefill-token-threshold 200 --max-num-seqs 2",
        },
    ),
    "sliding-window": (
        [chain(f"w{n}", 4, wait=0.2, out=20, system=900, user=300) for n in range(2)],
        {"sessions": 2, "engine": "emulator --gpu B200 --model gpt-oss-120b --max-model-len 8192"},
    ),
    "synchronous": (some(2), {"sessions": 2, "engine": DENSE + " --no-async-scheduling --block-size 32"}),
    "speculation": (
        some(2),
        {
            "sessions": 2,
            "engine": DENSE + ' --speculative-config \'{"method":"ngram","num_speculative_tokens":3}\'',
        },
    ),
    "hybrid": (
        [chain(f"h{n}", 3, wait=0.2, out=20, system=2500, user=300) for n in range(2)],
        {"sessions": 2, "engine": "emulator --gpu B200 --model nemotron-3-nano-30b-a3b --max-model-len 16384"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_events_are_those_that_are_kept(tmp_path, name):
    traces, dials = CASES[name]
    given = {"text": False, "engine": ENGINE, **dials}
    virtual_run(config_of(**given), loaded(*traces), tmp_path / "run")
    events = (tmp_path / "run" / "events.jsonl").read_text()
    kept = GOLDEN / f"{name}.jsonl"
    if REWRITE:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(events)
    assert len(events) < 100_000
    lines = [text.splitlines() for text in (kept.read_text(), events)]
    changed = list(difflib.unified_diff(*lines, "kept", "now", n=0, lineterm=""))
    assert not changed, "\n".join(line[:400] for line in changed[:8])
