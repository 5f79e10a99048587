"""The largest number of agents that meets a service level: bracket, bisect, repeat at the edge.

Whether a number passes is partly chance: sessions and their order change with the seed. One seed places the edge; there
the majority of several seeds decides, and the interval goes from the last number up to which no seed was seen to fail
to the last one that any passes. Both ends were tried. A run that tells nothing leaves the word to the other seeds; a
number of which no run tells anything is taken as one that does not pass.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

REPEATS = 3
MOST_AGENTS = 4096


class Reading(Struct, frozen=True, kw_only=True):
    """One run at a number of agents."""

    agents: int
    seed: int
    met: bool
    """The run completed and every condition of the level held."""
    uncounted: str = ""
    """Why it tells nothing about the level; empty where it counts."""
    slo_share: float | None = None
    """Share of calls inside the level."""
    output_tokens_per_s: float | None = None
    kv_usage: float | None = None
    reasons: tuple[str, ...] = ()
    """Why the run is not valid."""
    run: str = ""
    """Its folder."""
    calls_judged: int | None = None
    calls_begun: int | None = None
    calls_unended: int | None = None
    """Of its window, see the summary; None where that does not tell."""


Measure = Callable[[int, int], Awaitable[Reading]]
"""(agents, seed) -> reading."""


class Edge(Struct, frozen=True, kw_only=True):
    agents: int
    """0: not even one meets the level."""
    low: int
    high: int
    capped: bool
    """The level still held at the largest number that may be tried."""
    readings: tuple[Reading, ...]


class Search:
    """Asks for readings, each one once."""

    def __init__(
        self, measure: Measure, *, most: int = MOST_AGENTS, repeats: int = REPEATS, resolution: float = 0.0
    ) -> None:
        """`resolution`: relative distance of the last two numbers at which the search ends; 0 is one agent."""
        self.readings: dict[tuple[int, int], Reading] = {}
        self._measure = measure
        self._most = most
        self._repeats = repeats
        self._resolution = resolution

    async def find(self, first: int = 8) -> Edge:
        """`first`: where to begin, the nearer the cheaper."""
        low, high = await self._bracket(min(max(1, first), self._most))
        return await self.again(*await self._bisect(low, high, repeats=1))

    async def again(self, low: int, high: int | None) -> Edge:
        """Where the edge is now that lay between `low` and `high` (None: above all that may be tried) before."""
        low, high = await self._settle(low, high)
        least = await self._none_fails(low)
        if high is None:
            return self._edge(low, least, low, capped=True)
        return self._edge(low, least, await self._any_passes(low, high), capped=False)

    def _edge(self, agents: int, low: int, high: int, *, capped: bool) -> Edge:
        readings = tuple(self.readings[key] for key in sorted(self.readings))
        return Edge(agents=agents, low=low, high=max(high, agents), capped=capped, readings=readings)

    async def _passes(self, agents: int, repeats: int) -> bool:
        """The majority of seeds whose runs count, one at least; no agents always pass."""
        if agents == 0:
            return True
        told: list[bool] = []
        for seed in range(self._repeats):
            if seed >= repeats and told:
                break
            met = await self._met(agents, seed)
            told += [] if met is None else [met]
        return 2 * sum(told) > len(told)

    async def _met(self, agents: int, seed: int) -> bool | None:
        """None of a run that does not count."""
        if (agents, seed) not in self.readings:
            self.readings[agents, seed] = await self._measure(agents, seed)
        reading = self.readings[agents, seed]
        return None if reading.uncounted else reading.met

    async def _bracket(self, first: int) -> tuple[int, int | None]:
        """A number that passes and one that does not; None where everything up to the most passes."""
        if await self._passes(first, 1):
            low = first
            while low < self._most:
                high = min(2 * low, self._most)
                if not await self._passes(high, 1):
                    return low, high
                low = high
            return low, None
        high = first
        while not await self._passes(high // 2, 1):
            high //= 2
        return high // 2, high

    async def _bisect(self, low: int, high: int | None, *, repeats: int) -> tuple[int, int | None]:
        while high is not None and high - low > self._near(low):
            middle = (low + high) // 2
            if await self._passes(middle, repeats):
                low = middle
            else:
                high = middle
        return low, high

    async def _settle(self, low: int, high: int | None) -> tuple[int, int | None]:
        """The edge at which the majority of seeds turns: outwards from where one seed saw it, then bisected again."""
        step = self._near(low)
        while not await self._passes(low, self._repeats):
            low, high = max(0, low - step), low
            step *= 2
        step = self._near(low)
        while high is not None and await self._passes(high, self._repeats):
            if high >= self._most:
                return high, None
            low, high = high, min(self._most, high + step)
            step *= 2
        return await self._bisect(low, high, repeats=self._repeats)

    async def _none_fails(self, agents: int) -> int:
        """The same, and no seed was seen to fail a smaller number either: more seeds never make it larger."""
        while True:
            agents = await self._all_pass(agents)
            failed = [r.agents for r in self.readings.values() if not r.met and not r.uncounted and r.agents <= agents]
            if not failed:
                return agents
            agents = min(failed) - 1

    async def _all_pass(self, agents: int) -> int:
        """The largest number up to the edge, of those that are tried, that no seed fails; 0 where none is."""
        fails: int | None = None
        step = 1
        while agents > 0 and not await self._all(agents):
            fails, agents, step = agents, max(0, agents - step), 2 * step
        while fails is not None and fails - agents > self._near(agents):
            middle = (agents + fails) // 2
            if await self._all(middle):
                agents = middle
            else:
                fails = middle
        return agents

    async def _any_passes(self, passes: int, agents: int) -> int:
        """The largest number, of those that are tried, that any seed passes; `agents` is the first beyond the edge."""
        step = 1
        while await self._any(agents):
            if agents >= self._most:
                return agents
            passes, agents, step = agents, min(self._most, agents + step), 2 * step
        while agents - passes > self._near(passes):
            middle = (passes + agents) // 2
            if await self._any(middle):
                passes = middle
            else:
                agents = middle
        return max((reading.agents for reading in self.readings.values() if reading.met), default=passes)

    def _near(self, agents: int) -> int:
        """Distance of two numbers between which none is tried."""
        return max(1, int(agents * self._resolution))

    async def _all(self, agents: int) -> bool:
        """Of the seeds whose runs count, one at least."""
        told = not agents
        for seed in range(self._repeats if agents else 0):
            met = await self._met(agents, seed)
            if met is False:
                return False
            told = told or met is not None
        return told

    async def _any(self, agents: int) -> bool:
        for seed in range(self._repeats):
            if await self._met(agents, seed):
                return True
        return False


def curve(readings: Sequence[Reading]) -> list[dict[str, float | bool | None]]:
    """Means over the seeds for each number of agents: the contract's `points`.

    `runs` were made, of which `counted` tell something of the level and `valid` are valid; `not_valid` where these are
    less than half of a number's runs. Calls are those of all its runs together.
    """
    points = []
    for agents in sorted({reading.agents for reading in readings}):
        mine = [reading for reading in readings if reading.agents == agents]
        told = [reading for reading in mine if not reading.uncounted]
        names = ("slo_share", "output_tokens_per_s", "kv_usage")
        means = {name: _mean([getattr(reading, name) for reading in told]) for name in names}
        met, valid = sum(reading.met for reading in mine), sum(not reading.reasons for reading in mine)
        counts = {
            "runs": len(mine),
            "counted": len(told),
            "met": met,
            "valid": valid,
            "not_valid": 2 * valid < len(mine),
        }
        for name in ("calls_judged", "calls_begun", "calls_unended"):
            known = [value for reading in mine if (value := getattr(reading, name)) is not None]
            counts |= {name: sum(known)} if known else {}
        points.append({"agents": agents, **means, **counts})
    return points


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
