"""The step time's terms, one mechanism at a time, against figures worked out by hand."""

import msgspec
import pytest

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.assumptions import assumptions
from windtunnel.simulator.emulator.constants import constants, figures
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.graphs import Graphs, capture
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.simulator.emulator.scheduler import Step
from windtunnel.simulator.emulator.speculation import speculation
from windtunnel.simulator.emulator.steptime import StepTime
from windtunnel.simulator.results.emulation import NARROW_CACHE

PLAIN = Reached(hw=1.0, hf=1.0, hk=1.0, ha=1.0, step_ms=0.0, seq_us=0.0)
FREE = msgspec.structs.replace(
    constants(),
    cpu_step_ms=0.0,
    cpu_sequence_us=0.0,
    eager_layer_us=0.0,
    piecewise_layer_us=0.0,
    draft_pass_us=0.0,
    state_triton=1.0,
    state_flashinfer=1.0,
)
"""Nothing but traffic and products."""


def times(gpu: str, model: str, mode: Mode | None = None, **change: float) -> StepTime:
    row = facts.model(model)
    return StepTime(facts.gpu(gpu), row, mode, reached=PLAIN, figures=msgspec.structs.replace(FREE, **change))


def test_a_decode_step_reads_all_weights_and_each_context() -> None:
    # Llama-3.1-8B on an H100: (16.06 - 1.05) GB of weights, 100,000 tokens of 131,072 bytes, at 3.35 TB/s.
    seconds = times("h100", "llama-3.1-8b").seconds(8, 8, 100_000)
    assert seconds == pytest.approx((15.009e9 + 13.107e9) / 3.35e12, rel=1e-3)
    halved = times("h100", "llama-3.1-8b", Mode(kv_dtype="fp8")).seconds(8, 8, 100_000)
    assert halved == pytest.approx((15.009e9 + 13.107e9 / 2) / 3.35e12, rel=1e-3)


def test_a_prefill_step_is_bound_by_its_products() -> None:
    # 8,192 tokens times 2 FLOP times 7.505e9 weights at 989 TFLOPS.
    seconds = times("h100", "llama-3.1-8b").seconds(1, 8192, 0)
    assert seconds == pytest.approx(2 * 7.505e9 * 8192 / 989e12, rel=1e-3)
    # FP8 weights are multiplied at twice the rate; a GPU without FP8 unpacks them.
    row = facts.model("llama-3.1-8b").quantised("fp8")
    fast = StepTime(facts.gpu("h100"), row, reached=PLAIN, figures=FREE).seconds(1, 8192, 0)
    assert fast == pytest.approx(seconds / 2, rel=1e-3)
    slow = StepTime(facts.gpu("a100"), row, reached=PLAIN, figures=FREE).seconds(1, 8192, 0)
    assert slow == pytest.approx(2 * 7.505e9 * 8192 / (312e12 * 0.9), rel=1e-3)


def test_narrow_weights_without_the_format_are_read_narrow_and_multiplied_wide() -> None:
    # NVFP4 on a GPU without FP4: 4.5 bits a weight are read, products are those of 16 bit after unpacking.
    row = facts.model("llama-3.1-8b").quantised("nvfp4")
    hopper = StepTime(facts.gpu("h100"), row, reached=PLAIN, figures=FREE)
    assert hopper.seconds(1, 8192, 0) == pytest.approx(2 * 7.505e9 * 8192 / (989e12 * 0.9), rel=1e-3)
    assert hopper.seconds(1, 1, 0) == pytest.approx((6.980e9 * 4.5 / 8 + 1.0507e9) / 3.35e12, rel=1e-3)
    blackwell = StepTime(facts.gpu("b200"), row, reached=PLAIN, figures=FREE)
    assert blackwell.seconds(1, 8192, 0) == pytest.approx(2 * 7.505e9 * 8192 / 9000e12, rel=1e-3)


def test_unpacked_weights_of_dense_models_are_ahead_up_to_a_hundred_tokens_and_near_above() -> None:
    gpu, row = facts.gpu("a100"), facts.model("llama-3.1-8b")
    wide, narrow = (StepTime(gpu, model, figures=FREE) for model in (row, row.quantised("awq")))
    # An A100 reads 15.0 GB in 8.66 ms and 4.98 GB in 2.87; at 0.777 of its FLOPS a token's products take 0.0619 ms, of
    # unpacked weights 0.0688.
    for tokens, saved in ((16, 8.66 - 2.87), (64, 8.66 - 64 * 0.0688), (128, 8.66 - 128 * 0.0688)):
        found = wide.seconds(tokens, tokens, 0) - narrow.seconds(tokens, tokens, 0)
        assert found == pytest.approx(saved / 1e3, abs=5e-5)
    fixed = (0.5 + 32 * 50e-3 + 0.02) / 1e3
    assert (narrow.seconds(1, 8192, 0) - fixed) / (wide.seconds(1, 8192, 0) - fixed) == pytest.approx(1 / 0.9, rel=1e-3)
    # Experts go by what was fitted for them.
    mixture = StepTime(facts.gpu("h200"), facts.model("gpt-oss-120b"), reached=PLAIN, figures=FREE)
    products = 2 * 8192 * (3.583e9 / 0.45 + 1.548e9) / 989e12
    assert mixture.seconds(1, 8192, 0) == pytest.approx(products, rel=1e-3)


def test_what_unpacking_costs_a_dense_model_is_said_to_be_assumed(tmp_path, profile_text) -> None:
    said = "products of unpacked weights (assumed)"
    flags = ["--model", "llama-3.1-8b", "--max-model-len", "4k"]
    narrow = parse([*flags, "--gpu", "h200", "-q", "awq"])
    assert said in narrow.unverified
    assert [value for name, value, _ in assumptions(narrow) if name == "unpacked_dense"] == [0.9]
    for line in ([*flags, "--gpu", "h200", "-q", "fp8"], ["--gpu", "h200", "--model", "gpt-oss-120b"]):
        assert said not in parse(line).unverified
        assert not any(name == "unpacked_dense" for name, *_ in assumptions(parse(line)))
    (tmp_path / "mine.toml").write_text(profile_text.replace("[figures]", "[figures]\nunpacked_dense = 0.8"))
    assert said not in parse([*flags, "-q", "awq", "--profile", str(tmp_path / "mine.toml")]).unverified


def test_experts_are_read_as_far_as_they_are_touched() -> None:
    # Qwen3-30B-A3B: 57.98 GB of experts; one token touches 8 of 128 * 0.8, 64 tokens almost all.
    model = times("h200", "qwen3-30b-a3b")
    dense = facts.model("qwen3-30b-a3b").read_bytes
    for tokens, touched in ((1, 8 / 102.4), (64, 1 - (1 - 8 / 102.4) ** 64)):
        expected = (dense + 57.982e9 * touched) / 4.8e12
        assert model.seconds(tokens, tokens, 0) == pytest.approx(expected, rel=1e-3)


def test_windowed_layers_read_no_further_than_their_window() -> None:
    model = times("h200", "gpt-oss-120b")
    base = model.seconds(1, 1, 0)
    assert model.seconds(1, 1, 100_000, 128) - base == pytest.approx((100_000 + 128) * 36_864 / 4.8e12)


def test_recurrent_state_is_read_and_written_for_each_sequence() -> None:
    # 49,084,416 bytes for a sequence; 256 of them read and written take 25.1 GB at 7.1 TB/s.
    model = "nemotron-3-nano-30b-a3b"
    full = times("gb300-desk", model)
    none = times("gb300-desk", model, state_triton=1e12)
    assert full.seconds(256, 256, 0) - none.seconds(256, 256, 0) == pytest.approx(
        256 * 2 * 49_084_416 / 7.1e12, rel=1e-3
    )
    half = times("gb300-desk", model, Mode(ssm_dtype="float16"))
    saved = full.seconds(256, 256, 0) - half.seconds(256, 256, 0)
    assert saved == pytest.approx(256 * 2 * 23 * 1_048_576 / 7.1e12, rel=1e-3)
    # The two backends reach different shares of the bandwidth.
    slow, fast = constants().state_triton, constants().state_flashinfer
    row = facts.model(model)
    triton = StepTime(facts.gpu("gb300-desk"), row, Mode()).seconds(256, 256, 0)
    flashinfer = StepTime(facts.gpu("gb300-desk"), row, Mode(mamba_backend="flashinfer")).seconds(256, 256, 0)
    assert triton - flashinfer == pytest.approx(25.131e9 / 7.1e12 * (1 / slow - 1 / fast), rel=1e-3)


def test_speculation_verifies_more_tokens_and_drafts_one_after_the_other() -> None:
    row = facts.model("qwen3.5-27b")
    drafted = speculation({"method": "mtp", "num_speculative_tokens": 3}, row)
    plain = times("b200", "qwen3.5-27b", state_triton=1e12)
    with_drafts = times("b200", "qwen3.5-27b", Mode(speculation=drafted), state_triton=1e12)
    # Four tokens of each of eight sequences are verified; three passes read the MTP layer and the output head.
    more = with_drafts.seconds(8, 32, 8000) - plain.seconds(8, 8, 8000)
    passes = 3 * (0.425e9 * 2 + 248_320 * 5120 * 2 + 8000 * 4096) / 7.7e12
    assert more == pytest.approx(passes, rel=1e-3)
    # Nothing to draft for: the first pass still runs, for the draft's own KV.
    idle = with_drafts.seconds(8, 32, 8000) - with_drafts.seconds(8, 32, 8000, 0, 0)
    assert idle == pytest.approx(passes * 2 / 3, rel=1e-3)
    # The state after each of the four tokens is written, and one is read.
    state = times("b200", "qwen3.5-27b", Mode(speculation=drafted)).seconds(8, 32, 8000)
    assert row.recurrent is not None
    moved = 8 * 5 * row.recurrent.sequence_bytes("auto", 3)
    assert state - with_drafts.seconds(8, 32, 8000) == pytest.approx(moved / 7.7e12, rel=1e-3)


def test_looked_up_drafts_cost_the_cpu_only() -> None:
    row = facts.model("llama-3.1-8b")
    mode = Mode(speculation=speculation({"method": "ngram", "num_speculative_tokens": 4}, row), asynchronous=False)
    without = times("h100", "llama-3.1-8b", Mode(asynchronous=False))
    more = times("h100", "llama-3.1-8b", mode).seconds(10, 10, 0) - without.seconds(10, 10, 0)
    assert more == pytest.approx(10 * constants().lookup_us / 1e6)


def test_the_cpu_shows_without_asynchronous_scheduling_or_where_it_is_slower() -> None:
    change = {"cpu_step_ms": 1.0, "cpu_sequence_us": 10.0}
    hidden = times("h100", "llama-3.1-8b", **change).seconds(64, 64, 0)
    assert hidden == times("h100", "llama-3.1-8b").seconds(64, 64, 0)
    shown = times("h100", "llama-3.1-8b", Mode(asynchronous=False), **change).seconds(64, 64, 0)
    assert shown - hidden == pytest.approx(1.64e-3)
    # More than one OMP thread spins between the parallel parts.
    spun = times("h100", "llama-3.1-8b", Mode(asynchronous=False, threads=8), **change).seconds(64, 64, 0)
    assert spun - hidden == pytest.approx(2 * 1.64e-3)
    # A CPU that is slower than the GPU sets the pace.
    slow = times("h100", "llama-3.1-8b", cpu_step_ms=50.0).seconds(64, 64, 0)
    assert slow == pytest.approx(50e-3)


def test_latent_attention_reads_little_and_multiplies_much() -> None:
    # DeepSeek-V3.1: 1,152 bytes a token and layer on each GPU, and 128 heads times 2 * 2 * 576 FLOP on them.
    base = times("h200", "deepseek-v3.1", Mode(tensor_parallel=8))
    context = 1_000_000
    read = context * 70_272 / 4.8e12
    worked = context * 61 * 128 * 4 * 576 / (989e12 * 8)
    assert read > worked
    assert base.seconds(64, 64, context) - base.seconds(64, 64, 0) == pytest.approx(read)
    row = facts.model("deepseek-v3.1")
    if row.mtp is not None:
        drafted = Mode(tensor_parallel=1, speculation=speculation({"method": "mtp", "num_speculative_tokens": 3}, row))
        one = times("h200", "deepseek-v3.1", drafted)
        more = one.seconds(64, 256, context, 0, 0) - one.seconds(64, 256, 0, 0, 0)
        # Four queries a sequence: products now take longer than the reads.
        assert more == pytest.approx(4 * 8 * worked + context * 1152 / 4.8e12, rel=1e-3)
    # A prompt is computed without absorption.
    assert base.seconds(1, 8192, 8192) < base.seconds(1, 8192, 0) + 2e-3


def test_tensor_parallelism_divides_reads_and_adds_exchanges() -> None:
    one, four = times("h100", "llama-3.1-70b"), times("h100", "llama-3.1-70b", Mode(tensor_parallel=4))
    known = constants()
    latency = 2 * 80 * known.exchange_us / 1e6
    moved = 2 * 80 * 64 * 1.5 * 8192 * 2 / (known.exchange_gb_s * 1e9)
    assert four.seconds(64, 64, 640_000) == pytest.approx(one.seconds(64, 64, 640_000) / 4 + latency + moved, rel=1e-3)


def test_gpus_without_nvlink_exchange_over_pcie() -> None:
    one, four = times("rtx-4090", "llama-3.1-70b"), times("rtx-4090", "llama-3.1-70b", Mode(tensor_parallel=4))
    latency = 2 * 80 * 20 / 1e6
    moved = 2 * 80 * 64 * 1.5 * 8192 * 2 / (27e9 * 0.7)
    assert four.seconds(64, 64, 640_000) == pytest.approx(one.seconds(64, 64, 640_000) / 4 + latency + moved, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "link"), [("h200", "NVLink"), ("rtx-4090", "PCIe"), ("rtx-pro-6000", "PCIe"), ("l40s", "PCIe")]
)
def test_how_gpus_are_joined_is_said_to_be_assumed(gpu, link) -> None:
    flags = ["--gpu", gpu, "--model", "llama-3.1-8b", "--max-model-len", "4k"]
    said = f"the exchange between GPUs (assumed: {link})"
    assert said not in parse(flags).unverified
    assert said in parse([*flags, "-tp", "2"]).unverified


def test_a_profile_says_how_fast_gpus_without_nvlink_exchange(tmp_path, profile_text) -> None:
    text = profile_text.replace('gpu = "h200"', 'gpu = "rtx-4090"')
    (tmp_path / "mine.toml").write_text(text.replace("[figures]", "[figures]\nexchange_gb_s = 20\nexchange_us = 20"))
    flags = ["--model", "llama-3.1-8b", "--max-model-len", "4k", "-tp", "2", "--profile", str(tmp_path / "mine.toml")]
    settings = parse(flags)
    assert (settings.gpu.name, settings.gpu.nvlink, settings.figures.exchange_gb_s) == ("RTX 4090 24GB", True, 20)
    assert not any("exchange" in name for name in settings.unverified)


def test_blocks_come_back_from_host_memory_at_the_pace_of_the_slot() -> None:
    flags = ["--model", "llama-3.1-8b", "--max-model-len", "4k", "--kv-offloading-size", "8"]
    new, old = (parse([*flags, "--gpu", gpu]) for gpu in ("h100", "a100"))
    assert old.limits.offload_block_s == pytest.approx(2 * new.limits.offload_block_s)
    assert [[n for n, *_ in assumptions(s) if "gb_s" in n] for s in (new, old)] == [[], ["pcie_4_gb_s"]]


def test_a_copy_within_one_memory_takes_no_bus() -> None:
    line = ["--model", "llama-3.1-8b", "--max-model-len", "4k", "--gpu-memory-utilization", "0.5"]
    one = parse([*line, "--gpu", "gb10", "--kv-offloading-size", "8"])
    # A block of 2 MiB is read and written at 273 GB/s.
    assert one.limits.offload_block_s == pytest.approx(2 * 2**21 / 273e9)
    names = [name for name, *_ in assumptions(one)]
    assert "shared_copy_share" in names
    assert "pcie_4_gb_s" not in names


@pytest.mark.parametrize(
    ("model", "method", "other"),
    [
        ("gpt-oss-120b", "nvfp4", False),
        ("qwen3-coder-30b-a3b", "awq", True),
        ("qwen3-coder-30b-a3b", "fp8", False),
        ("qwen3-coder-30b-a3b", "bitsandbytes", False),
        ("gpt-oss-120b", "mxfp4", False),
        ("gpt-oss-120b", None, False),
    ],
)
def test_a_format_that_takes_another_checkpoint_is_named(model, method, other) -> None:
    settings = parse(["--gpu", "b200", "--model", model, *(["-q", method] if method else [])])
    assert any("checkpoint" in name for name in settings.unverified) is other


def test_steps_without_a_graph_have_a_floor() -> None:
    change = {"eager_layer_us": 500.0, "piecewise_layer_us": 250.0}
    eager = times("b200", "llama-3.1-8b", Mode(eager=True), **change)
    assert eager.seconds(1, 1, 10) == pytest.approx(32 * 500e-6)
    whole = times("b200", "llama-3.1-8b", **change)
    assert whole.seconds(1, 1, 10) == times("b200", "llama-3.1-8b").seconds(1, 1, 10)
    # A prompt's chunk beside decodes runs in pieces.
    assert whole.seconds(2, 40, 10) == pytest.approx(32 * 250e-6)
    few = times("b200", "llama-3.1-8b", Mode(graphs=Graphs((1, 2, 4))), **change)
    assert few.seconds(4, 4, 10) < few.seconds(5, 5, 10) == pytest.approx(32 * 500e-6)


def test_prefill_attention_grows_with_the_square() -> None:
    step = Step()
    step.sequences, step.tokens, step.chunks, step.drafting = 1, 4096, 1, 0
    step.work = 4096 * 2048.0
    whole = times("h100", "llama-3.1-8b")
    seconds = whole.of(step) - whole.seconds(1, 4096, 0, 0, 0)
    assert seconds == pytest.approx(4 * 32 * 32 * 128 * 4096 * 2048 / 989e12, rel=1e-6)


def test_captured_sizes_are_those_of_vllm() -> None:
    usual = capture(max_num_seqs=256, max_num_batched_tokens=8192)
    assert usual.sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert usual.sizes[-2:] == (496, 512)
    assert len(usual.sizes) == 51
    # Data-centre Blackwell goes to 1,024, few sequences to twice their number.
    assert capture(max_num_seqs=1024, max_num_batched_tokens=16_384, blackwell=True).sizes[-1] == 1024
    assert capture(max_num_seqs=10, max_num_batched_tokens=8192).sizes == (1, 2, 4, 8, 10, 16)
    assert capture(max_num_seqs=64, max_num_batched_tokens=8192, largest=20).sizes == (1, 2, 4, 8, 16)
    assert capture(max_num_seqs=64, max_num_batched_tokens=40, sizes=[64, 32, 3, 3]).sizes == (3, 32)
    assert capture(max_num_seqs=64, max_num_batched_tokens=8192, mode="NONE").sizes == ()
    # With two drafts a decode batch of whole sequences is padded to whole sequences.
    drafted = capture(max_num_seqs=256, max_num_batched_tokens=8192, drafts=2)
    assert {3, 6, 12, 24, 48, 510 // 3 // 8 * 8 * 3} <= set(drafted.sizes)
    assert (drafted.padded(5, 15), drafted.padded(5, 14), drafted.padded(1, 600)) == (24, 16, 600)


def test_every_figure_has_a_source_and_a_use() -> None:
    assert set(figures()) == set(constants().__struct_fields__)
    for name, figure in figures().items():
        assert figure.source, name
        assert figure.unit, name


def test_assumptions_in_use_are_listed() -> None:
    def names(*line: str) -> list[str]:
        return [name for name, _, _ in assumptions(parse(line))]

    always = ["piecewise_layer_us", "cpu_step_ms", "cpu_sequence_us"]
    assert names("--model", "llama-3.1-8b") == always
    hybrid = ["--model", "nemotron-3.5-lightning-30b-a3b-nvfp4", "--gpu", "gb300-desk"]
    assert names(*hybrid) == [*always, "state_triton"]
    drafted = names(*hybrid, "--spec-method", "mtp", "--mamba-backend", "flashinfer")
    assert drafted == [*always, "draft_pass_us", "state_flashinfer"]
    eager = names("--model", "llama-3.1-8b", "--enforce-eager", "-tp", "2")
    assert eager == ["eager_layer_us", *always[1:], "exchange_us", "exchange_gb_s"]
    looked = ["--model", "llama-3.1-8b", "--spec-method", "ngram", "--spec-tokens", "2"]
    assert names(*looked)[-2:] == ["lookup_us", "acceptance_length"]
    rows = {name: (value, source) for name, value, source in assumptions(parse(looked, {"OMP_NUM_THREADS": "8"}))}
    assert rows["threads_factor"][0] == 2.0
    assert rows["threads_factor"][1].startswith("assumed")


@pytest.mark.parametrize(
    ("gpu", "dtype", "doubted"), [("h200", "fp8", True), ("h200", "auto", False), ("b200", "fp8", False)]
)
def test_an_8_bit_cache_that_was_fitted_as_slower_is_said_to_be_doubtful(gpu, dtype, doubted) -> None:
    settings = parse(["--gpu", gpu, "--model", "qwen3-coder-30b-a3b", "--kv-cache-dtype", dtype])
    assert (NARROW_CACHE in settings.unverified) is doubted
    assert settings.reached.narrow_is_slower is (gpu == "h200")
