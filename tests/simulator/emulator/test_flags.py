"""The command line: vLLM's flags, what is not modelled, what is wrong."""

import json
from pathlib import Path

import pytest

from windtunnel.simulator.emulator.flag_words import _LONG, unmodelled
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.results.emulation import HARMLESS, missed
from windtunnel.traces.errors import UsageError


def test_defaults() -> None:
    s = parse([])
    assert s.gpu.name.startswith("B200")
    assert s.served == ("gpt-oss-120b",)
    assert (s.limits.max_num_seqs, s.limits.max_num_batched_tokens, s.limits.block_size) == (1024, 16_384, 16)
    assert s.limits.max_model_len == 131_072
    assert s.asynchronous
    assert s.prompt_details
    assert s.limits.enable_prefix_caching


def test_the_line_of_a_real_vllm_is_understood() -> None:
    s = parse(
        [
            "Qwen/Qwen3-Coder-30B-A3B-Instruct",
            "--max_num_seqs",
            "64",
            "--max-model-len=32K",
            "--no-enable-prefix-caching",
            "--port",
            "0",
            "--enforce-eager",
            "--kv-cache-dtype",
            "fp8",
            "-tp",
            "2",
            "--dtype",
            "bfloat16",
            "--trust-remote-code",
            "--no-enable-chunked-prefill",
            "--generation-config",
            "vllm",
            "--override-generation-config.temperature",
            "0",
            "--num-gpu-blocks-override",
            "5000",
            "--served-model-name",
            "one",
            "two",
            "--no-async-scheduling",
            "--long-prefill-token-threshold",
            "512",
        ]
    )
    assert s.limits.max_num_seqs == 64
    assert s.limits.max_model_len == 32_768
    assert not s.limits.enable_prefix_caching
    assert s.limits.num_gpu_blocks == 5000
    assert s.limits.long_prefill_token_threshold == 512
    assert s.served == ("one", "two")
    assert (s.eager, s.kv_dtype, s.tensor_parallel, s.asynchronous, s.port) == (True, "fp8", 2, False, 0)
    assert s.ignored == (
        "--dtype bfloat16",
        "--trust-remote-code",
        "--generation-config vllm",
        "--override-generation-config.temperature 0",
        "--no-enable-chunked-prefill",
    )


def test_spellings_that_mean_the_same() -> None:
    plain = parse(["--model", "llama-3.1-8b", "--max-num-seqs", "32", "--cudagraph-capture-sizes", "1", "2", "4"])
    assert parse(["llama-3.1-8b", "--max_num_seqs=32", "-cc.cudagraph_capture_sizes", "[1,2,4]"]) == plain
    assert parse(["llama-3.1-8b", "--max-num-seqs", "32", "-cc", '{"cudagraph_capture_sizes": [1, 2, 4]}']) == plain
    sizes = "cudagraph_capture_sizes+"
    one_by_one = [f"--compilation_config.{sizes}", "1,2", f"--compilation-config.{sizes}=4"]
    assert parse(["llama-3.1-8b", "--max_num_seqs", "32", *one_by_one]) == plain
    for text, tokens in (("4k", 4000), ("4K", 4096), ("25.6k", 25_600), ("0.1m", 100_000)):
        assert parse(["llama-3.1-8b", "--max-model-len", text]).limits.max_model_len == tokens


def test_flags_that_are_not_modelled_take_as_many_words_as_they_do_in_vllm() -> None:
    s = parse(
        [
            "--trust-remote-code",
            "llama-3.1-8b",
            "--no-disable-log-stats",
            "--limit-mm-per-prompt",
            '{"image": 0}',
            "--override-generation-config.temperature",
            "0",
            "--override-generation-config",
            "{}",
            "-O3",
            "--hf-token",
            "--middleware",
            "a.b",
            "--allowed-media-domains",
            "x",
            "y",
            "--max-num-seqs",
            "7",
            "-ep",
        ]
    )
    assert (s.model.name, s.limits.max_num_seqs) == ("meta-llama/Llama-3.1-8B-Instruct", 7)
    assert s.ignored == (
        "--trust-remote-code",
        "--no-disable-log-stats",
        '--limit-mm-per-prompt {"image": 0}',
        "--override-generation-config.temperature 0",
        "--override-generation-config {}",
        "--optimization-level 3",
        "--hf-token",
        "--middleware a.b",
        "--allowed-media-domains x y",
        "--enable-expert-parallel",
    )
    assert parse(["-pp", "2", "-cc.pass_config.fuse_norm_quant", "true"]).ignored == (
        '--compilation-config.pass_config {"fuse_norm_quant": true}',
        "--pipeline-parallel-size 2",
    )


def test_a_flag_that_is_not_modelled_is_one_under_both_its_names() -> None:
    for short, long in _LONG.items():
        assert {short, long} <= unmodelled().names, short
        words = [] if long in unmodelled().switches else ["2"]
        assert parse([short, *words]).ignored == parse([long, *words]).ignored == (" ".join([long, *words]),)
    assert parse(["-dpn=1"]).ignored == ("--data-parallel-rank 1",)


def test_a_default_that_is_given_all_the_same_is_nothing_that_was_missed() -> None:
    assert parse(["--dtype", "auto"]).ignored == ("--dtype auto",)
    assert missed(("--dtype auto", "--dtype float32", "--api-key")) == ("--dtype float32",)


def test_what_changes_nothing_measured_is_a_flag_of_vllms_that_is_not_modelled() -> None:
    assert unmodelled().names >= HARMLESS


def test_keys_and_what_changes_no_time_are_told_without_their_values() -> None:
    words = ["--api-key", "k1", "k2", "--hf-token=secret", "--reasoning-parser", "qwen3", "--cpu-offload-gb=40"]
    assert parse(words).ignored == ("--api-key", "--hf-token", "--reasoning-parser", "--cpu-offload-gb 40")


def test_defaults_of_the_batch_are_those_of_vllm() -> None:
    def batch(*line: str) -> tuple[int, int]:
        limits = parse(["--model", "llama-3.1-8b", *line]).limits
        return limits.max_num_batched_tokens, limits.max_num_seqs

    assert batch("--gpu", "h100") == (8192, 1024)
    assert batch("--gpu", "l40s", "--max-model-len", "32k") == (2048, 256)
    # No more tokens than all sequences can hold, and no more sequences than tokens.
    assert batch("--gpu", "h100", "--max-num-seqs", "2", "--max-model-len", "512") == (1024, 2)
    assert batch("--gpu", "h100", "--max-num-batched-tokens", "256") == (256, 256)
    # A prompt that may not be cut must fit a step.
    assert batch("--gpu", "h100", "--max-model-len", "20000", "--no-enable-chunked-prefill")[0] == 20_000


def test_memory_given_by_the_line() -> None:
    # 10 GiB in pages of 16 tokens of 131,072 bytes.
    given = parse(["--model", "llama-3.1-8b", "--kv-cache-memory-bytes", "10G", "--max-model-len", "8k"])
    assert given.limits.num_gpu_blocks == 10 * 2**30 // (16 * 131_072)
    more = parse(["--model", "llama-3.1-8b", "--max-model-len", "8k", "--kv-cache-dtype", "fp8"])
    less = parse(["--model", "llama-3.1-8b", "--max-model-len", "8k"])
    assert more.limits.num_gpu_blocks == pytest.approx(2 * less.limits.num_gpu_blocks, abs=1)


def test_cuda_graphs_and_how_they_are_turned_off() -> None:
    def graphs(*line: str) -> tuple[str, int]:
        mode = parse(["--model", "llama-3.1-8b", "--gpu", "h100", *line]).mode
        assert mode.graphs is not None
        return mode.graphs.mode, len(mode.graphs.sizes)

    assert graphs() == ("FULL_AND_PIECEWISE", 51)
    assert graphs("--enforce-eager") == ("NONE", 0)
    assert graphs("-cc.cudagraph_mode", "piecewise") == ("PIECEWISE", 51)
    assert graphs("--compilation-config", "0") == ("FULL_DECODE_ONLY", 51)
    assert graphs("--max-cudagraph-capture-size", "4") == ("FULL_AND_PIECEWISE", 3)


def test_threads_come_from_the_environment_alone() -> None:
    assert parse([]).mode.threads == 1
    assert parse([], {"OMP_NUM_THREADS": "16"}).mode.threads == 16
    assert parse([], {"OMP_NUM_THREADS": "4,2"}).mode.threads == 4
    assert parse([], {"OMP_NUM_THREADS": "many"}).mode.threads == 1


def test_recurrent_state() -> None:
    line = ["--model", "nemotron-3-nano-30b-a3b", "--gpu", "b200"]
    state = parse(
        [
            *line,
            "--mamba-backend",
            "flashinfer",
            "--mamba-ssm-cache-dtype",
            "float16",
            "--enable-mamba-cache-stochastic-rounding",
            "--mamba-cache-philox-rounds",
            "5",
        ]
    )
    assert (state.mode.mamba_backend, state.mode.ssm_dtype, state.mode.stochastic_rounding) == (
        "flashinfer",
        "float16",
        True,
    )
    assert parse(line).mamba_mode == "align"
    assert parse([*line, "--no-enable-prefix-caching"]).mamba_mode == "none"
    assert parse(["--model", "llama-3.1-8b"]).mamba_mode == "none"


def test_a_disabled_window_caps_the_length() -> None:
    s = parse(["--model", "gpt-oss-20b", "--disable-sliding-window"])
    assert (s.limits.max_model_len, s.limits.window, s.model.kv_bytes) == (128, 0, 49_152)
    with pytest.raises(UsageError, match=r"\(4096\) is greater than the derived max_model_len \(128"):
        parse(["--model", "gpt-oss-20b", "--disable-sliding-window", "--max-model-len", "4K"])


def test_a_profile_replaces_the_constants(tmp_path: Path, profile_text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(profile_text)
    settings = parse(["--profile", str(path)])
    assert (settings.gpu.name, settings.reached.hw, settings.figures.skew) == ("H200 141GB", 0.66, 0.9)
    assert settings.figures.unpacked == 0.45
    assert settings.unverified == ()
    with pytest.raises(UsageError, match="--profile is of h200 and cannot be used with --gpu b200"):
        parse(["--profile", str(path), "--gpu", "b200"])
    path.write_text(profile_text.replace("skew", "screw"))
    with pytest.raises(UsageError, match=r"screw is no figure of the step time \(did you mean skew\?\)"):
        parse(["--profile", str(path)])


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_gpu_may_be_a_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine{suffix}"
    row = {"name": "Mine 48GB", "memory_gib": 48.0, "tbps": 2.0, "bf16": 300.0, "watts": 300, "source": "my own bench"}
    path.write_text(
        json.dumps(row) if suffix == ".json" else "\n".join(f"{key} = {json.dumps(v)}" for key, v in row.items())
    )
    settings = parse(["--gpu", str(path), "--model", "llama-3.1-8b", "--max-model-len", "32k"])
    assert (settings.gpu.name, settings.gpu.tbps, settings.unverified) == ("Mine 48GB", 2.0, ("calibration",))
    # One table under its key, as in the project's own file, with what little is needed.
    path.write_text(
        json.dumps({"mine": {"memory_gib": 48.0, "tbps": 2.0, "bf16": 300.0}})
        if suffix == ".json"
        else "[mine]\nmemory_gib = 48.0\ntbps = 2.0\nbf16 = 300\n[mine.reached]\nhw = 0.8\nfit = 'by hand'\n"
    )
    settings = parse(["--gpu", str(path), "--model", "llama-3.1-8b", "--max-model-len", "32k"])
    assert "gpu" in settings.unverified
    path.write_text("memory = 3" if suffix == ".toml" else '{"memory": 3}')
    with pytest.raises(UsageError, match="is no description of a GPU") as error:
        parse(["--gpu", str(path)])
    assert str(error.value).endswith(".")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        parse(["--gpu", str(tmp_path / f"none{suffix}")])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-num-sequences 4", "unrecognized arguments: --max-num-sequences"),
        ("--port 99999", "--port must be at most 65535"),
        ("--block-size 0", "--block-size must be at least 1"),
        ("--block-size 17", "No valid attention backend found for cuda with block_size=17, .*: set --block-size 16"),
        ("--gpu h100 --model llama-3.1-8b --block-size 24", "with block_size=24, which is no multiple of 16"),
        ("--gpu h200 --model deepseek-v3.1 -tp 8 --block-size 56", "set --block-size 48"),
        ("--max-model-len many", "'many' is no number of tokens"),
        ("--max-model-len 1M", "greater than the derived max_model_len"),
        ("--model gpt-5", "--model gpt-5 is not in the table"),
        ("--gpu-memory-utilization 1.5", r"--gpu-memory-utilization must be in \(0, 1\]"),
        ("--scheduling-policy lifo", "invalid choice"),
        ("--port", "expected one argument"),
        ("--max-num-sequences 4", r"\(did you mean --max-num-seqs\?\)"),
        ("--enforce-egaer", r"unrecognized arguments: --enforce-egaer \(did you mean --enforce-eager\?\)"),
        ("--moe-backend", "argument --moe-backend: expected one argument"),
        ("--model qwen3-cider-30b-a3b", r"did you mean qwen3-coder-30b-a3b\?"),
        ("--mamba-cache-mode all", "invalid choice: 'all'"),
        ("--kv-cache-dtype int3", "invalid choice: 'int3'"),
        ("--quantization squeeze", "--quantization squeeze is not modelled"),
        ("--model llama-3.1-8b -q modelopt_mixed", "--quantization modelopt_mixed is not modelled"),
        ("-dp 2", "--data-parallel-size 2 is not modelled"),
        ("--model qwen3-32b -tp 5", r"attention heads \(64\) must be divisible by tensor parallel size \(5\)"),
        (
            "--max-num-batched-tokens 64 --max-num-seqs 65",
            r"\(64\) must be greater than or equal to max_num_seqs \(65\)",
        ),
        ("--max-num-batched-tokens 64 --no-enable-chunked-prefill", "is smaller than max_model_len"),
        ("--long-prefill-token-threshold 9999 --max-model-len 4k", "cannot be greater than the max_model_len"),
        ("--mamba-block-size 64 --no-enable-prefix-caching", "--mamba-block-size can only be set with"),
        ("--enable-mamba-cache-stochastic-rounding", "requires the SSM cache to be float16"),
        ("--gpu h200 --enable-mamba-cache-stochastic-rounding", "H200 141GB has 9.0: set --mamba-backend flashinfer"),
        ("--gpu mi300x --enable-mamba-cache-stochastic-rounding", "only supported on NVIDIA CUDA platforms"),
        ("-cc.cudagraph_mode SOME", "Invalid cudagraph_mode SOME"),
        ("--max-cudagraph-capture-size 8 -cc.max_cudagraph_capture_size 8", "are mutually exclusive"),
        ("--compilation-config {", "cannot be converted to a JSON object"),
        ("--speculative-config 3", "cannot be converted to a JSON object"),
        ("--watermark 2", r"--watermark must be in \[0, 1\)"),
        ("--profile /nowhere.toml", "--profile /nowhere.toml cannot be read"),
        ("--served-model-name caf\udce9", "caf\ufffd: it holds bytes that are no UTF-8"),
    ],
)
def test_wrong_use_is_one_sentence(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse(line.split())
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


def test_what_has_no_source_is_named() -> None:
    assert parse(["--gpu", "rtx-5090", "--model", "qwen3-32b", "-q", "awq", "--max-model-len", "4k"]).unverified == (
        "gpu",
        "model",
        "calibration",
        "a checkpoint in awq, which this model's own is not",
        "products of unpacked weights (assumed)",
    )
    plain = parse(["--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--max-model-len", "8k"])
    assert plain.unverified == ("gpu", "calibration")
