"""Speculation: how many drafts are accepted, what the line may say, what a draft costs."""

from pathlib import Path
from typing import Any

import pytest

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.speculation import Speculation, positions, rows, speculation, table_acceptance
from windtunnel.traces.errors import UsageError

NEMOTRON = "nemotron-3.5-lightning-30b-a3b-nvfp4"


def of(target: str = "qwen3.5-27b", /, **config: Any) -> Speculation:
    return speculation(config, facts.model(target))


def length(probabilities: tuple[float, ...]) -> float:
    total, alive = 1.0, 1.0
    for probability in probabilities:
        alive *= probability
        total += alive
    return total


@pytest.mark.parametrize(
    ("model", "measured"),
    [
        ("Qwen/Qwen3.5-397B-A17B", {1: 1.93, 2: 2.73, 3: 3.39, 5: 4.41}),
        ("zai-org/GLM-5.2", {1: 1.84, 2: 2.50, 3: 2.99, 5: 3.61}),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", {3: 2.874, 7: 3.687}),
    ],
)
def test_measured_lengths_on_code_come_out_of_the_table(model: str, measured: dict[int, float]) -> None:
    for k, expected in measured.items():
        probabilities, source = table_acceptance("mtp", model, k)
        assert len(probabilities) == k
        assert length(probabilities) == pytest.approx(expected, abs=1e-6)
        assert "unverified" not in source


def test_lengths_between_and_beyond_the_measured_ones_are_continued() -> None:
    known = {1: 1.93, 3: 3.39}
    two = length(positions(known, 2))
    assert 1.93 < two < 3.39
    # Past the last, positions go on with the same share.
    assert positions(known, 5)[2:] == (positions(known, 3)[2],) * 3
    assert positions({3: 4.0}, 3) == pytest.approx((1.0, 1.0, 1.0))


def test_other_methods_and_models_are_not_verified() -> None:
    for method in ("ngram", "suffix", "eagle", "eagle3", "medusa", "draft_model"):
        assert "unverified" in table_acceptance(method, "meta-llama/Llama-3.1-8B", 3)[1]
    for other in ("tiny", "Qwen/Qwen3.5-27B", "zai-org/GLM-4.7-Flash", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B"):
        probabilities, source = table_acceptance("mtp", other, 3)
        assert source.startswith("unverified: measured on code with ")
        assert 2.8 < length(probabilities) < 3.4
    assert all(row.source for row in rows())


def test_synthetic_acceptance_is_spread_as_vllm_spreads_it() -> None:
    plain: dict[str, Any] = {"method": "mtp", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic"}
    spread = of(**plain, synthetic_acceptance_length=2.6)
    assert spread.acceptance == pytest.approx((1.0, 0.6, 0.0))
    assert (spread.length, spread.synthetic, spread.source) == (pytest.approx(2.6), True, "synthetic")
    rated = of(**plain, synthetic_acceptance_rates=[0.8, 0.4, 0.1])
    assert rated.acceptance == pytest.approx((0.8, 0.5, 0.25))
    assert rated.length == pytest.approx(2.3)
    nothing = of(**plain, synthetic_acceptance_length=1.0)
    assert nothing.acceptance == (0.0, 0.0, 0.0)


def test_what_follows_from_the_method() -> None:
    mtp = of(method="mtp", num_speculative_tokens=3)
    assert (mtp.k, mtp.lookahead, mtp.drops_last_block, mtp.asynchronous) == (3, 3, True, True)
    # Without a number the layer predicts one token; older names of the method mean the same.
    assert of(method="qwen3_5_mtp").k == 1
    ngram = of(method="ngram", num_speculative_tokens=4, prompt_lookup_max=6)
    assert (ngram.lookahead, ngram.drops_last_block, ngram.asynchronous, ngram.lookup) == (0, False, False, (6, 6))
    assert of(method="ngram", num_speculative_tokens=1).lookup == (5, 5)
    assert of(method="suffix").k == 24
    assert not of(method="mtp", disable_eagle_block_drop=True).drops_last_block
    assert not of(method="mtp", disable_padded_drafter_batch=True).asynchronous
    eagle = of("llama-3.1-8b", method="eagle3", num_speculative_tokens=3, model="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert (eagle.lookahead, eagle.drops_last_block, eagle.draft.passes) == (3, True, 3)


def test_what_a_draft_reads() -> None:
    # The MTP layer of Lightning: 1.335e9 parameters of which six of 128 experts are used, 16 bit; the head is shared.
    draft = of(NEMOTRON, method="mtp", num_speculative_tokens=3).draft
    assert draft.passes == 3
    assert draft.resident_bytes == pytest.approx(2.67e9, rel=0.01)
    assert draft.expert_bytes == pytest.approx(2 * 1.277e9, rel=0.01)
    assert draft.dense_bytes == pytest.approx(2 * (0.058e9 + 131_072 * 2688), rel=0.02)
    assert (draft.kv_bytes, draft.layers, draft.experts, draft.experts_active) == (1024, 1, 128, 6)
    small = of("qwen3-32b", method="draft_model", num_speculative_tokens=2, model="qwen3-30b-a3b").draft
    assert (small.passes, small.kv_bytes, small.experts) == (2, 98_304, 128)
    assert small.resident_bytes == pytest.approx(61.1e9, rel=0.01)
    none = of("qwen3-32b", method="ngram", num_speculative_tokens=2).draft
    assert (none.passes, none.resident_bytes, none.lookup) == (0, 0, True)
    heads = of("llama-3.1-8b", method="medusa", num_speculative_tokens=3, model="x").draft
    assert heads.passes == 1
    assert heads.dense_bytes == pytest.approx(3 * 2 * (4096**2 + 128_256 * 4096))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "mtp", "num_spec_tokens": 3}, r"keyword argument 'num_spec_tokens' \(did you mean num_speculative"),
        (
            {"method": "mtpp", "num_speculative_tokens": 3},
            r"method must be one of .* not 'mtpp' \(did you mean mtp\?\)",
        ),
        ({"method": "dflash", "num_speculative_tokens": 3}, "method 'dflash' is not modelled"),
        ({"method": "ngram"}, "num_speculative_tokens must be provided"),
        ({"method": "mtp", "num_speculative_tokens": 0}, r"to be greater than zero \(0\)"),
        ({"method": "mtp", "num_speculative_tokens": "three"}, r"Expected `int \| null`, got `str`"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, "but without speculative model"),
        ({"num_speculative_tokens": 3}, "but without speculative model"),
        ({"method": "mtp", "tensor_parallel_size": 2}, "Please pass 'draft_tensor_parallel_size' instead"),
        ({"method": "mtp", "draft_tensor_parallel_size": 2}, "cannot be other value than 1 or target model"),
        (
            {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 5, "prompt_lookup_max": 3},
            "prompt_lookup_min=5 must be <= prompt_lookup_max=3",
        ),
        ({"method": "mtp", "synthetic_acceptance_length": 2}, "only valid with rejection_sample_method='synthetic'"),
        ({"method": "mtp", "rejection_sample_method": "synthetic"}, "requires exactly one of"),
        (
            {"method": "mtp", "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5},
            r"must be in \[1, 2\], got 2.5",
        ),
        (
            {
                "method": "mtp",
                "num_speculative_tokens": 2,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.1, 0.2],
            },
            "must be non-increasing",
        ),
        ({"method": "mtp", "rejection_sample_method": "blocky"}, "rejection_sample_method must be one of"),
        ({"method": "draft_model", "model": "nobody", "num_speculative_tokens": 1}, "draft model's size is not known"),
        (
            {"method": "draft_model", "model": "llama-3.1-8b", "num_speculative_tokens": 1},
            "should have the same vocabulary size. Target model vocab_size=248320. Draft model vocab_size=128256",
        ),
    ],
)
def test_wrong_configurations_are_refused_in_one_sentence(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        of(**config)
    assert str(error.value).startswith("--speculative-config: ")
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_mtp_needs_mtp_layers() -> None:
    with pytest.raises(UsageError, match="Unsupported speculative method: 'mtp', as Qwen/Qwen3-32B has no MTP layers"):
        of("qwen3-32b", method="mtp", num_speculative_tokens=1)


def test_the_line_gives_it_to_the_limits() -> None:
    line = ["--model", NEMOTRON, "--gpu", "b200", "--speculative-config"]
    settings = parse([*line, '{"method":"mtp","num_speculative_tokens":3}'])
    assert settings.speculation is not None
    limits = settings.limits
    assert (limits.speculative_tokens, limits.lookahead, limits.drops_last_block) == (3, 3, True)
    assert settings.asynchronous
    dotted = ["--speculative-config.method", "mtp", "--speculative_config.num_speculative_tokens=3"]
    assert parse([*line[:-1], *dotted]).speculation == settings.speculation
    short = ["--spec-method", "mtp", "--spec-tokens", "3"]
    assert parse([*line[:-1], *short]).speculation == settings.speculation
    # The last word counts, as with vLLM.
    assert parse([*line, '{"method":"ngram","num_speculative_tokens":1}', *dotted]).speculation == settings.speculation
    with pytest.raises(UsageError, match="cannot be used with --speculative-config"):
        parse([*line, "{}", *short])


def test_asynchronous_scheduling_follows_the_method() -> None:
    line = ["--model", "qwen3.5-27b", "--gpu", "b200"]
    ngram = [*line, "--spec-method", "ngram", "--spec-tokens", "3"]
    assert not parse(ngram).asynchronous
    assert "acceptance" in parse(ngram).unverified
    with pytest.raises(UsageError, match="async scheduling is only supported with EAGLE/MTP"):
        parse([*ngram, "--async-scheduling"])
    mtp = [*line, "--spec-method", "mtp"]
    assert parse(mtp).asynchronous
    assert not parse([*mtp, "--no-async-scheduling"]).asynchronous
    assert "acceptance" in parse(mtp).unverified
    measured = parse(["--model", NEMOTRON, "--gpu", "b200", "--spec-method", "mtp", "--spec-tokens", "3"])
    assert "acceptance" not in measured.unverified


def test_a_draft_model_may_be_a_folder(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,'
        '"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,'
        '"tie_word_embeddings": true, "model_type": "qwen3"}'
    )
    draft = of("qwen3-32b", method="draft_model", num_speculative_tokens=3, model=str(tmp_path)).draft
    # Qwen3-0.6B: 0.596e9 parameters with its one embedding, read whole by every pass.
    assert draft.dense_bytes == pytest.approx(2 * 0.596e9, rel=0.01)
    assert draft.kv_bytes == 28 * 2 * 2 * 8 * 128


def test_an_eagle_head_may_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 32,'
        '"num_key_value_heads": 8, "vocab_size": 128256, "draft_vocab_size": 32000, "max_position_embeddings": 2048,'
        '"tie_word_embeddings": false, "model_type": "llama"}'
    )
    config: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 3}
    draft = of("llama-3.1-8b", **config, model=str(tmp_path)).draft
    # One layer of Llama-3.1-8B and 32,000 rows of output head.
    assert draft.dense_bytes == pytest.approx(2 * (218.1e6 + 32_000 * 4096), rel=0.01)
    assert (draft.kv_bytes, draft.layers, draft.sized) == (4096, 1, f"config.json of {tmp_path.name}")
    # Without its files, about as large.
    guessed = of("llama-3.1-8b", **config, model="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B").draft
    assert guessed.dense_bytes == pytest.approx(draft.dense_bytes, rel=0.1)
    assert guessed.sized.startswith("assumed")
