"""The command with a lever pulled: which flags it gets, and what is left to others."""

from typing import Any

import pytest

from windtunnel.simulator.experiments.tries import tries

OFFLOAD = "--kv-offloading-size 64 --kv-offloading-backend native"
VLLM = "CUDA_VISIBLE_DEVICES=0 vllm serve m --port {port}"


def asked(kind: str, command: str = VLLM, name: str = "vllm", **resolved: Any) -> tuple[list[str], list[str]]:
    found = tries(kind, command, {"engine": {"name": name, "resolved": resolved}})
    return [str(one.step.command) for one in found.pulled], list(found.left_out)


def test_each_lever_is_added_to_the_command_by_itself():
    commands, left = asked("kv_capacity", **{"cache_config.gpu_memory_utilization": 0.9})
    assert commands == [
        f"{VLLM} --kv-cache-dtype fp8",
        f"{VLLM} --quantization fp8",
        f"{VLLM} --gpu-memory-utilization 0.95",
    ]
    assert left == ["--tensor-parallel-size 2: it takes twice the GPUs, which is another machine"]
    found = tries("kv_capacity", VLLM, {"engine": {"name": "vllm", "resolved": {}}})
    assert [one.step.lossy for one in found.pulled] == [True, True, False]
    assert found.pulled[0].step.name == "with --kv-cache-dtype fp8"
    share = {"cache_config.gpu_memory_utilization": 0.9}
    found = tries("kv_capacity", VLLM, {"engine": {"name": "vllm", "resolved": share}})
    assert [one.flags for one in found.further] == [OFFLOAD]


def test_a_flag_that_is_given_is_replaced_and_one_that_is_pulled_is_not_tried():
    commands, _ = asked("kv_capacity", f"{VLLM} --kv-cache-dtype auto --gpu-memory-utilization 0.8 --seed 1 -q fp8")
    assert commands == [
        f"{VLLM} --gpu-memory-utilization 0.8 --seed 1 -q fp8 --kv-cache-dtype fp8",
        f"{VLLM} --kv-cache-dtype auto --seed 1 -q fp8 --gpu-memory-utilization 0.95",
        f"{VLLM} --kv-cache-dtype auto --gpu-memory-utilization 0.8 --seed 1 -q fp8 {OFFLOAD}",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "resolved", "flags"),
    [
        ("vllm", "batch", {"scheduler_config.max_num_seqs": 256}, "--max-num-seqs 512"),
        ("vllm", "prefill_budget", {"scheduler_config.max_num_batched_tokens": 2048}, "--max-num-batched-tokens 4096"),
        ("sglang", "batch", {"server_args.max_running_requests": 64}, "--max-running-requests 128"),
    ],
)
def test_what_is_to_be_higher_is_doubled(name, kind, resolved, flags):
    assert asked(kind, "serve", name, **resolved) == ([f"serve {flags}"], [])
    assert asked(kind, "serve", name) == (
        [],
        [f"a higher {flags.split()[0]}: what it stands at is not known, so neither is what is higher"],
    )


def test_values_of_json_stay_one_word():
    commands, _ = asked("decode")
    drafts = """'{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}'"""
    assert commands[0] == f"{VLLM} --speculative-config {drafts}"


def test_against_decoding_a_second_gpu_is_named_last_and_not_tried():
    commands, left = asked("decode")
    assert commands[1:] == [f"{VLLM} --quantization fp8"]
    assert left == ["--tensor-parallel-size 2: it takes twice the GPUs, which is another machine"]
    assert asked("decode", f"{VLLM} -tp 2")[1] == []


def test_what_no_flag_of_the_command_sets_is_left_to_others():
    commands, left = asked("decode", "llama-server -m x", "llama.cpp")
    assert commands == []
    assert left == ["--spec-draft-model with a small model of the same vocabulary: its value is yours to choose"]
    assert asked("decode", "trtllm-serve x", "tensorrt-llm")[0] == []
    assert asked("decode", "trtllm-serve x --tp_size 2", "tensorrt-llm")[1] == [
        "speculative_config: {decoding_type: MTP} in its YAML: no flag of the engine's command"
    ]
    assert asked("client") == (
        [],
        [
            "--workers 2 (a flag of windtunnel): no flag of the engine's command",
            "a client on another machine: no flag of the engine's command",
        ],
    )
    assert asked("unknown") == ([], [])
