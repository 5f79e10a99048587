"""A run alone on another engine is compared, and it is said in what that engine differs."""

from windtunnel.simulator.results.slowdown import Slowdown, differences, in_words
from windtunnel.simulator.results.summary_model import Distribution

SETTINGS = {"parallel_config.tensor_parallel_size": 1, "cache_config.num_gpu_blocks": 100}
ENGINE = {"name": "vllm", "version": "1", "model": "m", "emulated": True, "emulation": {"gpu": "H200"}}


def run(settings=None, **more):
    return {"host": "a", "engine": {**ENGINE, "resolved": {**SETTINGS, **(settings or {})}, **more}}


def test_the_same_engine_has_no_difference():
    assert differences(run(), run()) == ()
    assert differences(run({"cache_config.num_gpu_blocks": 7}), run()) == (), "it is what the others made of it"
    assert differences({}, {}) == ()


def test_other_settings_gpus_and_engines_are_named():
    assert differences(run({"parallel_config.tensor_parallel_size": 4}), run()) == (
        "parallel_config.tensor_parallel_size: 4, not 1",
    )
    assert differences(run({"x": 3}), run()) == ("x: 3, not unknown",)
    assert differences(run({"x": 3}, version="2"), run()) == ("its version: 2, not 1",)
    assert differences(run(emulation={"gpu": "B200"}), run()) == ("GPU: B200, not H200",)
    assert differences(run(name="sglang", model="n"), run()) == ("engine: sglang, not vllm", "model: n, not m")
    assert differences(run(emulated=False), run()) == ("emulated: False, not True",)
    real = run(emulated=False, emulation=None)
    assert differences({**real, "host": "b"}, real) == ("machine of the client: b, not a",)


def test_the_words():
    of = Distribution(n=1, mean=2.0, p50=2.0, p90=2.0, p99=2.0, max=2.0)
    same = Slowdown(calls=1, e2e=of, ttft=of, work=2.0, emulated=True)
    assert in_words(None) == []
    assert len(in_words(same)) == 3
    other = Slowdown(
        calls=1,
        e2e=of,
        ttft=of,
        work=2.0,
        emulated=True,
        differs=("a: 1, not 2", *(f"x{n}: 1, not 2" for n in "12345")),
    )
    assert in_words(other)[3:] == [
        "  the run alone was on another engine, so this is partly the engine's:",
        "    a: 1, not 2",
        *(f"    x{n}: 1, not 2" for n in "123"),
        "    and 2 more (--json)",
    ]
