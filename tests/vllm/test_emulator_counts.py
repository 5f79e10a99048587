"""The same requests to a real vLLM and to the emulator: equal counts.

The emulator stands beside a real server and gets the tokens that the real model produced. Twice: with the arrivals
between the same steps as there (step_play.py), where every step, every count of the metrics page and every call's cached
tokens must be equal; and by itself (self_play.py), where the order of arrival decides what can be: equal where it is
fixed, totals within 1% elsewhere, the first step that went differently named.
"""

import asyncio
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .crowds import CROWDS, Answer, Client
from .self_play import Emulated, Pace, first_difference
from .step_play import Asked, Play, counts

pytestmark = pytest.mark.vllm

CONTEXT = 4096
FEW = 44
"""Blocks of 128 tokens: one request of the whole context and a third of another."""
FIXED = ("one agent",)
"""Crowds whose order of arrival leaves nothing open."""
SHARE = 0.01
WAIT_S = 5.0
AFTER_LEAVING = ("generation_tokens", "iteration_tokens", "prompt_tokens")
"""Counted where answers are sent: no longer for a client that went away, though the engine has not yet heard of it."""

Servers = Callable[..., "Beside"]


class Beside:
    """A real server, and the emulator beside it."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.play = Play(log)
        self.play.advance()

    def page(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/metrics") as page:
            return counts(page.read().decode())

    async def follow(self, traffic: Callable[[], Awaitable[None]]) -> tuple[dict[str, float], list[Asked]]:
        """Let traffic happen, play it, hold every count against the page's; what was counted, and the requests."""
        before, ours = self.page(), counts(self.play.metrics.page())
        self.play.peak = 0
        await traffic()
        deadline = time.monotonic() + WAIT_S
        while not self.play.log.settled():
            assert time.monotonic() < deadline, "the engine is still at work"
            await asyncio.sleep(0.05)
        asked = self.play.advance()
        emulated = grown(ours, counts(self.play.metrics.page()))
        while (real := grown(before, self.page())) != real | emulated and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        left = sum(one.finish == "abort" for one in asked)
        wrong = {
            name: (real[name], value)
            for name, value in emulated.items()
            if name in real and real[name] != value and not (left and any(part in name for part in AFTER_LEAVING))
        }
        assert not wrong, f"(real, emulated): {wrong}"
        return real, asked

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request) as answer:
            assert b"true" in answer.read()


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


class Report:
    """What was found equal, and what was not."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.exact: list[str] = []
        self.differs: list[str] = []

    def row(self, case: str, real: dict[str, float], steps: int, peak: int, own: str) -> None:
        told = {
            "queries": "prefix_cache_queries_total",
            "hits": "prefix_cache_hits_total",
            "preempted": "num_preemptions_total",
            "generated": "generation_tokens_total",
        }
        figures = " ".join(f"{name} {real[f'vllm:{field}']:,.0f}" for name, field in told.items())
        self.rows.append(f"{case}: {figures} steps {steps} peak {peak} blocks; {own}")
        print(f"\n{self.rows[-1]}")


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    found = Report()
    yield found
    print(f"\nemulator exact for: {'; '.join(found.exact) or 'nothing'}")
    if found.differs:
        print(f"emulator by itself differs for: {'; '.join(found.differs)}")


@pytest.fixture(scope="module")
def beside(vllm: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """Call with a server's settings: the server, and the emulator with what happened to it so far."""
    known: dict[str, Beside] = {}
    logs: dict[Any, Path] = {}

    def serve(**settings: int | None) -> Beside:
        key = tuple(sorted(settings.items()))
        if key not in logs:
            logs[key] = tmp_path_factory.mktemp("steps") / "steps.jsonl"
        log = logs[key]
        url = vllm(max_model_len=CONTEXT, step_log=log, **settings)
        if url not in known:
            known[url] = Beside(url, log)
        return known[url]

    return serve


def told_alike(answers: list[Answer], asked: dict[str, Asked]) -> None:
    """What clients were told is what the engine's own log says."""
    assert set(asked) == {answer.key for answer in answers}
    for answer in answers:
        real = asked[answer.key]
        if answer.leave_after is None:
            assert (answer.prompt, answer.ids, answer.finish) == (real.prompt, real.output, real.finish)
            assert (answer.cached, answer.prompt_tokens) == (real.hit, len(real.prompt))
            assert answer.completion_tokens == len(real.output)


async def crowd_alike(server: Beside, name: str, settings: str, report: Report) -> None:
    """A crowd at the real server from an empty cache on, then the emulator with its arrivals, then by itself."""
    server.reset()
    word = name.replace(" ", "_")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        client = Client(session, server.url, word)
        steps = server.play.steps
        real, requests = await server.follow(lambda: CROWDS[name](client))
    asked = {one.call: one for one in requests}
    told_alike(client.answers, asked)
    case = f"{name} ({settings})"
    report.exact.append(case)

    own = Emulated(word, server.play.limits, Pace(server.play.log.times), client.answers, asked)
    await own.run(CROWDS[name])
    counted = own.scheduler.counters
    ours = {"queries": counted.queries, "hits": counted.hits, "preempted": counted.preemptions}
    hits = {key: (one.hit, own.requests[key].hit) for key, one in asked.items()}
    unequal = {key: pair for key, pair in hits.items() if pair[0] != pair[1]}
    theirs = {
        "queries": real["vllm:prefix_cache_queries_total"],
        "hits": real["vllm:prefix_cache_hits_total"],
        "preempted": real["vllm:num_preemptions_total"],
    }
    said = "by itself equal"
    if unequal or ours != theirs:
        said = f"by itself {ours}, {len(unequal)} calls' cached tokens differ: {first_difference(asked, own.requests)}"
        report.differs.append(f"{case}: {said}")
    report.row(case, real, server.play.steps - steps, server.play.peak, said)
    if name in FIXED:
        assert (unequal, ours) == ({}, theirs)
    assert abs(ours["hits"] - theirs["hits"]) <= SHARE * theirs["queries"]


@pytest.mark.parametrize("name", CROWDS)
def test_counts_equal_with_few_blocks(beside: Servers, report: Report, name: str) -> None:
    asyncio.run(crowd_alike(beside(blocks=FEW), name, f"{FEW} blocks", report))
