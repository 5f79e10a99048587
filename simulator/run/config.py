"""What a run was asked to do. Every dial stands here and is written to run.json as it is."""

import math
import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from windtunnel.agents.policy import Dial, Policy
from windtunnel.traces.errors import UsageError

Api = Literal["auto", "chat", "tokens"]
Fit = Literal["filter", "scale", "compact"]
Isolate = Literal["auto", "reset", "salt", "none"]

DEFAULT_DURATION_S = 300.0
"""Measured window when no end of the run is given."""
DEFAULT_WARMUP_CALLS = 2
"""Per lane: the first call prefills the whole history cold, the second shows that the cache holds it."""
MOST_AGENTS = 10_000
"""More than one client process can drive; a mistyped number must not fill the memory."""
MOST_WORKERS = 64
LONGEST_S = 1e8
"""Three years: longer times are typing errors, and far longer ones break the arithmetic in ns."""
LARGEST_CONTEXT = 1 << 30


class Warmup(Struct, frozen=True):
    """How long the run goes on before its window opens: until every lane ended `calls` calls, or `seconds`."""

    calls: int | None = DEFAULT_WARMUP_CALLS
    seconds: float | None = None


class RunConfig(Struct, frozen=True, kw_only=True):
    traces: tuple[str, ...] = ("library",)
    agents: int = 32
    target: str | None = None
    engine: str | None = None
    """Command with {port}; None with no target means the embedded emulator."""
    model: str | None = None
    api: Api = "auto"
    seed: int = 0
    duration_s: float | None = None
    sessions: int | None = None
    calls: int | None = None
    ramp_s: float = 5.0
    """Lanes start evenly over this time, so that the herd at t = 0 is no burst."""
    warmup: Warmup = Warmup()
    start: Literal["fresh", "spread"] = "spread"
    pace: Literal["busy", "typical", "recorded", "none"] = "busy"
    tool_time: Dial | None = None
    human_time: Dial | None = None
    per_tool: dict[str, Dial] = {}
    history: Literal["auto", "recorded", "live"] = "auto"
    """Answers in later prompts; `auto`: recorded ones as chat messages, generated ones as token ids."""
    lengths: Literal["recorded", "natural"] = "recorded"
    """Output lengths: pinned to the recording, or where the model ends by itself (at the recorded length at most)."""
    max_context: int | None = None
    fit: Fit = "filter"
    isolate: Isolate = "auto"
    rate: float | None = None
    """Requests per second, at most."""
    metrics_urls: tuple[str, ...] = ()
    """Pages of metrics in place of the target's own: of the replicas behind it."""
    workers: int = 1
    """Processes that share the streams; 1: this one reads them itself."""
    max_failures: float = 0.1
    """Share of sessions; above it the run failed."""
    slo: str | None = None
    out: str | None = None
    text: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    """Extra request headers; values are not written to run.json."""
    virtual: bool = False
    """Sessions and emulator in one process, on the virtual clock."""

    def checked(self) -> "RunConfig":
        """The config with its default end filled in; raises UsageError for values that cannot work."""
        if self.agents < 1:
            raise UsageError(f"--agents {self.agents}: at least one agent is needed")
        if self.agents > MOST_AGENTS:
            raise UsageError(f"--agents {self.agents}: at most {MOST_AGENTS} run in one client, give fewer")
        if not 1 <= self.workers <= MOST_WORKERS:
            raise UsageError(f"--workers {self.workers}: give 1 to {MOST_WORKERS} client processes")
        if self.target and self.engine:
            raise UsageError("--target and --engine exclude each other: give the URL of a running server or a command")
        if self.virtual and self.target:
            raise UsageError("--virtual and --target exclude each other: a virtual run has its own emulator")
        if self.virtual and self.workers > 1:
            raise UsageError("--virtual and --workers exclude each other: a virtual run is one process")
        if self.virtual and self.metrics_urls:
            raise UsageError("--virtual and --metrics-url exclude each other: a virtual run has no pages to read")
        for url in self.metrics_urls:
            if not re.match(r"https?://[^/\s]+", url):
                raise UsageError(f"--metrics-url {url}: give a whole URL, such as http://host:8000/metrics")
        if len(set(self.metrics_urls)) < len(self.metrics_urls):
            raise UsageError("--metrics-url: one URL is named twice and would be counted twice; name each once")
        if self.out is not None and not self.out.strip():
            raise UsageError("--out: it is empty, give a folder or leave it out for a new one in ./runs")
        if self.engine is not None and not self.engine.strip():
            raise UsageError("--engine: it is empty, give a command or leave it out for the emulator")
        for flag, value in (("--duration", self.duration_s), ("--sessions", self.sessions), ("--calls", self.calls)):
            if value is not None and value <= 0:
                raise UsageError(f"{flag} {value:g}: must be greater than zero")
        if sum(end is not None for end in (self.duration_s, self.sessions, self.calls)) > 1:
            raise UsageError("--duration, --sessions and --calls exclude each other: give one end of the run")
        if self.rate is not None and not (self.rate > 0 and math.isfinite(self.rate)):
            raise UsageError(f"--rate {self.rate:g}: must be greater than zero (leave it out for no limit)")
        if not self.ramp_s >= 0:
            raise UsageError(f"--ramp {self.ramp_s:g}: must not be negative")
        times = (("--ramp", self.ramp_s), ("--duration", self.duration_s), ("--warmup", self.warmup.seconds))
        for flag, seconds in times:
            if seconds is not None and seconds > LONGEST_S:
                raise UsageError(f"{flag} {seconds:g}: at most {LONGEST_S:g} s, give a shorter time")
        if self.max_context is not None and self.max_context < 64:
            raise UsageError(f"--max-context {self.max_context}: at least 64 tokens are needed")
        if self.max_context is not None and self.max_context > LARGEST_CONTEXT:
            raise UsageError(f"--max-context {self.max_context}: at most {LARGEST_CONTEXT} tokens, give fewer")
        if self.duration_s is None and self.sessions is None and self.calls is None:
            return msgspec.structs.replace(self, duration_s=DEFAULT_DURATION_S)
        return self

    @property
    def keeps_text(self) -> bool:
        """Generated text is needed: it is written down, or it goes back into the prompts."""
        return self.text or self.history == "live"

    def policy(self) -> Policy:
        return Policy(
            pace=self.pace,
            tool_time=self.tool_time,
            human_time=self.human_time,
            per_tool=self.per_tool,
            start=self.start,
            seed=self.seed,
        )

    def as_json(self) -> dict[str, Any]:
        """For run.json; header values are left out because they may hold credentials."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        data["headers"] = [name for name, _ in self.headers]
        return data


def parse_count(text: str, flag: str) -> int:
    """`4096`, `4k` (x 1024), `128k`; UsageError names the flag."""
    match = re.fullmatch(r"(\d{1,15})([kK]?)", text.strip())
    if not match:
        raise UsageError(f"{flag} {text[:100]}: expected a number of tokens such as 32768 or 32k")
    return int(match[1]) * (1024 if match[2] else 1)


def parse_warmup(text: str) -> Warmup:
    """`3` calls per lane, or `30s`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)(s?)", text.strip())
    if not match or (not match[2] and "." in match[1]):
        raise UsageError(f"--warmup {text[:100]}: expected calls per agent such as 3, or a time such as 30s")
    return Warmup(calls=None, seconds=float(match[1])) if match[2] else Warmup(calls=int(match[1]))


def parse_share(text: str, flag: str) -> float:
    """`10%` or `0.1`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{flag} {text[:100]}: expected a share such as 10% or 0.1")
    return share


def parse_seconds(text: str, flag: str) -> float:
    """`90`, `90s`, `5m`, `1h`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)(s|m|h|)", text.strip())
    if not match:
        raise UsageError(f"{flag} {text[:100]}: expected a time such as 90, 90s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
