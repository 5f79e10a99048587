"""What a run's traffic costs an hour: on the machine that carried it, and at an API's list price.

A saving is no constant. It hangs on the API that is compared, on how much of the prompts comes from a cache, and on how
many of its hours the machine is in use: all three are told.
"""

import math
import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.results.summary_model import Summary
from windtunnel.traces.errors import UsageError

HOUR_S = 3600
HOURS_A_YEAR = 8766
MILLION = 1e6


class Price(Struct, frozen=True, kw_only=True):
    """Of an API, $ per million tokens."""

    name: str
    input: float
    cached: float | None = None
    """Of prompt tokens read from its cache; None: they cost what all others do."""
    output: float
    write: float = 1.0
    """Prompt tokens that go into its cache cost so many times `input`."""
    same: tuple[str, ...] = ()
    """Under these names engines serve the same model."""
    note: str | None = None

    def of(self, prompt: float, cached: float, output: float) -> float:
        """$ for so many tokens with its cache in use: `cached` of the prompt's from it, the rest written to it."""
        kept = self.input if self.cached is None else self.cached
        fresh = self.input * (self.write if self.cached is not None else 1.0)
        return ((prompt - cached) * fresh + cached * kept + output * self.output) / MILLION

    def uncached(self, prompt: float, output: float) -> float:
        """$ without its cache: nothing is read from it, nor written to it."""
        return (prompt * self.input + output * self.output) / MILLION


class Prices(Struct, frozen=True):
    as_of: str
    source: str
    api: tuple[Price, ...]


class Traffic(Struct, frozen=True):
    """Tokens of an hour like the run's window; of a recording: all of its tokens."""

    prompt: float
    cached: float | None
    """Of these, from the engine's cache; None: the server did not tell."""
    cacheable: float | None
    """What an endless cache would have had of them."""
    output: float
    sessions: float | None
    """Session equivalents."""
    agents: int


class AtApi(Struct, frozen=True, kw_only=True):
    """The same traffic at an API, $."""

    price: Price
    same_model: bool
    as_cached_here: float | None
    """None: what came from the cache is unknown, and would count."""
    all_that_can_be: float | None
    nothing_cached: float
    pays_from: float | None
    """Share of its hours that the machine must carry this load to be no dearer than the least of these; None without
    its price, and where no hits are known."""

    @property
    def least(self) -> float | None:
        """None where neither what was cached is known, nor what could be."""
        known = [price for price in (self.as_cached_here, self.all_that_can_be) if price is not None]
        return min(self.nothing_cached, *known) if known else None


def shipped() -> Prices:
    """Those that come with the program."""
    told = files("windtunnel.simulator.results").joinpath("prices.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(told), Prices)


_OWN = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<input>[\d.]+)/(?:(?P<cached>[\d.]+)|-)/(?P<output>[\d.]+)")


def chosen(names: Sequence[str], known: Prices) -> tuple[Price, ...]:
    """The prices meant by `--api`: names, or `[NAME=]IN/CACHED/OUT` with `-` for no price of cached ones; none: all."""
    found = []
    by_name = {price.name: price for price in known.api}
    for name in names:
        own = _OWN.fullmatch(name)
        if own is not None:
            try:
                cached = None if own["cached"] is None else float(own["cached"])
                price = Price(
                    name=own["name"] or "yours", input=float(own["input"]), cached=cached, output=float(own["output"])
                )
                if not all(map(math.isfinite, (price.input, price.output, price.cached or 0.0))):
                    raise _unreadable(name, by_name)
            except ValueError:
                raise _unreadable(name, by_name) from None
            found.append(price)
        elif name in by_name:
            found.append(by_name[name])
        else:
            raise _unreadable(name, by_name)
    return tuple(found) or known.api


def _unreadable(name: str, known: dict[str, Any]) -> UsageError:
    return UsageError(
        f"--api {name!r} is no price: give [NAME=]IN/CACHED/OUT in $ per million tokens, such as 2/0.10/10, or one of "
        f"{', '.join(known)}"
    )


def machine(
    rent: float | None, buy: float | None, years: float, watts: float | None, kwh: float | None
) -> float | None:
    """$ an hour of the whole machine: rented, or bought, written off over `years` and fed with electricity."""
    if rent is not None and (buy is not None or watts is not None or kwh is not None):
        raise UsageError("--gpu-hour is all that a rented machine costs: leave out --buy, --watts and --kwh")
    if (watts is None) != (kwh is None):
        raise UsageError("electricity takes both: --watts of the whole machine and --kwh, $ for a kilowatt hour")
    if buy is None and watts is None:
        return rent
    return (buy or 0.0) / (years * HOURS_A_YEAR) + (watts or 0.0) / 1000 * (kwh or 0.0)


def traffic(summary: Summary) -> Traffic:
    """UsageError where a run has no window, or its server did not tell its tokens."""
    if summary.kind == "recording":
        prompt, output = summary.prompt_tokens, summary.output_tokens
        if prompt is None or output is None:
            raise UsageError(f"{summary.run_dir}: the recording holds no token counts, so it has no price")
        told, known = summary.cached_tokens, summary.cache_known_prompt_tokens
        cached = told * prompt / known if told is not None and known else told
        return Traffic(prompt, cached, None, output, None, summary.agents)
    if not summary.window_s or summary.prompt_tokens_per_s is None or summary.output_tokens_per_s is None:
        raise UsageError(f"{summary.run_dir} has no measured window with token counts, so no hour of it can be priced")
    prompt_h = summary.prompt_tokens_per_s * HOUR_S
    hit, possible = summary.cache_hit_ratio, summary.expected_cache_hit_ratio
    return Traffic(
        prompt_h,
        None if hit is None else prompt_h * hit,
        None if possible is None else prompt_h * min(possible, 1.0),
        summary.output_tokens_per_s * HOUR_S,
        summary.session_equivalents_per_hour,
        summary.agents,
    )


def at_apis(load: Traffic, prices: Sequence[Price], model: str | None, hour: float | None) -> list[AtApi]:
    """Dearest first. `hour`: $ of the machine's hour."""
    mine = None if model is None else model.rstrip("/").rpartition("/")[2].lower()
    found = []
    for price in prices:
        none = price.uncached(load.prompt, load.output)
        cached = 0.0 if price.cached is None else load.cached
        here = None if cached is None else price.of(load.prompt, cached, load.output)
        most = None
        if load.cacheable is not None:
            most = price.of(load.prompt, max(load.cacheable, load.cached or 0.0), load.output)
        one = AtApi(
            price=price,
            same_model=mine in price.same,
            as_cached_here=here,
            all_that_can_be=most,
            nothing_cached=none,
            pays_from=None,
        )
        share = None if hour is None or not one.least else hour / one.least
        found.append(msgspec.structs.replace(one, pays_from=share))
    return sorted(found, key=lambda one: -one.nothing_cached if load.cached is None else -(one.as_cached_here or 0.0))
