"""The same requests to a real vLLM and to the emulator: equal counts.

The emulator stands beside a real server and gets the tokens that the real model produced. Twice: with the arrivals
between the same steps as there (step_play.py), where every step, every count of the metrics page and every call's cached
tokens must be equal; and by itself (self_play.py), where the order of arrival decides what can be: equal where it is
fixed, totals within 1% elsewhere, the first step that went differently named.
"""

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from windtunnel.simulator.engines.launch import Launched, expand

from .conftest import ready
from .crowds import CROWDS, Answer, Client, Crowd
from .self_play import Emulated, Happened, Pace, again, first_difference, of_crowd, of_run
from .step_play import Asked, Play, counts
from .test_equality import SHARED, events, windtunnel

pytestmark = pytest.mark.vllm

CONTEXT = 4096
FEW = 44
"""Blocks of 128 tokens: one request of the whole context and a third of another."""
FIXED = ("one agent",)
"""Crowds whose order of arrival leaves nothing open."""
SHARE = 0.01
WAIT_S = 20.0
LEAVING = ("aborted requests",)
"""Crowds whose clients go away: when the engine hears of it is a matter of time alone."""
COUNTED_INSIDE = ("prefix_cache", "preemptions", "kv_cache", "num_requests")
"""What the engine's core counts; the rest is counted where answers are sent, and no longer for a client that left."""

SOURCES = ["library", *(str((SHARED / name).resolve()) for name in ("claude-code", "codex") if SHARED.is_dir())]
EMULATOR = (
    f"emulator --gpu H100 --model qwen3-coder-30b-a3b --served-model-name tiny --block-size 128 --max-model-len {CONTEXT} "
    f"--num-gpu-blocks-override {FEW} --max-num-seqs 128 --max-num-batched-tokens 2048 --no-async-scheduling "
    "--enable-prompt-tokens-details"
)
"""The real server's settings on a CPU."""

Servers = Callable[..., "Beside"]


class Beside:
    """A real server, and the emulator beside it."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.play = Play(log)
        self.play.advance()

    def page(self) -> dict[str, float]:
        return counts(page_of(self.url))

    async def follow(
        self, traffic: Callable[[], Awaitable[None]], *, leaving: bool = False
    ) -> tuple[dict[str, float], list[Asked]]:
        """Let traffic happen, play it, hold every count against the page's; what was counted, and the requests."""
        self.play.advance()
        before, ours = self.page(), self.play.counts()
        self.play.peak = 0
        await traffic()
        deadline = time.monotonic() + WAIT_S
        while not self.play.log.settled():
            assert time.monotonic() < deadline, "the engine is still at work"
            await asyncio.sleep(0.05)
        asked = self.play.advance()
        emulated = grown(ours, self.play.counts())
        if leaving:
            emulated = {name: n for name, n in emulated.items() if any(part in name for part in COUNTED_INSIDE)}
        while True:
            real = grown(before, self.page())
            wrong = {name: (real[name], n) for name, n in emulated.items() if name in real and real[name] != n}
            if not wrong or time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.2)
        assert not wrong, f"(real, emulated): {wrong}"
        return real, asked

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request) as answer:
            assert b"true" in answer.read()


def page_of(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics") as page:
        return str(page.read().decode())


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


class Report:
    """What was found equal, and what was not."""

    def __init__(self) -> None:
        self.exact: list[str] = []
        self.differs: list[str] = []
        self.own: list[str] = []

    @contextlib.contextmanager
    def of(self, case: str) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            self.differs.append(f"{case}: {str(error).splitlines()[0]}")
            raise
        self.exact.append(case)

    def row(self, case: str, real: dict[str, float], steps: int, peak: int, own: str) -> None:
        told = {
            "queries": "prefix_cache_queries_total",
            "hits": "prefix_cache_hits_total",
            "preempted": "num_preemptions_total",
            "generated": "generation_tokens_total",
        }
        figures = " ".join(f"{name} {real[f'vllm:{field}']:,.0f}" for name, field in told.items())
        print(f"\n{case}: {figures} steps {steps} peak {peak} blocks; {own}")
        if own != "by itself equal":
            self.own.append(f"{case}: {own}")


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    found = Report()
    yield found
    print(f"\nemulator exact for: {'; '.join(found.exact) or 'nothing'}")
    for words, cases in (
        ("differs", found.differs),
        ("is exact with the real arrivals and by itself differs", found.own),
    ):
        if cases:
            print(f"emulator {words} for: {'; '.join(cases)}")


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


async def _crowd_alike(server: Beside, name: str, settings: str, report: Report) -> None:
    """A crowd at the real server from an empty cache on, then the emulator with its arrivals, then by itself."""
    server.reset()
    word = name.replace(" ", "_")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        client = Client(session, server.url, word)
        steps = server.play.steps
        real, requests = await server.follow(lambda: CROWDS[name](client), leaving=name in LEAVING)
    asked = {one.call: one for one in requests}
    told_alike(client.answers, asked)
    case = f"{name} ({settings})"
    happened = of_crowd(client.answers, asked)
    said = await by_itself(server, name, CROWDS[name], happened, asked, fixed=name in FIXED)
    report.row(case, real, server.play.steps - steps, server.play.peak, said)


async def by_itself(
    server: Beside, name: str, crowd: Crowd, happened: Happened, asked: dict[str, Asked], *, fixed: bool
) -> str:
    """The same once more on the emulator's own clock: what differs, and where that began."""
    own = Emulated(name.replace(" ", "_"), server.play.limits, Pace(server.play.log.times), happened, asked)
    await own.run(crowd)
    counted = own.scheduler.counters
    ours = {"queries": counted.queries, "hits": counted.hits, "preempted": counted.preemptions}
    known = [one for one in asked.values() if one.call in happened.waits and one.hit is not None]
    theirs = {
        "queries": sum(len(one.prompt) for one in known),
        "hits": sum(one.hit or 0 for one in known),
        "preempted": sum(one.preemptions for one in known),
    }
    unequal = [one.call for one in known if own.requests[one.call].hit != one.hit]
    if not unequal and ours == theirs:
        return "by itself equal"
    assert not fixed, f"{ours}, the real engine {theirs}"
    assert name in LEAVING or abs(ours["hits"] - theirs["hits"]) <= SHARE * theirs["queries"]
    return f"by itself {ours}, {len(unequal)} calls' cached tokens differ: {first_difference(asked, own.requests)}"


@pytest.fixture(scope="module")
def emulator(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of `windtunnel engine` with the settings of the real server that has few blocks."""
    engine = Launched.start(
        expand(f"{EMULATOR} --tokenizer {model_folder}"), tmp_path_factory.mktemp("emulator") / "engine.log"
    )
    try:
        asyncio.run(ready(engine))
        yield engine.url
    finally:
        asyncio.run(engine.stop())


def calls_of_a_run(url: str, out: Path, *words: str) -> list[dict[str, Any]]:
    """The calls' ends of an ordinary run, in order, by library sessions and real ones where there are any."""
    windtunnel(
        "run", *SOURCES, "--target", url, "--max-context", "4k", "--fit", "scale", "--pace", "none", *words,
        "--out", str(out), "--json",
    )  # fmt: skip
    ends = [e for e in events(out) if e["type"] == "call_end"]
    assert not [e for e in ends if e.get("failure")]
    return ends


async def _run_alike(server: Beside, out: Path, api: str, settings: str, report: Report, *words: str) -> None:
    """An ordinary run at the real server from an empty cache on, then the emulator with its arrivals, then by itself."""
    server.reset()
    ends: list[dict[str, Any]] = []
    steps = server.play.steps

    async def traffic() -> None:
        ends.extend(await asyncio.to_thread(calls_of_a_run, server.url, out, "--api", api, *words))

    real, requests = await server.follow(traffic)
    asked = {one.call: one for one in requests}
    for end in ends:
        one = asked[end["request_id"]]
        told = (end["prompt_tokens"], end["cached_tokens"], end["completion_tokens"], end["finish"])
        assert told == (len(one.prompt), one.hit, len(one.output), one.finish)
    case = f"{len(ends)} calls of recorded sessions by {api} ({settings})"
    happened = of_run(ends, asked)
    said = await by_itself(server, "run", again(happened.waits, asked), happened, asked, fixed=False)
    report.row(case, real, server.play.steps - steps, server.play.peak, said)


async def over_http(url: str, name: str) -> tuple[list[Answer], dict[str, float]]:
    """A crowd at an engine with an empty cache; what it was told and what the page counted."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.post(f"{url}/reset_prefix_cache") as reset:
            assert (await reset.json())["success"]
        before = counts(page_of(url))
        client = Client(session, url, name.replace(" ", "_"))
        await CROWDS[name](client)
        said, deadline = sum(one.completion_tokens or 0 for one in client.answers), time.monotonic() + WAIT_S
        while (found := grown(before, counts(page_of(url))))["vllm:generation_tokens_total"] < said:
            assert time.monotonic() < deadline, f"{said} tokens were told and are not on the page"
            await asyncio.sleep(0.2)
    return client.answers, found


def crowd_alike(server: Beside, name: str, settings: str, report: Report) -> None:
    with report.of(f"{name} ({settings})"):
        asyncio.run(_crowd_alike(server, name, settings, report))


def run_alike(server: Beside, folder: Path, api: str, settings: str, report: Report, *words: str) -> None:
    with report.of(f"recorded sessions by {api} ({settings})"):
        asyncio.run(_run_alike(server, folder / "run", api, settings, report, *words))


def crowd_alike_over_http(server: Beside, emulator: str, name: str) -> None:
    """Each engine says its own words, so that histories differ, but not in length nor in what they share."""
    real, theirs = asyncio.run(over_http(server.url, name))
    emulated, ours = asyncio.run(over_http(emulator, name))
    told = [
        [(a.prompt_tokens, a.cached, a.completion_tokens, a.finish) for a in answers] for answers in (real, emulated)
    ]
    assert told[0] == told[1]
    # Which calls share a step is a matter of speed.
    wrong = {
        key: (theirs[key], value)
        for key, value in ours.items()
        if theirs.get(key, value) != value and "iteration_tokens" not in key
    }
    assert not wrong, f"(real, emulated): {wrong}"


# The short form: one server with few blocks, another one with speculation.


@pytest.mark.parametrize("name", CROWDS)
def test_counts_equal_with_few_blocks(beside: Servers, report: Report, name: str) -> None:
    crowd_alike(beside(blocks=FEW), name, f"{FEW} blocks", report)


def test_counts_of_recorded_sessions_equal(beside: Servers, report: Report, tmp_path: Path) -> None:
    run_alike(beside(blocks=FEW), tmp_path, "tokens", f"{FEW} blocks", report, "--agents", "5", "--calls", "15")


@pytest.mark.parametrize("name", ["forked prefixes"])
def test_the_emulator_counts_alike_over_http(beside: Servers, emulator: str, report: Report, name: str) -> None:
    with report.of(f"{name} over HTTP ({FEW} blocks)"):
        crowd_alike_over_http(beside(blocks=FEW), emulator, name)


@pytest.mark.parametrize("name", ["more answers than fit", "ends by length and stop"])
def test_counts_equal_with_ngram_speculation(beside: Servers, report: Report, name: str) -> None:
    crowd_alike(beside(blocks=FEW, drafts=3), name, f"n-gram 3, {FEW} blocks", report)


# The long form.

SETTINGS: dict[str, dict[str, int]] = {
    "plenty of blocks": {},
    "70 blocks": {"blocks": 70},
    "34 blocks": {"blocks": 34},
    "200 blocks of 32": {"block_size": 32, "blocks": 200},
    "n-gram 3, plenty of blocks": {"drafts": 3},
    "n-gram 3, 34 blocks": {"drafts": 3, "blocks": 34},
    "n-gram 5, 170 blocks of 32": {"drafts": 5, "block_size": 32, "blocks": 170},
}


@pytest.mark.parametrize("case", [*CROWDS, "tokens", "chat"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_full_counts_equal(beside: Servers, report: Report, tmp_path: Path, settings: str, case: str) -> None:
    server = beside(**SETTINGS[settings])
    if case in CROWDS:
        crowd_alike(server, case, settings, report)
    else:
        run_alike(server, tmp_path, case, settings, report, "--agents", "8", "--calls", "32")


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_full_a_replay_with_one_agent_counts_alike_over_http(
    beside: Servers, emulator: str, report: Report, tmp_path: Path, api: str
) -> None:
    words = ("--api", api, "--agents", "1", "--calls", "12")
    fields = ("session", "call", "prompt_tokens", "cached_tokens", "completion_tokens", "finish")
    with report.of(f"a replay by {api} with one agent over HTTP ({FEW} blocks)"):
        told = [
            [tuple(end[name] for name in fields) for end in calls_of_a_run(url, tmp_path / name, *words)]
            for name, url in (("real", beside(blocks=FEW).url), ("emulated", emulator))
        ]
        assert told[0] == told[1]
