"""Each figure of a result once: its name, unit, better direction, meaning in plain words, and how it is computed.

Columns, reports and documentation derive from `METRICS`. "A window call" is a call that the session intended to send
inside the measured window and that completed; warm-up, cut and failed calls are not among them.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from windtunnel.simulator.results import calls as of_call
from windtunnel.simulator.results import figures
from windtunnel.simulator.results.distribution import mean, ratio
from windtunnel.simulator.results.summary_model import Distribution, Summary
from windtunnel.simulator.results.tally import Tally

Value = float | int | Distribution | None
Better = Literal["higher", "lower"] | None


class Metric(Struct, frozen=True):
    name: str
    """Key in `summary.json`."""
    unit: str
    better: Better
    header: str
    """Short title of a column."""
    formula: str
    compute: Callable[[Tally], Value]

    @property
    def distribution(self) -> bool:
        """Whether the value is a distribution; else it is one number."""
        return bool(Summary.__annotations__[self.name] == Distribution | None)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "sessions_started", "sessions", None, "started", "sessions started in the run", lambda t: len(t.sessions)
        ),
        Metric(
            "sessions_completed",
            "sessions",
            "higher",
            "done",
            "sessions of the run whose every call completed",
            figures.sessions_with("completed"),
        ),
        Metric(
            "sessions_failed",
            "sessions",
            "lower",
            "failed",
            "sessions of the run that a failed call or a dead engine ended",
            figures.sessions_with("failed"),
        ),
        Metric(
            "sessions_cut",
            "sessions",
            None,
            "cut",
            "sessions that the end of the run cut: neither completed nor failed",
            figures.sessions_with("cut"),
        ),
        Metric(
            "calls",
            "calls",
            None,
            "calls",
            "calls of the run that were sent: completed, failed, cut, or never ended",
            lambda t: len(t.calls) + len(t.open_calls),
        ),
        Metric(
            "failed_calls",
            "calls",
            "lower",
            "failed calls",
            "calls of the run that failed, each with a named reason",
            lambda t: sum(1 for c in t.calls if c.failure is not None and not c.cut),
        ),
        Metric(
            "calls_cut",
            "calls",
            None,
            "cut calls",
            "calls that the end of the run cut",
            lambda t: sum(1 for c in t.calls if c.cut),
        ),
        Metric(
            "calls_begun",
            "calls",
            None,
            "begun",
            "calls that a session intended to send inside the window and that were sent, whatever became of them",
            figures.calls_begun,
        ),
        Metric(
            "calls_unended",
            "calls",
            None,
            "unended",
            "those of them that were cut or never ended: they are left out of the latencies, and the longer a call the "
            "likelier it is one of them",
            figures.calls_unended,
        ),
        Metric(
            "calls_in_one_piece",
            "calls",
            None,
            "in one piece",
            "window calls that were answered whole and not streamed: when their first token came is not known, and "
            "TTFT, stall and TPOT leave them out",
            lambda t: sum(1 for c in t.window_calls if of_call.in_one_piece(c)),
        ),
        Metric(
            "calls_without_usage",
            "calls",
            None,
            "no usage",
            "completed calls of the run whose output tokens the server did not report; totals leave them out",
            lambda t: sum(1 for c in t.calls if of_call.completed(c) and c.completion_tokens is None),
        ),
        Metric(
            "output_tokens",
            "tokens",
            None,
            "output",
            "output tokens of the run: reported; for cut, failed and unended calls the tokens that arrived",
            figures.output_tokens,
        ),
        Metric(
            "prompt_tokens",
            "tokens",
            None,
            "prompt",
            "prompt tokens of the run, cached ones included: reported; for calls cut or failed after their first "
            "token, expected",
            figures.prompt_tokens,
        ),
        Metric(
            "prompts_over",
            "ratio",
            None,
            "prompts over",
            "how much longer the run's prompts were than those recorded (shorter: below 0), where the server counted "
            "them",
            figures.prompts_over,
        ),
        Metric(
            "cached_tokens",
            "tokens",
            None,
            "cached",
            "prompt tokens of the run that the server took from its cache, as reported per call",
            lambda t: figures.total([c.cached_tokens for c in t.calls]),
        ),
        Metric(
            "cache_known_prompt_tokens",
            "tokens",
            None,
            "cache known",
            "prompt tokens of the run's calls whose cached tokens the server reported: what cached_tokens is a part of",
            figures.cache_known_prompt,
        ),
        Metric(
            "reprefilled_tokens",
            "tokens",
            "lower",
            "sent otherwise",
            "generated tokens of the run whose text was sent back otherwise than it was generated, so no cache could "
            "have them; what was evicted and computed again is not among them",
            lambda t: figures.total([c.reprefilled_tokens for c in t.calls]),
        ),
        Metric(
            "output_tokens_per_s",
            "tokens/s",
            "higher",
            "out tok/s",
            "output tokens that arrived inside the window, each at its chunk's arrival, over the window",
            figures.output_per_s,
        ),
        Metric(
            "prompt_tokens_per_s",
            "tokens/s",
            "higher",
            "in tok/s",
            "prompt tokens of calls whose first token arrived inside the window, over the window",
            figures.prompt_per_s,
        ),
        Metric(
            "cache_hit_ratio",
            "ratio",
            "higher",
            "cached",
            "cached over prompt tokens of the window calls that reported both",
            figures.hit_ratio,
        ),
        Metric(
            "expected_cache_hit_ratio",
            "ratio",
            None,
            "could be",
            "prompt tokens equal to a prefix of an earlier prompt of the run, in the engine's match unit and with an "
            "infinite cache, at least what was found, over prompt tokens of the window calls that reported cached ones "
            "(of all, where none did)",
            figures.expected_ratio,
        ),
        Metric(
            "expected_cache_hit_ratio_exact",
            "ratio",
            None,
            "could be, exact",
            "the same, to the token instead of the match unit",
            lambda t: figures.expected_ratio(t, exact=True),
        ),
        Metric(
            "in_flight_mean",
            "calls",
            None,
            "in flight",
            "calls between sending and their end, averaged over the window's time",
            figures.mean_agents(lambda t: t.occupancy.calls_s),
        ),
        Metric(
            "in_tool_mean",
            "agents",
            None,
            "in tool",
            "agents with a tool running and no call in flight, averaged over the window's time",
            figures.mean_agents(lambda t: t.occupancy.in_tool_s),
        ),
        Metric(
            "waiting_mean",
            "agents",
            None,
            "waiting",
            "agents that have a session, no call in flight and no tool running, averaged over the window's time",
            figures.mean_agents(lambda t: t.occupancy.waiting_s),
        ),
        Metric(
            "live_mean",
            "agents",
            None,
            "live",
            "agents that have a session, averaged over the window's time",
            figures.mean_agents(lambda t: t.occupancy.live_s),
        ),
        Metric(
            "duty_cycle",
            "ratio",
            None,
            "duty",
            "time of agents with a call in flight over time of agents that have a session, in the window",
            lambda t: ratio(t.occupancy.in_flight_s, t.occupancy.live_s),
        ),
        Metric(
            "ttft_s",
            "s",
            "lower",
            "TTFT",
            "intended sending (rate-cap waiting left out) to the first token of any kind, window calls",
            figures.per_call(of_call.ttft_s),
        ),
        Metric(
            "ttft_visible_s",
            "s",
            "lower",
            "TTFT visible",
            "the same to the first token of visible text, window calls that have one",
            figures.per_call(of_call.ttft_visible_s),
        ),
        Metric(
            "ttft_tool_s",
            "s",
            "lower",
            "TTFT tool",
            "the same to the first token of a tool call, window calls that have one",
            figures.per_call(of_call.ttft_tool_s),
        ),
        Metric(
            "tpot_s",
            "s",
            "lower",
            "TPOT",
            "per window call, last minus first arrival over the tokens that came after the first chunk",
            figures.per_call(of_call.tpot_s),
        ),
        Metric(
            "itl_s",
            "s",
            "lower",
            "chunk gap",
            "gaps between arrivals of token-carrying chunks, all gaps of all window calls pooled; a chunk may carry "
            "several tokens",
            figures.gaps,
        ),
        Metric(
            "e2e_s",
            "s",
            "lower",
            "E2E",
            "intended sending (rate-cap waiting left out) to the end of the response, window calls",
            figures.per_call(of_call.e2e_s),
        ),
        Metric(
            "throttled_s",
            "s",
            None,
            "throttled",
            "waiting for the request-rate cap, window calls; null when nothing was held back",
            figures.throttled,
        ),
        Metric(
            "tool_wait_s",
            "s",
            None,
            "tool time",
            "replayed lengths of the tool waits that began inside the window and were not cut short by the end of "
            "their session",
            figures.tool_waits,
        ),
        Metric(
            "client_lag_s",
            "s",
            "lower",
            "client lag",
            "lateness of the client's event loop, one probe per 20 ms, all probes of the window",
            figures.pooled_us("lag_us"),
        ),
        Metric(
            "dispatch_s",
            "s",
            "lower",
            "dispatch",
            "intended to actual sending, rate-cap waiting left out, calls that ended in the window",
            figures.pooled_us("dispatch_us"),
        ),
        Metric(
            "client_cpu",
            "cores",
            "lower",
            "client CPU",
            "share of one core that the client used, mean of the window's samples",
            lambda t: mean(sample.cpu for sample in t.client_in_window()),
        ),
        Metric(
            "blocked_max",
            "sockets",
            "lower",
            "blocked",
            "most streams at one time whose request the server took slower than it was written, in the window",
            lambda t: max((s.blocked for s in t.client_in_window() if s.blocked is not None), default=None),
        ),
        Metric(
            "host_stolen",
            "ratio",
            "lower",
            "host took",
            "share of this machine's core time that its host gave to other machines, mean of the window's samples",
            lambda t: mean(sample.stolen for sample in t.client_in_window()),
        ),
        Metric(
            "sessions_per_hour",
            "1/h",
            "higher",
            "sessions/h",
            "sessions that completed inside the window, per hour of window",
            figures.sessions_per_hour,
        ),
        Metric(
            "session_equivalents_per_hour",
            "1/h",
            "higher",
            "work/h",
            "recorded work done inside the window, in whole sessions, per hour: each session's work is shared out over "
            "its completed calls by their expected prompt and output tokens and counted when the call ended",
            figures.equivalents_per_hour,
        ),
        Metric(
            "makespan_s",
            "s",
            "lower",
            "makespan",
            "start to end of sessions that were replayed from their beginning and completed inside the window",
            figures.makespan,
        ),
        Metric(
            "stall_s_per_agent",
            "s",
            "lower",
            "stall",
            "time inside the window that an agent's calls had been sent and had no first token, mean over all agents",
            lambda t: None if t.calls and all(map(of_call.in_one_piece, t.calls)) else figures.stall(t),
        ),
    )
}
