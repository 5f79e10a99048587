"""History for the graphs in bounded memory.

Amounts are stored for each step of time; when there are too many steps, neighbours are added up and the step doubles,
so that an hour costs as much memory as a minute and nothing is forgotten.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise

NS = 1_000_000_000


class Series:
    """Named columns over a common time axis. A gauge is stored as its integral: value times seconds."""

    def __init__(self, names: Sequence[str], *, step_ns: int = NS, limit: int = 1200) -> None:
        self.step_ns = step_ns
        self.end_ns = 0
        """Time up to which something was added."""
        self._limit = limit
        self._room_ns = 0
        self._columns = {name: array("d") for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @property
    def step_s(self) -> float:
        return self.step_ns / NS

    def add(self, name: str, start: int, end: int, amount: float) -> None:
        """Spreads `amount` evenly over [start, end), ns since the origin."""
        if end >= self._room_ns or start >= self._room_ns:
            self._reach(max(start, end))
        self.end_ns = max(self.end_ns, end)
        column, step = self._columns[name], self.step_ns
        first, last = start // step if start > 0 else 0, end // step if end > 0 else 0
        if first == last or end <= start:
            column[last] += amount
            return
        per_ns = amount / (end - start)
        for index in range(first, last + 1):
            low, high = max(start, index * step), min(end, (index + 1) * step)
            column[index] += per_ns * (high - low)

    def rates(self, name: str) -> list[float]:
        """Per second, one value a step; the last one is of the time it has reached and as much before it as makes a
        step of it: a prompt counts whole at its first token, and would be a spike in a short time.
        """
        column = self._columns[name]
        if not column:
            return []
        out = [amount / self.step_s for amount in column]
        reached = min(self.step_ns, self.end_ns - (len(column) - 1) * self.step_ns)
        if len(column) > 1:
            out[-1] += out[-2] * (1 - reached / self.step_ns)
        else:
            out[-1] = column[-1] * NS / reached if reached > self.step_ns // 4 else 0.0
        return out

    def amounts(self, name: str, edges: Sequence[float]) -> list[float]:
        """What was added between each edge (ns, ascending) and the next, a step's amount spread evenly over it."""
        column, step = self._columns[name], self.step_ns
        out = []
        for start, end in pairwise(edges):
            first, last = max(0, int(start // step)), min(len(column) - 1, int(end // step))
            parts = (
                column[i] * max(0.0, min(end, (i + 1) * step) - max(start, i * step)) for i in range(first, last + 1)
            )
            out.append(sum(parts) / step)
        return out

    def shares(self, part: str, whole: str) -> list[float | None]:
        """`part` over `whole`, one value a step; None where there was nothing."""
        pairs = zip(self._columns[part], self._columns[whole], strict=True)
        return [above / below if below > 0 else None for above, below in pairs]

    def _reach(self, t: int) -> None:
        """Makes room for time `t`."""
        while t // self.step_ns >= self._limit:
            self._halve()
        missing = t // self.step_ns + 1 - len(self)
        if missing > 0:
            for column in self._columns.values():
                column.extend([0.0] * missing)
        self._room_ns = len(self) * self.step_ns

    def _halve(self) -> None:
        self.step_ns *= 2
        for name, column in self._columns.items():
            if len(column) % 2:
                column.append(0.0)
            self._columns[name] = array("d", [a + b for a, b in zip(column[::2], column[1::2], strict=True)])
