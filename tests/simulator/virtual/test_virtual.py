"""A virtual run is the same for the same seed, and it counts as a run over HTTP does."""

import asyncio
import itertools
import json
import shlex
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import web

from windtunnel.agents import events as ev
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.serve import build
from windtunnel.simulator.results.store import RunFolder, RunWriter
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.summary_model import encode_summary
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.run import driver
from windtunnel.simulator.run import run as over_http
from windtunnel.simulator.run.config import RunConfig, Warmup
from windtunnel.simulator.run.direct import Direct
from windtunnel.simulator.run.virtual import run_id_of, virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.format import write_trace

from ..run.conftest import Sketch, chain  # noqa: TID252 -- tests are no package
from .conftest import SMALL, config_of, loaded

PROVENANCE = {"wall_clock", "pid", "host", "python", "windtunnel", "argv", "config"}


def busy(count=4, calls=8):
    """Sessions that share their front and wait for tools."""
    return [chain(f"t{n}", calls, wait=0.4 + n / 3, out=30 + 7 * n, system=900, user=200) for n in range(count)]


def forked():
    """A session whose second call starts a sub-agent that the fourth waits for."""
    sketch = Sketch("fork", system=600, user=80)
    sketch.call()
    second = sketch.call(("tool", 0.5))
    thread = sketch.thread(second, delay=0.2)
    sketch.call(thread=thread, out=60)
    sketch.call(("tool", 0.3), thread=thread)
    sketch.call(("tool", 1.0))
    sketch.call(joins=(thread,))
    return sketch.trace()


def test_the_same_seed_gives_the_same_files(virtually):
    one, two = (virtually(*busy(), forked(), agents=3, duration_s=20.0) for _ in range(2))
    for name in ("events.jsonl", "summary.json", "text.jsonl"):
        assert one.data(name) == two.data(name), name
    first, second = one.run, two.run
    assert {key for key in first if first[key] != second[key]} <= PROVENANCE
    assert first["run_id"] == run_id_of(0)
    assert len(one.calls) > 20


def test_another_seed_gives_another_run(virtually):
    one = virtually(*busy(), duration_s=5.0)
    two = virtually(*busy(), duration_s=5.0, seed=1)
    assert one.run["run_id"] != two.run["run_id"]
    assert one.data("events.jsonl") != two.data("events.jsonl")


LONG_STEPS = "emulator --gpu L40S --model llama-3.1-8b"
DRAFTS = """ --speculative-config '{"method":"ngram","num_speculative_tokens":3}'"""


@pytest.mark.parametrize(
    "flags",
    [
        "",
        " --no-async-scheduling",
        " --num-gpu-blocks-override 90 --max-model-len 1400",
        " --model gpt-oss-120b",
        DRAFTS,
        DRAFTS + " --no-async-scheduling",
    ],
)
def test_step_by_step_gives_the_same_events(virtually, flags):
    dials = {"agents": 4, "ramp_s": 0.5, "duration_s": 10.0, "engine": SMALL + flags}
    fast, slow = (virtually(*busy(), forked(), leaps=leaps, **dials) for leaps in (True, False))
    assert len(fast.calls) > 10
    for name in ("events.jsonl", "summary.json", "text.jsonl"):
        assert fast.data(name) == slow.data(name), name


@pytest.mark.parametrize(
    "dials",
    [
        {},
        {"engine": f"{SMALL}{DRAFTS}"},
        {"engine": f"{SMALL} --num-gpu-blocks-override 90 --max-model-len 1400"},
        {"rate": 0.5},
        {"text": False},
        {"agents": 5, "sessions": 7, "duration_s": None},
        {"engine": f"{LONG_STEPS} --max-model-len 16384 --max-num-batched-tokens 8192 --no-enable-prefix-caching"},
    ],
    ids=["plain", "drafts", "tight", "rate", "no text", "drained", "long steps"],
)
def test_a_look_at_which_nothing_is_new_says_what_a_closer_one_would(virtually, monkeypatch, dials):
    """Long waits for tools and for turns, and steps that take longer than the time between two looks."""
    traces = (chain("t0", 8, wait=3.0, out=30, system=900), chain("t1", 6, wait=1.7, out=50, system=7000), forked())
    dials = {"agents": 3, "duration_s": 20.0, **dials}
    again, written = [], RunWriter.again
    monkeypatch.setattr(driver, "VIRTUAL_PROGRESS_S", 0.25)
    monkeypatch.setattr(RunWriter, "again", lambda *given: again.append(given[1]) or written(*given))
    one = virtually(*traces, **dials)
    assert len(again) > 5
    assert any(progress.in_tool or progress.waiting for progress in again)
    assert any(progress.in_flight for progress in again) or LONG_STEPS not in dials.get("engine", "")
    spared = len(again)
    numbers = itertools.count()
    monkeypatch.setattr(Direct, "pulse", lambda _: next(numbers))
    other = virtually(*traces, **dials)
    assert len(again) == spared
    assert one.data("events.jsonl") == other.data("events.jsonl")
    assert one.data("summary.json") == other.data("summary.json")


def test_text_that_nobody_keeps_changes_nothing_that_is_counted(virtually):
    kept, left = (virtually(*busy(), forked(), agents=3, sessions=6, text=text) for text in (True, False))
    assert [msgspec.structs.replace(call, t_first_visible=None) for call in kept.calls] == left.calls
    assert sum(call.cached_tokens for call in left.calls) > 10_000
    assert kept.events(ev.EngineSample) == left.events(ev.EngineSample)


@pytest.mark.parametrize("api", ["tokens", "chat"])
def test_an_emulator_that_is_told_to_say_less_says_less(virtually, api):
    flags = " --no-enable-prompt-tokens-details --no-enable-per-request-metrics"
    dials = {"agents": 3, "sessions": 4, "api": api}
    full, bare = (virtually(*busy(), engine=SMALL + more, **dials) for more in ("", flags))
    assert len(full.calls) == len(bare.calls) > 20
    for said, unsaid in zip(full.calls, bare.calls, strict=True):
        differing = {name for name in said.__struct_fields__ if getattr(said, name) != getattr(unsaid, name)}
        assert differing == {"cached_tokens", "queued_s", "prefilled_s"}
        assert (unsaid.cached_tokens, unsaid.queued_s, unsaid.prefilled_s) == (None, None, None)
    assert all(call.prompt_tokens and call.completion_tokens for call in bare.calls)
    assert full.summary.cache_hit_ratio > 0.5
    assert (bare.summary.cached_tokens, bare.summary.cache_hit_ratio) == (None, None)


def test_the_summary_can_be_computed_again(virtually):
    done = virtually(*busy(), duration_s=10.0)
    assert msgspec.structs.replace(recompute(done.path), run_dir=str(done.path)) == done.summary
    assert RunFolder.open(done.path).summary() == done.summary
    assert encode_summary(recompute(done.path)) == done.data("summary.json")
    assert json.loads(done.data("summary.json"))["run_dir"] == "."
    assert done.summary.emulated
    assert done.summary.virtual
    assert done.summary.valid
    assert "VIRTUAL" in render_summary(done.summary)


def test_calls_that_are_cut_end_in_the_order_in_which_they_were_sent(virtually):
    sketch = Sketch("many", system=300, user=60)
    first = sketch.call()
    for _ in range(8):
        sketch.call(thread=sketch.thread(first), out=4000)
    done = virtually(sketch.trace(), agents=1, duration_s=5.0, warmup=Warmup(seconds=0.1))
    cut = [(call.thread, call.call) for call in done.calls if call.cut]
    assert len(cut) == 8
    assert cut == [(start.thread, start.call) for start in done.events(ev.CallStart)][-8:]


def test_what_only_a_real_client_can_tell_is_not_reported(virtually):
    done = virtually(*busy(), duration_s=10.0)
    assert done.summary.client_lag_s is None
    assert done.summary.client_cpu is None
    assert done.summary.dispatch_s.max == 0.0
    assert done.events(ev.RunStart)[0].wall_clock == 0.0
    beats = [event.t for event in done.events(ev.Heartbeat)]
    assert beats == [second * 10**9 for second in range(len(beats))]
    progress = [event.t for event in done.events(ev.Progress)][:-1]
    assert progress == [(k + 1) * 10**9 for k in range(len(progress))]


@pytest.fixture
def server(engine):
    """The emulator over HTTP, on a loop of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    loop = asyncio.new_event_loop()

    async def serve():
        running, app = build(parse(shlex.split(engine)[1:]), loop)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return running, runner

    running, runner = loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def end():
        running.stop()
        await runner.cleanup()

    yield f"http://127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


COUNTS = (
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "expected_prompt_tokens",
    "expected_cached_tokens",
    "expected_cached_exact",
    "reprefilled_tokens",
    "pinned_tokens",
    "finish",
    "failure",
)


@pytest.mark.parametrize(
    ("api", "engine"),
    [("tokens", SMALL), ("chat", SMALL), ("tokens", SMALL + DRAFTS), ("chat", SMALL + " --model gpt-oss-120b")],
)
def test_counts_are_those_of_a_run_over_http(tmp_path, server, capsys, monkeypatch, api, engine):
    """One agent at a time: the order of calls is fixed, and so is what the cache holds."""
    monkeypatch.setattr(over_http, "secrets", SimpleNamespace(token_hex=lambda _: run_id_of(0)))
    traces = [chain(f"t{n}", 4, wait=0.0, out=20 + n, system=700, user=90) for n in range(3)]
    folder = tmp_path / "traces"
    folder.mkdir()
    for trace in traces:
        write_trace(trace, folder / f"{trace.header.id}.jsonl")
    dials = {"agents": 1, "sessions": 3, "ramp_s": 0.0, "start": "fresh", "pace": "none", "api": api}
    ours_too = {**dials, "engine": engine}
    real = RunConfig(traces=(str(folder),), target=server, out=str(tmp_path / "http"), **dials).checked()
    assert over_http.execute(real, as_json=True, screen=False, exit_when_done=True) == 0
    told = json.loads(capsys.readouterr().out)
    ours = virtual_run(config_of(**ours_too), loaded(*traces), tmp_path / "virtual")
    pairs = [
        [event for event in RunFolder.open(tmp_path / name).events() if isinstance(event, ev.CallEnd)]
        for name in ("http", "virtual")
    ]
    assert len(pairs[0]) == len(pairs[1]) == 12
    for one, two in zip(*pairs, strict=True):
        assert {name: getattr(one, name) for name in COUNTS} == {name: getattr(two, name) for name in COUNTS}
        assert one.chunks.n == two.chunks.n
    assert sum(call.cached_tokens for call in pairs[1]) > 0
    for name in ("prompt_tokens", "cached_tokens", "output_tokens", "sessions_completed", "failures"):
        assert told[name] == msgspec.to_builtins(ours)[name], name
    texts = [[line.text for line in RunFolder.open(tmp_path / name).texts()] for name in ("http", "virtual")]
    assert texts[0] == texts[1]
    engines = [json.loads((tmp_path / name / "run.json").read_bytes())["engine"] for name in ("http", "virtual")]
    assert engines[0] == engines[1]


def test_a_stopped_run_keeps_what_was_done(virtually):
    def stop(run, event):
        if isinstance(event, ev.Progress) and event.t == 3 * 10**9:
            run.stop()

    done = virtually(*busy(), duration_s=30.0, at=stop)
    assert done.summary.status == "interrupted"
    assert done.summary.duration_s == 3.0
    assert done.summary.calls > 3
    assert (done.path / "summary.json").exists()


@pytest.mark.parametrize(
    ("dials", "said"),
    [
        ({"target": "http://h", "engine": None}, "--virtual and --target"),
        ({"workers": 2}, "--virtual and --workers"),
        ({"engine": "vllm serve x"}, "--virtual runs the emulator"),
        ({"engine": "emulator --no-such-flag 3"}, "no-such-flag"),
    ],
)
def test_what_cannot_run_virtually_is_said(dials, said):
    with pytest.raises(UsageError, match=said):
        virtual_run(config_of(agents=1, sessions=1, **dials), loaded(chain("a", 1)))


def test_the_command_line_is_interrupted_and_keeps_the_run(tmp_path):
    """130, the summary on stdout, the folder whole."""
    code = (
        "import os, signal; from windtunnel.simulator.run import virtual_command as v; "
        "from windtunnel.agents.events import Heartbeat; "
        "now = lambda _, e: isinstance(e, Heartbeat) and e.t == 9 * 10**9 and os.kill(os.getpid(), signal.SIGINT); "
        "v.Now.__call__ = now; "
        "from windtunnel.simulator.cli import main; main()"
    )
    words = ["run", "--virtual", "--agents", "2", "--duration", "3600", "--json", "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
    assert done.returncode == 130, done.stderr.decode()
    assert json.loads(done.stdout)["status"] == "interrupted"
    assert (tmp_path / "run" / "summary.json").exists()
