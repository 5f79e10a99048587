"""The flag that is named for a limit is one of the engine that was measured."""

import shlex

import pytest

from windtunnel.simulator.emulator import flags
from windtunnel.simulator.engines.levers import KINDS, LEVERS, find, left, lever


@pytest.mark.parametrize(
    ("engine", "kind", "text"),
    [
        ("vllm", "kv_capacity", "--kv-cache-dtype fp8"),
        ("windtunnel-emulator", "batch", "a higher --max-num-seqs"),
        ("sglang", "prefill_budget", "a higher --chunked-prefill-size"),
        ("tensorrt-llm", "kv_capacity", "--kv_cache_dtype fp8"),
        ("llama.cpp", "batch", "a higher --parallel"),
        ("openai", "kv_capacity", None),
        ("openai", "client", "--workers 2 (a flag of windtunnel)"),
    ],
)
def test_the_flag_is_the_engines_own(engine, kind, text):
    assert lever(engine, kind) == text


@pytest.mark.parametrize(
    ("kind", "command", "settings", "text", "lossy"),
    [
        ("kv_capacity", None, {}, "--kv-cache-dtype fp8", True),
        ("kv_capacity", None, {"cache_config.cache_dtype": "auto"}, "--kv-cache-dtype fp8", True),
        ("kv_capacity", None, {"cache_config.cache_dtype": "fp8"}, "--quantization fp8", True),
        ("kv_capacity", "emulator --kv-cache-dtype=fp8", {}, "--quantization fp8", True),
        (
            "kv_capacity",
            "vllm serve m --kv_cache_dtype fp8 --quantization fp8",
            {},
            "a higher --gpu-memory-utilization",
            False,
        ),
        ("decode", None, {"speculative_config.method": "eagle3"}, "--quantization fp8", True),
        (
            "prefill_compute",
            "vllm serve m",
            {"parallel_config.tensor_parallel_size": 1},
            "--tensor-parallel-size 2",
            False,
        ),
        ("prefill_compute", "vllm serve m", {"parallel_config.tensor_parallel_size": 4}, "--quantization fp8", True),
        ("prefill_compute", "vllm serve m --quantization fp8 --tensor-parallel-size 2", {}, None, False),
        ("batch", "vllm serve m --max-num-seqs 4", {}, "a higher --max-num-seqs", False),
        ("batch", "vllm 'serve", {}, "a higher --max-num-seqs", False),
    ],
)
def test_what_is_pulled_already_is_not_named_again(kind, command, settings, text, lossy):
    found = left("vllm", kind, command, settings)
    assert (None if found is None else found.text) == text
    assert found is None or found.lossy == lossy


def test_every_engine_with_levers_has_one_for_every_limit():
    assert all(find(engine, kind) for engine in LEVERS for kind in KINDS)


def test_a_smaller_kv_dtype_is_lossy_and_a_larger_batch_is_not():
    assert all(levers["kv_capacity"].lossy and not levers["batch"].lossy for levers in LEVERS.values())


@pytest.mark.parametrize("kind", ["kv_capacity", "decode", "prefill_compute", "batch", "prefill_budget"])
def test_the_flags_for_vllm_are_such_that_its_parser_takes(kind):
    words = shlex.split(lever("windtunnel-emulator", kind).removeprefix("a higher "))
    words += ["512"] if len(words) == 1 else []
    plain, turned = flags.parse(["--gpu", "h200"]), flags.parse(["--gpu", "h200", *words])
    assert plain != turned
