"""A model from its config.json (Hugging Face): layers by kind, parameters, what it keeps for a token or a sequence.

Parameters are counted from the sizes of the matrices; norms and biases are left out, as they are below a thousandth.
Families that are not known here are read as the usual decoder (attention and a gated MLP in each layer) where the file
holds nothing that says otherwise; what cannot be understood is an error, never a guess.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from windtunnel.simulator.emulator import model_layers, model_weights
from windtunnel.simulator.emulator.model import STATE_BYTES, Model, Mtp, Recurrent
from windtunnel.simulator.emulator.ranges import LENGTH, MODEL, SCALING, outside, wrong
from windtunnel.traces.errors import UsageError

Config = Mapping[str, Any]


class Sums(Struct):
    """Parameters of some layers."""

    dense: float = 0.0
    routed: float = 0.0
    active: float = 0.0
    """Dense ones and the share of the routed ones that a token uses."""


def read(folder: Path) -> Model:
    """The model of a folder with a config.json; UsageError, in one sentence, where it cannot be understood."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is no JSON: {error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no JSON: it is not UTF-8.") from None
    except ValueError:  # Python reads no whole number of more than 4300 digits
        raise UsageError(f"{path} is no configuration of a model: it has a number of too many digits.") from None
    except RecursionError:
        raise UsageError(f"{path} is no configuration of a model: it is nested too deep.") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path} is no configuration of a model: an object is expected.")
    sidecar = folder / "hf_quant_config.json"
    if "quantization_config" not in config and sidecar.is_file():
        try:
            config["quantization_config"] = {"quant_method": "modelopt"} | json.loads(sidecar.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{sidecar} cannot be read: {error}.") from None
        except (TypeError, RecursionError):
            raise UsageError(f"{sidecar} cannot be read: an object is expected.") from None
    name = str(config.get("_name_or_path") or folder.resolve().name)
    try:
        return of_config(config, name, source=f"config.json of {folder.resolve().name}")
    except KeyError as error:
        raise UsageError(f"{path} cannot be understood: {error.args[0]} is missing.") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be understood: {error}.") from None
    except (TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise UsageError(
            f"{path} cannot be understood: a value is of a kind that is not known here ({error})."
        ) from None


def of_config(config: Config, name: str, *, source: str) -> Model:
    """The model that a configuration describes; KeyError or ValueError names what it lacks."""
    text = _sized(_text(config))
    kinds = model_layers.layers(text)
    if all(kind.mixer == "none" for kind in kinds):
        raise ValueError("none of its layers looks at other tokens")
    hidden = _count(text, "hidden_size")
    heads = _count(text, "num_attention_heads", "n_head")
    vocabulary = _count(text, "vocab_size")
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", _tied(text))))
    body = Sums()
    for kind in kinds:
        _add(body, text, kind)
    tables = vocabulary * hidden * (1 if tied else 2)
    experts = model_layers.experts(text) if any(kind.ffn == "moe" for kind in kinds) else (0, 0)
    weights = model_weights.of(config, text)
    windowed = sum(kind.mixer == "window" for kind in kinds)
    return Model(
        name=name,
        layers=len(kinds),
        hidden=hidden,
        heads=heads,
        head_dim=model_layers.head_width(text),
        kv_heads=1 if "kv_lora_rank" in text else model_layers.kv_heads(text),
        full_layers=sum(kind.mixer == "full" for kind in kinds),
        parameters=_billions(body.dense + body.routed + tables),
        active=_billions(body.active + vocabulary * hidden),
        vocabulary=vocabulary,
        max_model_len=_longest(text),
        source=source,
        latent=text["kv_lora_rank"] + text["qk_rope_head_dim"] if "kv_lora_rank" in text else 0,
        tied=tied,
        expert_parameters=_billions(body.routed),
        experts=experts[0],
        experts_active=experts[1],
        weight_bits=weights.dense,
        expert_bits=weights.experts,
        compute_bits=weights.compute,
        kv_dtype=weights.kv_dtype,
        checkpoint=weights.checkpoint,
        window=_window(text) if windowed else 0,
        window_layers=windowed,
        recurrent=_recurrent(text, sum(kind.mixer in ("mamba", "delta") for kind in kinds)),
        mtp=_mtp(text, weights.mtp),
    )


def _text(config: Config) -> Config:
    """The language model's part of a configuration that also has others."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(part := config.get(key), dict):
            return {"model_type": config.get("model_type"), **part}
    return config


def _sized(text: Config) -> Config:
    """With all sizes as whole numbers, and without those that are null; ValueError for one that no model has."""
    if said := wrong(text, MODEL):
        raise ValueError(said)
    return {
        key: int(value) if key in MODEL else value
        for key, value in text.items()
        if value is not None or key not in MODEL
    }


def _add(sums: Sums, text: Config, kind: model_layers.Kind) -> None:
    mixer = model_layers.mixer_parameters(text, kind.mixer)
    dense, routed = model_layers.ffn_parameters(text, kind.ffn)
    sums.dense += mixer + dense
    sums.routed += routed
    sums.active += mixer + dense
    if routed:
        experts, used = model_layers.experts(text)
        sums.active += routed * used / experts


def _mtp(text: Config, bits: float) -> Mtp | None:
    """MTP layers: full attention and a feed-forward part as the model's last layers have, over two hidden states."""
    count = next(
        (
            text[key]
            for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
            if text.get(key) is not None
        ),
        1 if text.get("model_type") == "qwen3_next" else 0,
    )
    if not count:
        return None
    sums = Sums()
    ffn: model_layers.Ffn = "moe" if model_layers.has_experts(text) else "dense"
    for _ in range(count):
        _add(sums, text, model_layers.Kind("full", ffn))
        joined = 2 * text["hidden_size"] ** 2
        sums.dense += joined
        sums.active += joined
    return Mtp(
        layers=count,
        parameters=_billions(sums.dense + sums.routed),
        active=_billions(sums.active),
        attention_layers=count,
        bits=bits,
    )


def _recurrent(text: Config, layers: int) -> Recurrent | None:
    if not layers:
        return None
    if "mamba_num_heads" in text:
        heads, width, state = text["mamba_num_heads"], text["mamba_head_dim"], text["ssm_state_size"]
        groups = text.get("n_groups", text.get("mamba_n_groups", 1))
        return Recurrent(
            layers=layers,
            channels=heads * width + 2 * groups * state,
            kernel=text.get("conv_kernel", text.get("mamba_d_conv", 4)),
            values=heads * width * state,
            dtype=_dtype(text, "mamba_ssm_cache_dtype", "float32"),
        )
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    return Recurrent(
        layers=layers,
        channels=2 * keys + values,
        kernel=text.get("linear_conv_kernel_dim", 4),
        values=values * text["linear_key_head_dim"],
        # Without a word in the file, the state has the model's own width.
        dtype=_dtype(text, "mamba_ssm_dtype", "bfloat16"),
        kind="delta",
    )


def _dtype(text: Config, key: str, usual: str) -> str:
    dtype = text.get(key) or usual
    if dtype not in list(STATE_BYTES):
        raise ValueError(f"{key} is {str(dtype)[:40]!r} and must be one of {', '.join(STATE_BYTES)}")
    return str(dtype)


def _longest(text: Config) -> int:
    """The length as vLLM 0.32 derives it: scaling of rotary embeddings counts but where the file has it scaled."""
    longest = _count(text, "max_position_embeddings", "model_max_length", "max_sequence_length", "seq_length")
    scaling = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    scaled = kind in ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "mrope")
    # Gemma 3 writes the scaled length, whatever the kind.
    scaled = scaled or "gemma3" in str(text.get("model_type"))
    if said := outside("its length", longest, LENGTH):
        raise ValueError(said)
    factor = scaling.get("factor")
    if scaled or factor is None:
        return longest
    if said := outside("the factor of its rope scaling", factor, SCALING):
        raise ValueError(said)
    return max(1, int(longest * factor))


def _window(text: Config) -> int:
    window = text.get("sliding_window")
    if not isinstance(window, int) or window < 1:
        raise KeyError("sliding_window")
    return window


def _tied(text: Config) -> bool:
    """What the family does where its file is silent."""
    return text.get("model_type") in ("gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2")


def _count(text: Config, *names: str) -> int:
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 1:
                raise ValueError(f"{name} is {value}")
            return value
    raise KeyError(names[0])


def _billions(count: float) -> float:
    """To 1e9, with three digits where that is exact enough."""
    return round(count / 1e9, 3) if count >= 1e7 else count / 1e9
