"""Reading an engine's metrics page while a run goes on, at almost no cost to the client's event loop.

A page has hundreds to thousands of lines and a run needs a dozen of them: the wanted lines are cut out of the bytes
first and only those are parsed (0.3 ms instead of 10 ms or more).
"""

import re
from collections.abc import Mapping
from time import perf_counter_ns

import aiohttp
import msgspec

from windtunnel.agents.events import EngineSample
from windtunnel.simulator.engines.base import fetch, root_of
from windtunnel.traces.errors import EngineError

MEANS = frozenset({"kv_usage"})
"""Shares: averaged over engines and not summed."""


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
    """Our field -> value, summed over labels (shares: the mean). What the page lacks is absent, which is not zero."""
    found: dict[str, list[float]] = {}
    for line in (pattern or wanted_lines(names)).findall(b"\n" + page):
        name, value = _sample(line)
        field = names.get(name) or names.get(name.removesuffix("_total"))
        if field is not None:
            found.setdefault(field, []).append(value)
    return {field: sum(v) / len(v) if field in MEANS else sum(v) for field, v in found.items()}


def _sample(line: bytes) -> tuple[str, float]:
    """Name and value of `name{labels} value [timestamp]`. Labels may hold anything, the value no brace."""
    head, brace, tail = line.strip().rpartition(b"}")
    if not brace:
        head, _, tail = tail.partition(b" ")
    return head.partition(b"{")[0].decode(), float(tail.split()[0])


class Scraper:
    """One engine's metrics page."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, names: Mapping[str, str]) -> None:
        self._session = session
        self._url = f"{root_of(base_url)}/metrics"
        self._names = dict(names)
        self._pattern = wanted_lines(names) if names else None
        self.failed: str | None = None
        """What went wrong with the last scrape."""
        self.parse_ms = 0.0
        """Time that the last page held the event loop for reading it."""

    async def once(self, t: int) -> EngineSample | None:
        """Fetch and read the page; `t` (ns since the run's origin) stamps the sample. None when that failed."""
        if self._pattern is None:
            return None
        began = perf_counter_ns()
        try:
            answer = await fetch(self._session, self._url)
        except EngineError as error:
            self.failed = str(error)
            return None
        if answer.status != 200:
            self.failed = f"{self._url}: {answer.complaint()}"
            return None
        got = perf_counter_ns()
        try:
            values = read_page(answer.body, self._names, self._pattern)
        except (ValueError, IndexError) as error:
            self.failed = f"{self._url}: not a metrics page ({error})"
            return None
        done = perf_counter_ns()
        self.parse_ms = (done - got) / 1e6
        self.failed = None
        sample = EngineSample(t=t, scrape_ms=round((done - began) / 1e6, 3))
        return msgspec.structs.replace(sample, **values)
