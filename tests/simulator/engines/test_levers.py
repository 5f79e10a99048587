"""The flag that is named for a limit is one of the engine that was measured."""

import shlex

import pytest

from windtunnel.simulator.emulator import flags
from windtunnel.simulator.engines.levers import DRAFTS, GPUS, KINDS, LEVERS, left, levers


def best(*of):
    return next(iter(left(*of)), None)


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
    assert next((lever.text for lever in levers(engine, kind)), None) == text


FP8_KV = "vllm serve m --kv-cache-dtype fp8"
FP8 = f"{FP8_KV} --quantization fp8"
FULL = f"{FP8} --gpu-memory-utilization 0.95"
OFFLOAD = "--kv-offloading-size 64 --kv-offloading-backend native"


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
        ("kv_capacity", "vllm serve m --kv-cache-dtype auto", {}, "--kv-cache-dtype fp8", True),
        ("kv_capacity", "vllm serve m --kv-cache-dtype bfloat16", {}, "--kv-cache-dtype fp8", True),
        ("kv_capacity", f"{FP8_KV} -q fp8", {}, "a higher --gpu-memory-utilization", False),
        ("kv_capacity", f"{FP8_KV} -q=fp8", {}, "a higher --gpu-memory-utilization", False),
        ("kv_capacity", f"{FP8_KV} -qfp8", {}, "a higher --gpu-memory-utilization", False),
        ("kv_capacity", f"{FP8_KV} -q fp8 -q None", {}, "--quantization fp8", True),
        (
            "kv_capacity",
            FP8,
            {"cache_config.gpu_memory_utilization": "0.92"},
            "a higher --gpu-memory-utilization",
            False,
        ),
        ("kv_capacity", FP8, {"cache_config.gpu_memory_utilization": 0.95}, OFFLOAD, False),
        ("kv_capacity", f"{FP8} --gpu-memory-utilization 0.94", {}, "a higher --gpu-memory-utilization", False),
        ("kv_capacity", f"{FP8} --gpu-memory-utilization 0.95", {}, OFFLOAD, False),
        ("kv_capacity", f"{FP8} --gpu_memory_utilization=.98", {}, OFFLOAD, False),
        ("kv_capacity", f"{FP8} --device-memory-utilization 0.98", {}, OFFLOAD, False),
        ("kv_capacity", f"{FP8} --kv-cache-memory-bytes 40G", {}, OFFLOAD, False),
        ("kv_capacity", f"{FP8} --num-gpu-blocks-override 3000", {}, OFFLOAD, False),
        ("kv_capacity", f"{FULL} --kv-offloading-size 0", {}, OFFLOAD, False),
        ("kv_capacity", f"{FULL} --kv-offloading-size 64", {}, "--tensor-parallel-size 2", False),
        ("kv_capacity", FULL, {"offload_config.kv_offload_blocks": 4000}, "--tensor-parallel-size 2", False),
        ("kv_capacity", f"{FULL} --kv-transfer-config.kv_connector X", {}, "--tensor-parallel-size 2", False),
        ("kv_capacity", f"{FULL} --kv-offloading-size 64 -tp 1", {}, "--tensor-parallel-size 2", False),
        ("kv_capacity", f"{FULL} --kv-offloading-size 64 -tp 2", {}, None, False),
        ("decode", None, {"speculative_config.method": "eagle3"}, "--quantization fp8", True),
        ("decode", "vllm serve m --speculative-config.method ngram", {}, "--quantization fp8", True),
        ("decode", "vllm serve m --spec-method mtp", {}, "--quantization fp8", True),
        ("decode", "vllm serve m --spec-method mtp -q fp8", {}, "--tensor-parallel-size 2", False),
        ("decode", "vllm serve m --spec-method mtp -q fp8 -tp 2", {}, None, False),
        (
            "decode",
            "vllm serve m --spec-method mtp -q fp8",
            {"parallel_config.tensor_parallel_size": 4},
            None,
            False,
        ),
        (
            "prefill_compute",
            "vllm serve m",
            {"parallel_config.tensor_parallel_size": 1},
            "--tensor-parallel-size 2",
            False,
        ),
        ("prefill_compute", "vllm serve m", {"parallel_config.tensor_parallel_size": 4}, "--quantization fp8", True),
        ("prefill_compute", "vllm serve m -tp 2", {}, "--quantization fp8", True),
        ("prefill_compute", "vllm serve m -tp=2", {}, "--quantization fp8", True),
        ("prefill_compute", "vllm serve m -tp 1", {}, "--tensor-parallel-size 2", False),
        ("prefill_compute", "vllm serve m --quantization fp8 --tensor-parallel-size 2", {}, None, False),
        ("batch", "vllm serve m --max-num-seqs 4", {}, "a higher --max-num-seqs", False),
        ("batch", "vllm 'serve", {}, "a higher --max-num-seqs", False),
    ],
)
def test_what_is_pulled_already_is_not_named_again(kind, command, settings, text, lossy):
    found = best("vllm", kind, command, settings)
    assert (None if found is None else found.text) == text
    assert found is None or found.lossy == lossy


@pytest.mark.parametrize(
    ("engine", "kind", "command", "settings", "text"),
    [
        ("sglang", "prefill_compute", "x --tp 2", {}, "--quantization fp8"),
        ("sglang", "prefill_compute", "x --tensor-parallel-size 2", {}, "--quantization fp8"),
        ("sglang", "prefill_compute", None, {"server_args.tp_size": 2}, "--quantization fp8"),
        ("sglang", "kv_capacity", None, {"server_args.kv_cache_dtype": "auto"}, "--kv-cache-dtype fp8_e4m3"),
        ("sglang", "kv_capacity", "x --kv-cache-dtype fp8_e5m2", {}, "a higher --mem-fraction-static"),
        (
            "sglang",
            "kv_capacity",
            "x --mem-fraction-static 0.95",
            {"server_args.kv_cache_dtype": "fp8_e4m3", "server_args.enable_hierarchical_cache": False},
            "--enable-hierarchical-cache --hicache-ratio 2",
        ),
        (
            "sglang",
            "kv_capacity",
            "x --kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.95 --enable-hierarchical-cache",
            {},
            "--tp-size 2",
        ),
        ("sglang", "decode", None, {"server_args.speculative_algorithm": "EAGLE"}, "--quantization fp8"),
        ("sglang", "decode", "x --quantization fp8", {"server_args.speculative_algorithm": "EAGLE"}, "--tp-size 2"),
        ("sglang", "decode", "x --quantization fp8 --tp 2", {"server_args.speculative_algorithm": "EAGLE"}, None),
        ("tensorrt-llm", "prefill_compute", "trtllm-serve m --tp_size 2", {}, None),
        ("tensorrt-llm", "prefill_compute", "trtllm-serve m --tensor_parallel_size 2", {}, None),
        ("tensorrt-llm", "prefill_compute", None, {"parallel_config.tp_size": "2"}, None),
        ("tensorrt-llm", "kv_capacity", "x --kv_cache_dtype fp8", {}, "a higher --kv_cache_free_gpu_memory_fraction"),
        (
            "tensorrt-llm",
            "kv_capacity",
            "x --kv_cache_dtype=fp8 --free_gpu_memory_fraction 0.95",
            {},
            "kv_cache_config: {host_cache_size: N} in its YAML",
        ),
        ("tensorrt-llm", "decode", None, {"speculative_config.method": "MTP"}, "--tp_size 2"),
        ("tensorrt-llm", "decode", "x --tp_size 2", {"speculative_config.method": "MTP"}, None),
        ("llama.cpp", "kv_capacity", "llama-server -ctk q8_0 -ctv q8_0", {}, "a higher --ctx-size"),
        ("llama.cpp", "kv_capacity", "llama-server -ctk f16", {}, "--cache-type-k q8_0 --cache-type-v q8_0"),
        ("llama.cpp", "decode", "llama-server -md small.gguf", {}, None),
        ("llama.cpp", "decode", "llama-server --spec-type draft-mtp", {}, None),
    ],
)
def test_every_engines_own_spellings_and_settings_are_known(engine, kind, command, settings, text):
    found = best(engine, kind, command, settings)
    assert (None if found is None else found.text) == text


def test_what_is_said_of_a_lever_is_its_own():
    drafts, weights = best("vllm", "decode", None, {}), best("vllm", "decode", "x --spec-method mtp", {})
    assert (drafts.note, drafts.lossy) == (DRAFTS, False)
    assert (weights.note, weights.lossy) == ("", True)
    assert levers("vllm", "kv_capacity")[-1].note == levers("vllm", "prefill_compute")[0].note == GPUS
    assert {levers(engine, "decode")[-1].note for engine in ("vllm", "sglang", "tensorrt-llm")} == {GPUS}


def test_every_engine_with_levers_has_one_for_every_limit():
    assert all(levers(engine, kind) for engine in LEVERS for kind in KINDS)


def test_a_smaller_kv_dtype_is_lossy_and_a_larger_batch_is_not():
    assert all(found["kv_capacity"][0].lossy and not found["batch"][0].lossy for found in LEVERS.values())


@pytest.mark.parametrize(
    "lever",
    [lever for kind, found in LEVERS["vllm"].items() for lever in found if kind not in ("client", "prefix_cache")],
)
def test_the_flags_for_vllm_are_such_that_its_parser_takes(lever):
    words = shlex.split(lever.text.removeprefix("a higher "))
    value = "0.94" if words == ["--gpu-memory-utilization"] else "512"
    words += [value] if len(words) == 1 else []
    plain, turned = flags.parse(["--gpu", "h200"]), flags.parse(["--gpu", "h200", *words])
    assert plain != turned


def test_the_flag_that_switches_the_prefix_cache_on_is_taken_too():
    (lever,) = LEVERS["vllm"]["prefix_cache"]
    off, on, plain = (
        flags.parse(["--gpu", "h200", *more]) for more in (["--no-enable-prefix-caching"], [lever.text], [])
    )
    assert on == plain != off


OFF = {"prefix_caching": False}
ON = {"prefix_caching": True}


@pytest.mark.parametrize(
    ("engine", "kind", "command", "settings", "text"),
    [
        ("vllm", "prefix_cache", "vllm serve m --no-enable-prefix-caching", OFF, "--enable-prefix-caching"),
        ("vllm", "prefix_cache", None, {}, "--enable-prefix-caching"),
        ("vllm", "prefix_cache", "vllm serve m", ON, None),
        ("vllm", "prefill_compute", "vllm serve m --no-enable-prefix-caching", {}, "--enable-prefix-caching"),
        ("vllm", "prefill_compute", None, OFF, "--enable-prefix-caching"),
        ("windtunnel-emulator", "prefill_budget", None, OFF, "--enable-prefix-caching"),
        ("vllm", "prefill_compute", None, ON, "--tensor-parallel-size 2"),
        ("vllm", "decode", None, {"prefix_caching": False, "speculative_config.method": "mtp"}, "--quantization fp8"),
        ("sglang", "prefill_compute", "x --disable-radix-cache", {}, "its command without --disable-radix-cache"),
        ("tensorrt-llm", "prefix_cache", None, OFF, "kv_cache_config: {enable_block_reuse: true} in its YAML"),
        ("llama.cpp", "prefill_compute", "llama-server --no-cache-prompt", ON, "its command without --no-cache-prompt"),
        ("openai", "prefix_cache", None, OFF, None),
    ],
)
def test_a_prefix_cache_that_is_off_is_switched_on_first(engine, kind, command, settings, text):
    found = best(engine, kind, command, settings)
    assert (None if found is None else found.text) == text
