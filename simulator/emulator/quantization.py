"""What `--quantization` names, and what it does with a checkpoint that is quantised already.

As vLLM 0.32 decides it (`_verify_quantization` in config/model.py): some checkpoints are read in their own format
whatever the flag says, others are refused under another name.
"""

from windtunnel.traces.errors import UsageError

QUANTISED = {
    "fp8": (8.0, 8.0),
    "fp8_per_tensor": (8.0, 8.0),
    "fp8_per_block": (8.0, 8.0),
    "fp8_per_channel": (8.0, 8.0),
    "fbgemm_fp8": (8.0, 8.0),
    "mxfp8": (8.25, 8.0),
    "modelopt": (8.0, 8.0),
    "modelopt_mxfp8": (8.25, 8.0),
    "compressed-tensors": (8.0, 8.0),
    "modelopt_fp4": (4.5, 4.0),
    "nvfp4": (4.5, 4.0),
    "nvfp4_per_token": (4.5, 4.0),
    "mxfp4": (4.25, 16.0),
    "gpt_oss_mxfp4": (4.25, 16.0),
    "awq": (4.5, 16.0),
    "auto_awq": (4.5, 16.0),
    "awq_marlin": (4.5, 16.0),
    "gptq": (4.5, 16.0),
    "auto_gptq": (4.5, 16.0),
    "gptq_marlin": (4.5, 16.0),
    "bitsandbytes": (4.5, 16.0),
}
"""Bits per weight with their scales, and of the format computed in."""
ONLINE = (
    "fp8",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "mxfp8",
    "mxfp4",
    "nvfp4_per_token",
    "bitsandbytes",
)
"""What vLLM makes of a 16-bit checkpoint as it loads it (its pages on online quantization and bitsandbytes); all others
are read from a checkpoint made so.
"""
EXPERTS_ONLY = ("gpt_oss_mxfp4", "nvfp4_per_token", "int8_per_channel_weight_only")
"""Without a part for dense layers, which stay as they are."""

UNMODELLED = (
    "deepseek_v4_fp8",
    "experts_int8",
    "fp_quant",
    "inc",
    "int8_per_channel_weight_only",
    "modelopt_mixed",
    "moe_wna16",
    "online",
    "quark",
    "torchao",
)
"""Further names of vLLM's: a checkpoint that is quantised already may prevail over them."""
OTHER = "nvfp4"
"""Our own name, none of vLLM's: the checkpoint that others published of the model in that format."""
_NAMES = {
    "awq": ("awq", "auto_awq", "awq_marlin"),
    "gptq": ("gptq", "auto_gptq", "gptq_marlin"),
    "gpt_oss_mxfp4": ("gpt_oss_mxfp4", "mxfp4"),
}
"""What the format of a checkpoint may also be called."""
_PREVAILING = ("gpt_oss_mxfp4", "modelopt", "modelopt_fp4", "modelopt_mixed", "auto-round")
"""Checkpoints whose own format is taken whatever the flag says."""
_LATER = ("fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "nvfp4_per_token", "int8_per_channel_weight_only")
"""What vLLM would make even of weights that a prevailing checkpoint has quantised (weight_utils.py)."""
_TOLD = {"awq": "auto_awq", "gptq": "auto_gptq", "auto-round": "inc"}


def told(checkpoint: str) -> str | None:
    """How vLLM names the format of a checkpoint among its settings; None for 16 bit."""
    return _TOLD.get(checkpoint, checkpoint) or None


def converts(checkpoint: str, method: str, *, experts: bool) -> bool:
    """Whether the weights are in what `method` names rather than in the checkpoint's own format.

    UsageError where vLLM refuses the two together.
    """
    if not checkpoint:
        return True
    if method in _own(checkpoint):
        return False
    if checkpoint in _PREVAILING:
        if method in _LATER and experts:
            raise UsageError(
                f"Requantizing checkpoint-quantized MoE layers is not supported: leave --quantization {method} out."
            )
        if method in _LATER and method not in EXPERTS_ONLY:
            raise UsageError(
                f"--quantization {method} is not modelled for a checkpoint in {told(checkpoint)}: leave it out."
            )
        return False
    if method == OTHER:
        return True
    raise UsageError(
        f"Quantization method specified in the model config ({checkpoint}) does not match the quantization method "
        f"specified in the `quantization` argument ({method}): leave --quantization out."
    )


def idle(checkpoint: str, method: str | None, *, experts: bool) -> bool:
    """Whether the flag names another format than the checkpoint's and changes nothing."""
    if method is None or not checkpoint or method in _own(checkpoint):
        return False
    return not converts(checkpoint, method, experts=experts)


def _own(checkpoint: str) -> tuple[str, ...]:
    return _NAMES.get(checkpoint, (checkpoint,))
