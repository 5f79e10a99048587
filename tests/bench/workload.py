"""The traces that the bench replays and the command line that replays them: an ordinary run, no special path."""

import sys
from collections.abc import Sequence
from pathlib import Path

from windtunnel.traces.format import write_trace
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, Usage, digest_of
from windtunnel.traces.text import stored

ANSWER = 40
"""Tokens of what comes back after a call, before the next."""


def make_workload(name: str, body_bytes: int, outputs: Sequence[int]) -> Trace:
    """A session of one call per entry of `outputs` (tokens), the first with a prompt of about `body_bytes` bytes.

    Without texts: they are regenerated, as for every shape-only trace.
    """
    blocks: list[Block] = []
    messages: list[Message] = []
    calls: list[Call] = []
    prompt: list[int] = []

    def say(role: str, tokens: int) -> int:
        number = len(messages)
        blocks.append(Block(number, digest_of("bench", name, str(number)), "prose", tokens))
        messages.append(Message(number, "user" if role == "user" else "assistant", (number,)))
        return number

    for number, tokens in enumerate(outputs):
        asked = say("user", ANSWER if number else max(1, round(body_bytes / stored().ratio["prose"])))
        added = (asked,) if not number else (len(messages) - 2, asked)
        kept, prompt = len(prompt), [*prompt, *added]
        size = sum(blocks[message].tokens for message in prompt)
        calls.append(
            Call(
                number,
                0,
                append=added,
                base=number - 1 if number else None,
                keep=kept,
                output=say("assistant", tokens),
                usage=Usage(prompt=size, completion=tokens),
                stop="end_turn",
            )
        )
    return Trace(
        Header(id=f"bench-{name}", agent="bench", shape_only=True, synthetic=True, title=name),
        tuple(blocks),
        tuple(messages),
        threads=(Thread(0, name="main"),),
        calls=tuple(calls),
    )


def write_workload(path: Path, body_bytes: int, outputs: Sequence[int]) -> Path:
    write_trace(make_workload(path.stem, body_bytes, outputs), path)
    return path


def command(
    trace: Path, url: str, agents: int, sessions: int, out: Path, *more: str, windtunnel: Sequence[str] = ()
) -> list[str]:
    """`windtunnel run` with everybody starting at once and nobody waiting between calls."""
    program = windtunnel or (sys.executable, "-m", "windtunnel.simulator.cli")
    flags = ["--target", url, "--agents", str(agents), "--out", str(out), "--ramp", "0", "--warmup", "0"]
    end = [] if "--duration" in more else ["--sessions", str(sessions)]
    return [*program, "run", str(trace), *flags, "--pace", "none", "--start", "fresh", *end, *more]
