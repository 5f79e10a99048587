"""The vocabulary of a run: one JSON object per line of `events.jsonl`.

Every event has `type`, `t` (integer ns since the run's origin) and `seq`. Readers skip unknown types and fields. This
module is vocabulary only; what the numbers mean is said in `simulator.results`.
"""

from typing import Literal

from msgspec import Struct

AgentState = Literal["queue", "prefill", "decode", "tool", "wait", "done", "failed", "cut", "idle"]
PhaseName = Literal["starting", "preparing", "warmup", "steady", "draining", "done"]
SessionStatus = Literal["completed", "failed", "cut"]
RunStatus = Literal["completed", "interrupted", "failed"]


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    t: int
    """ns since the origin (`run.json: perf_counter_origin_ns`)."""
    seq: int = 0


class RunStart(Event, frozen=True, tag="run_start"):
    agents: int
    wall_clock: float
    """Unix time at `t`."""


class Phase(Event, frozen=True, tag="phase"):
    """The run entered a phase. `steady` opens the measured window; the next phase closes it."""

    phase: PhaseName
    note: str | None = None


class SessionStart(Event, frozen=True, tag="session_start"):
    agent: int
    """Lane number, from 0."""
    session: str
    """Unique in the run."""
    trace: str
    title: str
    copy: int
    """How many sessions of this trace were started before in this run; its tag differs for each."""
    calls_total: int
    """Calls this replay will make, all threads (those after the start point)."""
    turns_total: int
    """Calls of the main thread in the whole recording."""
    first_turn: int = 0
    """Main-thread turn the replay starts at; > 0 with `--start spread`."""
    work: float = 1.0
    """Share of the whole session's recorded tokens (prompt + completion) that this replay covers."""


class SessionEnd(Event, frozen=True, tag="session_end"):
    agent: int
    session: str
    status: SessionStatus
    reason: str | None = None
    calls_done: int = 0
    work_done: float = 0.0
    """Share of the whole session's recorded tokens done, to be summed for session equivalents."""


class WaitStart(Event, frozen=True, tag="wait_start"):
    agent: int
    session: str
    thread: int
    call: int
    """Call that comes after the wait."""
    cause: Literal["tool", "human", "client", "subagent", "start", "rate"]
    seconds: float | None
    """Planned length; None for a join."""
    recorded_s: float | None = None
    label: str = ""
    """Tool names, for the screen."""
    filled: bool = False
    """The recording did not say how long: that tool's usual time (or the human's) was taken."""


class WaitEnd(Event, frozen=True, tag="wait_end"):
    agent: int
    session: str
    thread: int
    call: int
    cause: str


class CallStart(Event, frozen=True, tag="call_start"):
    agent: int
    session: str
    thread: int
    call: int
    """Call id in the trace."""
    turn: int
    """Number of this call in its thread, from 1."""
    turns: int
    """Calls of its thread."""
    request_id: str
    t_intended: int
    expected_prompt_tokens: int
    expected_cached_tokens: int | None = None
    pinned_tokens: int = 0


class Chunks(Struct, frozen=True, gc=False):
    """Arrivals of output chunks: `us[0]` after `t_sent`, each next one after the one before (microseconds).

    In the process of a virtual run they may be arrays of the module `array`, a tenth as large as tuples.
    """

    us: tuple[int, ...] = ()
    n: tuple[int, ...] = ()
    """Tokens in each chunk; their sum is `completion_tokens` where token ids or usage gave it."""


class CallEnd(Event, frozen=True, tag="call_end"):
    """A request ended, one way or another. Times are ns since the origin; None where it never happened."""

    agent: int
    session: str
    thread: int
    call: int
    request_id: str
    t_intended: int
    """When the session wanted it sent; the difference to `t_sent` is the client's own delay plus any rate cap."""
    t_sent: int | None = None
    t_first: int | None = None
    """First token of any kind."""
    t_first_visible: int | None = None
    t_first_tool: int | None = None
    t_last: int | None = None
    t_end: int | None = None
    throttled_ns: int = 0
    """Part of `t_sent - t_intended` spent waiting for the request-rate cap."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    expected_prompt_tokens: int = 0
    expected_cached_tokens: int | None = None
    """Longest prefix equal to an earlier prompt of this run, in the engine's match unit, infinite cache."""
    expected_cached_exact: int | None = None
    """The same without rounding to the match unit."""
    reprefilled_tokens: int | None = None
    """Generated tokens of the previous call that this prompt carries as other bytes."""
    queued_s: float | None = None
    """In the engine's queue, where the server told it."""
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    pinned_tokens: int = 0
    finish: str | None = None
    failure: str | None = None
    """Name of the failure, or None. `cut` is not a failure: see `cut`."""
    detail: str | None = None
    """What the server said, shortened."""
    cut: bool = False
    warmup: bool = False
    kind: str = "turn"
    recorded_cached_tokens: int | None = None
    recorded_latency_s: float | None = None
    chunks: Chunks = Chunks()


class AgentProgress(Struct, frozen=True, array_like=True, gc=False):
    """One agent with a request in flight, as of a progress event."""

    agent: int
    thread: int
    call: int
    state: AgentState
    tokens: int
    """Output tokens so far of this call."""
    tail: str = ""
    """Last characters generated; empty with `--no-text`."""
    exact: bool = True
    """False: `tokens` is an estimate and shown with ~, because the server tells no counts or not all was parsed."""


class Progress(Event, frozen=True, tag="progress"):
    """Every 250 ms, for all agents together."""

    output_tokens: int
    """Cumulative output tokens of the run so far, by arrival."""
    prompt_tokens: int
    """Cumulative prompt tokens of calls whose first token arrived."""
    in_flight: int
    in_tool: int
    waiting: int
    agents: tuple[AgentProgress, ...] = ()
    parsed: bool = True
    """False when the count of any agent is an estimate; then `output_tokens` is one, too, and shown with ~."""


class Heartbeat(Event, frozen=True, tag="heartbeat"):
    """Each second: tells a dead run from a quiet one."""


class EngineSample(Event, frozen=True, tag="engine_sample"):
    """One scrape. Counters are the engine's own totals; None where the engine does not say."""

    scrape_ms: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """0-1."""
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    spec_drafts: float | None = None
    spec_draft_tokens: float | None = None
    spec_accepted: float | None = None
    requests_finished: float | None = None
    cache_hit_rate: float | None = None
    """0-1, a gauge of engines that have one; it is no ratio of the counters above."""
    spec_accept_length: float | None = None
    """Tokens an accepted step gives, a gauge as above."""
    apart: dict[str, dict[str, float]] | None = None
    """The fields above replica by replica, where several were read; by URL without its scheme, with the replica's
    label where a page has several."""
    step_s: float | None = None
    """Of an emulator: the length of all steps, as modelled."""
    behind_s: float | None = None
    """Of an emulator: how much later than that their tokens went out, summed over the steps."""


class GpuSample(Event, frozen=True, tag="gpu_sample"):
    index: int
    utilisation: float | None = None
    """0-1."""
    memory_used: int | None = None
    memory_total: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    other_processes: int | None = None


class ClientSample(Event, frozen=True, tag="client_sample"):
    """The client watching itself, each second."""

    lag_us: tuple[int, ...]
    """Event-loop lateness of each probe since the last sample (one probe per 20 ms)."""
    dispatch_us: tuple[int, ...] = ()
    """Intended to the first byte written, rate cap excluded, of the calls that ended since the last sample."""
    cpu: float | None = None
    """Share of one core."""
    rss: int | None = None
    live: int = 0
    """Agents that have a session; `RunStart.agents` is how many were wanted."""
    blocked: int | None = None
    """Most streams at one time whose request the server took slower than it was written, since the last sample."""


class Note(Event, frozen=True, tag="note"):
    """Something worth telling: a failed scrape, an engine restart, a reason why the result is not valid."""

    level: Literal["info", "warning", "error"]
    text: str
    reason: str | None = None
    """An invalid reason's name, when this makes the run invalid."""


class RunEnd(Event, frozen=True, tag="run_end"):
    status: RunStatus
    reason: str | None = None


AnyEvent = (
    RunStart
    | Phase
    | SessionStart
    | SessionEnd
    | WaitStart
    | WaitEnd
    | CallStart
    | CallEnd
    | Progress
    | Heartbeat
    | EngineSample
    | GpuSample
    | ClientSample
    | Note
    | RunEnd
)
"""Everything `events.jsonl` may hold, as a tagged union for decoding."""
