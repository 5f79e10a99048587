"""A run that never happened, seeded and without a clock: the same arguments give the same events of a closed loop of
agents, for tests and pictures. As a script it writes them in real time.
"""

import heapq
import json
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.agents.events import (
    AgentProgress,
    AnyEvent,
    CallEnd,
    CallStart,
    Chunks,
    ClientSample,
    EngineSample,
    GpuSample,
    Heartbeat,
    Phase,
    Progress,
    RunEnd,
    RunStart,
    SessionEnd,
    SessionStart,
    WaitEnd,
    WaitStart,
)
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary

NS = 1_000_000_000
CLAUDE = ("fix-importer", "refactor-db", "flaky-test", "trace-viewer", "add-oauth-login", "why-is-ci-red")
CODEX = ("bench-cli", "migrate-schema", "rename-everything")
OTHERS = ("pi/readme", "opencode/types", "weka/session-0412")
TITLES = (*(f"claude/{t}" for t in CLAUDE), *(f"codex/{t}" for t in CODEX), *OTHERS)
TOOLS = ("Bash", "Read", "Edit", "Grep", "Task", "WebFetch", "shell", "apply_patch")
SAID = (
    "The importer drops the last line when the file has no trailing newline. I will read the test first, then change "
    "the reader so that it yields what is left in the buffer, and run the suite again to see whether anything else "
    "depended on the old behaviour. "
)
WORDS = SAID.split(" ")


class Fake:
    """One made-up run. `events` is complete after construction."""

    def __init__(
        self,
        agents: int = 32,
        seconds: float = 60.0,
        seed: int = 1,
        failures: float = 0.0,
        ramp: float = 8.0,
        warmup_until: float = 15.0,
        end: str | None = "completed",
        kv_top: float = 0.8,
        text: bool = True,
    ) -> None:
        self.alive = False
        """The run claims to be this very process."""
        self.duration = seconds - warmup_until
        self.agents, self.seconds, self.failures, self.kv_top, self.text_on = agents, seconds, failures, kv_top, text
        self.rng = random.Random(seed)
        self.seed = seed
        self.events: list[AnyEvent] = []
        self.texts: list[dict[str, Any]] = []
        self.queue: list[tuple[int, int, Callable[[int], None]]] = []
        self.order = 0
        self.live: dict[int, list[Any]] = {}
        """agent -> [thread, call, state, t_first, interval ns, pinned, text]"""
        self.waits: dict[int, str] = {}
        self.output = self.prompt = self.hits = self.calls = 0
        self.preempted = 0
        self.copies: dict[str, int] = {}
        self.add(RunStart(t=0, agents=agents, wall_clock=1_764_000_000.0))
        self.add(Phase(t=0, phase="starting", note="vllm serve"))
        self.at(1 * NS, lambda t: self.add(Phase(t=t, phase="preparing", note="calibrating text")))
        self.at(2 * NS, lambda t: self.add(Phase(t=t, phase="warmup")))
        self.at(int(warmup_until * NS), lambda t: self.add(Phase(t=t, phase="steady")))
        for agent in range(agents):
            start = 2 * NS + int(ramp * NS * agent / max(1, agents))
            self.at(start, lambda t, a=agent: self.session(t, a))  # type: ignore[misc]
        for i in range(int(seconds * 4)):
            self.at(i * NS // 4 + 7, self.progress)
        for i in range(int(seconds)):
            self.at(i * NS + 11, self.samples)
        stop = int(seconds * NS)
        while self.queue and self.queue[0][0] < stop:
            t, _, action = heapq.heappop(self.queue)
            action(t)
        if end is not None:
            self.finish(stop, end)
        self.events.sort(key=lambda e: e.t)
        self.events = [msgspec.structs.replace(e, seq=i) for i, e in enumerate(self.events)]

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)

    def at(self, t: int, action: Callable[[int], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, (t, self.order, action))

    def session(self, t: int, agent: int) -> None:
        title = TITLES[self.rng.randrange(len(TITLES))]
        copy = self.copies.get(title, 0)
        self.copies[title] = copy + 1
        turns = self.rng.randint(6, 60)
        session = f"s{agent}-{copy}-{title}"
        first = self.rng.randint(0, turns - 4)
        self.add(
            SessionStart(
                t=t,
                agent=agent,
                session=session,
                trace=f"{title.encode().hex()[:16]:0<16}",
                title=title,
                copy=copy,
                calls_total=turns - first,
                turns_total=turns,
                first_turn=first,
            )
        )
        self.call(t, agent, session, first, turns, self.rng.randint(15_000, 60_000) + 900 * first, 0)

    def call(self, t: int, agent: int, session: str, index: int, turns: int, context: int, cached: int) -> None:
        rng = self.rng
        thread = int(rng.random() < 0.08)
        pinned = max(8, int(rng.lognormvariate(5.4, 0.8)))
        prompt = context
        request_id = f"{session}-{thread}-{index}"
        self.calls += 1
        start = CallStart(
            t=t,
            agent=agent,
            session=session,
            thread=thread,
            call=index,
            turn=index + 1,
            turns=turns,
            request_id=request_id,
            t_intended=t,
            expected_prompt_tokens=prompt,
            expected_cached_tokens=cached,
            pinned_tokens=pinned,
        )
        self.add(start)
        evicted = cached > 0 and rng.random() < 0.06
        hit = int(cached * (0.12 if evicted else 1.0)) // 16 * 16
        new = prompt - hit
        first = t + int((0.09 + new / 14_000 + rng.random() * 0.2) * NS)
        interval = int(rng.uniform(0.012, 0.021) * NS)
        last = first + interval * pinned
        text = self.say(pinned)
        self.live[agent] = [thread, index, "prefill", first, interval, pinned, text]
        fails = rng.random() < self.failures

        def began(t: int) -> None:
            self.prompt += prompt
            self.hits += hit
            self.live[agent][2] = "decode"

        def ended(t: int) -> None:
            self.live.pop(agent, None)
            done = pinned if not fails else pinned // 3
            self.output += done
            self.add(
                CallEnd(
                    t=t,
                    agent=agent,
                    session=session,
                    thread=thread,
                    call=index,
                    request_id=request_id,
                    t_intended=start.t,
                    t_sent=start.t + 120_000,
                    t_first=first,
                    t_first_visible=first,
                    t_last=t,
                    t_end=t,
                    prompt_tokens=prompt,
                    cached_tokens=hit,
                    expected_prompt_tokens=prompt,
                    expected_cached_tokens=cached // 16 * 16,
                    completion_tokens=done,
                    pinned_tokens=pinned,
                    finish=None if fails else "length",
                    failure="truncated_stream" if fails else None,
                    detail="connection closed before the end marker" if fails else None,
                    recorded_latency_s=(t - start.t) / NS * 1.3,
                    chunks=Chunks(
                        us=((first - start.t) // 1000, *(interval // 1000 for _ in range(3))), n=(1, 1, 1, done - 3)
                    ),
                )
            )
            if self.text_on:
                self.texts.append(
                    {
                        "request_id": request_id,
                        "agent": agent,
                        "session": session,
                        "thread": thread,
                        "call": index,
                        "text": text,
                    }
                )
            if fails:
                self.add(
                    SessionEnd(
                        t=t, agent=agent, session=session, status="failed", reason="truncated_stream", calls_done=index
                    )
                )
                self.at(t + NS // 2, lambda t: self.session(t, agent))
            elif index + 1 >= turns:
                self.add(
                    SessionEnd(t=t, agent=agent, session=session, status="completed", calls_done=turns, work_done=1.0)
                )
                self.at(t + NS // 10, lambda t: self.session(t, agent))
            else:
                self.wait(
                    t, agent, session, index + 1, turns, context + pinned + rng.randint(80, 3000), context + pinned
                )

        self.at(first, began)
        self.at(last if not fails else first + interval * (pinned // 3), ended)

    def wait(self, t: int, agent: int, session: str, index: int, turns: int, context: int, cached: int) -> None:
        human = self.rng.random() < 0.08
        length = self.rng.uniform(5, 10) if human else min(10.0, self.rng.expovariate(1 / 2.4) + 0.05)
        label = "" if human else self.rng.choice(TOOLS)
        cause = "human" if human else "tool"
        self.waits[agent] = cause
        self.add(
            WaitStart(
                t=t,
                agent=agent,
                session=session,
                thread=0,
                call=index,
                cause=cause,  # type: ignore[arg-type]
                seconds=length,
                recorded_s=length * (4 if human else 1),
                label=label,
            )
        )

        def over(t: int) -> None:
            self.waits.pop(agent, None)
            self.add(WaitEnd(t=t, agent=agent, session=session, thread=0, call=index, cause=cause))
            self.call(t, agent, session, index, turns, context, cached)

        self.at(t + int(length * NS), over)

    def say(self, tokens: int) -> str:
        offset = self.rng.randrange(len(WORDS))
        return " ".join(WORDS[(offset + i) % len(WORDS)] for i in range(min(tokens, 90)))

    def progress(self, t: int) -> None:
        rows, running = [], 0
        for agent, (thread, call, state, first, interval, pinned, text) in sorted(self.live.items()):
            tokens = max(0, min(pinned, (t - first) // interval + 1)) if state == "decode" else 0
            running += tokens
            said = text[: len(text) * tokens // pinned][-80:] if self.text_on else ""
            rows.append(AgentProgress(agent, thread, call, state, tokens, said))
        tools = sum(c == "tool" for c in self.waits.values())
        self.add(
            Progress(
                t=t,
                output_tokens=self.output + running,
                prompt_tokens=self.prompt,
                in_flight=len(rows),
                in_tool=tools,
                waiting=len(self.waits) - tools,
                agents=tuple(rows),
            )
        )

    def samples(self, t: int) -> None:
        running = sum(live[2] == "decode" for live in self.live.values())
        usage = min(self.kv_top, self.kv_top * (t / NS) / 14 + 0.02 * self.rng.random()) if self.live else 0.0
        queued = len(self.live) - running
        self.preempted += usage > 0.75 and self.rng.random() < 0.1
        self.add(Heartbeat(t=t))
        self.add(
            EngineSample(
                t=t,
                scrape_ms=0.5,
                running=float(running),
                waiting=float(max(0, queued - 3)),
                kv_usage=usage,
                preemptions=float(self.preempted),
                prefix_queries=float(self.prompt),
                prefix_hits=float(self.hits),
                prompt_tokens=float(self.prompt),
                generation_tokens=float(self.output),
                requests_finished=float(self.calls - len(self.live)),
            )
        )
        self.add(
            GpuSample(t=t, index=0, utilisation=0.96, memory_used=131 << 30, memory_total=140 << 30, power_w=641.0)
        )
        lag = tuple(int(self.rng.expovariate(1 / 90)) for _ in range(50))
        self.add(ClientSample(t=t, lag_us=lag, dispatch_us=lag[:8], cpu=0.11, rss=180 << 20, live=self.agents))

    def finish(self, t: int, status: str) -> None:
        self.add(Phase(t=t, phase="draining"))
        for agent in range(self.agents):
            session = next(
                (e.session for e in reversed(self.events) if isinstance(e, SessionStart) and e.agent == agent), None
            )
            ended = any(isinstance(e, SessionEnd) and e.session == session for e in self.events)
            if session is not None and not ended:
                if agent in self.live:
                    thread, call, *_rest = self.live[agent]
                    self.add(
                        CallEnd(
                            t=t,
                            agent=agent,
                            session=session,
                            thread=thread,
                            call=call,
                            request_id=f"{session}-{thread}-{call}",
                            t_intended=t,
                            t_sent=t,
                            t_end=t,
                            cut=True,
                        )
                    )
                self.add(SessionEnd(t=t, agent=agent, session=session, status="cut", reason="end_of_window"))
        self.add(Phase(t=t, phase="done"))
        self.add(RunEnd(t=t, status=status, reason=None if status == "completed" else "engine_gone"))  # type: ignore[arg-type]

    def run_json(self) -> dict[str, Any]:
        return {
            "schema": "windtunnel.run/1",
            "config": {"agents": self.agents, "traces": ["library"], "duration_s": self.duration},
            "agents": self.agents,
            "seed": self.seed,
            "engine": {
                "name": "windtunnel-emulator",
                "model": "qwen3-coder-30b-a3b",
                "version": "0.1.0",
                "kv_tokens": 70_000 * self.agents,
                "emulated": True,
                "emulation": {"gpu": "H200", "calibrated": False, "unverified": ["calibration"], "error_bar": 0.2},
            },
            "host": socket.gethostname() if self.alive else "elsewhere",
            "pid": os.getpid() if self.alive else 0,
            "perf_counter_origin_ns": 0,
            "wall_clock": 4e9 if self.alive else 1_764_000_000.0,
        }

    def until(self, seconds: float) -> Iterator[AnyEvent]:
        """The events up to a moment: the run as it was then."""
        return (e for e in self.events if e.t <= seconds * NS)

    def write(self, folder: Path, until: float | None = None, summary: bool = False) -> Path:
        """A run folder as it stands on disk after `until` seconds; with the summary of what stands there."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(self.run_json()))
        encode = msgspec.json.encode
        lines = list(self.events if until is None else self.until(until))
        (folder / "events.jsonl").write_bytes(b"".join(encode(e) + b"\n" for e in lines))
        ended = {e.request_id for e in lines if isinstance(e, CallEnd)}
        if self.text_on:
            texts = [t for t in self.texts if t["request_id"] in ended]
            (folder / "text.jsonl").write_bytes(b"".join(encode(t) + b"\n" for t in texts))
        if summary:
            (folder / "summary.json").write_bytes(encode_summary(recompute(folder)))
        return folder


def write_live(folder: Path, fake: Fake, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """The run as it would be written, in real time, with its summary at the end."""
    fake.alive = True
    fake.write(folder, until=-1.0)
    origin = now()
    with (folder / "events.jsonl").open("ab", buffering=0) as out:
        for event in fake.events:
            sleep(max(0.0, event.t / NS - (now() - origin)))
            out.write(msgspec.json.encode(event) + b"\n")
    (folder / "summary.json").write_bytes(encode_summary(recompute(folder)))


if __name__ == "__main__":
    import argparse
    import time

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120.0)
    args = parser.parse_args()
    write_live(args.folder, Fake(args.agents, args.seconds), time.monotonic, time.sleep)
