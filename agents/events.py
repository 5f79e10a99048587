"""The vocabulary of a run: one JSON object per line of `events.jsonl`.

Every event has `type`, `t` (integer ns since the run's origin) and `seq`. Readers skip unknown types and fields. This
module is vocabulary only; what the numbers mean is said in `simulator.results`.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

AgentState = Literal["queue", "prefill", "decode", "tool", "wait", "done", "failed", "cut", "idle"]
PhaseName = Literal["starting", "preparing", "warmup", "steady", "draining", "done"]
SessionStatus = Literal["completed", "failed", "cut"]
RunStatus = Literal["completed", "interrupted", "failed"]


MOST_AGENTS = 10_000
"""Lanes are made for every number up to the highest: a damaged one must not fill the memory."""
LONGEST_NS = 45 * 86_400 * 1_000_000_000
"""A run's latest moment: timelines keep ms in 32 bits, which are 49 days."""

# Ranges are checked where lines are decoded, in C: what is out of range is damage, and no figure is made of it.
Lane = Annotated[int, Meta(ge=0, lt=MOST_AGENTS)]
Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
"""A place in a list: of a thread, a call, a device."""
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Tokens, bytes; what a float holds exactly, as sums become shares and rates."""
Time = Annotated[int, Meta(ge=0, le=LONGEST_NS)]
Signed = Annotated[int, Meta(gt=-(1 << 53), lt=1 << 53)]
"""A difference of two clocks."""
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Gauge = Annotated[float, Meta(ge=0, le=1e18)]


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    t: Time
    """ns since the origin (`run.json: perf_counter_origin_ns`)."""
    seq: Count = 0


class RunStart(Event, frozen=True, tag="run_start"):
    agents: Annotated[int, Meta(ge=0, le=MOST_AGENTS)]
    wall_clock: Gauge
    """Unix time at `t`."""


class Phase(Event, frozen=True, tag="phase"):
    """The run entered a phase. `steady` opens the measured window; the next phase closes it."""

    phase: PhaseName
    note: str | None = None


class SessionStart(Event, frozen=True, tag="session_start"):
    agent: Lane
    """Lane number, from 0."""
    session: str
    """Unique in the run."""
    trace: str
    title: str
    copy: Number
    """How many sessions of this trace were started before in this run; its tag differs for each."""
    calls_total: Number
    """Calls this replay will make, all threads (those after the start point)."""
    turns_total: Number
    """Calls of the main thread in the whole recording."""
    first_turn: Number = 0
    """Main-thread turn the replay starts at; > 0 with `--start spread`."""
    work: Gauge = 1.0
    """Share of the whole session's recorded tokens (prompt + completion) that this replay covers."""


class SessionEnd(Event, frozen=True, tag="session_end"):
    agent: Lane
    session: str
    status: SessionStatus
    reason: str | None = None
    calls_done: Number = 0
    work_done: Gauge = 0.0
    """Share of the whole session's recorded tokens done, to be summed for session equivalents."""
    known_t: int | None = None
    """Of a recorded session: until when it is known to have gone on."""


class WaitStart(Event, frozen=True, tag="wait_start"):
    agent: Lane
    session: str
    thread: Number
    call: Number
    """Call that comes after the wait."""
    cause: Literal["tool", "human", "client", "subagent", "start", "rate"]
    seconds: Seconds | None
    """Planned length; None for a join."""
    recorded_s: Seconds | None = None
    label: str = ""
    """Tool names, for the screen."""
    filled: bool = False
    """The recording did not say how long: that tool's usual time (or the human's) was taken."""


class WaitEnd(Event, frozen=True, tag="wait_end"):
    agent: Lane
    session: str
    thread: Number
    call: Number
    cause: str


class CallStart(Event, frozen=True, tag="call_start"):
    agent: Lane
    session: str
    thread: Number
    call: Number
    """Call id in the trace."""
    turn: Number
    """Number of this call in its thread, from 1."""
    turns: Number
    """Calls of its thread."""
    request_id: str
    t_intended: Time
    expected_prompt_tokens: Count
    expected_cached_tokens: Count | None = None
    pinned_tokens: Count = 0


class Chunks(Struct, frozen=True, gc=False):
    """Arrivals of output chunks: `us[0]` after `t_sent`, each next one after the one before (microseconds).

    In the process of a virtual run they may be arrays of the module `array`, a tenth as large as tuples.
    """

    us: tuple[Signed, ...] = ()
    n: tuple[Count, ...] = ()
    """Tokens in each chunk; their sum is `completion_tokens` where token ids or usage gave it."""


class CallEnd(Event, frozen=True, tag="call_end"):
    """A request ended, one way or another. Times are ns since the origin; None where it never happened."""

    agent: Lane
    session: str
    thread: Number
    call: Number
    request_id: str
    t_intended: Time
    """When the session wanted it sent; the difference to `t_sent` is the client's own delay plus any rate cap."""
    t_sent: Time | None = None
    t_first: Time | None = None
    """First token of any kind."""
    t_first_visible: Time | None = None
    t_first_tool: Time | None = None
    t_last: Time | None = None
    t_end: Time | None = None
    throttled_ns: Time = 0
    """Part of `t_sent - t_intended` spent waiting for the request-rate cap."""
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    expected_prompt_tokens: Count = 0
    expected_cached_tokens: Count | None = None
    """Longest prefix equal to an earlier prompt of this run, in the engine's match unit, infinite cache."""
    expected_cached_exact: Count | None = None
    """The same without rounding to the match unit."""
    reprefilled_tokens: Count | None = None
    """Generated tokens of the previous call that this prompt carries as other bytes."""
    queued_s: Seconds | None = None
    """In the engine's queue, where the server told it."""
    prefilled_s: Seconds | None = None
    """From its scheduling to its first token, where the server told it: what neither was is the engine's front."""
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    pinned_tokens: Count = 0
    finish: str | None = None
    failure: str | None = None
    """Name of the failure, or None. `cut` is not a failure: see `cut`."""
    detail: str | None = None
    """What the server said, shortened."""
    cut: bool = False
    warmup: bool = False
    kind: str = "turn"
    recorded_cached_tokens: Count | None = None
    recorded_latency_s: Seconds | None = None
    chunks: Chunks = Chunks()


class AgentProgress(Struct, frozen=True, array_like=True, gc=False):
    """One agent with a request in flight, as of a progress event."""

    agent: Lane
    thread: Number
    call: Number
    state: AgentState
    tokens: Count
    """Output tokens so far of this call."""
    tail: str = ""
    """Last characters generated; empty with `--no-text`."""
    exact: bool = True
    """False: `tokens` is an estimate and shown with ~, because the server tells no counts or not all was parsed."""


class Progress(Event, frozen=True, tag="progress"):
    """Every 250 ms, in a virtual run every second, for all agents together."""

    output_tokens: Count
    """Cumulative output tokens of the run so far, by arrival."""
    prompt_tokens: Count
    """Cumulative prompt tokens of calls whose first token arrived."""
    in_flight: Number
    in_tool: Number
    waiting: Number
    agents: tuple[AgentProgress, ...] = ()
    parsed: bool = True
    """False when the count of any agent is an estimate; then `output_tokens` is one, too, and shown with ~."""


class Heartbeat(Event, frozen=True, tag="heartbeat"):
    """Each second: tells a dead run from a quiet one."""


class EngineSample(Event, frozen=True, tag="engine_sample"):
    """One scrape. Counters are the engine's own totals; None where the engine does not say."""

    scrape_ms: Seconds
    running: Gauge | None = None
    waiting: Gauge | None = None
    kv_usage: Gauge | None = None
    """0-1."""
    preemptions: Gauge | None = None
    prefix_queries: Gauge | None = None
    prefix_hits: Gauge | None = None
    prompt_tokens: Gauge | None = None
    generation_tokens: Gauge | None = None
    spec_drafts: Gauge | None = None
    spec_draft_tokens: Gauge | None = None
    spec_accepted: Gauge | None = None
    requests_finished: Gauge | None = None
    cache_hit_rate: Gauge | None = None
    """0-1, a gauge of engines that have one; it is no ratio of the counters above."""
    spec_accept_length: Gauge | None = None
    """Tokens an accepted step gives, a gauge as above."""
    apart: dict[str, dict[str, float]] | None = None
    """The fields above replica by replica, where several were read; by URL without its scheme, with the replica's
    label where a page has several."""
    step_s: Gauge | None = None
    """Of an emulator: the length of all steps, as modelled."""
    behind_s: Gauge | None = None
    """Of an emulator: how much later than that their tokens went out, summed over the steps."""


class GpuSample(Event, frozen=True, tag="gpu_sample"):
    index: Number
    utilisation: Gauge | None = None
    """0-1."""
    memory_used: Count | None = None
    memory_total: Count | None = None
    power_w: Gauge | None = None
    sm_clock_mhz: Number | None = None
    throttle: tuple[str, ...] = ()
    other_processes: Number | None = None


class ClientSample(Event, frozen=True, tag="client_sample"):
    """The client watching itself, each second."""

    lag_us: tuple[Signed, ...]
    """Event-loop lateness of each probe since the last sample (one probe per 20 ms)."""
    dispatch_us: tuple[Signed, ...] = ()
    """Intended to the first byte written, rate cap excluded, of the calls that ended since the last sample."""
    cpu: Gauge | None = None
    """Share of one core."""
    rss: Count | None = None
    live: Number = 0
    """Agents that have a session; `RunStart.agents` is how many were wanted."""
    blocked: Number | None = None
    """Most streams at one time whose request the server took slower than it was written, since the last sample."""
    stolen: Gauge | None = None
    """Share of this machine's core time that its host gave to others since the last sample, 0-1; 0 where nobody is."""


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
