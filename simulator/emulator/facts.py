"""What is known about GPUs and models, and what follows from it: weights, KV bytes, blocks that fit, batch defaults.

The tables are data files beside this one with a source per row. A row without a source says `unverified`, and every
result computed from it carries that word.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec
from msgspec import Struct

from windtunnel.traces.errors import EngineError, UsageError

GIB = 1 << 30
_UNPACKED = 0.45
"""Share of the 16-bit rate that is left where narrow weights are unpacked for each product: an H200 computes 8k tokens
of gpt-oss-120b in 408 ms (AIConfigurator's silicon sample)."""
UNVERIFIED = "unverified"
T = TypeVar("T")


class Reached(Struct, frozen=True, forbid_unknown_fields=True):
    """What vLLM makes of the hardware: shares of the peak, and fixed times."""

    hw: float = 0.75
    """Bandwidth when reading weights."""
    hf: float = 0.45
    """FLOPS in matrix products."""
    hk: float = 0.75
    """Bandwidth when reading KV cache."""
    ha: float = 0.40
    """FLOPS in prefill attention."""
    step_ms: float = 2.0
    seq_us: float = 50.0
    fit: str = UNVERIFIED


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    memory_gib: float
    tbps: float
    bf16: float
    watts: int
    source: str
    fp8: float | None = None
    fp4: float | None = None
    reached: Reached = Reached()

    def tflops(self, weight_bits: float, compute_bits: float) -> float:
        """What matrix products can be fed at best, dense: the peak of the format they are computed in.

        A format that the GPU lacks is computed in the next wider one, after unpacking, which costs.
        """
        native = {4: self.fp4, 8: self.fp8}
        for bits in (4, 8):
            peak = native[bits]
            if compute_bits <= bits and peak is not None:
                return peak
        narrow = 4 if weight_bits < 8 else 8 if weight_bits < 16 else 16
        return self.bf16 if native.get(narrow, self.bf16) is not None else self.bf16 * _UNPACKED


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    kv_bytes: int
    """KV cache bytes per token at 16 bit, full-attention layers."""
    parameters: float
    """1e9, all of them."""
    active: float
    """1e9, used for one token."""
    vocabulary: int
    max_model_len: int
    source: str
    expert_parameters: float = 0.0
    experts: int = 0
    experts_active: int = 0
    weight_bits: float = 16
    expert_bits: float = 16
    compute_bits: float = 16
    """Format of the products; narrow weights with 16-bit activations are computed in 16 bit."""
    window: int = 0
    """Sliding window, tokens; 0 without windowed layers."""
    window_kv_bytes: int = 0

    @property
    def dense_bytes(self) -> float:
        return (self.parameters - self.expert_parameters) * 1e9 * self.weight_bits / 8

    @property
    def expert_bytes(self) -> float:
        return self.expert_parameters * 1e9 * self.expert_bits / 8

    @property
    def embedding_bytes(self) -> float:
        """The input embedding, of which a step reads a row per token only."""
        return self.vocabulary * self.hidden * 2.0

    @property
    def full_layers(self) -> float:
        """Layers whose attention sees the whole context."""
        return self.layers * self.kv_bytes / (self.kv_bytes + self.window_kv_bytes)

    def quantised(self, method: str | None) -> "Model":
        """The same model with its weights in what `--quantization` names."""
        if method is None:
            return self
        if method not in _QUANTISED:
            raise UsageError(f"--quantization {method} is not modelled: use one of {', '.join(_QUANTISED)}.")
        bits, compute = _QUANTISED[method]
        return msgspec.structs.replace(
            self,
            weight_bits=bits,
            expert_bits=min(bits, self.expert_bits),
            compute_bits=min(compute, self.compute_bits),
        )


_QUANTISED = {
    "fp8": (8.0, 8.0),
    "modelopt": (8.0, 8.0),
    "modelopt_fp4": (4.5, 4.0),
    "nvfp4": (4.5, 4.0),
    "mxfp4": (4.25, 16.0),
    "awq": (4.5, 16.0),
    "awq_marlin": (4.5, 16.0),
    "gptq": (4.5, 16.0),
    "gptq_marlin": (4.5, 16.0),
    "bitsandbytes": (4.5, 16.0),
}
"""Bits per weight with their scales, and of the format computed in."""


@cache
def gpus() -> dict[str, Gpu]:
    return _table("gpus.toml", dict[str, Gpu])


@cache
def models() -> dict[str, Model]:
    return _table("models.toml", dict[str, Model])


def gpu(name: str) -> Gpu:
    table = gpus()
    key = _key(name)
    if key not in table:
        raise UsageError(f"--gpu {name} is not in the table: use one of {', '.join(table)}.")
    return table[key]


def model(name: str) -> Model:
    """By its key in the table or by the name it is served under; case and separators do not matter."""
    table = models()
    for key, entry in table.items():
        if _key(name) in (_key(key), _key(entry.name), _key(entry.name.split("/")[-1])):
            return entry
    raise UsageError(f"--model {name} is not in the table: use one of {', '.join(table)}.")


def kv_bytes(model: Model, kv_dtype: str) -> float:
    """Pool bytes per token; windowed layers hold their last tokens in the same pool and are neglected."""
    return model.kv_bytes * (0.5 if kv_dtype.startswith("fp8") else 1.0)


def reserve_bytes(model: Model, max_num_seqs: int, max_num_batched_tokens: int) -> float:
    """What is neither weights nor KV: activations and logits of the largest step, CUDA graphs, the CUDA context.

    An estimate in the shape of vLLM's profiling run: its peak is the logits of all sequences in 32 bit (twice, for
    sampling) or the widest activations of a full step.
    """
    logits = 2 * 4.0 * min(max_num_seqs, max_num_batched_tokens) * model.vocabulary
    activations = 2.0 * max_num_batched_tokens * model.hidden * 12
    return max(logits, activations) + 0.9 * GIB


def kv_blocks(
    gpu: Gpu,
    model: Model,
    *,
    block_size: int,
    kv_dtype: str,
    utilization: float,
    tensor_parallel: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """Blocks of the pool on each GPU: memory times utilisation, less weights and reserve."""
    weights = (model.dense_bytes + model.expert_bytes) / tensor_parallel
    room = gpu.memory_gib * GIB * utilization - weights - reserve_bytes(model, max_num_seqs, max_num_batched_tokens)
    blocks = int(room // (kv_bytes(model, kv_dtype) * block_size / tensor_parallel))
    if blocks < 2:
        raise EngineError(
            f"No available memory for the cache blocks: {model.name} needs {weights / GIB:.1f} GiB for its weights and "
            f"{gpu.name} has {gpu.memory_gib:.1f} GiB; try another --gpu, --quantization or --tensor-parallel-size."
        )
    return blocks


def batch_defaults(gpu: Gpu) -> tuple[int, int]:
    """The (max_num_batched_tokens, max_num_seqs) that vLLM takes for an API server on this GPU."""
    if gpu.memory_gib >= 160:
        return 16384, 1024
    if gpu.memory_gib >= 70 and "A100" not in gpu.name:
        return 8192, 1024
    return 2048, 256


def _key(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _table(name: str, kind: type[T]) -> T:
    text = (files("windtunnel.simulator.emulator") / name).read_text()
    return msgspec.convert(tomllib.loads(text), kind)
