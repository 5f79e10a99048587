"""Money by hand, and what `windtunnel cost` says of a stored run."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windtunnel.simulator.cli import cli
from windtunnel.simulator.cost import gpus_of
from windtunnel.simulator.results.cost import Price, Traffic, at_apis, chosen, machine, shipped
from windtunnel.traces.errors import UsageError

GOLDEN = Path(__file__).parent / "golden"
LOAD = Traffic(prompt=100e6, cached=90e6, cacheable=95e6, output=1e6, sessions=10.0, agents=8)
PLAIN = Price(name="plain", input=2.0, cached=0.2, output=10.0)


def test_tokens_are_priced_by_what_they_are():
    assert PLAIN.of(100e6, 90e6, 1e6) == pytest.approx(10 * 2 + 90 * 0.2 + 10)
    flat = Price(name="flat", input=2.0, output=10.0, write=1.25)
    assert flat.of(100e6, 90e6, 1e6) == pytest.approx(210), "nothing is written where nothing is kept"
    writes = Price(name="writes", input=2.0, cached=0.2, output=10.0, write=1.25)
    assert writes.of(100e6, 90e6, 1e6) == pytest.approx(10 * 2.5 + 18 + 10)


def test_the_machine_pays_from_a_share_of_its_hours():
    (one,) = at_apis(LOAD, [PLAIN], None, 12.0)
    assert (one.as_cached_here, one.nothing_cached) == (pytest.approx(48), pytest.approx(210))
    assert one.all_that_can_be == pytest.approx(5 * 2 + 95 * 0.2 + 10)
    assert one.pays_from == pytest.approx(12 / 39)
    (unpriced,) = at_apis(LOAD, [PLAIN], None, None)
    assert unpriced.pays_from is None


def test_without_a_cache_nothing_is_written_to_one():
    writes = Price(name="writes", input=2.0, cached=0.2, output=10.0, write=1.25)
    (one,) = at_apis(LOAD, [writes], None, 12.0)
    assert one.nothing_cached == pytest.approx(100 * 2 + 10)
    assert one.as_cached_here == pytest.approx(10 * 2.5 + 90 * 0.2 + 10)
    cold = Traffic(prompt=100e6, cached=0.0, cacheable=0.0, output=1e6, sessions=10.0, agents=8)
    (one,) = at_apis(cold, [writes], None, 21.0)
    assert one.as_cached_here == pytest.approx(100 * 2.5 + 10), "its cache was in use, and kept nothing in time"
    assert one.pays_from == pytest.approx(21 / 210), "the least is no cache"


def test_unknown_hits_are_no_zero():
    flat = Price(name="flat", input=1.0, output=10.0)
    load = Traffic(prompt=100e6, cached=None, cacheable=95e6, output=1e6, sessions=10.0, agents=8)
    dear, cheap = at_apis(load, [flat, PLAIN], None, 12.0)
    assert (dear.price, dear.as_cached_here) == (PLAIN, None)
    assert dear.all_that_can_be == pytest.approx(39)
    assert dear.pays_from == pytest.approx(12 / 39)
    assert cheap.as_cached_here == pytest.approx(110), "whatever was cached, it costs the same"
    blind = Traffic(prompt=100e6, cached=None, cacheable=None, output=1e6, sessions=10.0, agents=8)
    dear, cheap = at_apis(blind, [flat, PLAIN], None, 12.0)
    assert (dear.as_cached_here, dear.all_that_can_be, dear.pays_from) == (None, None, None)
    assert dear.nothing_cached == pytest.approx(210)
    assert cheap.pays_from == pytest.approx(12 / 110)


def _told(folder, *options):
    result = CliRunner().invoke(cli, ["cost", str(folder), "--gpu-hour", "2", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def _stored(tmp_path, **changed):
    """The golden run with these fields changed in its events, without a summary."""
    events = []
    for line in (GOLDEN / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        events.append(json.dumps(event | {name: value for name, value in changed.items() if name in event}))
    (tmp_path / "events.jsonl").write_text("\n".join(events) + "\n")
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())


def test_it_names_the_folder_that_it_was_given(tmp_path):
    _stored(tmp_path, phase="warmup")
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run | {"run_dir": "."}))
    result = CliRunner().invoke(cli, ["cost", str(tmp_path), "--gpu-hour", "2"])
    assert result.stdout == ""
    assert f"{tmp_path} has no measured window" in str(result.exception)


def test_a_run_whose_server_does_not_tell_its_cache(tmp_path):
    _stored(tmp_path, cached_tokens=None)
    told = json.loads(_told(tmp_path, "--json", "--api", "mine=1/0.1/5"))
    assert told["traffic"]["cached"] is None
    assert told["traffic"]["cacheable"] == pytest.approx(told["traffic"]["prompt"] * 0.735045256)
    (one,) = told["apis"]
    assert one["as_cached_here"] is None
    assert one["pays_from"] == pytest.approx(2 / one["all_that_can_be"])
    text = " ".join(_told(tmp_path).split())
    assert "prompt tokens, cached: unknown (" in text
    assert "as cached: unknown, the server did not tell what came from its cache" in text
    assert "as cached endless no cache" not in text


def test_where_nothing_is_known_of_the_cache_only_its_absence_has_a_price(tmp_path):
    _stored(tmp_path, cached_tokens=None, expected_cached_tokens=None)
    told = json.loads(_told(tmp_path, "--json", "--api", "mine=1/0.1/5"))
    assert (told["traffic"]["cached"], told["traffic"]["cacheable"]) == (None, None)
    (one,) = told["apis"]
    assert (one["as_cached_here"], one["all_that_can_be"], one["pays_from"]) == (None, None, None)
    text = _told(tmp_path, "--api", "mine=1/0.1/5")
    row = next(line for line in text.splitlines() if line.startswith("mine"))
    assert len(row.split()) == 4
    assert row.endswith(" -")
    assert "endless: unknown too" in " ".join(text.split())


def test_the_same_model_is_known_by_its_name():
    found = {one.price.name: one.same_model for one in at_apis(LOAD, shipped().api, "openai/gpt-oss-120b", None)}
    assert found["gpt-oss-120b"]
    assert sum(found.values()) == 1


def test_the_shipped_list_is_dated_and_plausible():
    prices = shipped()
    assert prices.as_of
    assert "models.dev" in prices.source
    assert len({price.name for price in prices.api}) == len(prices.api) > 5
    for price in prices.api:
        assert 0 < price.input < price.output
        assert price.cached is None or 0 < price.cached < price.input


def test_prices_are_names_or_three_numbers():
    known = shipped()
    assert chosen((), known) == known.api
    assert [price.name for price in chosen(("glm-5.2",), known)] == ["glm-5.2"]
    assert chosen(("mine=1/0.3/3",), known) == (Price(name="mine", input=1.0, cached=0.3, output=3.0),)
    assert chosen(("1/-/3",), known)[0].cached is None
    for wrong in ("1/2", "nobody", "1/2/3/4", "a/b/c", "1.2.3/1/1", "", "9" * 400 + "/1/2"):
        with pytest.raises(UsageError, match="is no price"):
            chosen((wrong,), known)


@pytest.mark.parametrize(
    ("given", "hour"),
    [
        ((3.5, None, 3.0, None, None), 3.5),
        ((None, None, 3.0, None, None), None),
        ((None, 26_298.0, 3.0, None, None), 1.0),
        ((None, 26_298.0, 3.0, 1000.0, 0.3), 1.3),
        ((None, None, 3.0, 500.0, 0.3), 0.15),
    ],
)
def test_an_hour_of_the_machine(given, hour):
    assert machine(*given) == (None if hour is None else pytest.approx(hour))


@pytest.mark.parametrize(
    "given", [(3.5, 1000.0, 3.0, None, None), (None, 1.0, 3.0, 500.0, None), (1.0, None, 3.0, 5.0, 0.1)]
)
def test_what_does_not_go_together(given):
    with pytest.raises(UsageError):
        machine(*given)


@pytest.mark.parametrize("number", ["nan", "NaN", "inf", "-inf", "-nan"])
@pytest.mark.parametrize("flag", ["--gpu-hour", "--buy", "--years", "--watts", "--kwh"])
def test_what_is_no_number_is_no_price(flag, number):
    result = CliRunner().invoke(cli, ["cost", str(GOLDEN), flag, number])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for '{flag}'" in result.stderr


def _run(name="vllm", command=None, **resolved):
    """`command` may be the flags that its labels name as not modelled, of an emulator that something else started."""
    if isinstance(command, list):
        return {"engine": {"name": name, "resolved": resolved, "emulation": {"ignored_flags": command}}}
    return {"engine": {"name": name, "resolved": resolved}, "config": {"engine": command}}


TP = "parallel_config.tensor_parallel_size"
PP, DP = "parallel_config.pipeline_parallel_size", "parallel_config.data_parallel_size"
SG = {"server_args.tp_size": 4, "server_args.pp_size": 1, "server_args.dp_size": 2}


@pytest.mark.parametrize(
    ("run", "gpus"),
    [
        (_run(**{TP: 2}), 2),
        (_run("windtunnel-emulator", **{TP: 1}), 1),
        (_run(**{TP: 4, PP: 2, DP: 3, "parallel_config.prefill_context_parallel_size": 1}), 24),
        (_run("windtunnel-emulator", "emulator --gpu H200 -tp 2 -pp 2", **{TP: 2}), 4),
        (_run("windtunnel-emulator", "emulator --gpu H200 -pcp 2", **{TP: 1}), 2),
        (
            _run("windtunnel-emulator", ["--pipeline-parallel-size 2", "--prefill-context-parallel-size 3"], **{TP: 1}),
            6,
        ),
        (_run("sglang", **SG), 8),
        (_run("sglang", **SG, **{"server_args.enable_dp_attention": True}), 4),
        (_run("tensorrt-llm", **{"parallel_config.tp_size": "2", "parallel_config.pp_size": "2"}), 4),
        (_run(command="vllm serve m -tp 2 --data_parallel_size=2", **{"cache_config.block_size": 16}), 4),
        (_run("sglang", "x --tp 8 --dp 8 --enable-dp-attention"), 8),
        (_run(command="vllm serve m"), None),
        (_run(command="vllm 'serve"), None),
        (_run(**{TP: "many"}), None),
        (_run("llama.cpp", "llama-server -m x"), None),
        (_run("openai"), None),
        ({}, None),
        ({"engine": None, "config": None}, None),
    ],
)
def test_how_many_gpus_an_engine_runs_on(run, gpus):
    assert gpus_of(run) == gpus


def _on(tmp_path, **engine):
    run = json.loads((GOLDEN / "run.json").read_bytes())
    run["engine"] |= engine
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "events.jsonl").write_bytes((GOLDEN / "events.jsonl").read_bytes())
    return tmp_path


def test_the_price_is_of_one_gpu_and_the_run_had_two(tmp_path):
    folder = _on(tmp_path, resolved={TP: 2})
    told = json.loads(_told(folder, "--json", "--api", "mine=1/0.1/5"))
    assert (told["gpus"], told["gpus_from"], told["gpu_hour"], told["machine"]) == (2, "engine", 2, 4)
    (one,) = told["apis"]
    assert one["pays_from"] == pytest.approx(4 / min(one["as_cached_here"], one["all_that_can_be"]))
    text = _told(folder)
    assert "machine       2 GPUs at $2.00: $4.00 an hour, $" in text
    assert "assumed" not in text
    told = json.loads(_told(folder, "--json", "--gpus", "8"))
    assert (told["gpus"], told["gpus_from"], told["machine"]) == (8, "given", 16)
    assert "8 GPUs at $2.00: $16.00 an hour" in _told(folder, "--gpus", "8")


def test_an_emulators_pipeline_is_priced_and_said_to_be_left_out_of_its_times(tmp_path):
    labels = {"emulated": True, "ignored_flags": ["--pipeline-parallel-size 2"]}
    folder = _on(tmp_path, name="windtunnel-emulator", resolved={TP: 1}, emulated=True, emulation=labels)
    told = json.loads(_told(folder, "--json"))
    assert (told["gpus"], told["gpus_from"], told["machine"]) == (2, "engine", 4)
    assert told["gpus_not_modelled"] == ["--pipeline-parallel-size 2"]
    text = " ".join(_told(folder).split())
    assert "2 GPUs at $2.00: $4.00 an hour" in text
    assert "; --pipeline-parallel-size 2 is in the price and not in the emulator's times" in text
    told = json.loads(_told(folder, "--json", "--gpus", "1"))
    assert (told["gpus"], told["gpus_not_modelled"]) == (1, [])


def test_where_the_engine_does_not_tell_its_gpus_one_is_assumed_and_said(tmp_path):
    folder = _on(tmp_path, name="llama.cpp")
    told = json.loads(_told(folder, "--json"))
    assert (told["gpus"], told["gpus_from"], told["machine"]) == (1, "assumed", 2)
    text = " ".join(_told(folder).split())
    assert "one GPU is assumed, for the engine does not tell how many; --gpus N says it" in text
    assert "assumed" not in _told(folder, "--gpus", "1")


def test_a_bought_machine_is_priced_whole(tmp_path):
    folder = _on(tmp_path, resolved={TP: 2})
    options = ["cost", str(folder), "--buy", "26298", "--watts", "1000", "--kwh", "0.3", "--json"]
    told = json.loads(CliRunner().invoke(cli, options).stdout)
    assert (told["machine"], told["gpus"], told["gpu_hour"]) == (pytest.approx(1.3), 2, None)
    text = CliRunner().invoke(cli, options[:-1]).stdout
    assert "machine       $1.30 an hour, all its GPUs together, $" in text


def test_a_stored_run_is_priced():
    result = CliRunner().invoke(cli, ["cost", str(GOLDEN), "--gpu-hour", "2", "--api", "mine=1/0.1/5", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    summary = json.loads((GOLDEN / "summary.json").read_bytes())
    prompt, output = (summary[name] * 3600 for name in ("prompt_tokens_per_s", "output_tokens_per_s"))
    assert told["traffic"]["prompt"] == pytest.approx(prompt)
    cached = prompt * summary["cache_hit_ratio"]
    (one,) = told["apis"]
    assert one["as_cached_here"] == pytest.approx(((prompt - cached) + cached * 0.1 + output * 5) / 1e6)
    assert one["pays_from"] == pytest.approx(2 / min(one["as_cached_here"], one["all_that_can_be"]))
    assert told["valid"] == summary["valid"]


def test_the_text_is_80_columns_and_says_what_it_compares():
    result = CliRunner().invoke(cli, ["cost", str(GOLDEN), "--gpu-hour", "2"])
    assert result.exit_code == 0, result.output
    rows = result.stdout.splitlines()
    assert max(map(len, rows[1:])) <= 80
    names = tuple(price.name for price in shipped().api)
    assert sum(row.lstrip("*").startswith(names) for row in rows) == len(names)
    text = " ".join(result.stdout.split())
    for price in shipped().api:
        cached = "-" if price.cached is None else f"{price.cached:g}"
        assert f"{price.name} {price.input:g}/{cached}/{price.output:g} " in text
    assert "not what they are worth" in text
    assert f"List prices of {shipped().as_of}" in text


def test_without_the_machines_price_nothing_is_said_to_pay():
    text = CliRunner().invoke(cli, ["cost", str(GOLDEN)]).stdout
    assert "no price given" in text
    assert "pays from" not in text


def test_a_run_without_a_window_has_no_price(tmp_path):
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())
    first = (GOLDEN / "events.jsonl").read_bytes().splitlines(keepends=True)[:3]
    (tmp_path / "events.jsonl").write_bytes(b"".join(first))
    result = CliRunner().invoke(cli, ["cost", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert "no measured window" in str(result.exception)
