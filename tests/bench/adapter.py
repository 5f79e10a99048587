"""Reads a finished run folder for the bench: the ordinary `events.jsonl`, after the timed part is over.

As a command it is a client of a foreign harness, too: it makes a trace, does an ordinary run and writes the answers.
Usage: adapter.py BASE_URL STREAMS REQUESTS MAX_TOKENS BODY_BYTES OUT.json
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from records import NO_TIMES, Said

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.store import RunFolder


def said_in(run_dir: Path) -> list[Said]:
    """Every request of the run that ended, one way or another, in the order of its end."""
    folder = RunFolder.open(run_dir)
    origin = int(folder.run["perf_counter_origin_ns"])
    return [one_call(event, origin) for event in folder.events() if isinstance(event, CallEnd)]


def one_call(event: CallEnd, origin: int) -> Said:
    """Events count from the run's origin, and chunks in microseconds from one to the next."""
    times = NO_TIMES
    if event.t_sent is not None and event.chunks.us:
        times = origin + event.t_sent + 1000 * np.cumsum(np.array(event.chunks.us, dtype=np.int64))
    return Said(
        id=event.request_id,
        intended=origin + event.t_intended + event.throttled_ns,
        sent=None if event.t_sent is None else origin + event.t_sent,
        times=times,
        end=None if event.t_end is None else origin + event.t_end,
        tokens=event.completion_tokens,
        first_tokens=next((n for n in event.chunks.n if n > 0), 1),
        failure=event.failure,
        detail=event.detail,
        cut=event.cut,
    )


def as_answers(said: list[Said]) -> dict[str, Any]:
    """Milliseconds and per-request times as a foreign harness wants them; completed requests only."""
    good = [one for one in said if one.failure is None and not one.cut and len(one.times) and one.end is not None]
    if not good:
        return {"duration": 0.0, "out_tokens": 0, "ttft_ms": [], "itl_ms": [], "e2e_ms": [], "per_req": []}
    return {
        "duration": (max(one.end or 0 for one in good) - min(one.intended for one in good)) / 1e9,
        "out_tokens": sum(one.tokens or 0 for one in good),
        "ttft_ms": [(int(one.times[0]) - one.intended) / 1e6 for one in good],
        "itl_ms": [gap / 1e6 for one in good for gap in np.diff(one.times).tolist()],
        "e2e_ms": [((one.end or 0) - one.intended) / 1e6 for one in good],
        "per_req": [
            {"rid": one.id, "t0": one.sent, "t1": int(one.times[0]), "tN": int(one.times[-1]), "tend": one.end}
            for one in good
        ],
    }


def main(base: str, streams: str, requests: str, max_tokens: str, body_bytes: str, out: str) -> int:
    from workload import command, write_workload

    with tempfile.TemporaryDirectory() as scratch:
        trace = write_workload(Path(scratch) / "one-call.jsonl", int(body_bytes), [int(max_tokens)])
        run_dir = Path(scratch) / "run"
        argv = command(trace, base, int(streams), int(requests), run_dir)
        status = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode
        Path(out).write_text(json.dumps(as_answers(said_in(run_dir))))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
