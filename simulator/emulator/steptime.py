"""How long one step takes on a GPU.

    step = t0 + tr*B + max(weights, products) + KV reads + recurrent state + prefill attention + exchange + drafting

A decode step is bound by reading weights and KV cache, a prefill step by its matrix products. Weights of a mixture of
experts are read as far as T tokens touch them. The CPU's work between two steps is hidden by asynchronous scheduling
as far as the GPU is slower, and added without it. Uncalibrated, the result is good to about 20%.

Latent attention (MLA) reads one latent a token for all heads; in decode every head multiplies with the whole latent
(absorbed projections), so that those products count where they take longer than the reads.
"""

from collections.abc import Iterable

from windtunnel.simulator.emulator.constants import Constants, constants
from windtunnel.simulator.emulator.facts import Gpu
from windtunnel.simulator.emulator.graphs import Graphs, capture
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.model import Model, Product
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.scheduler import Step

ERROR_BAR = 0.20
"""Relative error to expect of a step time on a GPU whose constants were not fitted to measurements on it."""


class StepTime:
    """Seconds of a step, for one GPU, model and way of running it.

    `reached` and `figures` replace what the GPU's row and constants.toml say: a calibration's.
    """

    def __init__(
        self,
        gpu: Gpu,
        model: Model,
        mode: Mode | None = None,
        *,
        reached: Reached | None = None,
        figures: Constants | None = None,
    ) -> None:
        mode, reached, known = mode or Mode(), reached or gpu.reached, figures or constants()
        shards, speculation = mode.tensor_parallel, mode.speculation
        bandwidth = gpu.tbps * 1e12
        read = bandwidth * reached.hw * shards
        self._graphs = Graphs() if mode.eager else mode.graphs or _usual(gpu, mode)
        self._queries = 1 + speculation.k if speculation else 1
        self._known: dict[tuple[int, int, int], tuple[float, ...]] = {}
        self._fixed = reached.step_ms / 1e3 + model.layers * reached.layer_us / 1e6
        self._sequence = reached.seq_us / 1e6

        # CPU work between two steps.
        spinning = known.threads_factor if mode.threads > 1 else 1.0
        self._asynchronous = mode.asynchronous
        self._cpu = known.cpu_step_ms / 1e3 * spinning
        self._cpu_sequence = known.cpu_sequence_us / 1e6 * spinning
        looks_up = speculation is not None and speculation.draft.lookup
        self._lookup = known.lookup_us / 1e6 * spinning if looks_up else 0.0
        self._floors = {
            "full": 0.0,
            "piecewise": model.layers * known.piecewise_layer_us / 1e6,
            "eager": model.layers * known.eager_layer_us / 1e6,
        }

        # Weights and products.
        self._dense = model.read_bytes / read
        self._experts = model.expert_bytes / (bandwidth * reached.experts(model.expert_bits) * shards)
        self._untouched = _untouched(model.experts, model.experts_active, known)
        mixed = (reached.hfe if model.experts else None) or reached.hf
        self._product = _peak_seconds(gpu, model.products, known) / (mixed * shards)

        # KV cache and recurrent state.
        share = model.kv_share(mode.kv_dtype)
        narrow = reached.hk8 if share < 1 else None
        cache = bandwidth * (narrow or reached.hk) * model.kv_shards(shards)
        self._context = model.kv_bytes * share / cache
        self._windowed = model.window_kv_bytes * share / cache
        attended = gpu.bf16 * 1e12 * reached.ha * shards
        self._absorbed = 2 * model.heads * model.full_layers * 2 * model.latent / attended if model.latent else 0.0
        self._state = _state_bytes(model, mode) / (bandwidth * _state_share(mode, known) * shards)
        attention = 4 * model.heads * model.head_dim / attended
        self._work = attention * model.full_layers
        self._work_windowed = attention * model.window_layers

        # Between GPUs: an all-reduce after each part of a layer.
        self._exchange, self._exchange_token = 0.0, 0.0
        if shards > 1:
            host = known.host_gb_s(gpu.pcie) * known.pcie_exchange_share
            late, joined = (known.exchange_us, known.exchange_gb_s) if gpu.nvlink else (known.pcie_exchange_us, host)
            self._exchange = model.reductions * late / 1e6
            moved = 2 * (shards - 1) / shards * model.hidden * 2
            self._exchange_token = model.reductions * moved / (joined * 1e9)

        # Drafts: one pass after the other, all sequences in each.
        self._passes = 0
        if speculation is not None and speculation.draft.passes:
            draft = speculation.draft
            self._passes = draft.passes
            self._pass = known.draft_pass_us / 1e6
            self._draft_dense = draft.dense_bytes / read
            self._draft_experts = draft.expert_bytes / (bandwidth * reached.experts(draft.expert_bits) * shards)
            self._draft_untouched = _untouched(draft.experts, draft.experts_active, known)
            self._draft_product = _peak_seconds(gpu, draft.products, known) / (reached.hf * shards)
            self._draft_context = draft.kv_bytes * share / cache

    def of(self, step: Step) -> float:
        """Seconds of one step as scheduled."""
        seconds = self.seconds(step.sequences, step.tokens, step.context, step.windowed, step.drafting)
        if step.chunks:
            seconds += step.work * self._work + step.work_windowed * self._work_windowed
        return seconds

    def seconds(
        self, sequences: int, tokens: int, context: int, windowed: int = 0, drafting: int | None = None
    ) -> float:
        """Seconds of a step without prefill attention.

        `tokens` counts draft tokens that are verified; `context` is the sum of the sequences' contexts in tokens,
        `windowed` the same capped at the window; `drafting` the sequences that new drafts are made for, all if None.
        """
        shape = (sequences, tokens, sequences if drafting is None else drafting)
        terms = self._known.get(shape)
        if terms is None:
            terms = self._known[shape] = self._terms(*shape)
        base, full, window, absorbed, floor, after, drafts, cpu = terms
        reads = max(context * full + windowed * window, context * absorbed)
        gpu = max(base + reads, floor) + after + context * drafts
        return max(gpu, cpu) if self._asynchronous else gpu + cpu

    def _terms(self, sequences: int, tokens: int, drafting: int) -> tuple[float, ...]:
        """What a step of this shape takes beside its contexts, and for each token of them.

        In order: the model's pass, what a token of context adds to it (in full layers, in windowed ones, at least), the
        floor under it; the drafts' passes, what a token of context adds to them; the CPU.
        """
        padded = self._graphs.padded(sequences, tokens)
        touched = 1 - self._untouched**padded if self._experts else 0.0
        linear = max(self._dense + self._experts * touched, self._product * padded)
        base = self._fixed + (self._sequence + self._state) * sequences + linear
        base += self._exchange + padded * self._exchange_token
        floor = self._floors[self._graphs.launches(sequences, tokens)]
        # Prompts are computed without absorption, which counts as prefill attention.
        absorbed = self._absorbed * min(tokens / sequences, self._queries)
        after, drafts = self._drafting(sequences, tokens, drafting) if self._passes else (0.0, 0.0)
        cpu = self._cpu + self._cpu_sequence * sequences + self._lookup * drafting
        return base, self._context, self._windowed, absorbed, floor, after, drafts, cpu

    def _drafting(self, sequences: int, tokens: int, drafting: int) -> tuple[float, float]:
        """Seconds of the drafts' passes, and what each token of context adds.

        The first pass goes over the step's tokens, prompts too, whose KV the draft needs; each later one over one token
        of each sequence drafted for. Without such a sequence the first is the only one.
        """
        seconds = token = 0.0
        later = self._passes - 1 if drafting else 0
        for width, readers, times in ((tokens, sequences, 1), (drafting, drafting, later)):
            touched = 1 - self._draft_untouched**width if self._draft_experts else 0.0
            linear = max(self._draft_dense + self._draft_experts * touched, self._draft_product * width)
            seconds += times * (self._pass + linear)
            token += times * readers / sequences * self._draft_context
        return seconds, token


def _usual(gpu: Gpu, mode: Mode) -> Graphs:
    drafts = mode.speculation.k if mode.speculation else 0
    return capture(max_num_seqs=1024, max_num_batched_tokens=8192, drafts=drafts, blackwell=gpu.data_centre_blackwell)


def _peak_seconds(gpu: Gpu, products: Iterable[Product], known: Constants) -> float:
    """Of one token's products, each at the peak of its format.

    Unpacking leaves another share in kernels for mixtures than in those for dense layers.
    """
    seconds = 0.0
    for product in products:
        left = known.unpacked if product.mixture else known.unpacked_dense
        peak = gpu.tflops(product.weight_bits, gpu.computed(product), left)
        seconds += 2 * product.active * 1e9 / (peak * 1e12)
    return seconds


def _untouched(experts: int, active: int, known: Constants) -> float:
    """Probability that one token leaves an expert alone."""
    return max(0.0, 1 - active / (known.skew * experts)) if experts else 0.0


def _state_bytes(model: Model, mode: Mode) -> float:
    """Recurrent state moved for a sequence in a step: read once, and written after each token that is verified.

    vLLM keeps the state after every draft token, so that the one after the last accepted draft can be gone on with.
    """
    if model.recurrent is None:
        return 0.0
    drafts = mode.speculation.k if mode.speculation else 0
    return model.recurrent.sequence_bytes(mode.ssm_dtype, drafts, mode.conv_dtype) * (2 + drafts)


def _state_share(mode: Mode, known: Constants) -> float:
    reached = known.state_flashinfer if mode.mamba_backend == "flashinfer" else known.state_triton
    return reached / known.rounding_factor if mode.stochastic_rounding else reached
