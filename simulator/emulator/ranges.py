"""Between which values a number in a description of a GPU, a profile or a model can be meant.

The emulator divides by most of them: what is no number, not finite or far from all hardware is refused where its file
is read, and nothing behind that has to expect it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Range(NamedTuple):
    low: float
    high: float
    whole: bool = False
    """Only numbers without a fraction."""

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and (not self.whole or value == math.floor(value))

    def __str__(self) -> str:
        return f"{'a whole number' if self.whole else 'a number'} from {_told(self.low)} to {_told(self.high)}"


_SHARE = Range(0.001, 10)
"""Of a peak; above 1 where the formula that it belongs to counts too much."""
_MS = Range(0, 1e6)
_US = Range(0, 1e6)
_GB_S = Range(0.001, 1e6)
_TFLOPS = Range(0.1, 1e6)

GPU: Mapping[str, Range] = {
    "memory_gib": Range(0.1, 1e4),
    "tbps": Range(0.001, 1e4),
    "bf16": _TFLOPS,
    "fp8": _TFLOPS,
    "fp4": _TFLOPS,
    "watts": Range(0, 1e6, whole=True),
    "capability": Range(0, 100),
    "pcie": Range(1, 10, whole=True),
}
REACHED: Mapping[str, Range] = {
    "hw": _SHARE,
    "hf": _SHARE,
    "hk": _SHARE,
    "ha": _SHARE,
    "he": _SHARE,
    "he_bits": Range(1, 32),
    "hfe": _SHARE,
    "hk8": _SHARE,
    "step_ms": _MS,
    "seq_us": _US,
    "layer_us": _US,
    "request_ms": _MS,
    "prompt_us": _US,
}
FIGURES: Mapping[str, Range] = {
    "skew": Range(0.01, 1),
    "unpacked": _SHARE,
    "unpacked_dense": _SHARE,
    "eager_layer_us": _US,
    "piecewise_layer_us": _US,
    "cpu_step_ms": _MS,
    "cpu_sequence_us": _US,
    "threads_factor": Range(0.001, 1000),
    "exchange_us": _US,
    "exchange_gb_s": _GB_S,
    "pcie_exchange_us": _US,
    "pcie_exchange_share": _SHARE,
    "draft_pass_us": _US,
    "eagle_layer": Range(0, 1000),
    "eagle3_vocabulary": Range(1, 1e7),
    "lookup_us": _US,
    "state_triton": _SHARE,
    "state_flashinfer": _SHARE,
    "rounding_factor": Range(0.001, 1000),
    "offload_gb_s": _GB_S,
    "pcie_4_gb_s": _GB_S,
    "shared_copy_share": _SHARE,
    "runtime_gib": Range(0, 1e4),
    "activation_widths": Range(0, 1e4),
}
"""As in constants.toml."""
ERROR: Mapping[str, Range] = {name: Range(0, 1e6) for name in ("in_sample", "held_out", "before")}

_WIDTH = Range(1, 1 << 20, whole=True)
_COUNT = Range(1, 1 << 16, whole=True)
_OPTIONAL_WIDTH = Range(0, 1 << 20, whole=True)
_OPTIONAL_COUNT = Range(0, 1 << 16, whole=True)
LENGTH = Range(1, 1 << 30, whole=True)
MODEL: Mapping[str, Range] = {
    "num_hidden_layers": Range(1, 1 << 12, whole=True),
    "hidden_size": _WIDTH,
    "intermediate_size": _OPTIONAL_WIDTH,
    "vocab_size": Range(1, 1 << 24, whole=True),
    "num_attention_heads": _COUNT,
    "n_head": _COUNT,
    "num_key_value_heads": _COUNT,
    "head_dim": _WIDTH,
    "kv_lora_rank": _WIDTH,
    "q_lora_rank": _OPTIONAL_WIDTH,
    "qk_rope_head_dim": _OPTIONAL_WIDTH,
    "qk_nope_head_dim": _OPTIONAL_WIDTH,
    "v_head_dim": _WIDTH,
    "num_experts": _OPTIONAL_COUNT,
    "n_routed_experts": _OPTIONAL_COUNT,
    "num_local_experts": _OPTIONAL_COUNT,
    "moe_num_experts": _OPTIONAL_COUNT,
    "num_experts_per_tok": _OPTIONAL_COUNT,
    "experts_per_token": _OPTIONAL_COUNT,
    "moe_topk": _OPTIONAL_COUNT,
    "n_shared_experts": _OPTIONAL_COUNT,
    "num_shared_experts": _OPTIONAL_COUNT,
    "moe_intermediate_size": _OPTIONAL_WIDTH,
    "moe_shared_expert_intermediate_size": _OPTIONAL_WIDTH,
    "shared_expert_intermediate_size": _OPTIONAL_WIDTH,
    "moe_latent_size": _OPTIONAL_WIDTH,
    "first_k_dense_replace": _OPTIONAL_COUNT,
    "full_attention_interval": _OPTIONAL_COUNT,
    "max_window_layers": _OPTIONAL_COUNT,
    "sliding_window": Range(0, 1 << 30, whole=True),
    "sliding_window_pattern": _OPTIONAL_COUNT,
    "num_nextn_predict_layers": Range(0, 64, whole=True),
    "mtp_num_hidden_layers": Range(0, 64, whole=True),
    "num_mtp_layers": Range(0, 64, whole=True),
    "mamba_num_heads": _COUNT,
    "mamba_head_dim": _WIDTH,
    "ssm_state_size": _WIDTH,
    "n_groups": _COUNT,
    "mamba_n_groups": _COUNT,
    "conv_kernel": _COUNT,
    "mamba_d_conv": _COUNT,
    "linear_num_key_heads": _COUNT,
    "linear_key_head_dim": _WIDTH,
    "linear_num_value_heads": _COUNT,
    "linear_value_head_dim": _WIDTH,
    "linear_conv_kernel_dim": _COUNT,
}
"""Keys of a config.json that are sizes; 0 where families say so that they have none of it."""
SCALING = Range(0.001, 1 << 16)
BITS = Range(1, 32, whole=True)


def wrong(values: Mapping[str, Any], ranges: Mapping[str, Range], within: str = "") -> str | None:
    """What is wrong with the first value outside its range, in words: its key (behind `within`), value and range.

    A value that is None counts as not given. What is no number at all is as wrong as one out of range.
    """
    for name, allowed in ranges.items():
        value = values.get(name)
        if value is not None and (said := outside(f"{within}{name}", value, allowed)):
            return said
    return None


def outside(name: str, value: object, allowed: Range) -> str | None:
    """The same for one value."""
    if isinstance(value, int | float) and not isinstance(value, bool) and allowed.holds(value):
        return None
    return f"{name} is {_short(value)} and must be {allowed}"


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _short(value: object) -> str:
    """What stands there, without control characters and never longer than a line."""
    try:
        said = f"{value:g}" if isinstance(value, float) else repr(value)
    except ValueError:  # too many digits to be written out
        return "an enormous number"
    except RecursionError:
        return "nested too deep"
    return said if len(said) <= 40 else f"{said[:36]}..."
