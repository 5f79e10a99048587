"""What of a GPU's memory is left for KV cache, and the batch that vLLM takes for a GPU of that size."""

from collections.abc import Sequence

from windtunnel.simulator.emulator.constants import Constants, constants
from windtunnel.simulator.emulator.facts import GIB, Gpu
from windtunnel.simulator.emulator.model import Model
from windtunnel.traces.errors import EngineError
from windtunnel.traces.outlet import shown

_ELSEWHERE = ("-parallel", "offload")
"""In names of vLLM's flags that put weights, or a part of them, somewhere else."""


def reserve_bytes(
    model: Model, max_num_seqs: int, max_num_batched_tokens: int, known: Constants | None = None
) -> float:
    """What is neither weights nor KV: activations and logits of the largest step, CUDA graphs, the CUDA context.

    An estimate in the shape of vLLM's profiling run: its peak is the logits of all sequences in 32 bit (twice, for
    sampling) or the widest activations of a full step.
    """
    known = known or constants()
    logits = 2 * 4.0 * min(max_num_seqs, max_num_batched_tokens) * model.vocabulary
    activations = 2.0 * max_num_batched_tokens * model.hidden * known.activation_widths
    return max(logits, activations) + known.runtime_gib * GIB


def available_bytes(
    gpu: Gpu,
    model: Model,
    *,
    utilization: float,
    tensor_parallel: int = 1,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    draft_bytes: float = 0.0,
) -> float:
    """Bytes of each GPU that the KV cache gets: memory times utilisation, less weights and reserve; may be negative."""
    weights = (model.dense_bytes + model.expert_bytes + draft_bytes) / tensor_parallel
    reserve = reserve_bytes(model, max_num_seqs, max_num_batched_tokens)
    return gpu.memory_gib * GIB * utilization - weights - reserve


def no_room(gpu: Gpu, model: Model, tensor_parallel: int, *, more: bool, ignored: Sequence[str] = ()) -> EngineError:
    """`more`: a higher share of the memory would do. `ignored`: flags that are not modelled, if any might."""
    weights = (model.dense_bytes + model.expert_bytes) / tensor_parallel
    spread = [shown(flag) for flag in ignored if any(word in flag for word in _ELSEWHERE)]
    share = ", or a higher --gpu-memory-utilization" if more else ""
    missed = f" ({', '.join(spread)}: not modelled)" if spread else ""
    return EngineError(
        f"No available memory for the cache blocks: {model.name} needs {weights / GIB:.1f} GiB for its weights and "
        f"{gpu.name} has {gpu.memory_gib:.1f} GiB; try another --gpu, --quantization or --tensor-parallel-size{share}"
        f"{missed}."
    )


def check_host(gpu: Gpu, offload: float, taken: float, share: float | None) -> None:
    """EngineError where CPU and GPU have one memory and it does not hold a host tier beside what the engine takes.

    All in bytes; `share`: the --gpu-memory-utilization that `taken` comes from, if it does.
    """
    if not gpu.shared or taken + offload <= gpu.memory_gib * GIB:
        return
    by = "the engine takes" if share is None else f"--gpu-memory-utilization {share:g} takes"
    raise EngineError(
        f"{offload / GIB:g} GiB of --kv-offloading-size do not fit: {gpu.name} has one memory of {gpu.memory_gib:.1f} "
        f"GiB for CPU and GPU, of which {by} {taken / GIB:.1f}; leave --kv-offloading-size out, or lower one of them."
    )


def host_gb_s(gpu: Gpu, known: Constants) -> float:
    """GB/s between the KV cache and a host tier."""
    return gpu.tbps * 1e3 * known.shared_copy_share if gpu.shared else known.host_gb_s(gpu.pcie)


def too_few_bytes(given: int, block_bytes: int) -> EngineError:
    return EngineError(
        f"No available memory for the cache blocks: --kv-cache-memory-bytes of {given:,} is less than two of "
        f"{block_bytes:,} bytes; give more."
    )


def batch_defaults(gpu: Gpu) -> tuple[int, int]:
    """The (max_num_batched_tokens, max_num_seqs) that vLLM takes for an API server on this GPU."""
    if gpu.memory_gib >= 160:
        return 16384, 1024
    if gpu.memory_gib >= 70 and "A100" not in gpu.name:
        return 8192, 1024
    return 2048, 256
