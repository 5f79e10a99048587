"""How long one step takes on a GPU.

    step = t0 + tr*B + max(weights, products) + KV reads + prefill attention + tensor-parallel exchange

A decode step is bound by reading weights and KV cache, a prefill step by its matrix products. Weights of a
mixture of experts are read as far as T tokens touch them. Uncalibrated, the result is good to about 20%.
"""

from windtunnel.simulator.emulator.facts import Gpu, Model, kv_bytes
from windtunnel.simulator.emulator.scheduler import Step

ERROR_BAR = 0.20
"""Relative error to expect of a step time on a GPU whose constants were not fitted to measurements on it."""

_EAGER_LAYER_S = 120e-6
"""Time to launch one layer's kernels without CUDA graphs (estimate): a floor under the step."""
_SYNCHRONOUS_S = 1.0e-3
"""CPU time of a step that asynchronous scheduling hides (estimate)."""
_EXCHANGE_S = 8e-6
_EXCHANGE_BYTES_S = 300e9
"""Latency and bandwidth of one all-reduce between GPUs (estimates)."""
_SKEW = 0.8
"""Share of the experts that tokens spread over; routing favours some."""


class StepTime:
    """Seconds of a step, for one GPU, model and way of running it."""

    def __init__(
        self,
        gpu: Gpu,
        model: Model,
        *,
        kv_dtype: str = "auto",
        tensor_parallel: int = 1,
        eager: bool = False,
        asynchronous: bool = True,
    ) -> None:
        reached, shards = gpu.reached, tensor_parallel
        bandwidth = gpu.tbps * 1e12
        self._fixed = reached.step_ms / 1e3 + (0.0 if asynchronous else _SYNCHRONOUS_S)
        self._sequence = reached.seq_us / 1e6
        self._floor = model.layers * _EAGER_LAYER_S if eager else 0.0
        self._graphs = not eager
        read = bandwidth * reached.hw * shards
        self._dense = (model.dense_bytes - model.embedding_bytes) / read
        self._experts = model.expert_bytes / read
        self._untouched = 1 - model.experts_active / (_SKEW * model.experts) if model.experts else 0.0
        flops = gpu.tflops(model.expert_bits if model.experts else model.weight_bits, model.compute_bits) * 1e12
        self._product = 2 * model.active * 1e9 / (flops * reached.hf * shards)
        narrow = kv_bytes(model, kv_dtype) / model.kv_bytes
        self._context = model.kv_bytes * narrow / (bandwidth * reached.hk * shards)
        self._windowed = model.window_kv_bytes * narrow / (bandwidth * reached.hk * shards)
        attention = 4 * model.heads * model.head_dim / (gpu.bf16 * 1e12 * reached.ha * shards)
        self._work = attention * model.full_layers
        self._work_windowed = attention * (model.layers - model.full_layers)
        self._exchange_s = 2 * model.layers * _EXCHANGE_S if shards > 1 else 0.0
        share = 2 * (shards - 1) / shards
        self._exchange_token = 2 * model.layers * share * model.hidden * 2 / _EXCHANGE_BYTES_S if shards > 1 else 0.0

    def of(self, step: Step) -> float:
        """Seconds of one step as scheduled."""
        seconds = self.seconds(len(step.requests), step.tokens, step.context, step.windowed)
        if step.chunks:
            seconds += step.work * self._work + step.work_windowed * self._work_windowed
        return seconds

    def seconds(self, sequences: int, tokens: int, context: int, windowed: int = 0) -> float:
        """Seconds of a step without prefill attention.

        `context` is the sum of the sequences' contexts in tokens, `windowed` the same capped at the window.
        """
        padded = graph_size(tokens) if self._graphs and tokens == sequences else tokens
        touched = 1 - self._untouched**padded if self._experts else 0.0
        linear = max(self._dense + self._experts * touched, self._product * padded)
        reads = context * self._context + windowed * self._windowed
        exchange = self._exchange_s + padded * self._exchange_token
        return max(self._fixed + self._sequence * sequences + linear + reads + exchange, self._floor)


def graph_size(sequences: int) -> int:
    """The captured batch size that a decode batch is padded to; itself above the largest (512)."""
    if sequences <= 2:
        return sequences
    if sequences <= 4:
        return 4
    if sequences <= 256:
        return -(-sequences // 8) * 8
    return -(-sequences // 16) * 16 if sequences <= 512 else sequences
