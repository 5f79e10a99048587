"""The layers of a configuration by kind, and the parameters in each."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Config = Mapping[str, Any]
Mixer = Literal["full", "window", "mamba", "delta", "none"]
Ffn = Literal["dense", "moe", "none"]


class Kind(NamedTuple):
    mixer: Mixer
    ffn: Ffn


_LETTERS: dict[str, Kind] = {
    "M": Kind("mamba", "none"),
    "E": Kind("none", "moe"),
    "*": Kind("full", "none"),
    "-": Kind("none", "dense"),
}
_BLOCKS = {"mamba": "M", "moe": "E", "attention": "*", "mlp": "-"}
_MIXERS: dict[str, Mixer] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "linear_attention": "delta",
}
_RECURRENT_FAMILIES = (
    "mamba",
    "jamba",
    "falcon_h1",
    "bamba",
    "granitemoehybrid",
    "lfm2",
    "rwkv",
    "zamba",
    "minimax_m1",
)


_FOREIGN = {
    "index_topk": "sparse attention",
    "indexer_n_heads": "sparse attention",
    "attention_chunk_size": "attention in chunks",
    "attn_type_list": "linear attention of another kind",
    "linear_attn_config": "linear attention of another kind",
    "block_configs": "layers of different widths",
    "is_encoder_decoder": "an encoder",
}
"""Keys of what is not known here: to read such a model as another would be a silent error."""


def layers(text: Config) -> list[Kind]:
    """One entry a layer, in order; ValueError for a kind that is not known."""
    for key, meaning in _FOREIGN.items():
        if text.get(key):
            raise ValueError(f"{meaning} ({key}) is not known here")
    if "hybrid_override_pattern" in text or "layers_block_type" in text:
        return _hybrid(text)
    family = str(text.get("model_type") or "")
    if family.startswith(_RECURRENT_FAMILIES):
        raise ValueError(f"layers of model_type {family} are not known here")
    count = text["num_hidden_layers"]
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"num_hidden_layers is {count}")
    mixers = _mixers(text, count)
    return [Kind(mixer, _ffn(text, index)) for index, mixer in enumerate(mixers)]


def _hybrid(text: Config) -> list[Kind]:
    blocks = text.get("layers_block_type")
    pattern = text.get("hybrid_override_pattern") or "".join(_BLOCKS.get(block, block) for block in blocks or ())
    unknown = sorted(set(pattern) - set(_LETTERS))
    if unknown:
        raise ValueError(f"layers of kind {unknown[0]!r} are not known here")
    return [_LETTERS[letter] for letter in pattern]


def _mixers(text: Config, count: int) -> list[Mixer]:
    types = text.get("layer_types")
    if types:
        unknown = sorted({kind for kind in types if kind not in _MIXERS})
        if unknown:
            raise ValueError(f"layers of kind {unknown[0]!r} are not known here")
        if len(types) != count:
            raise ValueError(f"layer_types has {len(types)} entries for {count} layers")
        return [_MIXERS[kind] for kind in types]
    every = text.get("full_attention_interval")
    if "linear_num_value_heads" in text:
        every = every or 4
        return ["full" if (index + 1) % every == 0 else "delta" for index in range(count)]
    window = text.get("sliding_window")
    if window and text.get("use_sliding_window", True):
        if text.get("model_type") == "gpt_oss":
            return ["full" if index % 2 else "window" for index in range(count)]
        first = text.get("max_window_layers")
        if pattern := text.get("sliding_window_pattern"):
            return ["full" if (index + 1) % pattern == 0 else "window" for index in range(count)]
        return ["full" if first is not None and index < first else "window" for index in range(count)]
    return ["full"] * count


def _ffn(text: Config, index: int) -> Ffn:
    if not has_experts(text):
        return "dense"
    kinds = text.get("mlp_layer_types")
    if kinds:
        if index >= len(kinds):
            raise ValueError(f"mlp_layer_types has {len(kinds)} entries, fewer than there are layers")
        return "moe" if kinds[index] == "sparse" else "dense"
    if index < (text.get("first_k_dense_replace") or 0) or index in (text.get("mlp_only_layers") or ()):
        return "dense"
    step = text.get("decoder_sparse_step", text.get("moe_layer_freq", 1))
    return "moe" if not isinstance(step, int) or step < 2 or (index + 1) % step == 0 else "dense"


def has_experts(text: Config) -> bool:
    return any(text.get(key) for key in _EXPERTS)


_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


def experts(text: Config) -> tuple[int, int]:
    """Routed experts in a layer, and those that a token uses."""
    count = next(text[key] for key in _EXPERTS if text.get(key))
    used = next((text[key] for key in ("num_experts_per_tok", "experts_per_token", "moe_topk") if text.get(key)), None)
    if used is None:
        raise KeyError("num_experts_per_tok")
    if used > count:
        raise ValueError(f"a token uses {used} of {count} experts")
    return int(count), int(used)


def kv_heads(text: Config) -> int:
    heads = text.get("num_key_value_heads")
    return int(text["num_attention_heads"] if heads is None else heads)


def head_width(text: Config) -> int:
    """Width of a head; with latent attention the mean of query and value width."""
    if "kv_lora_rank" in text:
        return int(text["qk_nope_head_dim"] + text["qk_rope_head_dim"] + text["v_head_dim"]) // 2
    width = text.get("head_dim")
    width = int(width if width is not None else text["hidden_size"] // text["num_attention_heads"])
    if width < 1:
        raise ValueError(f"{text['num_attention_heads']} heads share a hidden_size of {text['hidden_size']}")
    return width


def mixer_parameters(text: Config, mixer: Mixer) -> float:
    """Weights of one layer's attention or recurrent part."""
    hidden = text["hidden_size"]
    if mixer == "none":
        return 0.0
    if mixer == "mamba":
        inner = text["mamba_num_heads"] * text["mamba_head_dim"]
        channels = inner + 2 * text.get("n_groups", text.get("mamba_n_groups", 1)) * text["ssm_state_size"]
        return float(hidden * (inner + channels + text["mamba_num_heads"]) + inner * hidden + channels * 4)
    if mixer == "delta":
        keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
        values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
        return float(hidden * (2 * keys + 2 * values + 2 * text["linear_num_value_heads"]) + values * hidden)
    heads = text["num_attention_heads"]
    if "kv_lora_rank" in text:
        return _latent(text, hidden, heads)
    width = head_width(text)
    # Qwen3-Next and later gate the attention's output: queries come with a gate of the same width.
    gated = 2 if text.get("attn_output_gate", "linear_num_value_heads" in text) else 1
    return float(hidden * width * (heads * gated + 2 * kv_heads(text) + heads))


def _latent(text: Config, hidden: int, heads: int) -> float:
    rank, rope, nope, value = (
        text[key] for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    )
    query = heads * (nope + rope)
    narrow = text.get("q_lora_rank")
    queries = hidden * narrow + narrow * query if narrow else hidden * query
    return float(queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden)


def ffn_parameters(text: Config, ffn: Ffn) -> tuple[float, float]:
    """Weights of one layer's feed-forward part: dense ones (shared experts and the router too), routed ones."""
    if ffn == "none":
        return 0.0, 0.0
    hidden = text["hidden_size"]
    matrices = 2 if text.get("mlp_hidden_act") == "relu2" else 3
    if ffn == "dense":
        return float(matrices * hidden * text["intermediate_size"]), 0.0
    count, _ = experts(text)
    width = text.get("moe_intermediate_size") or text["intermediate_size"]
    latent = text.get("moe_latent_size")
    shared = text.get("moe_shared_expert_intermediate_size") or text.get("shared_expert_intermediate_size") or 0
    shared = shared or width * (text.get("n_shared_experts") or text.get("num_shared_experts") or 0)
    dense = matrices * hidden * shared + hidden * count + (2 * hidden * latent if latent else 0)
    return float(dense), float(count * matrices * (latent or hidden) * width)
