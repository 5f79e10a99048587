"""What vLLM itself refuses: values out of range and combinations that do not work, in its words.

And which values of modelled flags are not modelled.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from windtunnel.simulator.emulator.facts import Gpu
from windtunnel.simulator.emulator.flag_parser import AUTO
from windtunnel.simulator.emulator.graphs import MODES
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.speculation import Speculation
from windtunnel.traces.errors import UsageError

_LEAST = {
    "block_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "num_gpu_blocks_override": 2,
    "kv_cache_memory_bytes": 1,
    "max_cudagraph_capture_size": 1,
    "mamba_block_size": 1,
    "mamba_cache_philox_rounds": 0,
    "prefix_cache_retention_interval": 0,
    "kv_offloading_size": 0,
    "port": 0,
    "long_prefill_token_threshold": 0,
}
_KERNEL_BLOCK = 16
_COMPILED = ("mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")


def ranges(known: argparse.Namespace) -> None:
    """Each flag's own limits."""
    for name, low in _LEAST.items():
        value = getattr(known, name)
        if value is not None and value < low:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {low}, not {value}.")
    if known.max_model_len is not None and known.max_model_len < 1 and known.max_model_len != AUTO:
        raise UsageError(f"--max-model-len must be at least 1, not {known.max_model_len}.")
    if known.port > 65535:
        raise UsageError(f"--port must be at most 65535, not {known.port}.")
    if not 0 <= known.tool_calls <= 1:
        raise UsageError(f"--tool-calls must be in [0, 1], not {known.tool_calls}.")
    if not 0 < known.gpu_memory_utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization must be in (0, 1], not {known.gpu_memory_utilization}.")
    if not 0 <= known.watermark < 1:
        raise UsageError(f"--watermark must be in [0, 1), not {known.watermark}.")
    if any(size < 1 for size in known.cudagraph_capture_sizes or ()):
        raise UsageError("--cudagraph-capture-sizes must be at least 1 each.")


def parallel(known: argparse.Namespace, model: Model) -> None:
    shards = known.tensor_parallel_size
    if model.heads % shards:
        raise UsageError(
            f"Total number of attention heads ({model.heads}) must be divisible by tensor parallel size ({shards})."
        )
    if model.kv_heads % shards and shards % model.kv_heads and not model.latent:
        raise UsageError(
            f"Total number of KV heads ({model.kv_heads}) and tensor parallel size ({shards}) must divide one another."
        )
    if known.data_parallel_size > 1:
        raise UsageError(
            f"--data-parallel-size {known.data_parallel_size} is not modelled, as one engine is emulated: start one "
            "emulator a replica."
        )


def blocks(known: argparse.Namespace, gpu: Gpu, model: Model) -> None:
    """Sizes of a block that no attention backend takes: but for latent attention on AMD all want multiples of 16."""
    size = known.block_size
    if size is None or size % _KERNEL_BLOCK == 0 or (model.latent and gpu.capability < 1):
        return
    platform = "cuda" if gpu.capability >= 1 else "this GPU"
    raise UsageError(
        f"No valid attention backend found for {platform} with block_size={size}, which is no multiple of "
        f"{_KERNEL_BLOCK}: set --block-size {max(_KERNEL_BLOCK, size // _KERNEL_BLOCK * _KERNEL_BLOCK)}."
    )


def batch(known: argparse.Namespace, tokens: int, seqs: int, longest: int) -> None:
    if tokens < longest and not known.enable_chunked_prefill:
        raise UsageError(
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len ({longest}): increase "
            "--max-num-batched-tokens, decrease --max-model-len, or leave chunked prefill on."
        )
    if tokens < seqs:
        raise UsageError(f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs}).")
    if known.long_prefill_token_threshold > longest:
        raise UsageError(
            f"long_prefill_token_threshold ({known.long_prefill_token_threshold}) cannot be greater than the "
            f"max_model_len ({longest})."
        )


def state(known: argparse.Namespace, gpu: Gpu) -> None:
    """Flags of recurrent state."""
    if known.mamba_block_size is not None and not known.enable_prefix_caching:
        raise UsageError("--mamba-block-size can only be set with --enable-prefix-caching.")
    if not known.enable_mamba_cache_stochastic_rounding:
        return
    if gpu.capability < 1:
        raise UsageError("Stochastic rounding for Mamba cache is only supported on NVIDIA CUDA platforms.")
    if known.mamba_backend == "triton" and not gpu.data_centre_blackwell:
        raise UsageError(
            "Stochastic rounding for Mamba cache with triton backend requires compute capability 10.0 (data center "
            f"Blackwell), and {gpu.name} has {gpu.capability}: set --mamba-backend flashinfer."
        )
    if known.mamba_ssm_cache_dtype != "float16":
        raise UsageError(
            "Stochastic rounding for Mamba cache requires the SSM cache to be float16: set --mamba-ssm-cache-dtype "
            "float16."
        )


def asynchronous(wanted: bool | None, speculation: Speculation | None) -> bool:
    """On by default where the method of speculation allows it."""
    able = speculation is None or speculation.asynchronous
    if wanted and not able and speculation is not None:
        if speculation.method in ("ngram", "suffix", "medusa"):
            raise UsageError(
                "Currently, async scheduling is only supported with EAGLE/MTP/Draft Model/NGram GPU/DSpark/DFlash kind "
                f"of speculative decoding, not {speculation.method}: leave --async-scheduling out."
            )
        raise UsageError("Async scheduling is not compatible with disable_padded_drafter_batch=True.")
    return able if wanted is None else wanted


def speculative(known: argparse.Namespace) -> Mapping[str, Any] | None:
    """The `--speculative-config` object, or the same from the three short flags."""
    short = {"method": known.spec_method, "model": known.spec_model, "num_speculative_tokens": known.spec_tokens}
    short = {key: value for key, value in short.items() if value is not None}
    if known.speculative_config is not None and short:
        raise UsageError("--spec-method, --spec-model and --spec-tokens cannot be used with --speculative-config.")
    return known.speculative_config if known.speculative_config is not None else short or None


def graph_mode(known: argparse.Namespace) -> str:
    """The mode of CUDA graphs, and a check of what else `--compilation-config` says of them."""
    config = known.compilation_config
    for key in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        if getattr(known, key) is not None and config.get(key) is not None:
            raise UsageError(f"{key} and compilation_config.{key} are mutually exclusive.")
    compiled = str(config.get("mode", 3)).upper()
    wanted = config.get("cudagraph_mode")
    mode = "FULL_AND_PIECEWISE" if wanted is None else str(wanted).upper()
    if mode not in MODES:
        raise UsageError(f"--compilation-config: Invalid cudagraph_mode {wanted}: use one of {', '.join(MODES)}.")
    if known.enforce_eager:
        return "NONE"
    if compiled not in ("3", "VLLM_COMPILE"):
        # Pieces are cut by vLLM's own compilation.
        return {"FULL_AND_PIECEWISE": "FULL_DECODE_ONLY", "PIECEWISE": "NONE"}.get(mode, mode)
    return mode


def unmodelled(known: argparse.Namespace, offloads: bool) -> list[str]:
    """Modelled flags whose value is not modelled."""
    config = known.compilation_config
    unused = [f"--compilation-config.{key} {json.dumps(config[key])}" for key in config if key not in _COMPILED]
    if not known.enable_chunked_prefill:
        unused.append("--no-enable-chunked-prefill")
    unused += unspread(known)
    if known.kv_offloading_size and not offloads:
        unused.append(f"--kv-offloading-size {known.kv_offloading_size:g}")
    return unused


def unspread(known: argparse.Namespace) -> list[str]:
    return [f"--pipeline-parallel-size {known.pipeline_parallel_size}"] if known.pipeline_parallel_size > 1 else []
