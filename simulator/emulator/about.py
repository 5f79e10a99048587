"""What the emulated engine says of itself: its settings as vLLM lays them out, and the labels of all its times."""

from typing import Any

from windtunnel.simulator.emulator.assumptions import assumptions
from windtunnel.simulator.emulator.flags import VLLM_VERSION, Settings
from windtunnel.simulator.emulator.profile import Profile
from windtunnel.simulator.emulator.steptime import ERROR_BAR


def describe(settings: Settings) -> dict[str, Any]:
    """The resolved settings, laid out as vLLM's configuration."""
    limits = settings.limits
    return {
        "model_config": {
            "model": settings.model.name,
            "served_model_name": list(settings.served),
            "max_model_len": limits.max_model_len,
            "quantization": settings.quantization,
            "enforce_eager": settings.eager,
            "seed": settings.seed,
        },
        "cache_config": {
            "block_size": limits.block_size,
            "num_gpu_blocks": limits.num_gpu_blocks,
            "kv_cache_size_tokens": settings.kv_tokens,
            "kv_cache_max_concurrency": settings.kv_tokens / limits.max_model_len,
            "cache_dtype": settings.kv_dtype,
            "gpu_memory_utilization": settings.utilization,
            "enable_prefix_caching": limits.enable_prefix_caching,
            "prefix_caching_hash_algo": "sha256",
            "prefix_match_unit": None,
            "sliding_window": limits.window or None,
            "mamba_cache_mode": settings.mamba_mode,
            "mamba_ssm_cache_dtype": settings.mode.ssm_dtype,
            "num_cpu_blocks": None,
        },
        "scheduler_config": {
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "long_prefill_token_threshold": limits.long_prefill_token_threshold,
            "enable_chunked_prefill": True,
            "policy": "priority" if limits.priority else "fcfs",
            "async_scheduling": settings.asynchronous,
            "scheduler_reserve_full_isl": limits.scheduler_reserve_full_isl,
            "watermark": limits.watermark,
        },
        "parallel_config": {"tensor_parallel_size": settings.tensor_parallel},
        "speculative_config": _speculative(settings),
        "mamba_config": {
            "backend": settings.mode.mamba_backend,
            "enable_stochastic_rounding": settings.mode.stochastic_rounding,
        },
        "offload_config": {"kv_offload_blocks": limits.offload_blocks},
    }


def _error(profile: Profile) -> float:
    """Of runs that the profile was not fitted to, where there were any."""
    error = profile.error
    return error.in_sample if error.held_out is None else error.held_out


def _speculative(settings: Settings) -> dict[str, Any] | None:
    drafted = settings.speculation
    return None if drafted is None else {"method": drafted.method, "num_speculative_tokens": drafted.k}


def labels(settings: Settings) -> dict[str, Any]:
    """What every result of this engine must be labelled with."""
    profile = settings.profile
    return {
        "emulated": True,
        "emulates": f"vLLM {VLLM_VERSION}",
        "gpu": settings.gpu.name,
        "gpu_source": settings.gpu.source,
        "model": settings.model.name,
        "model_source": settings.model.source,
        "fit": settings.reached.fit if profile is None else profile.label,
        "calibrated": profile is not None,
        "unverified": list(settings.unverified),
        "error_bar": ERROR_BAR if profile is None else _error(profile),
        "assumptions": [
            {"name": name, "value": value, "source": source} for name, value, source in assumptions(settings)
        ],
        "omp_threads": settings.mode.threads,
        "ignored_flags": list(settings.ignored),
    }
