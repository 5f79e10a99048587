"""The command line: vLLM's flags, what is not modelled, what is wrong."""

import pytest

from windtunnel.simulator.emulator.flags import parse
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
        "--dtype",
        "--trust-remote-code",
        "--generation-config",
        "--override-generation-config.temperature",
        "--no-enable-chunked-prefill",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-num-sequences 4", "unrecognized arguments: --max-num-sequences"),
        ("--port 99999", "--port must be at most 65535"),
        ("--block-size 0", "--block-size must be at least 1"),
        ("--max-model-len many", "'many' is no number of tokens"),
        ("--max-model-len 1M", "greater than the derived max_model_len"),
        ("--model gpt-5", "--model gpt-5 is not in the table"),
        ("--gpu-memory-utilization 1.5", r"--gpu-memory-utilization must be in \(0, 1\]"),
        ("--scheduling-policy lifo", "invalid choice"),
        ("--port", "expected one argument"),
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
    )
    assert parse(["--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--max-model-len", "8k"]).unverified == ("gpu",)
