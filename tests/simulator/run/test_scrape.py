"""A scrape reads a dozen lines of a page of thousands, exactly, and in well under a millisecond."""

import asyncio
from time import perf_counter

import pytest

from windtunnel.simulator.engines.base import Answer
from windtunnel.simulator.engines.vllm import METRICS
from windtunnel.simulator.run import scrape
from windtunnel.simulator.run.scrape import Scraper, read_page, wanted_lines
from windtunnel.traces.errors import EngineError

LABELS = 'engine="%d",model_name="org/some-model"'


def page(engines: int = 1) -> bytes:
    """A page with the shape of vLLM's: gauges, counters with `_created` twins, histograms with many buckets."""
    lines: list[str] = ["# HELP python_info Python platform information", "# TYPE python_info gauge", "python_info 1.0"]
    values = {"num_requests_running": 17, "num_requests_waiting": 3, "kv_cache_usage_perc": 0.25}
    for name, value in values.items():
        lines += [f"# HELP vllm:{name} Some help.", f"# TYPE vllm:{name} gauge"]
        lines += [f"vllm:{name}{{{LABELS % e}}} {value}" for e in range(engines)]
    lines += [f'vllm:num_requests_waiting_by_reason{{{LABELS % 0},reason="capacity"}} 1000.0']
    counters = {"num_preemptions": 2, "prefix_cache_queries": 5e6, "prefix_cache_hits": 4.5e6, "prompt_tokens": 5e6}
    for name, value in {**counters, "generation_tokens": 1.234567e6, "external_prefix_cache_hits": 9.0}.items():
        lines += [f"# TYPE vllm:{name}_total counter"]
        lines += [f"vllm:{name}_total{{{LABELS % e}}} {value}" for e in range(engines)]
        lines += [f"vllm:{name}_created{{{LABELS % e}}} 1.7959635903706527e+09" for e in range(engines)]
    for reason in ("stop", "length", "abort"):
        lines.append(f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="a\\"b}} c"}} 10.0')
    lines.append(f'vllm:prompt_tokens_by_source_total{{{LABELS % 0},source="local_compute"}} 77.0')
    for histogram in range(60):
        name = f"vllm:time_number_{histogram}_seconds"
        lines += [f"# HELP {name} Histogram.", f"# TYPE {name} histogram"]
        lines += [f'{name}_bucket{{{LABELS % 0},le="{bucket / 10}"}} {bucket}.0' for bucket in range(47)]
    return "\n".join(lines).encode() + b"\n"


def test_values_are_summed_over_labels_and_shares_averaged():
    assert read_page(page(engines=2), METRICS) == {
        "running": 34,
        "waiting": 6,
        "kv_usage": 0.25,
        "preemptions": 4,
        "prefix_queries": 1e7,
        "prefix_hits": 9e6,
        "prompt_tokens": 1e7,
        "generation_tokens": 2469134,
        "requests_finished": 30,
    }


def test_counters_are_read_with_and_without_total():
    text = b"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens 5\nvllm:prompt_tokens_total 6 1795963590\n"
    assert read_page(text, METRICS) == {"generation_tokens": 5, "prompt_tokens": 6}


def test_a_series_that_a_page_tells_twice_is_one_the_last():
    twice = page(engines=2).replace(b"} 17\n", b"} 99\n") + page(engines=2)
    assert read_page(twice, METRICS) == read_page(page(engines=2), METRICS)
    apart = scrape.read_apart(twice, METRICS)
    assert apart == scrape.read_apart(page(engines=2), METRICS)
    text = "vllm:generation_tokens_total{%s} %d\n"
    labels = ('engine="0",model_name="a,b}"', 'model_name="a,b}", engine="0"', 'engine="0",model_name="a,b"', "")
    lines = "".join(text % (of, n) for n, of in enumerate(labels, 1)) + "vllm:generation_tokens_total 100\n"
    assert read_page(lines.encode(), METRICS) == {"generation_tokens": 2 + 3 + 100}


def test_what_a_page_lacks_is_absent_and_not_zero():
    assert read_page(b"", METRICS) == {}
    assert read_page(b"# HELP nothing\nother 1\n", METRICS) == {}


def test_a_page_of_3000_lines_takes_less_than_a_millisecond():
    text = page(engines=4)
    assert text.count(b"\n") > 2950
    pattern = wanted_lines(METRICS)
    took = []
    for _ in range(20):
        began = perf_counter()
        read_page(text, METRICS, pattern)
        took.append(perf_counter() - began)
    assert min(took) < 0.001, f"{min(took) * 1000:.3f} ms"


async def test_scraper_stamps_a_sample_and_says_what_went_wrong(fake_engine):
    session, url, engine = await fake_engine(running=3)
    scraper = Scraper(session, url, METRICS)
    sample = await scraper.once(42)
    assert sample is not None
    assert (sample.t, sample.running, sample.waiting, sample.generation_tokens, sample.kv_usage) == (
        42,
        3,
        0,
        100,
        None,
    )
    assert sample.scrape_ms > 0
    engine.key = "now closed"
    assert await scraper.once(43) is None
    assert "HTTP 401" in scraper.failed


async def test_what_is_no_figure_is_not_told_of_any_replica(monkeypatch):
    lines = ['vllm:kv_cache_usage_perc{engine="%d"} %s', 'vllm:num_requests_running{engine="%d"} 2']
    text = "\n".join(line % ((e, kv) if "%s" in line else e) for e, kv in enumerate(("NaN", "-1")) for line in lines)

    async def page(*_):
        return Answer(200, text.encode())

    monkeypatch.setattr(scrape, "_page", page)
    sample = await Scraper(None, "http://h", METRICS).once(0)
    assert (sample.kv_usage, sample.running) == (None, 4)
    assert sample.apart == {"h 0": {"running": 2}, "h 1": {"running": 2}}


async def test_an_engine_that_was_restarted_is_told_once(fake_engine):
    session, url, _ = await fake_engine(generated=[100, 140, 7, 20])
    scraper = Scraper(session, url, METRICS)
    told = "the engine's counters began anew at 2.0 s: it was restarted, and what it did just before is lost"
    for t in range(4):
        assert await scraper.once(t * 10**9) is not None
        assert scraper.news() == (told if t == 2 else None)
        assert scraper.news() is None


async def test_a_page_that_begins_to_hang_is_given_up_and_told_once(fake_engine, monkeypatch):
    monkeypatch.setattr(scrape, "LONGEST_S", 0.05)
    session, url, engine = await fake_engine()
    scraper = Scraper(session, url, METRICS)
    why = f"{url}/metrics: no whole answer in 0.05 s"
    told = f"the engine's metrics do not come ({why}): the run goes on, what they say is missing"
    assert await scraper.once(0) is not None
    assert scraper.news() is None
    engine.page.clear()
    async with asyncio.timeout(5):
        assert await scraper.once(1) is None
        assert scraper.news() == told
        assert await scraper.once(2) is None
    assert scraper.news() is None
    engine.page.set()
    assert await scraper.once(3) is not None
    assert scraper.news() is None
    engine.page.clear()
    assert await scraper.once(4) is None
    assert scraper.news() == told
    engine.page.set()


async def test_an_engine_without_metrics_is_not_asked(fake_engine):
    session, url, _ = await fake_engine(metrics=False)
    assert await Scraper(session, url, {}).once(0) is None


async def test_a_metrics_url_that_does_not_answer_is_named_before_the_run(fake_engine, monkeypatch):
    monkeypatch.setattr(scrape, "METRICS_S", 0.05)
    session, url, engine = await fake_engine()
    page = f"{url}/metrics"
    assert await scrape.names_on(session, [page]) == METRICS
    engine.page.clear()
    async with asyncio.timeout(5):
        with pytest.raises(EngineError, match=f"^{page}: no whole answer in 0.05 s$"):
            await scrape.names_on(session, [page])
    engine.page.set()
