"""What is waited for before a run is said, seldom enough, and has an end."""

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from windtunnel.agents.clock import VirtualClock
from windtunnel.simulator.engines import base, patience
from windtunnel.simulator.engines.base import fetch
from windtunnel.simulator.engines.patience import patiently, waiting
from windtunnel.simulator.engines.probe import capabilities
from windtunnel.simulator.run import run as running
from windtunnel.traces.errors import EngineError

URL = "http://h:8000/v1/completions"


def waited(*questions, longest_s=1000.0):
    """What was told, and when, of questions that are asked at a moment and answered at another one."""
    clock, told = VirtualClock(), []

    async def ask(begin, end, url):
        await clock.sleep_until(round(begin * 1e9))
        with waiting(url):
            await clock.sleep_until(round(end * 1e9))

    async def main():
        async with patiently(lambda text: told.append((clock.now_ns() / 1e9, text)), "http://h:8000", longest_s):
            await asyncio.gather(*(ask(*question) for question in questions))

    clock.run(main())
    return told


def test_a_question_is_named_after_two_seconds_and_then_ever_more_seldom():
    told = waited((0, 100, URL))
    assert [t for t, _ in told] == [2, 6, 14, 30, 60, 90]
    assert told[0][1] == f"waiting for {URL}: no answer for 2 s"
    assert told[-1][1] == f"waiting for {URL}: no answer for 90 s"


def test_quick_answers_are_not_talked_about():
    assert waited(*((n, n + 1.9, f"{URL}{n}") for n in range(60))) == []


def test_of_many_the_one_that_waits_longest_is_named():
    told = waited((0, 3, "a"), (1, 20, "b"), (1.5, 20, "c"))
    assert told == [
        (2, "waiting for a: no answer for 2 s"),
        (6, "waiting for b: no answer for 5 s"),
        (14, "waiting for b: no answer for 13 s"),
    ]


def test_all_of_them_together_have_an_end():
    with pytest.raises(EngineError) as error:
        waited(*((n * 100, n * 100 + 100, f"{URL}{n}") for n in range(10)), longest_s=240.0)
    assert str(error.value) == (
        "http://h:8000: after 240 s not all questions before the run were answered; "
        "the server is stuck or too busy, try again when it is idle"
    )


def test_without_patience_nothing_is_said():
    clock = VirtualClock()

    async def main():
        with waiting(URL):
            await clock.sleep(100)

    clock.run(main())


@pytest.fixture
async def deaf():
    """A server that takes questions and does not answer them, and a session."""
    asked, done = [], asyncio.Event()

    async def never(request):
        asked.append(request.path)
        await done.wait()
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", never)
    server = TestServer(app)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        yield session, str(server.make_url("")).rstrip("/"), asked
    done.set()
    await server.close()


async def test_probes_of_a_deaf_server_are_named_and_given_up(deaf, monkeypatch):
    session, root, asked = deaf
    monkeypatch.setattr(patience, "QUIET_S", 0.05)
    told = []
    with pytest.raises(EngineError, match=f"^{root}: after 0 s not all questions"):
        async with patiently(told.append, root, 0.4):
            await capabilities(session, root, "m", known=False)
    assert asked == ["/tokenize"]
    assert told[0] == f"waiting for {root}/tokenize: no answer for 0 s"
    # Out of it nothing is said any more.
    told.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fetch(session, f"{root}/metrics"), 0.2)
    assert told == []


async def test_the_start_of_a_run_says_what_it_waits_for(deaf, monkeypatch, capsys):
    _, root, _ = deaf
    monkeypatch.setattr(patience, "QUIET_S", 0.05)
    monkeypatch.setattr(running, "patiently", lambda talk, root: patiently(talk, root, 0.3))
    run = running.Run(
        running.RunConfig(target=root).checked(), running.Loaded((), ()), screen=False, exit_when_done=True
    )
    with pytest.raises(EngineError, match="not all questions"):
        await run._against(root, None, None)
    assert f"waiting for {root}/version: no answer for" in capsys.readouterr().err


@pytest.fixture
async def odd_metrics():
    """A plain server but for its metrics page, which never begins, never ends, or is no answer: -> (session, root)."""
    done, asked = asyncio.Event(), []

    async def metrics(request):
        asked.append(request.match_info["how"])
        response = web.StreamResponse()
        await response.prepare(request)
        if request.match_info["how"] == "short":
            response.headers["Content-Length"] = "1000"
            request.transport.close()
        elif request.match_info["how"] == "long":
            with contextlib.suppress(ConnectionError):
                while not done.is_set():
                    await response.write(b"a 1\n" * 5000)
        else:
            await done.wait()
        return response

    async def models(_):
        return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})

    app = web.Application()
    app.router.add_get("/{how}/metrics", metrics)
    app.router.add_get("/{how}/v1/models", models)
    server = TestServer(app)
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        yield session, str(server.make_url("")).rstrip("/"), asked
    done.set()
    await server.close()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("deaf", "no whole answer in 0 s"),
        ("long", "the answer has no end (1 MiB were read)"),
        ("short", "the answer ended before it was complete; the server, or a proxy in front of it, cut it off"),
    ],
)
async def test_a_run_does_without_a_metrics_page_that_does_not_come(odd_metrics, monkeypatch, how, why):
    session, server, asked = odd_metrics
    monkeypatch.setattr(base, "METRICS_S", 0.3)
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 20)
    root, told = f"{server}/{how}", []
    async with patiently(told.append, root, 5.0):
        adapter = await base.detect(root, session)
        found = await adapter.probe(session, root)
        again = await base.metrics_page(session, f"{root}/metrics")
    assert (found.name, found.max_model_len, found.capabilities.metrics, again.status) == ("openai", 4096, False, 0)
    assert told == [f"{root}/metrics: {why}; the engine's metrics count as not reported"]
    assert asked == [how]


async def test_only_the_metrics_may_fail_to_come(odd_metrics, monkeypatch):
    session, server, _ = odd_metrics
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 20)
    with pytest.raises(EngineError, match=rf"^{server}/long/metrics: the answer has no end \(1 MiB were read\)$"):
        await fetch(session, f"{server}/long/metrics")


async def test_the_start_of_a_run_shows_no_more_of_a_models_name_than_fits(fake_engine, monkeypatch, capsys):
    _, root, _ = await fake_engine(models=[{"id": "q" * 200_000, "max_model_len": 4096}])

    async def stop(*_, **__):
        raise EngineError("enough")

    monkeypatch.setattr(running, "prepare_run", stop)
    run = running.Run(
        running.RunConfig(target=root).checked(), running.Loaded((), ()), screen=False, exit_when_done=True
    )
    with pytest.raises(EngineError, match="enough"):
        await run._against(root, None, None)
    assert f"engine: vllm 0.32.0  model {'q' * 80}...\n" in capsys.readouterr().err
