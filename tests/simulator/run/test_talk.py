"""What a run says before and while it goes on, and what it makes of its flags."""

import asyncio
import io
import signal
import sys

import pytest

from windtunnel.agents import events as ev
from windtunnel.simulator.run import viewer
from windtunnel.simulator.run.config import RunConfig, Warmup, parse_count, parse_share, parse_warmup
from windtunnel.simulator.run.estimate import Lane, Speed, estimate, lanes, warmup_s
from windtunnel.simulator.run.viewer import PlainProgress, Viewer
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load

from .conftest import NS, chain

PYTHON = sys.executable


def test_the_length_is_estimated_with_the_warm_up():
    # A turn: 1 s to the first token, 20 tokens at 40 to 100 a second, 2 s of tool before 3 of 4 calls.
    traces = [chain(calls=4)]
    config = {"agents": 4, "ramp_s": 6.0, "warmup": Warmup(calls=2), "start": "fresh"}
    # warm-up: the ramp, then two calls with 2 s of tool between them
    assert estimate(traces, RunConfig(duration_s=60.0, **config)) == (
        "70 to 71 s: warm-up 10 to 11 s, then 60 s measured "
        "(assuming 40 to 100 tokens/s for each agent, first prompts at 30,000 to 60,000)"
    )
    assert estimate(traces, RunConfig(calls=40, **config)).startswith("33 to 36 s: 40 calls (assuming ")
    assert estimate(traces, RunConfig(sessions=8, **config)).startswith("28 to 30 s: 8 sessions (assuming ")
    slow = RunConfig(duration_s=7200.0, pace="recorded", **{**config, "warmup": Warmup(calls=None, seconds=3600.0)})
    assert estimate(traces, slow).startswith("about 3.0 h: warm-up about 60 min, then 2.0 h measured")


def test_the_warm_up_lasts_until_all_prompts_are_in_and_the_slowest_agent_has_answered():
    short, long = chain("short", calls=1, out=10), chain("long", calls=1, out=2000)
    config = RunConfig(agents=2, ramp_s=0.0, warmup=Warmup(calls=1), start="fresh", duration_s=10.0)
    found = lanes([short, long], config)
    assert sorted((lane.output, lane.calls) for lane in found) == [(10, 1), (2000, 1)]
    prompts = short.prompt_tokens()[0] + long.prompt_tokens()[0]
    assert warmup_s(found, config, Speed(40.0, 10.0)) == pytest.approx(prompts / 10 + 2000 / 40 + 1)
    crowd = [Lane(prompt=90_000, output=100, waits=0.0, calls=1)] * 4
    many = RunConfig(agents=40, ramp_s=5.0, warmup=Warmup(calls=1), duration_s=10.0)
    assert warmup_s(crowd, many, Speed(50.0, 30_000.0)) == pytest.approx(120 + 2 + 1), "each stands for ten"


def test_the_demo_s_length_is_told():
    """It took 94 s here, 48 of them warm-up: 920,000 tokens to be computed cold, and then 1,882 for one agent."""
    loaded = load(("library",))
    traces = [trace for trace in loaded.traces if max(trace.prompt_tokens().values()) <= 131_072]
    config = RunConfig(agents=32, warmup=Warmup(calls=1), duration_s=45.0)
    assert estimate(traces, config).startswith("85 to 130 s: warm-up 40 to 89 s, then 45 s measured")


def told(progress, *events):
    for event in events:
        progress(event)


def at(t, tokens, **more):
    return ev.Progress(
        t=round(t * NS), output_tokens=tokens, prompt_tokens=0, **{"in_flight": 3, "in_tool": 1, "waiting": 0, **more}
    )


def test_a_line_every_few_seconds_and_at_each_phase():
    out = io.StringIO()
    progress = PlainProgress(out, agents=4, every_s=5.0)
    told(progress, ev.Phase(t=0, phase="warmup"), at(0.25, 10), at(0.5, 20), at(5.0, 400), at(5.25, 510))
    ended = {"agent": 0, "session": "s0"}
    told(
        progress,
        ev.SessionEnd(t=6 * NS, status="completed", **ended),
        ev.SessionEnd(t=6 * NS, status="failed", reason="http_500", **ended),
        ev.SessionEnd(t=6 * NS, status="cut", **ended),
        ev.Note(t=6 * NS, level="warning", text="the engine compiled"),
        ev.Note(t=6 * NS, level="info", text="nothing"),
        ev.Phase(t=6 * NS, phase="steady"),
        at(6.25, 1510),
    )
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert " ".join(lines[0].split()) == (
        "0.2 s warmup 40 tok/s in flight 3 in tool 1 waiting 0 of 4 sessions done 0, failed 0"
    )
    assert lines[1].split()[:5] == ["5.2", "s", "warmup", "100", "tok/s"]
    assert lines[2] == "warning: the engine compiled"
    assert lines[3].split()[:5] == ["6.2", "s", "steady", "1,000", "tok/s"]
    assert lines[3].endswith("sessions done 1, failed 1")


def test_a_rate_from_counts_that_are_not_exact_is_marked():
    out = io.StringIO()
    progress = PlainProgress(out, agents=4, every_s=1.0)
    told(progress, at(1.0, 100), at(2.0, 300, parsed=False), at(3.0, 400), at(4.0, 1500))
    assert [line.split()[3] for line in out.getvalue().splitlines()] == ["100", "~200", "~100", "1,100"]


def test_the_viewer_s_screen_is_not_written_over():
    out = io.StringIO()
    progress = PlainProgress(out, agents=4)
    progress.enabled = False
    told(progress, ev.Phase(t=0, phase="warmup"), at(0.25, 10), ev.Note(t=0, level="error", text="x"))
    assert out.getvalue() == ""
    # After a detach the lines go on with what happened meanwhile.
    progress.enabled = True
    told(progress, at(9.0, 900))
    assert "warmup" in out.getvalue()


async def viewing(monkeypatch, tmp_path, code):
    program = tmp_path / "viewer"
    program.write_text(f"#!{PYTHON}\n{code}")
    program.chmod(0o755)
    monkeypatch.setattr(viewer.sys, "executable", str(program))
    return await Viewer.start(tmp_path, exit_when_done=True)


async def test_the_viewer_says_one_word_by_its_exit_code(monkeypatch, tmp_path):
    code = "import sys; assert sys.argv[1:4:2] == ['-m', sys.argv[3]]; sys.exit(3 if '--exit-when-done' in sys.argv else 9)"
    shown = await viewing(monkeypatch, tmp_path, code)
    assert await shown.wait() == viewer.DETACH
    await shown.stop()  # it is gone: nothing to do


async def test_a_viewer_is_asked_to_go_and_a_deaf_one_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(viewer, "STOP_WAIT_S", 0.3)
    ready = tmp_path / "ready"
    for deaf, code in ((False, 0), (True, -signal.SIGKILL)):
        handler = "signal.SIG_IGN" if deaf else "lambda *_: sys.exit(0)"
        shown = await viewing(
            monkeypatch,
            tmp_path,
            f"import signal, sys, time\nsignal.signal(signal.SIGTERM, {handler})\nopen({str(ready)!r}, 'w').close()\ntime.sleep(60)\n",
        )
        while not ready.exists():
            await asyncio.sleep(0.01)
        await shown.stop()
        assert await shown.wait() == code
        ready.unlink()


def test_flags_that_are_no_plain_numbers():
    assert [parse_count(text, "--max-context") for text in ("4096", "32k", "128K")] == [4096, 32768, 131072]
    assert [parse_share(text, "--max-failures") for text in ("10%", "0.1", "0")] == [0.1, 0.1, 0.0]
    assert parse_warmup("3") == Warmup(calls=3)
    assert parse_warmup("30s") == Warmup(calls=None, seconds=30.0)
    for parse, text in ((parse_count, "4kb"), (parse_count, "-1"), (parse_share, "120%"), (parse_share, "x")):
        with pytest.raises(UsageError, match=f"^--flag {text}: "):
            parse(text, "--flag")
    for text in ("1.5", "30m", ""):
        with pytest.raises(UsageError, match=r"^--warmup"):
            parse_warmup(text)


@pytest.mark.parametrize(
    "dials",
    [
        {"agents": 0},
        {"target": "http://x", "engine": "y"},
        {"duration_s": 0.0},
        {"sessions": 3, "calls": 5},
        {"rate": 0.0},
        {"ramp_s": -1.0},
        {"max_context": 5},
    ],
)
def test_values_that_cannot_work_are_one_sentence(dials):
    with pytest.raises(UsageError) as error:
        RunConfig(**dials).checked()
    assert str(error.value).startswith("--")
    assert "\n" not in str(error.value)


def test_without_an_end_a_run_lasts_five_minutes_and_its_secrets_stay_its_own():
    config = RunConfig(headers=(("Authorization", "Bearer secret"),)).checked()
    assert config.duration_s == 300.0
    assert config.as_json()["headers"] == ["Authorization"]
    assert "secret" not in str(config.as_json())
