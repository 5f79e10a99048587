"""What the doctor says of good, bad and bare servers."""

import asyncio

import pytest

from windtunnel.agents.clock import RealClock
from windtunnel.simulator import doctor
from windtunnel.simulator.engines.launch import free_port
from windtunnel.traces.errors import EngineError


class Now:
    """A clock on which waiting costs nothing."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    async def sleep_until(self, t_ns: int) -> None:
        self.ns = max(self.ns, t_ns)

    async def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


def of(report, name):
    return next(check for check in report.checks if check.name == name)


async def test_a_server_with_everything(fake_engine):
    session, url, _ = await fake_engine(models=[{"id": "tiny", "max_model_len": 32768}])
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert report.exit_code == 0
    assert report.nulls == ()
    assert report.fix is None
    assert of(report, "match unit").text == "cache hits are multiples of 128 tokens"
    assert of(report, "KV cache").text == "the KV cache holds 8,960 tokens, 0.3 full contexts"
    assert "Ready for a run." in doctor.render(report)


async def test_a_plain_vllm_gets_the_line_that_mends_it(fake_engine):
    session, url, _ = await fake_engine(dev_mode=False, details=False)
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert report.exit_code == 0
    assert report.nulls == ("cached_tokens", "cache_hit_ratio")
    port = url.rpartition(":")[2]
    assert report.fix == (
        "VLLM_SERVER_DEV_MODE=1 vllm serve tiny --max-model-len 4096 --enable-prompt-tokens-details "
        f"--port {port}"
    )  # fmt: skip
    assert report.fix in doctor.render(report)


async def test_somebody_elses_load_is_seen(fake_engine):
    session, url, _ = await fake_engine(generated=[100, 100, 100, 175])
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert report.exit_code == 1
    assert of(report, "other load").text == "somebody else uses the server: 0 requests, 75 tokens in 1 s"
    session, url, _ = await fake_engine(generated=[100, 100, 100, 7])  # restarted
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert "0 requests, 7 tokens" in of(report, "other load").text
    session, url, _ = await fake_engine(running=2)
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert of(report, "other load").status == "fail"


async def test_a_match_unit_above_the_context_never_hits(fake_engine):
    session, url, engine = await fake_engine()
    engine.cache["cache_hit_alignment_tokens"] = 8320
    report = await doctor.examine(url, None, session=session, clock=Now())
    check = of(report, "prefix caching")
    assert check.status == "fail"
    assert "8,320" in check.text


async def test_a_bare_server_says_what_will_be_missing(fake_engine):
    session, url, _ = await fake_engine(
        version=None, metrics=False, dev_mode=False, tokenize=False, completions=False, details=False, strict=True
    )
    report = await doctor.examine(url, None, session=session, clock=Now())
    assert {"cached_tokens", "cache_hit_ratio", "engine.kv_usage", "engine.kv_tokens"} <= set(report.nulls)
    assert of(report, "output length").status == "fail"
    assert report.exit_code == 1
    assert report.fix is None


async def test_a_late_clock_and_a_low_file_limit_are_warned_of(monkeypatch):
    class Late(Now):
        async def sleep_until(self, t_ns: int) -> None:
            self.ns = t_ns + 20_000_000

    check = await doctor.client_clock(Late())
    assert check.status == "warn"
    assert "20.00 ms late" in check.text
    assert (await doctor.client_clock(RealClock())).name == "client clock"
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (256, 4096))
    assert doctor.open_files().text == (
        "this shell allows 256 open files, enough for about 39 agents: raise it with ulimit -n (up to 4096)"
    )


def test_reads_in_python_are_warned_of(monkeypatch):
    monkeypatch.setattr(doctor, "COMPILED", False)
    check = doctor.client_code()
    assert check.status == "warn"
    assert "C compiler" in check.text
    monkeypatch.setattr(doctor, "COMPILED", True)
    assert doctor.client_code().status == "ok"


async def test_no_server_is_one_sentence():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EngineError, match="nothing listens there"):
        await asyncio.to_thread(doctor.main, url)
