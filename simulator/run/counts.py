"""Which live counts of output tokens are exact, and which are shown with `~`.

A call's count is exact when the server told it (token ids in the chunks, or usage with each of them) and everything of
the stream that had arrived when progress began to look was parsed. What arrives during the look, some milliseconds, is
of the next one. Not exact are therefore counts of chunks, for a chunk may hold any number of tokens; counts of bytes
that were left for later; and those of a client process that did not answer in time.
"""

from windtunnel.agents.prompt import Options
from windtunnel.agents.reading import Live
from windtunnel.agents.sse import Parsed
from windtunnel.simulator.run.workers import Flight


class Counts:
    """The streams of a run are alike: how the last one that ended was counted says how those in flight are."""

    def __init__(self, options: Options) -> None:
        dialect = options.dialect
        self.told = dialect.continuous_usage or (dialect.token_ids and options.token_ids)
        """The server tells counts as they grow; before a stream has ended, as it was asked to."""

    def ended(self, parsed: Parsed) -> None:
        if parsed.chunk_n:
            self.told = parsed.counted_by in ("token_ids", "usage_deltas")

    def exact(self, reading: Live, since_ns: int) -> bool:
        """Of a look that began at `since_ns`."""
        if isinstance(reading, Flight) and reading.late:
            return False
        left = reading.raw.pieces
        return self.told and not (left and left[0][0] < since_ns)
