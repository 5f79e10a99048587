"""Traces of single calls of one size, as other benchmarks send: `shape:512x512`.

They are no agent traffic. They are here so that a published figure of that kind can be measured the same way and put
beside the same engine under agents. Every session is one call with a prompt of its own, so nothing is shared.
"""

import re

from windtunnel.traces.errors import TraceError
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, Usage, digest_of

PREFIX = "shape:"
SESSIONS = 64
"""Different prompts; a run that needs more sessions tags its copies, so that these share nothing either."""
MOST_TOKENS = 10_000_000
_SHAPE = re.compile(r"(\d{1,9}(?:\.\d+)?)(k?)x(\d{1,9}(?:\.\d+)?)(k?)", re.IGNORECASE)


def shape_traces(spec: str) -> tuple[Trace, ...]:
    """The traces of `shape:INxOUT` (tokens; `8kx1k` works, k = 1024); TraceError for anything else."""
    name = spec.removeprefix(PREFIX)
    match = _SHAPE.fullmatch(name.strip())
    if match is None:
        raise TraceError(f"{spec} is no shape: write prompt and output tokens like shape:512x512 or shape:8kx1k")
    prompt, output = (round(float(match[i]) * (1024 if match[i + 1] else 1)) for i in (1, 3))
    if not (0 < prompt <= MOST_TOKENS and 0 < output <= MOST_TOKENS):
        raise TraceError(f"{spec}: prompt and output need 1 to {MOST_TOKENS} tokens each")
    return tuple(_single(f"{prompt}x{output}", number, prompt, output) for number in range(SESSIONS))


def _single(name: str, number: int, prompt: int, output: int) -> Trace:
    blocks = (
        Block(0, digest_of("shape", name, str(number), "prompt"), "prose", prompt),
        Block(1, digest_of("shape", name, str(number), "answer"), "prose", output),
    )
    header = Header(
        id=f"shape-{name}-{number:02}",
        agent="shape",
        source=f"{PREFIX}{name}",
        shape_only=True,
        synthetic=True,
        title=name,
    )
    call = Call(0, 0, append=(0,), output=1, usage=Usage(prompt=prompt, completion=output), stop="end_turn")
    messages = (Message(0, "user", (0,)), Message(1, "assistant", (1,)))
    return Trace(header, blocks, messages, threads=(Thread(0, name="main"),), calls=(call,))
