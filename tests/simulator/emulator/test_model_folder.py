"""Models from their config.json, and the table against what comes out of the public ones."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.model_folder import of_config, read
from windtunnel.traces.errors import UsageError

spec = importlib.util.spec_from_file_location("model_configs", Path(__file__).with_name("model_configs.py"))
assert spec is not None
assert spec.loader is not None
model_configs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model_configs)
CONFIGS: dict[str, dict[str, Any]] = model_configs.CONFIGS
TINY = Path(__file__).parents[2] / "vllm" / "tiny_model.py"


def folder(path: Path, config: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", sorted(facts.models()))
def test_a_row_is_what_the_public_configuration_gives(name: str, tmp_path: Path) -> None:
    row = facts.models()[name]
    computed = read(folder(tmp_path / name, CONFIGS[name]))
    assert msgspec.structs.replace(computed, name=row.name, source=row.source) == row


PUBLISHED = [
    # name, layers, KV bytes a token at 16 bit, state MB, 1e9 parameters, 1e9 active, experts, of them used, context
    ("nemotron-3-nano-30b-a3b", 52, 6_144, 49, 31.6, 3.2, 128, 6, 262_144),
    ("nemotron-3.5-lightning-30b-a3b-nvfp4", 52, 6_144, 49, 31.6, 3.2, 128, 6, 1_048_576),
    ("nemotron-3-super-120b-a12b", 88, 8_192, 170, 120.6, 12.2, 512, 22, 262_144),
    ("qwen3-coder-30b-a3b", 48, 98_304, 0, 30.5, 3.0, 128, 8, 262_144),
    ("qwen3-30b-a3b", 48, 98_304, 0, 30.5, 3.0, 128, 8, 40_960),
    ("qwen3.5-27b", 64, 65_536, 154, 26.9, 25.6, 0, 0, 262_144),
    ("qwen3.6-35b-a3b", 40, 20_480, 64, 34.7, 2.9, 256, 8, 262_144),
    ("qwen3.5-397b-a17b", 60, 30_720, 192, 396.3, 16.3, 512, 10, 262_144),
    ("gpt-oss-20b", 24, 24_576, 0, 20.9, 3.6, 32, 4, 131_072),
    ("gpt-oss-120b", 36, 36_864, 0, 116.8, 5.1, 128, 4, 131_072),
    ("devstral-small-24b", 40, 163_840, 0, 23.6, 22.9, 0, 0, 131_072),
    ("glm-4.7-flash", 47, 54_144, 0, 29.9, 3.6, 64, 4, 202_752),
    ("deepseek-v3.1", 61, 70_272, 0, 671.0, 36.6, 256, 8, 163_840),
    ("llama-3.1-8b", 32, 131_072, 0, 8.03, 7.5, 0, 0, 131_072),
    ("llama-3.1-70b", 80, 327_680, 0, 70.6, 69.5, 0, 0, 131_072),
    ("qwen3-32b", 64, 262_144, 0, 32.8, 32.0, 0, 0, 40_960),
    ("minimax-m2.5", 62, 253_952, 0, 228.7, 10.4, 256, 8, 204_800),
]


@pytest.mark.parametrize(
    ("name", "layers", "kv", "state", "parameters", "active", "experts", "used", "context"), PUBLISHED
)
def test_rows_hold_the_published_figures(
    name: str,
    layers: int,
    kv: int,
    state: int,
    parameters: float,
    active: float,
    experts: int,
    used: int,
    context: int,
) -> None:
    row = facts.model(name)
    assert (row.layers, row.kv_bytes, row.experts, row.experts_active, row.max_model_len) == (
        layers,
        kv,
        experts,
        used,
        context,
    )
    assert (row.recurrent.sequence_bytes() if row.recurrent else 0) / 1e6 == pytest.approx(state, abs=0.5)
    assert row.parameters == pytest.approx(parameters, abs=0.1)
    assert row.active == pytest.approx(active, abs=0.1)


def test_layers_are_told_apart_by_kind() -> None:
    nano, oss, qwen = facts.model("nemotron-3-nano-30b-a3b"), facts.model("gpt-oss-20b"), facts.model("qwen3.5-27b")
    assert nano.recurrent is not None
    assert (nano.full_layers, nano.recurrent.layers, nano.layers) == (6, 23, 52)
    assert (oss.full_layers, oss.window_layers, oss.window, oss.window_kv_bytes) == (12, 12, 128, 24_576)
    assert qwen.recurrent is not None
    assert (qwen.full_layers, qwen.recurrent.layers, qwen.mtp and qwen.mtp.layers) == (16, 48, 1)
    # A 16-bit state halves all but the convolution's 36,864 bytes a layer.
    assert nano.recurrent.layer_bytes() == 2_097_152 + 36_864
    assert nano.recurrent.layer_bytes("float16") == 1_048_576 + 36_864
    # Three drafts lengthen the convolution's part from 3 columns to 6.
    assert nano.recurrent.layer_bytes("float16", 3) == 1_048_576 + 2 * 36_864


def test_weights_that_a_step_reads() -> None:
    oss, llama = facts.model("gpt-oss-120b"), facts.model("llama-3.1-8b")
    # 114.7e9 in 4.25 bits beside 2.1e9 in 16 bits: the published 65 GB.
    assert (oss.expert_bytes + oss.dense_bytes) / 1e9 == pytest.approx(65.2, abs=0.2)
    assert llama.dense_bytes / 1e9 == pytest.approx(16.06, abs=0.01)
    assert llama.read_bytes == llama.dense_bytes - 128_256 * 4096 * 2
    # Embedding and output head stay 16 bit.
    assert llama.quantised("fp8").dense_bytes / 1e9 == pytest.approx(9.08, abs=0.02)
    # Two bytes for everything would be 63 GB; the published checkpoint is 20.1 GiB.
    lightning = facts.model("nemotron-3.5-lightning-30b-a3b-nvfp4")
    assert lightning.mtp is not None
    total = lightning.dense_bytes + lightning.expert_bytes + lightning.mtp.parameters * 2e9
    assert total / facts.GIB == pytest.approx(20.1, rel=0.05)


def test_latent_caches_are_kept_whole_by_each_gpu() -> None:
    assert facts.model("deepseek-v3.1").kv_shards(8) == 1
    assert facts.model("llama-3.1-70b").kv_shards(4) == 4
    assert facts.model("nemotron-3-nano-30b-a3b").kv_shards(8) == 2


def test_the_tiny_model_of_the_tests_against_a_real_vllm(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("tiny_model", TINY)
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    model = read(folder(tmp_path / "tiny", tiny.CONFIG))
    # Keys and values of one head of 32, two bytes each.
    assert (model.kv_bytes, model.max_model_len, model.tied) == (128, 262_144, True)
    # Embedding (once) 8192*64, attention 64*32*(2+1+1+2), gated MLP 3*64*64.
    assert model.parameters * 1e9 == pytest.approx(8192 * 64 + 64 * 32 * 6 + 3 * 64 * 64)
    settings = parse(
        [
            "--model",
            str(tmp_path / "tiny"),
            "--gpu",
            "l40s",
            "--num-gpu-blocks-override",
            "400",
            "--max-model-len",
            "4k",
        ]
    )
    assert (settings.model.name, settings.limits.num_gpu_blocks) == ("tiny", 400)
    assert "model" not in settings.unverified


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[1]", "an object is expected"),
        ("{", "is no JSON"),
        ('{"hidden_size": 8}', "num_hidden_layers is missing"),
        ({"model_type": "falcon_h1", "num_hidden_layers": 4}, "layers of model_type falcon_h1 are not known here"),
        (model_configs.NANO_CONFIG | {"hybrid_override_pattern": "MX"}, "layers of kind 'X' are not known here"),
        (CONFIGS["qwen3-32b"] | {"vocab_size": 0}, "vocab_size is 0"),
        (CONFIGS["deepseek-v3.1"] | {"index_topk": 2048}, r"sparse attention \(index_topk\) is not known here"),
        (CONFIGS["qwen3-32b"] | {"attention_chunk_size": 8192}, "attention in chunks"),
        (CONFIGS["qwen3-32b"] | {"hidden_size": "big"}, "hidden_size"),
        (
            CONFIGS["qwen3-32b"] | {"quantization_config": {"quant_method": "magic"}},
            "quant_method 'magic' is not known",
        ),
        (CONFIGS["qwen3-32b"] | {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 64 layers"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence(config: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(UsageError, match=message) as error:
        read(tmp_path)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "qwen3-coder-30b-a3b",
            {"num_experts": 1e308},
            "num_experts is 1e+308 and must be a whole number from 0 to 65,536",
        ),
        (
            "qwen3-coder-30b-a3b",
            {"head_dim": 1e308},
            "head_dim is 1e+308 and must be a whole number from 1 to 1,048,576",
        ),
        ("qwen3-coder-30b-a3b", {"head_dim": 0.5}, "head_dim is 0.5 and must be a whole number from 1 to 1,048,576"),
        (
            "qwen3-coder-30b-a3b",
            {"num_key_value_heads": 0},
            "num_key_value_heads is 0 and must be a whole number from 1",
        ),
        ("qwen3-coder-30b-a3b", {"num_key_value_heads": [4]}, "num_key_value_heads is [4] and must be a whole number"),
        ("qwen3-coder-30b-a3b", {"mlp_layer_types": ["sparse"]}, "mlp_layer_types has 1 entries, fewer than there are"),
        ("qwen3-coder-30b-a3b", {"num_experts_per_tok": 200}, "a token uses 200 of 128 experts"),
        ("qwen3-coder-30b-a3b", {"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ("qwen3-coder-30b-a3b", {"max_position_embeddings": 2**63}, "its length is 9223372036854775808 and must be a"),
        (
            "qwen3-coder-30b-a3b",
            {"rope_scaling": {"type": "linear", "factor": float("nan")}},
            "scaling is nan and must be",
        ),
        ("qwen3-coder-30b-a3b", {"quantization_config": [8]}, "quantization_config is no object"),
        (
            "qwen3-coder-30b-a3b",
            {"quantization_config": {"quant_method": "awq", "bits": -4}},
            "bits of quantization_config is -4 and must be a whole number from 1 to 32",
        ),
        (
            "qwen3-coder-30b-a3b",
            {"num_attention_heads": 4096, "head_dim": None},
            "4096 heads share a hidden_size of 2048",
        ),
        (
            "deepseek-v3.1",
            {"qk_nope_head_dim": float("inf")},
            "qk_nope_head_dim is inf and must be a whole number from 0",
        ),
        (
            "deepseek-v3.1",
            {"n_routed_experts": -1},
            "n_routed_experts is -1 and must be a whole number from 0 to 65,536",
        ),
        ("deepseek-v3.1", {"num_experts_per_tok": "\x1b[2J"}, "num_experts_per_tok is '\\x1b[2J' and must be a whole"),
        ("qwen3.5-27b", {"num_hidden_layers": 2**63}, "num_hidden_layers is 9223372036854775808 and must be a whole"),
        (
            "qwen3.5-27b",
            {"linear_conv_kernel_dim": [None]},
            "linear_conv_kernel_dim is [None] and must be a whole number",
        ),
        ("qwen3.5-27b", {"linear_num_value_heads": float("nan")}, "linear_num_value_heads is nan and must be a whole"),
        (
            "qwen3.5-27b",
            {"full_attention_interval": 10**30},
            "full_attention_interval is 1000000000000000000000000000000",
        ),
        (
            "nemotron-3-nano-30b-a3b",
            {"mamba_ssm_cache_dtype": "float8"},
            "mamba_ssm_cache_dtype is 'float8' and must be",
        ),
        ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "EE"}, "none of its layers looks at other tokens"),
    ],
)
def test_a_size_that_no_model_has_is_refused(name: str, change: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = dict(CONFIGS[name])
    part = config.get("text_config", config)
    config = {**config, "text_config": part | change} if part is not config else config | change
    path = folder(tmp_path, config)
    with pytest.raises(UsageError) as error:
        parse(["--model", str(path)])
    assert said in str(error.value)
    assert str(error.value).startswith(f"{path}/config.json cannot be understood: ")


def test_a_cache_of_more_blocks_than_are_emulated_is_refused(tmp_path: Path) -> None:
    narrow = folder(tmp_path, CONFIGS["qwen3-coder-30b-a3b"] | {"head_dim": 1})
    said = (
        r"has room for [\d,]+ blocks of KV cache, and at most 20,000,000 are emulated: give --num-gpu-blocks-override"
    )
    with pytest.raises(UsageError, match=said):
        parse(["--model", str(narrow), "--gpu", "b200", "-tp", "4"])
    assert parse(["--model", str(narrow), "--gpu", "b200", "--num-gpu-blocks-override", "50000"]).pool.blocks == 50_000


def test_a_size_may_be_written_with_a_fraction_of_nothing(tmp_path: Path) -> None:
    model = read(folder(tmp_path, CONFIGS["qwen3-32b"] | {"head_dim": 128.0, "sliding_window": None}))
    assert (model.head_dim, type(model.head_dim), model.kv_bytes) == (128, int, 262_144)


def test_a_file_that_is_too_much_for_a_reader_is_refused(tmp_path: Path) -> None:
    for text, said in (("[" * 100_000, "nested too deep"), ("9" * 5000, "number of too many digits")):
        (tmp_path / "config.json").write_text('{"num_hidden_layers": ' + text)
        with pytest.raises(UsageError, match=rf"is no configuration of a model: it .*{said}\.$"):
            read(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match=r"is no JSON: it is not UTF-8\.$"):
        read(tmp_path)


def test_a_folder_without_a_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder without config\.json"):
        facts.model(str(tmp_path))


def test_weights_come_from_the_quantisation(tmp_path: Path) -> None:
    plain = CONFIGS["qwen3-32b"]

    def bits(**quantisation: Any) -> tuple[float, float, float, str]:
        model = of_config(plain | {"quantization_config": quantisation}, "m", source="s")
        return model.weight_bits, model.expert_bits, model.compute_bits, model.kv_dtype

    assert bits(quant_method="fp8") == (8, 8, 8, "auto")
    assert bits(quant_method="awq", bits=4) == (4.5, 4.5, 16, "auto")
    assert bits(quant_method="gptq", bits=8) == (8, 8, 16, "auto")
    assert bits(quant_method="modelopt", quant_algo="NVFP4", kv_cache_quant_algo="FP8") == (4.5, 4.5, 4, "fp8")
    assert bits(quant_method="modelopt", quant_algo="NVFP4", ignore=["*self_attn*"]) == (16, 4.5, 4, "auto")
    group = {"weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}
    assert bits(quant_method="compressed-tensors", config_groups={"group_0": group}) == (8, 8, 8, "auto")
    weight_only = {"weights": {"num_bits": 4}, "input_activations": None}
    assert bits(quant_method="compressed-tensors", config_groups={"group_0": weight_only}) == (4.5, 4.5, 16, "auto")
    # ModelOpt writes it beside the configuration.
    (folder(tmp_path, plain) / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    model = read(tmp_path)
    assert (model.weight_bits, model.kv_dtype) == (8, "fp8")


def test_other_families() -> None:
    mixtral = {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    model = of_config(mixtral, "mixtral", source="s")
    assert (model.parameters, model.experts, model.kv_bytes) == (pytest.approx(46.7, abs=0.1), 8, 131_072)
    assert model.active == pytest.approx(12.7, abs=0.1)
    windowed = mixtral | {"model_type": "mistral", "sliding_window": 4096, "num_local_experts": 0}
    model = of_config(windowed, "mistral", source="s")
    assert (model.window_layers, model.full_layers, model.window) == (32, 0, 4096)
    third = of_config(windowed | {"layer_types": ["sliding_attention", "full_attention"] * 16}, "m", source="s")
    assert (third.window_layers, third.full_layers) == (16, 16)
    # A linear stretch counts; what YaRN stretches stands in the file already.
    for kind, longest in (("linear", 131_072), ("yarn", 32_768)):
        scaling = {"rope_type": kind, "factor": 4, "original_max_position_embeddings": 8192}
        assert of_config(windowed | {"rope_scaling": scaling}, "m", source="s").max_model_len == longest
    gemma = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
    }
    model = of_config(gemma, "gemma-3-27b", source="s")
    assert (model.full_layers, model.window_layers, model.max_model_len, model.tied) == (10, 52, 131_072, True)
    assert model.parameters == pytest.approx(27.0, abs=0.1)
    next80 = CONFIGS["qwen3.5-35b-a3b"]["text_config"] | {
        "model_type": "qwen3_next",
        "num_hidden_layers": 48,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "vocab_size": 151936,
    }
    del next80["mtp_num_hidden_layers"]
    model = of_config(next80, "Qwen3-Next-80B-A3B", source="s")
    assert (model.full_layers, model.parameters) == (12, pytest.approx(79.7, abs=0.5))
    assert model.mtp is not None
