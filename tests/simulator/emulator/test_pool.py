"""How much KV cache a model gets on a GPU, against what real engines reported, and how its layers share it."""

import pytest

from windtunnel.simulator.emulator.facts import GIB
from windtunnel.simulator.emulator.flags import Settings, parse
from windtunnel.traces.errors import EngineError, UsageError


def of(*line: str) -> Settings:
    return parse(line)


def groups(settings: Settings) -> list[tuple[str, int, int]]:
    return [(group.kind, group.block_size, group.count) for group in settings.limits.groups]


def test_blocks_of_a_real_engine() -> None:
    # vLLM 0.19 on an RTX 4090 (25,250,627,584 bytes) with Llama-3.1-8B at 0.90: 2,588 blocks of 16 tokens.
    line = ["--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--max-model-len", "32768"]
    settings = of(*line, "--gpu-memory-utilization", "0.9", "--max-num-batched-tokens", "2048")
    error = settings.limits.num_gpu_blocks / 2588 - 1
    print(f"{settings.limits.num_gpu_blocks} blocks, {error:+.2%}")
    assert abs(error) < 0.005
    assert settings.gpu.memory_gib * GIB == pytest.approx(25_250_627_584, rel=1e-3)
    assert settings.kv_tokens == settings.limits.num_gpu_blocks * 16
    assert settings.limits.groups == ()


def test_windows_and_full_attention_are_two_groups_of_one_pool() -> None:
    settings = of("--gpu", "h200", "--model", "gpt-oss-120b")
    assert groups(settings) == [("window", 16, 1), ("full", 16, 1)]
    # A block is 16 tokens in 18 layers of 2,048 bytes.
    assert settings.pool.layout.block_bytes == 16 * 18 * 2048
    # Long requests hardly use the windows' table: nearly all blocks are the other's, less what is in flight.
    assert 0.85 < settings.kv_tokens / (settings.limits.num_gpu_blocks * 16) < 1.0
    whole = of("--gpu", "h200", "--model", "gpt-oss-120b", "--disable-hybrid-kv-cache-manager")
    assert whole.limits.groups == ()
    assert whole.pool.layout.block_bytes == 2 * settings.pool.layout.block_bytes


def test_attention_beside_recurrent_state_has_blocks_as_large_as_a_state() -> None:
    nano = of("--gpu", "b200", "--model", "nemotron-3-nano-30b-a3b")
    assert (nano.limits.block_size, groups(nano)) == (2096, [("mamba", 2096, 4), ("full", 2096, 1)])
    assert nano.mamba_mode == "align"
    fp8 = of("--gpu", "b200", "--model", "nemotron-3-super-120b-a12b-nvfp4")
    assert fp8.limits.block_size == 8320
    # A 16-bit state needs half the block; drafts keep a state each.
    half = of("--gpu", "b200", "--model", "nemotron-3-nano-30b-a3b", "--mamba-ssm-cache-dtype", "float16")
    assert half.limits.block_size == 1072
    drafted = of("--gpu", "b200", "--model", "qwen3.6-35b-a3b", "--spec-method", "mtp", "--spec-tokens", "2")
    assert [(group.speculative_blocks, group.drafts) for group in drafted.limits.groups] == [(2, False), (0, True)]
    assert drafted.limits.drops_last_block
    off = of("--gpu", "b200", "--model", "qwen3.5-27b", "--no-enable-prefix-caching", "--max-model-len", "32k")
    assert (off.mamba_mode, off.limits.groups[0].block_size) == ("none", 32_000)
    with pytest.raises(UsageError, match=r"--disable-hybrid-kv-cache-manager cannot be used with Qwen/Qwen3\.5-27B"):
        of("--gpu", "b200", "--model", "qwen3.5-27b", "--disable-hybrid-kv-cache-manager")


def test_latent_caches() -> None:
    # 47 layers and one that drafts, 576 values each; Blackwell's kernels take blocks of 32.
    glm = of("--gpu", "b200", "--model", "glm-4.7-flash", "--spec-method", "mtp")
    assert (glm.limits.block_size, glm.pool.layout.block_bytes) == (32, 32 * 48 * 1152)
    assert of("--gpu", "h200", "--model", "glm-4.7-flash").limits.block_size == 16
    # Eight GPUs each hold the whole latent.
    deepseek = of("--gpu", "h200", "--model", "deepseek-v3.1", "-tp", "8")
    assert deepseek.pool.layout.block_bytes == 16 * 61 * 1152


def test_a_draft_takes_its_part_of_the_memory() -> None:
    line = ["--gpu", "h100", "--model", "qwen3-32b", "-q", "fp8", "--max-model-len", "8k"]
    alone = of(*line)
    draft = ["--spec-method", "eagle3", "--spec-model", "x", "--spec-tokens", "3"]
    beside = of(*line, *draft)
    assert beside.speculation is not None
    lost = alone.pool.bytes - beside.pool.bytes
    assert lost == pytest.approx(beside.speculation.draft.resident_bytes, rel=0.01)
    assert beside.pool.layout.block_bytes == alone.pool.layout.block_bytes * 65 // 64


def test_what_does_not_fit_says_so_as_vllm_does() -> None:
    with pytest.raises(EngineError, match="No available memory for the cache blocks"):
        of("--gpu", "rtx-4090", "--model", "llama-3.1-70b")
    line = ["--gpu", "rtx-4090", "--model", "llama-3.1-8b"]
    with pytest.raises(EngineError, match=r"\(131072\), \(16\.00 GiB KV cache is needed, .* length is (\d+)") as error:
        of(*line)
    longest = int(str(error.value).split("maximum model length is ")[1].split(".")[0])
    assert of(*line, "--max-model-len", "auto").limits.max_model_len == longest
    assert of(*line, "--max-model-len", str(longest)).limits.max_model_len == longest
    with pytest.raises(EngineError, match="To serve at least one request"):
        of(*line, "--max-model-len", str(longest + 1))
    # The null block is nobody's.
    assert (
        of("--model", "llama-3.1-8b", "--num-gpu-blocks-override", "9", "--max-model-len", "auto").limits.max_model_len
        == 128
    )


def test_offload_is_measured_in_blocks() -> None:
    settings = of("--gpu", "h100", "--model", "llama-3.1-8b", "--kv-offloading-size", "8")
    # 8 GiB of 2 MiB; one moves in 2 MiB / 54 GB/s.
    assert settings.limits.offload_blocks == 8 * 512
    assert settings.limits.offload_block_s == pytest.approx(2 * 2**20 / 54e9)
    assert settings.ignored == ()
    for line in (["--kv-offloading-backend", "lmcache"], ["--model", "gpt-oss-20b"]):
        other = of("--gpu", "h100", "--model", "llama-3.1-8b", "--kv-offloading-size", "8", *line)
        assert (other.limits.offload_blocks, other.ignored) == (0, ("--kv-offloading-size 8",))
