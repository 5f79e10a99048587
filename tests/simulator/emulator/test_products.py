"""Matrix products by the format they are computed in, and what else depends on the formats and layers of a model."""

import importlib.util
from pathlib import Path

import pytest

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.assumptions import assumptions
from windtunnel.simulator.emulator.constants import constants
from windtunnel.simulator.emulator.flags import WIDE_EXPERTS, parse
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.model import Model
from windtunnel.simulator.emulator.model_folder import of_config
from windtunnel.simulator.emulator.reached import Reached, usual
from windtunnel.simulator.emulator.speculation import speculation
from windtunnel.simulator.emulator.steptime import StepTime

spec = importlib.util.spec_from_file_location("model_configs", Path(__file__).with_name("model_configs.py"))
assert spec is not None
assert spec.loader is not None
model_configs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model_configs)

PLAIN = Reached(hw=1.0, hf=1.0, hk=1.0, ha=1.0, step_ms=0.0, seq_us=0.0)
TOKENS = 65_536
UNPACKED, DENSE = constants().unpacked, constants().unpacked_dense


def products_s(gpu: str, model: Model) -> float:
    """Of one token, where products are all that counts."""
    return StepTime(facts.gpu(gpu), model, reached=PLAIN).seconds(1, TOKENS, 0) / TOKENS


def of(name: str, method: str | None = None) -> Model:
    return facts.model(name).quantised(method)


@pytest.mark.parametrize(("gpu", "tflops"), [("rtx-4090", 165), ("h200", 989), ("b200", 2250), ("rtx-5090", 210)])
@pytest.mark.parametrize("method", ["awq", "gptq_marlin", "bitsandbytes"])
def test_int4_weights_beside_16_bit_activations_are_unpacked_on_every_gpu(gpu, tflops, method) -> None:
    found = products_s(gpu, of("llama-3.1-8b", method))
    assert found == pytest.approx(2 * 7.505e9 / (tflops * 1e12 * 0.9), rel=1e-3)
    # Of Qwen3-30B's 3.042e9 weights a token meets 8/128 of 28.991e9 in experts.
    mixture = 2e9 * (1.8119 / UNPACKED + 1.2301 / DENSE) / (tflops * 1e12)
    assert products_s(gpu, of("qwen3-30b-a3b", method)) == pytest.approx(mixture, rel=1e-3)
    settings = parse(["--gpu", gpu, "--model", "llama-3.1-8b", "-q", method, "--max-model-len", "4k"])
    assert "products of unpacked weights (assumed)" in settings.unverified


@pytest.mark.parametrize(
    ("config", "tflops"),
    [
        ({"quant_method": "gptq", "bits": 8}, 989 * 0.9),
        ({"quant_method": "fp8"}, 1978),
        ({"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": {"num_bits": 8}}}}, 989 * 0.9),
    ],
)
def test_8_bit_weights_count_as_fp8_where_activations_are_narrow_too(config, tflops) -> None:
    model = of_config(model_configs.CONFIGS["qwen3-32b"] | {"quantization_config": config}, "m", source="s")
    assert products_s("h100", model) == pytest.approx(2e9 * model.active / (tflops * 1e12), rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "model", "method", "routed", "around"),
    [
        # FP8 around NVFP4 experts, on a GPU with both, without FP4, and with neither.
        ("b200", "nemotron-3.5-lightning-30b-a3b-nvfp4", None, 9000, 4500),
        ("h200", "nemotron-3.5-lightning-30b-a3b-nvfp4", None, 989 * UNPACKED, 1978),
        ("a100", "nemotron-3.5-lightning-30b-a3b-nvfp4", None, 312 * UNPACKED, 312 * DENSE),
        # 16 bit around NVFP4 and MXFP4.
        ("b200", "qwen3-30b-a3b", "nvfp4_per_token", 9000, 2250),
        ("h200", "gpt-oss-120b", None, 989 * UNPACKED, 989),
        ("b200", "gpt-oss-120b", None, 4500, 2250),
        # vLLM's choice on Blackwells that are none of a data centre is Marlin.
        ("rtx-pro-6000", "gpt-oss-120b", None, 468 * UNPACKED, 468),
        ("gb10", "gpt-oss-20b", None, 125 * UNPACKED, 125),
        # NVFP4 with activations in 4 bit stays what it is there.
        ("rtx-pro-6000", "qwen3-30b-a3b", "nvfp4", 1871, 1871),
        # Dense layers in MXFP4 get 4-bit activations where there is FP4.
        ("b200", "qwen3-30b-a3b", "mxfp4", 4500, 9000),
        ("h200", "qwen3-30b-a3b", "mxfp4", 989 * UNPACKED, 989 * DENSE),
    ],
)
def test_each_part_of_a_mixture_is_computed_in_its_own_format(gpu, model, method, routed, around) -> None:
    row = of(model, method)
    experts = row.expert_parameters * row.experts_active / row.experts
    expected = 2e9 * (experts / routed + (row.active - experts) / around) / 1e12
    assert products_s(gpu, row) == pytest.approx(expected, rel=1e-3)


def test_what_is_unpacked_is_listed_by_its_kernels() -> None:
    def listed(*line: str) -> set[str]:
        return {name for name, *_ in assumptions(parse([*line, "--max-model-len", "4k"]))} & {"unpacked_dense"}

    assert listed("--gpu", "b200", "--model", "qwen3-30b-a3b", "-q", "awq") == {"unpacked_dense"}
    assert listed("--gpu", "h200", "--model", "gpt-oss-20b") == set()
    assert parse(["--gpu", "h200", "--model", "gpt-oss-20b"]).unpacked == {"unpacked"}
    assert parse(["--gpu", "rtx-5090", "--model", "gpt-oss-20b"]).unpacked == {"unpacked"}
    assert parse(["--gpu", "b200", "--model", "gpt-oss-20b"]).unpacked == set()


def test_a_draft_models_experts_are_computed_in_their_own_format() -> None:
    row = facts.model("gpt-oss-120b")
    drafted = speculation({"method": "draft_model", "model": "gpt-oss-20b", "num_speculative_tokens": 1}, row)
    assert drafted.draft.products == facts.model("gpt-oss-20b").products
    assert drafted.draft.expert_bits == 4.25
    # The MTP layer of a model in NVFP4 is of 16 bit: its head, attention and shared expert, and 6 of 128 experts.
    lightning = facts.model("nemotron-3.5-lightning-30b-a3b-nvfp4")
    parts = speculation({"method": "mtp", "num_speculative_tokens": 1}, lightning).draft.products
    assert [(part.weight_bits, part.compute_bits, part.mixture) for part in parts] == [(16, 16, False), (16, 16, True)]
    assert sum(part.active for part in parts) == pytest.approx(0.118 + 131072 * 2688 / 1e9)


@pytest.mark.parametrize(
    ("model", "sums"),
    [
        # Attention, Mamba or experts in each layer.
        ("nemotron-3-nano-30b-a3b", 52),
        ("nemotron-3-super-120b-a12b-nvfp4", 88),
        # A mixer and a feed-forward part in each.
        ("qwen3.5-35b-a3b", 80),
        ("qwen3.6-27b", 128),
        ("gpt-oss-120b", 72),
        ("deepseek-v3.1", 122),
        ("llama-3.1-8b", 64),
    ],
)
def test_gpus_sum_once_for_each_part_of_a_layer(model, sums) -> None:
    row = facts.model(model)
    assert row.reductions == sums
    one, two = (StepTime(facts.gpu("h200"), row, Mode(tensor_parallel=n), reached=PLAIN) for n in (1, 2))
    known = constants()
    moved = 2 * row.hidden / (known.exchange_gb_s * 1e9)
    more = two.seconds(1, 1, 0) - one.seconds(1, 1, 0) / 2
    assert more == pytest.approx(sums * (known.exchange_us / 1e6 + moved), rel=1e-3)


def test_experts_wider_than_those_fitted_are_read_at_the_peak_at_most() -> None:
    b300 = facts.gpu("b300")
    assert [b300.reached.experts(bits) for bits in (4.25, 4.5, 8, 16)] == [1.58, 1.58, 1.0, 1.0]
    row, layers = facts.model("minimax-m2.5"), StepTime(b300, facts.model("minimax-m2.5"), Mode())
    # All experts are touched by 64 tokens at the latest: 224.7 GB at 7.75 TB/s.
    assert layers.seconds(256, 256, 0) > (row.expert_bytes + row.read_bytes) / 7.75e12
    for gpu, model, method, held in (
        ("b300", "minimax-m2.5", None, True),
        ("b300", "minimax-m2.5", "nvfp4", False),
        ("b200", "qwen3-coder-30b-a3b", None, True),
        ("b200", "gpt-oss-120b", None, False),
        ("b200", "llama-3.1-8b", None, False),
        ("h200", "qwen3-coder-30b-a3b", None, False),
    ):
        line = ["--gpu", gpu, "--model", model, "--max-model-len", "4k", *(["-q", method] if method else [])]
        assert (WIDE_EXPERTS in parse(line).unverified) is held


def test_attention_that_was_never_fitted_is_what_is_usual_and_said_to_be_unverified() -> None:
    for name in ("rtx-4090", "rtx-pro-6000"):
        gpu = facts.gpu(name)
        assert gpu.reached.ha == usual(gpu.bf16).ha
        assert "calibration" in parse(["--gpu", name, "--model", "llama-3.1-8b", "--max-model-len", "4k"]).unverified
    # FlashAttention-2 reaches 123 to 160 TFLOPS on an RTX 4090.
    assert 123 < facts.gpu("rtx-4090").bf16 * facts.gpu("rtx-4090").reached.ha < 160
