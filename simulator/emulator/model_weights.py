"""The format of a checkpoint's weights from the `quantization_config` of its config.json."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from windtunnel.simulator.emulator.ranges import BITS, outside

Config = Mapping[str, Any]
_SCALED = {4: 4.5, 8: 8.0}
"""Bits a weight with its scales: one of 8 bit for 16 weights, or nothing to speak of."""


class Weights(Struct, frozen=True):
    """Bits."""

    dense: float = 16
    experts: float = 16
    compute: float = 16
    kv_dtype: str = "auto"
    mtp: float = 16
    checkpoint: str = ""
    """As vLLM names the format; empty for 16 bit."""


def of(config: Config, text: Config) -> Weights:
    """ValueError for a method that is not known here."""
    quantised = config.get("quantization_config") or text.get("quantization_config")
    if not quantised:
        return Weights()
    if not isinstance(quantised, dict):
        raise TypeError("quantization_config is no object")
    weights = msgspec.structs.replace(_body(quantised), checkpoint=_name(quantised, config))
    kept = any("mtp" in str(name) for key in _KEPT for name in quantised.get(key) or ())
    return weights if kept else msgspec.structs.replace(weights, mtp=weights.dense)


_KEPT = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")
"""Under which names methods list the modules that stay 16 bit."""


def _name(quantised: Config, config: Config) -> str:
    """What vLLM makes of `quant_method` by the rest of the file (each method's `override_quantization_method`)."""
    method = _method(quantised)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return "gpt_oss_mxfp4" if config.get("model_type") == "gpt_oss" else method
    if not method.startswith("modelopt"):
        return method
    algorithm = _algorithm(quantised.get("quantization", quantised))
    return {"FP8": "modelopt", "MIXED_PRECISION": "modelopt_mixed"}.get(algorithm, "modelopt_fp4")


def _method(quantised: Config) -> str:
    return str(quantised.get("quant_method", "")).lower()


def _algorithm(inner: Config) -> str:
    return str(inner.get("quant_algo", "")).upper()


def _body(quantised: Config) -> Weights:
    method = _method(quantised)
    if method in ("fp8", "fbgemm_fp8"):
        return Weights(8, 8, 8)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return Weights(16, 4.25, 16)
    if method in ("awq", "gptq", "auto-round", "inc", "bitsandbytes"):
        bits = _bits(quantised.get("bits") or (8 if quantised.get("load_in_8bit") else 4), "bits")
        width = _SCALED.get(bits, float(bits))
        return Weights(width, width, 16)
    if method.startswith("modelopt"):
        return _modelopt(quantised)
    if method == "compressed-tensors":
        return _compressed(quantised)
    raise ValueError(f"quant_method {method!r} is not known here")


def _modelopt(quantised: Config) -> Weights:
    inner = quantised.get("quantization", quantised)
    algorithm = _algorithm(inner)
    cache = inner.get("kv_cache_quant_algo") or _cache_scheme(inner)
    kv_dtype = "fp8" if cache and "8" in str(cache) else "auto"
    ignored = inner.get("ignore") or inner.get("exclude_modules") or ()
    kept = any(word in str(name) for name in ignored for word in ("attn", "mixer", "attention"))
    if algorithm == "FP8":
        return Weights(16 if kept else 8, 8, 8, kv_dtype)
    if algorithm in ("NVFP4", "FP4"):
        return Weights(16 if kept else 4.5, 4.5, 4, kv_dtype)
    if algorithm == "MIXED_PRECISION":
        # NVFP4 where most weights are, the experts, and FP8 around them.
        four = "FP4" in json.dumps(inner.get("quantized_layers", inner)).upper()
        return Weights(8, 4.5 if four else 8, 4 if four else 8, kv_dtype)
    raise ValueError(f"quant_algo {algorithm!r} is not known here")


def _cache_scheme(quantised: Config) -> str | None:
    scheme = quantised.get("kv_cache_scheme")
    return f"fp{scheme.get('num_bits')}" if isinstance(scheme, dict) else None


def _bits(value: Any, name: str) -> int:
    if said := outside(f"{name} of quantization_config", value, BITS):
        raise ValueError(said)
    return int(value)


def _compressed(quantised: Config) -> Weights:
    groups = quantised.get("config_groups") or {}
    widths, computed = [], []
    for group in groups.values():
        bits = _bits((group.get("weights") or {}).get("num_bits", 16), "num_bits")
        activations = group.get("input_activations") or {}
        widths.append(_SCALED.get(bits, float(bits)))
        computed.append(float(max(bits, _bits(activations.get("num_bits", 16), "num_bits"))))
    if not widths:
        raise ValueError("compressed-tensors without config_groups is not known here")
    ignored = quantised.get("ignore") or ()
    kept = any("attn" in str(name) for name in ignored)
    cache = _cache_scheme(quantised)
    return Weights(16 if kept else max(widths), min(widths), min(computed), "fp8" if cache == "fp8" else "auto")
