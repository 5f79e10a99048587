"""Reading an engine's metrics pages while a run goes on, at almost no cost to the client's event loop.

A page has hundreds to thousands of lines and a run needs a dozen of them: the wanted lines are cut out of the bytes
first and only those are parsed (0.3 ms instead of 10 ms or more). The pages of several replicas are added up, and each
replica's own figures are kept beside the sum.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from time import perf_counter_ns

import aiohttp
import msgspec

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.engines.base import METRICS_S, Answer, fetch, root_of
from windtunnel.simulator.engines.known import ADAPTERS
from windtunnel.simulator.results.counters import Counters
from windtunnel.traces.errors import EngineError

MEANS = frozenset({"kv_usage", "cache_hit_rate", "spec_accept_length"})
"""Shares and lengths: averaged over engines and not summed."""
LONGEST_S = 5.0
"""A page is waited for so long: what comes later is no picture of the moment, and the run goes on without."""
MOST = 1e18
"""As `events.Gauge` has it."""
REPLICA = re.compile(rb'[{,](?:engine|dp_rank)="([^"]*)"')
"""The label that tells data-parallel engines of one page apart: `engine` in vLLM, `dp_rank` in SGLang."""


def wanted_lines(names: Mapping[str, str]) -> re.Pattern[bytes]:
    """Finds sample lines of these metrics, with or without `_total`; `_created` and longer names do not match."""
    prefix, rest = _common(sorted(names))
    alternatives = "|".join(re.escape(name) for name in rest)
    return re.compile(rf"\n{re.escape(prefix)}(?:{alternatives})(?:_total)?[{{ ][^\n]*".encode())


def _common(names: list[str]) -> tuple[str, list[str]]:
    """Their common beginning and the rests: a literal beginning lets the search skip other lines fast."""
    first, last = names[0], names[-1]
    n = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:n], [name[n:] for name in names]


def read_page(page: bytes, names: Mapping[str, str], pattern: re.Pattern[bytes] | None = None) -> dict[str, float]:
    """Our field -> value, summed over labels (shares: the mean). What the page lacks is absent, which is not zero.

    Lines of equal name and labels are one series: the last of them counts.
    """
    return together([values for _, values in _read(page, names, pattern, apart=False)])


def read_apart(
    page: bytes, names: Mapping[str, str], pattern: re.Pattern[bytes] | None = None
) -> dict[str, dict[str, float]]:
    """The same for each data-parallel engine of the page, by its label; `""` holds what has no such label."""
    return {label: together([values]) for label, values in _read(page, names, pattern, apart=True)}


def together(found: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Values of each field made one: the sum, of shares the mean."""
    every: dict[str, list[float]] = {}
    for values in found:
        for field, some in values.items():
            every.setdefault(field, []).extend(some)
    return {field: sum(v) / len(v) if field in MEANS else sum(v) for field, v in every.items()}


def _read(
    page: bytes, names: Mapping[str, str], pattern: re.Pattern[bytes] | None, *, apart: bool
) -> list[tuple[str, dict[str, list[float]]]]:
    series: dict[tuple[bytes, ...], tuple[bytes, float]] = {}
    for line in (pattern or wanted_lines(names)).findall(b"\n" + page):
        head, value = _sample(line)
        metric, _, labels = head.partition(b"{")
        parts = sorted(labels.replace(b", ", b",").strip(b", ").split(b",")) if labels else ()
        series[metric, *filter(None, parts)] = head, value  # one that is told twice is one, in whatever order of labels
    found: dict[str, dict[str, list[float]]] = {}
    for line, value in series.values():
        name = line.partition(b"{")[0].decode()
        fields = names.get(name) or names.get(name.removesuffix("_total"))
        if fields is not None:
            label = REPLICA.search(line) if apart else None
            of = found.setdefault(label[1].decode("utf-8", "replace") if label else "", {})
            for field in fields.split(" "):
                of.setdefault(field, []).append(value)
    return list(found.items())


def _sample(line: bytes) -> tuple[bytes, float]:
    """Name with labels, and value of `name{labels} value [timestamp]`. Labels may hold anything, the value no brace."""
    head, brace, tail = line.strip().rpartition(b"}")
    if not brace:
        head, _, tail = tail.partition(b" ")
    return head, float(tail.split()[0])


class Scraper:
    """The metrics pages of one target: its own, or those of its replicas."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        names: Mapping[str, str],
        *,
        path: str = "/metrics",
        urls: Sequence[str] = (),
    ) -> None:
        """`urls` are read in place of `path` at the target."""
        self._session = session
        self._urls = tuple(urls) or (f"{root_of(base_url)}{path}",)
        self._names = dict(names)
        self._pattern = wanted_lines(names) if names else None
        self.failed: str | None = None
        """What went wrong with the last scrape."""
        self._told = False
        self._counters = Counters()
        self._restarts = 0
        """Of the engine, as far as they were told."""
        self.parse_ms = 0.0
        """Time that the last pages held the event loop for reading them."""

    async def once(self, t: int) -> EngineSample | None:
        """Fetch and read the pages; `t` (ns since the run's origin) stamps the sample. None when one of them failed.

        A sum that lacks a replica would look like one whose replica is idle.
        """
        if self._pattern is None:
            return None
        began = perf_counter_ns()
        try:
            answers = await asyncio.gather(*(_page(self._session, url, LONGEST_S) for url in self._urls))
        except EngineError as error:
            self.failed = str(error)
            return None
        for url, answer in zip(self._urls, answers, strict=True):
            if answer.status != 200:
                self.failed = f"{url}: {answer.complaint()}"
                return None
        got = perf_counter_ns()
        replicas: dict[str, dict[str, float]] = {}
        for url, answer in zip(self._urls, answers, strict=True):
            try:
                read = read_apart(answer.body, self._names, self._pattern)
            except (ValueError, IndexError) as error:
                self.failed = f"{url}: not a metrics page ({error})"
                return None
            name = url.partition("://")[2].removesuffix("/metrics")
            labels = [label for label in read if label]
            if len(labels) > 1:
                replicas |= {f"{name} {label}".rstrip(): values for label, values in read.items()}
            else:
                replicas[name] = together([{f: [v] for f, v in values.items()} for values in read.values()])
        values = _told(together([{field: [value] for field, value in one.items()} for one in replicas.values()]))
        done = perf_counter_ns()
        self.parse_ms = (done - got) / 1e6
        self.failed, self._told = None, False
        sample = EngineSample(t=t, scrape_ms=round((done - began) / 1e6, 3))
        apart = {name: _told(one) for name, one in replicas.items()} if len(replicas) > 1 else None
        sample = msgspec.structs.replace(sample, **values, apart=apart)
        self._counters.add(sample)
        return sample

    def news(self) -> str | None:
        """One sentence when scrapes have begun to fail, or the engine anew; None when there is nothing new."""
        if len(restarts := self._counters.restarts) > self._restarts:
            self._restarts = len(restarts)
            when = f"{restarts[-1] / 1e9:.1f} s"
            return f"the engine's counters began anew at {when}: it was restarted, and what it did just before is lost"
        if self.failed is None or self._told:
            return None
        self._told = True
        return (
            f"the engine's metrics do not come ({self.failed.rstrip('.')}): the run goes on, what they say is missing"
        )


def _told(values: Mapping[str, float]) -> dict[str, float]:
    """Those that are figures: NaN, infinite and negative ones are as good as not told, and no event may hold them."""
    return {field: value for field, value in values.items() if 0 <= value <= MOST}


async def _page(session: aiohttp.ClientSession, url: str, longest_s: float) -> Answer:
    try:
        async with asyncio.timeout(longest_s) as limit:
            return await fetch(session, url)
    except TimeoutError:
        if not limit.expired():
            raise
        raise EngineError(f"{url}: no whole answer in {longest_s:g} s") from None


async def names_on(session: aiohttp.ClientSession, urls: Sequence[str]) -> dict[str, str]:
    """The metric names of the engines whose pages these are; EngineError for a page of no engine that is known."""
    names: dict[str, str] = {}
    for url in urls:
        answer = await _page(session, url, METRICS_S)
        if answer.status != 200:
            raise EngineError(f"--metrics-url {url}: {answer.complaint()}; give the URL of a metrics page")
        page = b"\n" + answer.body
        found = [a.metric_names for a in ADAPTERS if any(b"\n" + p.encode() in page for p in a.prefixes)]
        if not found:
            raise EngineError(f"--metrics-url {url}: no metrics of an engine that is known; see `windtunnel engines`")
        names |= found[0]
    return names
