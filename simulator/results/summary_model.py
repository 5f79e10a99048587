"""The shape of `summary.json`, as `docs` and other programs know it. None is what was not reported."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from windtunnel.simulator.results.emulation import Emulation
from windtunnel.traces.outlet import to_json

SCHEMA = "windtunnel.summary/1"
STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
"""What can be asked of a `Distribution`."""


class Distribution(Struct, frozen=True):
    """Percentiles interpolate linearly between the two nearest ranks."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    p95: float | None = None
    """None in summaries that were written before there was one."""


class SloCondition(Struct, frozen=True, kw_only=True):
    condition: str
    """As written, e.g. `ttft_s.p90<3`."""
    value: float | None
    met: bool | None
    """None when the value was not reported, and where calls without an end may turn it."""
    unended: int | UnsetType = UNSET
    """Calls of the window without an end, which `value` leaves out. They count as far as they had come; told where that
    gives another verdict."""
    undecided: int | UnsetType = UNSET
    """Of those: whose own figure was not known yet."""
    at_least: float | UnsetType | None = UNSET
    """The statistic with them, each as far as it had come."""


class SloResult(Struct, frozen=True, kw_only=True):
    conditions: tuple[SloCondition, ...]
    met: bool
    """Every condition is known to hold."""
    calls_inside: int
    """Calls of the window for which every per-call limit held."""
    calls_judged: int
    """Calls of the window that completed or failed, and those without an end that are known to be in- or outside; a
    failed call is outside."""
    share: float | None
    """calls_inside / calls_judged; None without a per-call condition or without calls."""
    sessions_inside: int = 0
    """Sessions of which every judged call is inside."""
    sessions_judged: int = 0
    calls_undecided: int | UnsetType = UNSET
    """Calls of the window without an end of which that is not known; left out where there are none."""


class EngineDelta(Struct, frozen=True, kw_only=True):
    """Growth of the engine's own counters from the first scrape of the run to the last, see `counters`."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    requests_finished: float | None = None
    preemptions: float | None = None
    spec_drafts: float | None = None
    spec_draft_tokens: float | None = None
    spec_accepted: float | None = None


class EngineSummary(Struct, frozen=True, kw_only=True):
    name: str | None = None
    version: str | None = None
    model: str | None = None
    resolved: dict[str, Any] | None = None
    """The engine's resolved settings."""
    kv_tokens: int | None = None
    running: float | None = None
    """Mean of the window's scrapes, requests."""
    waiting: float | None = None
    """Mean of the window's scrapes, requests."""
    kv_usage: float | None = None
    """Mean of the window's scrapes, 0-1."""
    hit_ratio: float | None = None
    """Prefix hits over prefix queries, growth inside the window."""
    preemptions: float | None = None
    """Of the whole run."""
    acceptance_length: float | None = None
    """1 + accepted over drafts, growth inside the window."""
    unseen_s: float | None = None
    """Of the window, s: as long did its metrics not come, in gaps of over 10 s. None where it has none."""
    restarted_s: tuple[float, ...] | UnsetType = UNSET
    """When its counters were seen to have begun anew, s since the run's origin. Left out where they did not."""
    emulated_gpu: str | None = None
    """This and what follows: of an emulated engine, see `emulation`; None of a real one."""
    emulated_model: str | None = None
    emulated_vllm: str | None = None
    emulated_calibrated: bool | None = None
    emulated_fit: str | None = None
    emulated_unverified: tuple[str, ...] | None = None
    emulated_ignored: tuple[str, ...] | None = None
    emulated_error_bar: float | None = None
    """Relative error to expect of times."""

    @property
    def emulation(self) -> Emulation:
        return Emulation(
            gpu=self.emulated_gpu,
            model=self.emulated_model,
            vllm=self.emulated_vllm,
            calibrated=self.emulated_calibrated,
            fit=self.emulated_fit,
            unverified=self.emulated_unverified or (),
            ignored=self.emulated_ignored or (),
            error_bar=self.emulated_error_bar,
        )


class GpuSummary(Struct, frozen=True, kw_only=True):
    """Means over the window's samples, all GPUs; sums where said."""

    count: int
    utilisation: float | None = None
    """0-1."""
    memory_used: int | None = None
    """Bytes, the window's maximum, summed over the GPUs."""
    memory_total: int | None = None
    """Bytes, summed over the GPUs."""
    power_w: float | None = None
    """W, summed over the GPUs."""
    kwh_per_million_tokens: float | None = None
    """Of output, from the power and the output rate of the window."""
    sm_clock_mhz: float | None = None
    throttle: dict[str, float] = {}
    """Throttle reason to the share of samples that had it."""
    other_processes: int = 0
    """The most other processes seen on one GPU."""


MOST_EXPECTED = 1.05
"""A prompt's planned length may be off by so much; a larger share of it cannot be in any cache."""


def comparable(expected: float | None) -> bool:
    """Whether an expected hit ratio is one: not where the server counts prompts by another measure than the plan."""
    return expected is None or expected <= MOST_EXPECTED


class Summary(Struct, frozen=True, kw_only=True):
    """Counts and token totals are of the whole run; rates, ratios and distributions of the window."""

    schema: str = SCHEMA
    kind: Literal["run", "recording"] = "run"
    """A replay, or real agents' own traffic."""
    run_dir: str | None
    status: Literal["completed", "interrupted", "failed"] | None
    """None of a run that goes on: its figures so far; `status_reason` is then `running`."""
    status_reason: str | None
    valid: bool
    invalid_reasons: tuple[str, ...]
    emulated: bool
    virtual: bool = False
    """Client and emulator ran on the virtual clock: nothing was timed on a real one."""
    agents: int
    seed: int | None
    duration_s: float
    window_s: float
    lengths_from: str | list[str] | None
    """Models whose recorded answers' lengths were asked for; of prompts alone where `lengths` says "natural"."""
    distinct_traces: int
    sessions_started: int
    sessions_completed: int
    sessions_failed: int
    sessions_cut: int
    calls: int
    failed_calls: int
    calls_cut: int
    calls_begun: int | None = None
    """This and the next: of the window. None without one, and of summaries that did not count it yet."""
    calls_unended: int | None = None
    calls_in_one_piece: int | None = None
    """Of the window's completed ones. None of summaries that did not count it yet."""
    calls_without_usage: int
    output_tokens: int | None
    prompt_tokens: int | None
    prompts_over: float | None = None
    cached_tokens: int | None
    cache_known_prompt_tokens: int | None = None
    reprefilled_tokens: int | None
    output_tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    cache_hit_ratio: float | None
    expected_cache_hit_ratio: float | None
    expected_cache_hit_ratio_exact: float | None
    in_flight_mean: float | None
    in_tool_mean: float | None
    waiting_mean: float | None
    live_mean: float | None
    duty_cycle: float | None
    ttft_s: Distribution | None
    ttft_visible_s: Distribution | None
    ttft_tool_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None
    throttled_s: Distribution | None
    tool_wait_s: Distribution | None
    client_lag_s: Distribution | None
    dispatch_s: Distribution | None
    client_cpu: float | None
    blocked_max: int | None = None
    host_stolen: float | None = None
    sessions_per_hour: float | None
    session_equivalents_per_hour: float | None
    makespan_s: Distribution | None
    stall_s_per_agent: float | None
    slo: SloResult | None
    engine: EngineSummary
    engine_delta: EngineDelta
    gpu: GpuSummary | None
    failures: dict[str, int]
    failure_messages: dict[str, dict[str, int]] | UnsetType = UNSET
    """By failure, what the server said of it and how often, at most three. Left out where it said nothing."""
    output_tokens_by_progress: int | UnsetType = UNSET
    """Of `output_tokens`: of calls without an end, as the run's progress told them. Left out where all calls ended."""
    lengths: Literal["natural"] | UnsetType = UNSET
    """Left out where answers had their recorded lengths."""


_DECODER = msgspec.json.Decoder(Summary)


def encode_summary(summary: Summary) -> bytes:
    """The bytes of `summary.json`; equal summaries give equal bytes."""
    return msgspec.json.format(to_json(summary), indent=2) + b"\n"


def decode_summary(data: bytes) -> Summary:
    return _DECODER.decode(data)
