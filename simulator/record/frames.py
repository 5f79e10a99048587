"""What the proxy's process and the writer's say to each other, through `run.pipe`."""

from msgspec import Struct

from windtunnel.agents.recorder.told import Arrived, Closed, Opened


class Begin(Struct, frozen=True, tag=True):
    """To the writer, once."""

    out: bytes | None
    """A path may hold bytes that are no text."""
    name: str
    """Of the recording: sessions without an id of their own are named after it."""
    client: str
    """The agent where the wire says none."""
    upstream: str
    argv: tuple[str, ...]
    origin_ns: int
    wall_clock: float
    """Unix time at the origin."""
    proxy_pid: int


class End(Struct, frozen=True, tag=True):
    """To the writer: the recording is over."""

    failed: bool = False
    """It did not come to be: where no call was recorded, nothing is left of it."""


class Began(Struct, frozen=True, tag=True):
    """From the writer, once: the folder is there."""

    folder: bytes


class Refused(Struct, frozen=True, tag=True):
    """From the writer instead: why there is no folder, in one sentence."""

    reason: str


class Broke(Struct, frozen=True, tag=True):
    """From the writer, in the middle: it can write no more. What was written stays."""

    reason: str
    """The beginning of a sentence."""
    calls: int
    """Recorded until then, or known to have failed."""
    folder: bytes = b""
    """Where it lies by now; empty where that is nowhere."""


class Done(Struct, frozen=True, tag=True):
    """From the writer, last."""

    sessions: int
    calls: int
    failed: int
    """Calls beside these."""
    aborted: int = 0
    """Calls among those recorded that their client gave up."""
    why: str = ""
    """What most of those that failed did so for: its name, and what the server said."""
    alike: int = 0
    """How many did."""


ToWriter = Begin | Opened | Arrived | Closed | End
ToProxy = Began | Refused | Broke | Done
