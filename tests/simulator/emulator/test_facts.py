"""GPUs, models, what fits, and step times against measured points."""

import pytest

from windtunnel.simulator.emulator import facts, memory
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.graphs import capture
from windtunnel.simulator.emulator.mode import Mode
from windtunnel.simulator.emulator.steptime import StepTime
from windtunnel.traces.errors import EngineError, UsageError


def test_every_row_has_a_source() -> None:
    for row in [*facts.gpus().values(), *facts.models().values()]:
        assert row.source
    assert facts.UNVERIFIED in facts.gpu("rtx-5090").source
    assert facts.UNVERIFIED not in facts.model("llama-3.1-8b").source


def test_names_are_forgiving() -> None:
    assert facts.gpu("RTX_PRO_6000") is facts.gpus()["rtx-pro-6000"]
    assert facts.model("Qwen/Qwen3-Coder-30B-A3B-Instruct") is facts.models()["qwen3-coder-30b-a3b"]
    with pytest.raises(UsageError, match=r"--gpu H900 is not in the table \(did you mean h200\?\): use one of a100, "):
        facts.gpu("H900")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3-coder-30b-a3b", 98_304),
        ("gpt-oss-20b", 24_576),
        ("gpt-oss-120b", 36_864),
        ("llama-3.1-8b", 131_072),
        ("deepseek-v3.1", 70_272),
    ],
)
def test_kv_bytes_are_those_of_the_published_configurations(name: str, expected: int) -> None:
    assert facts.model(name).kv_bytes == expected
    assert facts.model(name).kv_share("fp8_e4m3") == 0.5


def test_blocks_that_fit_a_4090_are_those_a_real_vllm_reported() -> None:
    # vLLM 0.19 on an RTX 4090 with Llama-3.1-8B: 2,588 blocks at 0.90 (LLMServingSim, bench/examples).
    blocks = parse(
        ["--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--max-model-len", "32768", "--gpu-memory-utilization", "0.9"]
    ).limits.num_gpu_blocks
    print(f"blocks: {blocks}, measured 2588")
    assert blocks == pytest.approx(2588, rel=0.02)


OTHERS = "try another --gpu, --quantization or --tensor-parallel-size"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "--gpu rtx-4090 --model llama-3.1-70b",
            f"{OTHERS}.",
        ),
        (
            "--gpu rtx-4090 --model llama-3.1-70b -pp 4 --cpu-offload-gb 9 --dtype half",
            f"{OTHERS} (--cpu-offload-gb 9, --pipeline-parallel-size 4: not modelled).",
        ),
        (
            "--gpu rtx-4090 --model llama-3.1-8b --gpu-memory-utilization 0.5",
            f"{OTHERS}, or a higher --gpu-memory-utilization.",
        ),
    ],
)
def test_what_may_help_where_a_model_does_not_fit(line: str, advice: str) -> None:
    with pytest.raises(EngineError) as error:
        parse(line.split())
    assert str(error.value).partition("; ")[2] == advice


OFFLOAD = "--gpu gb10 --model llama-3.1-8b --max-model-len 32k --kv-offloading-size"


def test_a_host_tier_comes_out_of_the_one_memory_where_there_is_but_one() -> None:
    # 0.95 of 119.7 GiB are 113.7.
    with pytest.raises(
        EngineError, match=r"^64 GiB of --kv-offloading-size do not fit: GB10 .* 119\.7 GiB .* 113\.7; "
    ):
        parse(f"{OFFLOAD} 64 --gpu-memory-utilization 0.95".split())
    # 0.92 of it are 110.1.
    with pytest.raises(EngineError, match=r"--gpu-memory-utilization 0\.92 takes 110\.1"):
        parse(f"{OFFLOAD} 10".split())
    assert parse(f"{OFFLOAD} 9".split()).limits.offload_blocks == 9 * 512
    # 15.0 GiB of weights, 1.9 of reserve and 8 of cache leave 94.8.
    assert parse(f"{OFFLOAD} 94 --kv-cache-memory-bytes 8G".split()).limits.offload_blocks == 94 * 512
    with pytest.raises(EngineError, match=r"the engine takes 24\.8; leave --kv-offloading-size out"):
        parse(f"{OFFLOAD} 96 --kv-cache-memory-bytes 8G".split())
    assert [key for key, gpu in facts.gpus().items() if gpu.shared] == ["gb10"]


def test_bytes_for_the_cache_that_hold_no_two_blocks_are_what_has_to_be_more() -> None:
    with pytest.raises(EngineError, match="--kv-cache-memory-bytes of 1,000 is less than two of"):
        parse(["--model", "llama-3.1-8b", "--kv-cache-memory-bytes", "1000"])


def test_a_model_that_does_not_fit_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="No available memory for the cache blocks"):
        parse(["--gpu", "rtx-4090", "--model", "llama-3.1-70b"])
    with pytest.raises(EngineError, match=r"estimated maximum model length is \d+"):
        parse(["--gpu", "rtx-4090", "--model", "llama-3.1-8b"])
    assert (
        parse(["--gpu", "rtx-4090", "--model", "llama-3.1-8b", "--max-model-len", "auto"]).limits.max_model_len < 50_000
    )


MEASURED = [
    # GPU, model, sequences, prompt, output, TPOT ms (facts: AIConfigurator silicon sample, measured points 5-14)
    ("b200", "gpt-oss-120b", 4, 1024, 1024, 3.49),
    ("b200", "gpt-oss-120b", 16, 1024, 1024, 5.84),
    ("b200", "gpt-oss-120b", 64, 1024, 1024, 10.50),
    ("b200", "gpt-oss-120b", 128, 1024, 1024, 13.45),
    ("h200", "gpt-oss-120b", 4, 8192, 1024, 7.08),
]


def test_decode_steps_are_near_the_measured_ones() -> None:
    """Where prefills take a small part of the time; test_validate.py has the rest."""
    errors = []
    for name, served, sequences, prompt, output, measured in MEASURED:
        model = facts.model(served)
        context = prompt + output // 2
        step = StepTime(facts.gpu(name), model).seconds(
            sequences, sequences, sequences * context, sequences * min(context, model.window)
        )
        errors.append(step * 1e3 / measured - 1)
        print(
            f"{name} {served} x{sequences} {prompt}/{output}: {step * 1e3:.2f} ms, measured {measured}, {errors[-1]:+.0%}"
        )
    assert sorted(map(abs, errors))[len(errors) // 2] < 0.15
    assert max(map(abs, errors)) < 0.35


def test_time_grows_with_everything_it_depends_on() -> None:
    base = StepTime(facts.gpu("h200"), facts.model("qwen3-coder-30b-a3b"))
    assert base.seconds(32, 32, 32_000) > base.seconds(8, 8, 32_000) > base.seconds(1, 1, 32_000)
    assert base.seconds(8, 8, 800_000) > base.seconds(8, 8, 8_000)
    assert base.seconds(1, 8192, 8192) > 5 * base.seconds(1, 1, 8192)


def test_each_lever_moves_the_time_the_right_way() -> None:
    gpu, model = facts.gpu("h100"), facts.model("llama-3.1-70b")
    plain = StepTime(gpu, model).seconds(64, 64, 640_000)
    assert StepTime(gpu, model.quantised("fp8")).seconds(64, 64, 640_000) < plain
    assert StepTime(gpu, model, Mode(kv_dtype="fp8")).seconds(64, 64, 640_000) < plain
    assert StepTime(gpu, model, Mode(tensor_parallel=4)).seconds(64, 64, 640_000) < plain / 2
    assert StepTime(gpu, model, Mode(asynchronous=False)).seconds(64, 64, 640_000) > plain
    small = facts.model("qwen3-coder-30b-a3b")
    assert StepTime(gpu, small, Mode(eager=True)).seconds(1, 1, 100) > StepTime(gpu, small).seconds(1, 1, 100)
    with pytest.raises(UsageError, match="--quantization squeeze is not modelled"):
        model.quantised("squeeze")


def test_decode_batches_are_padded_to_captured_sizes() -> None:
    graphs = capture(max_num_seqs=1024, max_num_batched_tokens=8192)
    assert [graphs.padded(n, n) for n in (1, 2, 3, 5, 8, 9, 250, 257, 512, 513)] == [
        1,
        2,
        4,
        8,
        8,
        16,
        256,
        272,
        512,
        513,
    ]


def test_batch_defaults_follow_the_memory() -> None:
    assert memory.batch_defaults(facts.gpu("b200")) == (16384, 1024)
    assert memory.batch_defaults(facts.gpu("h100")) == (8192, 1024)
    assert memory.batch_defaults(facts.gpu("a100")) == (2048, 256)
    assert memory.batch_defaults(facts.gpu("rtx-4090")) == (2048, 256)


def test_products_are_computed_in_the_format_that_the_gpu_has() -> None:
    h200, b200, a100 = facts.gpu("h200"), facts.gpu("b200"), facts.gpu("a100")
    assert (h200.tflops(16, 16, 0.45), h200.tflops(8, 8, 0.45), b200.tflops(4.5, 4, 0.45)) == (989, 1978, 9000)
    # Narrow weights with 16-bit activations are unpacked everywhere: no unit multiplies two formats.
    assert b200.tflops(4.25, 16, 0.45) == pytest.approx(2250 * 0.45)
    assert h200.tflops(8, 16, 0.45) == pytest.approx(989 * 0.45)
    assert h200.tflops(4.25, 16, 0.45) == pytest.approx(989 * 0.45)
    # NVFP4 without FP4 and FP8 without FP8 are unpacked too, to 16 bit.
    assert h200.tflops(4.5, 4, 0.45) == pytest.approx(989 * 0.45)
    assert a100.tflops(8, 8, 0.45) == pytest.approx(312 * 0.45)
    assert [h200.unpacks(4.5, 4), b200.unpacks(4.5, 4), h200.unpacks(8, 8), a100.unpacks(16, 16)] == [
        True,
        False,
        False,
        False,
    ]


def test_rows_hold_the_published_figures() -> None:
    published = {
        # GiB as the driver reports them, TB/s, TFLOPS in 16, 8 and 4 bit, W
        "a100": (80, 2.04, 312, None, None, 400),
        "h100": (80, 3.35, 989, 1978, None, 700),
        "h200": (141, 4.8, 989, 1978, None, 700),
        "b200": (180, 7.7, 2250, 4500, 9000, 1000),
        "b300": (275_040 / 1024, 7.75, 2250, 4500, 14000, 1100),
        "gb300": (284_208 / 1024, 8.0, 2500, 5000, 15000, 1400),
        "gb300-desk": (252, 7.1, 2500, 5000, 15000, 1300),
        "l40s": (48, 0.864, 181, 362, None, 350),
        "rtx-pro-6000": (97_887 / 1024, 1.79, 468, 936, 1871, 600),
        "rtx-5090": (32, 1.79, 210, 419, 1676, 575),
        "rtx-4090": (24, 1.01, 165, 330, None, 450),
        "gb10": (128, 0.273, 125, 250, 500, 240),
        "h20": (96, 4.0, 148, 296, None, 400),
        "mi300x": (192, 5.3, 1307, 2615, None, 750),
    }
    assert set(published) == set(facts.gpus())
    for name, (size, *rest) in published.items():
        row = facts.gpu(name)
        assert [row.tbps, row.bf16, row.fp8, row.fp4, row.watts] == rest, name
        # What is sold as N GB reports a little less in GiB.
        assert 0.92 * size < row.memory_gib <= 1.001 * size, name
        assert (name in ("gb300-desk", "l40s", "rtx-5090", "rtx-4090", "gb10", "h20", "mi300x")) == (
            facts.UNVERIFIED in row.source
        )
