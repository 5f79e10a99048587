"""The emulator's scheduler fed with what the real one was fed: the log that step_log.py wrote, from its first line.

Requests come, and go away, between the same steps as they did there, and the model's tokens are those it produced.
Everything else the emulator decides by itself, and each decision is held against the real one.
"""

import json
import os
import re
import zlib
from array import array
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, convert, field

from windtunnel.simulator.emulator.core import Turn
from windtunnel.simulator.emulator.metrics import Metrics
from windtunnel.simulator.emulator.request import Request
from windtunnel.simulator.emulator.scheduler import Limits, Scheduler, Step

SAMPLE = re.compile(r"^(vllm:[a-z_]+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
CALL = re.compile(r"chatcmpl-(.*)-[0-9a-f]{8}|cmpl-(.*)-0-[0-9a-f]{8}")
UNEQUAL = ("_seconds", "_created", "cache_config_info", "engine_sleep_state")
"""Parts of names of samples that are times, or no counts."""


def limits_of(settings: dict[str, Any]) -> Limits:
    known = {name: settings[name] for name in Limits.__struct_fields__ if name in settings}
    return convert(known, Limits)


def counts(page: str) -> dict[str, float]:
    """The samples of a metrics page that count something, by name and labels."""
    found: dict[str, float] = {}
    for name, labels, value in SAMPLE.findall(page):
        if any(part in name for part in UNEQUAL):
            continue
        told = {k: v for k, v in LABEL.findall(labels) if k not in {"engine", "model_name"}}
        found[name + "".join(f" {k}={v}" for k, v in sorted(told.items()))] = float(value)
    return found


Rows = tuple[tuple[str, int, int], ...]
"""What a step computes: request, tokens, how many were computed before."""


def rows_of(told: list[list[Any]]) -> Rows:
    return tuple((key, count, before) for key, count, before in told)


class Recorded:
    """The tokens that the real model produced, how many drafts it made before each, and how many of them were right."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.drafts: dict[int, int] = {}
        """By the number of output tokens there were."""
        self.right: dict[int, int] = {}

    def tokens(self, start: int, stop: int) -> list[int]:
        return self.ids[start:stop]

    def drafted(self, position: int, most: int) -> int:
        return min(self.drafts.get(position, 0), most)

    def accepted(self, position: int, drafted: int) -> int:
        return min(self.right.get(position, 0), drafted)


class Asked(Struct):
    """One request as the real engine saw it."""

    key: str
    prompt: list[int]
    max_tokens: int
    priority: int
    salt: str | None
    at: int
    """When it reached the engine, ns: at the latest as the step before its first look at it began to return."""
    script: Recorded = field(default_factory=Recorded)
    output: list[int] = field(default_factory=list)
    finish: str | None = None
    """As the scheduler said; "abort" when it was ended from outside."""
    ended: int = 0
    hit: int | None = None
    admitted: int = 0
    preemptions: int = 0
    results: list[int] = field(default_factory=list)
    """When its tokens returned, ns, one a step."""

    @property
    def call(self) -> str:
        """The client's name for it: vLLM puts it between words of its own."""
        found = CALL.fullmatch(self.key)
        assert found is not None, self.key
        return str(found[1] or found[2])

    def request(self, block_size: int) -> Request:
        return Request(
            self.key,
            np.array(self.prompt, dtype=np.uint32),
            self.script,
            self.max_tokens,
            block_size=block_size,
            ends=len(self.output) if self.finish == "stop" else None,
            salt=self.salt,
            priority=self.priority,
            arrival=self.at,
        )


class StepLog:
    """A log that grows: its lines, and the requests in them with what became of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._begun = 0
        """When the step now in the log began: as the one before it returned, or with the first request after idling."""
        self._busy = self._stepping = False
        self._rows: Rows = ()
        self.times: dict[Rows, int] = {}
        """How long steps took, ns, by what they computed."""
        self.settings: dict[str, Any] = {}
        self.asked: dict[str, Asked] = {}

    def settled(self) -> bool:
        """Nothing runs or waits, and the step after the last request's end has returned, too."""
        with self._path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 500))
            last = file.read().rsplit(b"\n", 2)[-2:]
        return last[-1] == b"" and b'"rows":[],' in last[0] and last[0].endswith(b'"running":0,"waiting":0}')

    def new(self) -> list[dict[str, Any]]:
        """Whole lines written since the last call; every request in them must have ended."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            told = file.read()
        told = told[: told.rfind(b"\n") + 1]
        self._read += len(told)
        lines = [json.loads(line) for line in told.splitlines()]
        for line in lines:
            self._note(line)
        return lines

    def _note(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "settings":
                self.settings = line
            case "add":
                asked = self.asked[line["key"]] = convert({k: v for k, v in line.items() if k != "kind"}, Asked)
                if not self._busy:
                    self._busy, self._begun = True, asked.at
                # The log tells when the engine looked, between two steps.
                asked.at = self._begun
            case "end":
                for key in line["keys"]:
                    self.asked[key].finish = "abort"
                    self.asked[key].ended = line["at"] if self._stepping else self._begun - 1
            case "step":
                self._rows, self._stepping = rows_of(line["rows"]), True
                for key in line["preempted"]:
                    self.asked[key].preemptions += 1
                for key, _, before in line["rows"]:
                    asked = self.asked[key]
                    if asked.hit is None:
                        asked.hit, asked.admitted = before, line["at"]
            case "drafts":
                for key, drafts in line["rows"]:
                    self.asked[key].script.drafts[len(self.asked[key].output)] = drafts
            case "result":
                self.times[self._rows] = line["at"] - self._begun
                self._begun, self._busy, self._stepping = line["at"], line["running"] + line["waiting"] > 0, False
                for key, tokens, sampled, finish in line["rows"]:
                    asked = self.asked[key]
                    asked.script.right[len(asked.output)] = len(sampled) - 1
                    asked.output += tokens
                    asked.script.ids += tokens
                    asked.results.append(line["at"])
                    asked.finish, asked.ended = finish, line["at"]


class Play:
    """The emulator beside one real server, from its start on."""

    def __init__(self, path: Path) -> None:
        self.log = StepLog(path)
        self._lines: Iterable[dict[str, Any]] = self.log.new()
        self.limits = limits_of(self.log.settings)
        self.scheduler = Scheduler(self.limits)
        self._metrics = Metrics(self.scheduler, "tiny", {})
        self.requests: dict[str, Request] = {}
        self.steps = 0
        self.peak = 0
        """Most blocks that requests held at once, since it was last set to 0."""
        self._pending: deque[Step | None] = deque()

    def counts(self) -> dict[str, float]:
        """The emulator's metrics page, with what the page may lack."""
        found, counters = counts(self._metrics.page()), self.scheduler.counters
        if self.limits.speculative_tokens:
            found |= {
                "vllm:spec_decode_num_drafts_total": counters.drafts,
                "vllm:spec_decode_num_draft_tokens_total": counters.draft_tokens,
                "vllm:spec_decode_num_accepted_tokens_total": counters.accepted_tokens,
            }
            for position, accepted in enumerate(counters.accepted_per_position):
                found[f"vllm:spec_decode_num_accepted_tokens_per_pos_total position={position}"] = accepted
        return found

    def advance(self) -> list[Asked]:
        """Play what is new in the log, each step compared; the requests that came in it."""
        lines = [*self._lines, *self.log.new()]
        self._lines = ()
        fresh = [self.log.asked[line["key"]] for line in lines if line["kind"] == "add"]
        for line in lines:
            self._play(line)
        for asked in fresh:
            assert self.requests[asked.key].hit == asked.hit, f"{asked.key}: {asked.hit} tokens cached"
        return fresh

    def _play(self, line: dict[str, Any]) -> None:
        now, scheduler = line["at"], self.scheduler
        match line["kind"]:
            case "add":
                request = self.requests[line["key"]] = self.log.asked[line["key"]].request(self.limits.block_size)
                scheduler.add(request)
                return
            case "reset":
                assert scheduler.reset_prefix_cache() == line["done"]
                return
            case "end":
                for key in line["keys"]:
                    # vLLM counts a request whose client went away nowhere.
                    assert scheduler.abort(self.requests[key])
                rows: list[Any] = []
            case "step":
                self.steps += bool(line["rows"])
                step = scheduler.schedule()
                self._pending.append(step)
                rows = [] if step is None else self._rows(step, now)
                self.peak = max(self.peak, self.limits.num_gpu_blocks - 1 - scheduler.pool.free_count)
            case "result":
                step = self._pending.popleft()
                outputs = [] if step is None else scheduler.complete(step)
                if step is not None:
                    self._metrics.turn(Turn(now, step.tokens, outputs))
                rows = [[one.request.key, one.tokens, one.finished] for one in outputs]
                line = line | {"rows": [[key, tokens, finish] for key, tokens, _, finish in line["rows"]]}
            case _:
                return
        order = scheduler.pool.free_order()
        ours = {
            "rows": rows,
            "free": len(order),
            "order": zlib.crc32(array("I", order).tobytes()),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
        }
        theirs = {name: line.get(name, ours[name]) for name in ours}
        assert ours == theirs, f"{line['kind']} {self.steps}"

    @staticmethod
    def _rows(step: Step, now: int) -> list[Any]:
        for request in step.admitted:
            request.scheduled_at = now
        return [[r.key, n, r.computed - n] for r, n in zip(step.requests, step.counts, strict=True)]
