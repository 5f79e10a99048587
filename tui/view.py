"""What the screens show at one moment: frozen, complete, and free of where it came from.

`follow` makes one from a run folder four times a second; widgets are functions of it. Times are seconds, shares are
0-1, None is "not reported" and is drawn as a dash.
"""

from typing import Literal

from msgspec import Struct

from windtunnel.agents.events import AgentState

Ending = Literal["completed", "interrupted", "failed", "died"]
"""`died`: no summary, and no sign of life."""


class Doing(Struct, frozen=True):
    """What an agent is busy with, beside its state."""

    label: str = ""
    """Tool names, or the cause of a wait."""
    elapsed_s: float | None = None
    planned_s: float | None = None
    recorded_s: float | None = None
    tokens: int | None = None
    """Output tokens of the call so far."""
    pinned: int | None = None
    """Output tokens that the call will have."""
    tail: str = ""
    """Last generated characters."""
    text: str = ""
    """Anything else, ready to show."""


class Row(Struct, frozen=True):
    """One agent (lane)."""

    agent: int
    state: AgentState = "idle"
    title: str = ""
    session: str = ""
    trace: str = ""
    copy: int = 0
    thread: int = 0
    """0 is the main agent; a sub-agent's call is shown as title/↳thread."""
    turn: int = 0
    turns: int = 0
    context: int | None = None
    """Tokens of the last prompt and what was generated on top of it."""
    cached: float | None = None
    cached_old: bool = False
    """A call is in flight: what it found in the cache is told at its end, and the figure is the one's before."""
    missed: bool = False
    """The last call missed much of the prefix it should have hit."""
    miss_cause: str = ""
    ttft_s: float | None = None
    """Of the last call; while one has no first token yet, how long it has waited for it."""
    ttft_open: bool = False
    ttft_about: bool = False
    """Of the call being decoded, worked out from what was seen of it four times a second: shown with ~."""
    rate: float | None = None
    """Output tokens/s of the call being decoded; None when there is none."""
    exact: bool = True
    """False: the tokens of the call, and with them its rate, are an estimate, shown with ~."""
    rates: tuple[float, ...] = ()
    """Output tokens/s of the last calls, oldest first."""
    slow: float | None = None
    """The session's calls so far, seconds in all here over seconds in all when they were recorded."""
    call_s: float | None = None
    """Mean length of the session's calls so far."""
    subagents: int = 0
    """Threads beside the main one with a request in flight or waiting."""
    mixed: bool = False
    """Calls of sub-agents have ended in this session: the figures of calls are of theirs, too. Shown as title +↳."""
    doing: Doing = Doing()


class Engine(Struct, frozen=True):
    """The engine's last scrape and the GPU's; of the measured window once the run has ended."""

    kv_usage: float | None = None
    kv_tokens: int | None = None
    """What its cache can hold."""
    held: float | None = None
    """The working set: tokens of context that the live sessions have together."""
    running: float | None = None
    waiting: float | None = None
    hit_ratio: float | None = None
    """Of prefix-cache queries, since the run's start, by the engine's own counters."""
    offloads: bool = False
    """Tokens are found outside the GPU too: the hit ratio is without those."""
    preemptions: float | None = None
    accepted: float | None = None
    """Tokens per step with speculation."""
    gpu: float | None = None
    memory: int | None = None
    """Bytes in use on all GPUs."""
    memory_total: int | None = None
    power_w: float | None = None

    @property
    def demand(self) -> float | None:
        """The working set as a share of what the cache can hold: above 1 something has to go."""
        return self.held / self.kv_tokens if self.held is not None and self.kv_tokens else None


STACK: tuple[AgentState, ...] = ("decode", "prefill", "queue", "tool", "wait", "cut", "failed", "done")
"""States from the bottom of a stack to its top; what lies above has not begun."""


class History(Struct, frozen=True, eq=False):
    """The run so far, one value for every `step_s` since its start; the step in progress is left out.

    Compared by identity: a history that did not change is the same object, and so are the pictures made of it.
    """

    step_s: float = 1.0
    output: tuple[float, ...] = ()
    """Tokens/s."""
    prompt: tuple[float, ...] = ()
    cached: tuple[float | None, ...] = ()
    """Share of the prompts that got their first token in the step; None where there was none."""
    missed: tuple[float | None, ...] = ()
    """Share of them that an infinite cache would have held, and this one did not."""
    kv: tuple[float, ...] = ()
    """Share of the KV cache."""
    held: tuple[float, ...] = ()
    """The working set in tokens."""
    states: tuple[tuple[float, ...], ...] = ()
    """Agents in each state of `STACK`."""


class View(Struct, frozen=True):
    """The whole run at one moment. Totals are always of all agents."""

    run: str = ""
    """Folder's name."""
    agents: int = 0
    source: str = ""
    """What is replayed: `library`, a folder; of a recording, the server."""
    engine_name: str = ""
    model: str = ""
    hardware: str = ""
    emulated: bool = False
    error_bar: str = ""
    """Of an emulated engine's times: `20%`; empty where it is not known."""
    sure: str = ""
    """Of an emulated engine: `uncalibrated`, `unverified` where some of its figures have no source, and whether flags
    are not modelled.
    """
    recording: bool = False
    """Real agents' own traffic, not a replay."""
    speed: str = "real time 1.0x"
    """How fast the screen goes: in real time, on a virtual clock, `replay 10x`; empty of a run that is over."""

    phase: str = "starting"
    note: str = ""
    """What the phase is about, or the last warning."""
    elapsed_s: float | None = None
    phase_s: float | None = None
    """Seconds in this phase."""
    total_s: float | None = None
    """Length of the measured window where it is known."""
    left_s: float | None = None
    """Until the measured window ends; where the run ends after so many sessions or calls, by their pace so far."""
    left_sure: bool = True
    warm: tuple[int, int] | None = None
    """(agents that made their calls of the warm-up, all agents) of a warm-up that ends after so many calls of each."""
    goal: tuple[int, int, str] | None = None
    """(done, of, what) of a run that ends after so many sessions or calls."""
    ending: Ending | None = None
    reason: str = ""
    silent_s: float | None = None
    """Seconds since the last sign of life, when that is too long."""
    unmeasured: bool = False
    """It ended before its window opened: counts are of the whole run, the engine's figures its last ones."""
    valid: bool | None = None
    """None until it can be said."""
    invalid: tuple[str, ...] = ()
    """Names of the reasons."""
    why: tuple[str, ...] = ()
    """The same as sentences."""

    out_rate: float | None = None
    """Output tokens/s over the last seconds; of the window once the run has ended."""
    in_rate: float | None = None
    cached: float | None = None
    could_be_cached: float | None = None
    in_flight: float | None = None
    in_tool: float | None = None
    waiting: float | None = None
    in_flight_mean: float | None = None
    """Calls, mean over the measured window; the two below are agents."""
    in_tool_mean: float | None = None
    waiting_mean: float | None = None
    calls: int = 0
    done: int = 0
    """Sessions; of a recording, whose sessions end only with it, calls."""
    failed: int = 0
    cut: int = 0
    lag_p99_ms: float | None = None
    blocked: int | None = None
    """Streams whose request the server takes slower than it is written; the window's most once the run has ended."""
    reading: bool = False
    """Older events are still being read: the figures are of a moment in the past."""
    unread: float | None = None
    """Share of a finished run's events that is still to be read; until then its past is shown in outline."""
    parsed: bool = True
    """False: counts of some calls in flight are estimates, and the sum's rate is shown with ~."""
    failures: tuple[tuple[str, int], ...] = ()
    """Names of failures and how often each happened, most frequent first."""
    damaged: str = ""
    """What of the events could not be read, as a sentence."""
    missing: str = ""
    """That there are no events at all, as a sentence."""

    engine: Engine = Engine()
    history: History = History()
    rows: tuple[Row, ...] = ()
    counted: tuple[tuple[AgentState, int], ...] = ()
    """How many agents are in each state, where that is not to be counted from the rows."""
    headline: tuple[tuple[str, str], ...] = ()
    """After the end: the result as (name, value)."""

    def states(self) -> dict[AgentState, int]:
        """How many agents are in each state."""
        if self.counted:
            return dict(self.counted)
        found: dict[AgentState, int] = {}
        for row in self.rows:
            found[row.state] = found.get(row.state, 0) + 1
        return found
