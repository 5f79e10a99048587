"""A run folder of a million events, made of a short run's events again and again: how a long run opens and is followed.

    python tests/tui/long_run.py SHORT_RUN OUT [EVENTS]

Every repetition is shifted in time, its sessions and requests have names of their own, and counters go on, so that what
comes out is a run that could have been: it has one beginning, one window and one end, and its own summary.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from windtunnel.agents.events import (
    CallEnd,
    CallStart,
    EngineSample,
    Event,
    Note,
    Phase,
    Progress,
    RunEnd,
    RunStart,
)
from windtunnel.simulator.results.store import EVENTS_FILE, RUN_FILE, SUMMARY_FILE, RunFolder
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary

ONCE = (RunStart, Phase, RunEnd, Note)
TIMES = ("t_intended", "t_sent", "t_first", "t_first_visible", "t_first_tool", "t_last", "t_end")
COUNTERS = ("preemptions", "prefix_queries", "prefix_hits", "prompt_tokens", "generation_tokens", "requests_finished")


def lengthened(events: list[Event], wanted: int) -> Iterator[Event]:
    """At least `wanted` events. The given ones are changed on the way: each must be used before the next is asked for."""
    finish = [e for e in events if isinstance(e, RunEnd) or getattr(e, "phase", "") in {"draining", "done"}]
    begin = [e for e in events if e not in finish]
    body = [e for e in events if not isinstance(e, ONCE)]
    length = max(e.t for e in events) + 1_000_000
    last = {kind: next((e for e in reversed(body) if isinstance(e, kind)), None) for kind in (Progress, EngineSample)}
    output, prompt = (p.output_tokens, p.prompt_tokens) if (p := last[Progress]) is not None else (0, 0)
    grown = {n: getattr(last[EngineSample], n, None) or 0.0 for n in COUNTERS}
    names = [(getattr(e, "session", None), getattr(e, "request_id", None)) for e in body]
    yield from begin
    done, round_ = len(begin) + len(finish), 1
    while done < wanted:
        for event, (session, request) in zip(body, names, strict=True):
            _shift(event, length, output, prompt, grown)
            if session is not None:
                force_setattr(event, "session", f"{session}+{round_}")
            if request is not None:
                force_setattr(event, "request_id", f"{request}+{round_}")
            yield event
        done += len(body)
        round_ += 1
    for event in finish:
        force_setattr(event, "t", event.t + (round_ - 1) * length)
        yield event


def _shift(event: Event, by: int, output: int, prompt: int, grown: dict[str, float]) -> None:
    """Moves an event into the next repetition."""
    force_setattr(event, "t", event.t + by)
    if isinstance(event, Progress):
        force_setattr(event, "output_tokens", event.output_tokens + output)
        force_setattr(event, "prompt_tokens", event.prompt_tokens + prompt)
    elif isinstance(event, CallStart):
        force_setattr(event, "t_intended", event.t_intended + by)
    elif isinstance(event, CallEnd):
        for name in TIMES:
            if (t := getattr(event, name)) is not None:
                force_setattr(event, name, t + by)
    elif isinstance(event, EngineSample):
        for name, more in grown.items():
            if (value := getattr(event, name)) is not None:
                force_setattr(event, name, value + more)


def make(source: Path, target: Path, wanted: int, *, summary: bool = True) -> int:
    """Writes the folder; returns how many events it has."""
    folder = RunFolder.open(source)
    target.mkdir(parents=True)
    (target / RUN_FILE).write_bytes(msgspec.json.encode({**folder.run, "pid": 0, "host": "elsewhere"}))
    encoder, seq = msgspec.json.Encoder(), 0
    buffer = bytearray()
    with (target / EVENTS_FILE).open("wb") as out:
        for event in lengthened(list(folder.events()), wanted):
            seq += 1
            force_setattr(event, "seq", seq)
            encoder.encode_into(event, buffer, -1)
            buffer += b"\n"
            if len(buffer) > 1 << 22:
                out.write(buffer)
                buffer.clear()
        out.write(buffer)
    if summary:
        (target / SUMMARY_FILE).write_bytes(encode_summary(recompute(target)))
    return seq


if __name__ == "__main__":
    made = make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000)
    print(f"{made:,} events, {(Path(sys.argv[2]) / EVENTS_FILE).stat().st_size / 1e6:,.0f} MB")
