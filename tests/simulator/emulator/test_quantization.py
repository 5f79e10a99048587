"""`--quantization` on a checkpoint that is quantised already: what vLLM 0.32.0 made of each pair."""

import importlib.util
from pathlib import Path

import pytest

from windtunnel.simulator.emulator.about import describe
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.model_folder import of_config
from windtunnel.simulator.emulator.quantization import QUANTISED
from windtunnel.traces.errors import UsageError

spec = importlib.util.spec_from_file_location("model_configs", Path(__file__).with_name("model_configs.py"))
assert spec is not None
assert spec.loader is not None
model_configs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model_configs)

NOTHING = [
    "fp8",
    "FP8",
    "fbgemm_fp8",
    "mxfp8",
    "modelopt",
    "modelopt_fp4",
    "nvfp4",
    "awq",
    "gptq_marlin",
    "inc",
    "quark",
]
REQUANTISED = ["fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "nvfp4_per_token", "int8_per_channel_weight_only"]
PREVAILING = {"gpt-oss-20b": "gpt_oss_mxfp4", "nemotron-3.5-lightning-30b-a3b-nvfp4": "modelopt_mixed"}


@pytest.mark.parametrize("model", PREVAILING)
@pytest.mark.parametrize("method", NOTHING)
def test_a_checkpoint_that_prevails_makes_the_same_engine(model: str, method: str) -> None:
    line = ["--gpu", "h100", "--model", model]
    plain, given = parse(line), parse([*line, "-q", method])
    assert (given.model, given.pool, given.limits, given.unverified) == (
        plain.model,
        plain.pool,
        plain.limits,
        plain.unverified,
    )
    assert given.idle == (f"--quantization {method.lower()}",)
    assert (plain.idle, given.ignored) == ((), ())
    assert describe(given)["model_config"]["quantization"] == PREVAILING[model]


@pytest.mark.parametrize("model", PREVAILING)
@pytest.mark.parametrize("method", REQUANTISED)
def test_its_experts_are_not_quantised_again(model: str, method: str) -> None:
    with pytest.raises(UsageError, match=f"checkpoint-quantized MoE layers is not supported: .* {method} out"):
        parse(["--gpu", "h100", "--model", model, "-q", method])


@pytest.mark.parametrize("model", ["deepseek-v3.1", "minimax-m2.5"])
@pytest.mark.parametrize("method", [method for method in QUANTISED if method not in ("fp8", "nvfp4")])
def test_another_format_than_that_of_the_checkpoint_is_refused(model: str, method: str) -> None:
    said = rf"in the model config \(fp8\) does not match .* in the `quantization` argument \({method}\)"
    with pytest.raises(UsageError, match=said):
        parse(["--gpu", "b300", "-tp", "8", "--model", model, "-q", method])


def test_our_own_name_is_of_the_checkpoint_that_others_published() -> None:
    narrow = parse(["--gpu", "b300", "--model", "minimax-m2.5", "-q", "nvfp4"])
    assert (narrow.model.weight_bits, narrow.model.expert_bits) == (4.5, 4.5)
    assert "a checkpoint in nvfp4, which this model's own is not" in narrow.unverified


@pytest.mark.parametrize(
    ("model", "method"), [("deepseek-v3.1", "fp8"), ("gpt-oss-20b", "mxfp4"), ("gpt-oss-20b", "gpt_oss_mxfp4")]
)
def test_the_checkpoints_own_format_is_nothing_to_tell(model: str, method: str) -> None:
    line = ["--gpu", "b300", "-tp", "8", "--model", model]
    assert parse([*line, "-q", method]) == parse(line)


@pytest.mark.parametrize(
    ("config", "name", "told", "same", "refused"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq", "auto_awq", "awq_marlin", "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq", "auto_gptq", "gptq_marlin", "awq"),
        ({"quant_method": "inc", "bits": 4}, "inc", "inc", "inc", "fp8"),
        ({"quant_method": "auto-round", "bits": 4}, "auto-round", "inc", "fp8", None),
        ({"quant_method": "fp8"}, "fp8", "fp8", "fp8", "fp8_per_tensor"),
        ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4", "mxfp4", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt_fp4", "modelopt_fp4", "fp8", "fp8_per_block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt", "modelopt", "nvfp4_per_token", None),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", "fbgemm_fp8", "fbgemm_fp8", "fp8"),
    ],
)
def test_a_folders_checkpoint_goes_by_its_own_name(config, name, told, same, refused) -> None:
    model = of_config(model_configs.CONFIGS["qwen3-32b"] | {"quantization_config": config}, "m", source="s")
    assert (model.checkpoint, model.held_in(None), model.held_in(same)) == (name, told, told)
    assert model.quantised(same) == model
    if refused is not None:
        with pytest.raises(UsageError, match=r"does not match|is not modelled"):
            model.quantised(refused)


def test_what_has_no_part_for_dense_layers_leaves_them() -> None:
    line = ["--gpu", "b200", "--max-model-len", "4k"]
    dense = [*line, "--model", "llama-3.1-8b"]
    assert parse([*dense, "-q", "nvfp4_per_token"]).model == parse(dense).model
    mixture = parse([*line, "--model", "qwen3-30b-a3b", "-q", "nvfp4_per_token"]).model
    assert (mixture.weight_bits, mixture.expert_bits) == (16, 4.5)
    both = parse([*line, "--model", "qwen3-30b-a3b", "-q", "mxfp4"]).model
    assert (both.weight_bits, both.expert_bits) == (4.25, 4.25)
