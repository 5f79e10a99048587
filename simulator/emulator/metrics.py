"""The page of `/metrics`, with vLLM's names, labels and buckets (v1/metrics of vLLM 0.32).

Every family that a text-only vLLM shows is there; what the emulator does not model stays 0, as it does in a vLLM that
does not use it. Families of speculation appear where it is on. `_created` gauges and those of Python are left out.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from windtunnel.simulator.emulator.core import Turn
from windtunnel.simulator.emulator.request import FinishReason, Request
from windtunnel.simulator.emulator.scheduler import Scheduler

_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_ANSWERS = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def _tokens(most: int) -> list[float]:
    """1, 2, 5, 10, ... up to the model's length."""
    out: list[float] = []
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power > most:
                return out
            out.append(digit * power)
        power *= 10


class Histogram:
    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.count += 1


class Metrics:
    """Counters and histograms; gauges and cache counters are read off the scheduler when the page is asked for."""

    def __init__(self, scheduler: Scheduler, model: str, cache_info: dict[str, object]) -> None:
        self._scheduler = scheduler
        self._labels = f'engine="0",model_name="{model}"'
        self._info = ",".join(f'{key}="{value}"' for key, value in sorted(cache_info.items()))
        tokens = _tokens(scheduler.limits.max_model_len)
        self.prompt = 0
        self.cached = 0
        self.generated = 0
        self.parsed: dict[tuple[str, str, str], int] | None = None
        """Looks of the tool parser at an output, by mode, outcome and kind of request; None without a parser."""
        self.ended: dict[str, int] = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.histograms = {
            "request_prompt_tokens": (Histogram(tokens), "Number of prefill tokens processed."),
            "request_generation_tokens": (Histogram(tokens), "Number of generation tokens processed."),
            "iteration_tokens_total": (Histogram(_ITERATION), "Tokens of each engine step."),
            "request_max_num_generation_tokens": (Histogram(tokens), "Most generated tokens of a request's answers."),
            "request_params_n": (Histogram(_ANSWERS), "The n request parameter."),
            "request_params_max_tokens": (Histogram(tokens), "The max_tokens request parameter."),
            "time_to_first_token_seconds": (Histogram(_FIRST), "Time to first token."),
            "inter_token_latency_seconds": (Histogram(_BETWEEN), "Time between outputs of a request."),
            "request_time_per_output_token_seconds": (Histogram(_BETWEEN), "Mean time between outputs, per request."),
            "e2e_request_latency_seconds": (Histogram(_LATENCY), "Whole time of a request."),
            "request_queue_time_seconds": (Histogram(_LATENCY), "Time until a request was first scheduled."),
            "request_inference_time_seconds": (Histogram(_LATENCY), "Time from first scheduling to last token."),
            "request_prefill_time_seconds": (Histogram(_LATENCY), "Time from first scheduling to first token."),
            "request_decode_time_seconds": (Histogram(_LATENCY), "Time from first to last token."),
            "request_num_preemptions": (Histogram(_PREEMPTIONS), "Preemptions of a request."),
            "request_prefill_kv_computed_tokens": (Histogram(tokens), "Prompt tokens that were not cached."),
        }

    def turn(self, turn: Turn) -> None:
        """A step returned. Its tokens count as vLLM counts them: a prompt when its first token comes."""
        now, computed = turn.ended, 0
        for output in turn.outputs:
            request = output.request
            if output.first:
                hit = request.hit or 0
                self.prompt += request.prompt_tokens
                self.cached += hit
                computed += request.prompt_tokens - hit
                self._observe("time_to_first_token_seconds", (now - request.arrival) / 1e9)
                request.first_at = now
            else:
                self._observe("inter_token_latency_seconds", (now - request.last_at) / 1e9)
            request.last_at = now
            if output.finished is not None:
                self.end(request, now, output.finished)
        generated = sum([len(output.tokens) for output in turn.outputs])
        self.generated += generated
        if turn.outputs:
            self._observe("iteration_tokens_total", computed + generated)

    def end(self, request: Request, now: int, reason: FinishReason) -> None:
        """A request ended at `now`, ns."""
        self.ended[reason] += 1
        outputs = request.produced
        scheduled = now if request.scheduled_at is None else request.scheduled_at
        seconds = {
            "e2e_request_latency_seconds": now - request.arrival,
            "request_queue_time_seconds": scheduled - request.queued_at,
        }
        if outputs:
            seconds |= {
                "request_inference_time_seconds": request.last_at - scheduled,
                "request_prefill_time_seconds": request.first_at - scheduled,
                "request_decode_time_seconds": request.last_at - request.first_at,
                "request_time_per_output_token_seconds": (request.last_at - request.first_at) // max(1, outputs - 1),
            }
        for name, value in seconds.items():
            self._observe(name, value / 1e9)
        self._observe("request_prompt_tokens", request.prompt_tokens)
        self._observe("request_generation_tokens", outputs)
        self._observe("request_max_num_generation_tokens", outputs)
        self._observe("request_params_n", 1)
        self._observe("request_params_max_tokens", request.max_tokens)
        self._observe("request_num_preemptions", request.preemptions)
        self._observe("request_prefill_kv_computed_tokens", request.prompt_tokens - (request.hit or 0))

    def page(self) -> str:
        """The whole page in Prometheus text format."""
        lines = _Lines(self._labels)
        for kind in ("flops", "read_bytes", "write_bytes"):
            lines.counter(f"estimated_{kind}_per_gpu", "Not counted, as in a vLLM without its flag for it.", 0)
        self._state(lines)
        self._tokens(lines)
        self._speculation(lines)
        for name, (histogram, text) in self.histograms.items():
            lines.histogram(name, text, histogram)
        self._parser(lines)
        lines.family("cache_config_info", "gauge", "The KV cache's settings, as labels.")
        lines.raw(f'vllm:cache_config_info{{engine="0",{self._info}}} 1.0')
        return lines.text()

    def _state(self, lines: "_Lines") -> None:
        scheduler = self._scheduler
        reasons = {"capacity": len(scheduler.waiting), "deferred": len(scheduler.loading)}
        waiting = sum(reasons.values())
        lines.gauge("num_requests_running", "Requests in the running batch.", len(scheduler.running))
        lines.gauge("num_requests_waiting", "Requests waiting, preempted ones included.", waiting)
        lines.split("num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", "reason", reasons)
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        lines.split("engine_sleep_state", "gauge", "1 for the state that holds.", "sleep_state", states)
        lines.gauge("kv_cache_usage_perc", "Share of the KV cache that requests hold, 0 to 1.", scheduler.pool.usage)
        counters = scheduler.counters
        lines.counter("prefix_cache_queries", "Tokens looked up in the prefix cache.", counters.queries)
        lines.counter("prefix_cache_hits", "Tokens found in the prefix cache.", counters.hits)
        text = "Tokens looked up in host memory, those that the GPU's cache lacks."
        lines.counter("external_prefix_cache_queries", text, counters.external_queries)
        lines.counter("external_prefix_cache_hits", "Tokens found there.", counters.external_hits)
        lines.counter("mm_cache_queries", "Items looked up in the cache of images and sounds.", 0)
        lines.counter("mm_cache_hits", "Items found there.", 0)
        lines.counter("num_preemptions", "Preemptions.", counters.preemptions)

    def _tokens(self, lines: "_Lines") -> None:
        lines.counter("prompt_tokens", "Prompt tokens of requests that got their first token.", self.prompt)
        # Counted when a request is admitted; all else here when its first token comes.
        loaded = min(self._scheduler.counters.external_hits, self.cached)
        local = self.cached - loaded
        sources = {
            "local_compute": self.prompt - self.cached,
            "local_cache_hit": local,
            "external_kv_transfer": loaded,
        }
        text = "Prompt tokens by where their KV came from."
        lines.split("prompt_tokens_by_source_total", "counter", text, "source", sources)
        lines.counter("prompt_tokens_cached", "Prompt tokens found in a cache.", self.cached)
        tiers = {"device": local, "host": loaded, "p2p": 0, "disk": 0, "external_unspecified": 0}
        lines.split("prompt_tokens_cached_by_source_total", "counter", "Cached prompt tokens by tier.", "source", tiers)
        lines.counter("generation_tokens", "Generated tokens.", self.generated)
        lines.split("request_success_total", "counter", "Ended requests by reason.", "finished_reason", self.ended)
        limits = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}
        lines.split("admission_rejections_total", "counter", "Requests that a full queue refused.", "reason", limits)

    def _speculation(self, lines: "_Lines") -> None:
        counters, most = self._scheduler.counters, self._scheduler.limits.speculative_tokens
        if not most:
            return
        lines.counter("spec_decode_num_drafts", "Verifications of drafts.", counters.drafts)
        lines.counter("spec_decode_num_draft_tokens", "Draft tokens.", counters.draft_tokens)
        lines.counter("spec_decode_num_accepted_tokens", "Accepted draft tokens.", counters.accepted_tokens)
        known = [*counters.accepted_per_position, *[0] * most][:most]
        positions = {str(position): count for position, count in enumerate(known)}
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        lines.split(name, "counter", "Accepted draft tokens by their place in the draft.", "position", positions)

    def _parser(self, lines: "_Lines") -> None:
        if self.parsed is None:
            return
        lines.family("tool_call_parser_invocations_total", "counter", "Looks of the tool parser at an output.")
        for mode in ("streaming", "non_streaming"):
            for outcome in ("tool_call", "no_tool_call"):
                for kind in ("chat_completions", "responses", "other"):
                    labels = f'mode="{mode}",outcome="{outcome}",request_type="{kind}"'
                    value = self.parsed.get((mode, outcome, kind), 0)
                    lines.sample("tool_call_parser_invocations_total", value, labels)

    def _observe(self, name: str, value: float) -> None:
        self.histograms[name][0].observe(value)


class _Lines:
    def __init__(self, labels: str) -> None:
        self._labels = labels
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"]

    def sample(self, name: str, value: float, more: str = "") -> None:
        self._lines.append(f"vllm:{name}{{{self._labels}{',' if more else ''}{more}}} {float(value)}")

    def split(self, name: str, kind: str, text: str, label: str, values: Mapping[str, float]) -> None:
        """A family with one sample for each value of a label."""
        self.family(name, kind, text)
        for value, count in values.items():
            self.sample(name, count, f'{label}="{value}"')

    def gauge(self, name: str, text: str, value: float) -> None:
        self.family(name, "gauge", text)
        self.sample(name, value)

    def counter(self, name: str, text: str, value: float) -> None:
        self.family(f"{name}_total", "counter", text)
        self.sample(f"{name}_total", value)

    def histogram(self, name: str, text: str, histogram: Histogram) -> None:
        self.family(name, "histogram", text)
        below = 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            below += count
            self.sample(f"{name}_bucket", below, f'le="{float(bound)}"')
        self.sample(f"{name}_bucket", histogram.count, 'le="+Inf"')
        self.sample(f"{name}_count", histogram.count)
        self.sample(f"{name}_sum", histogram.total)

    def raw(self, line: str) -> None:
        self._lines.append(line)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
