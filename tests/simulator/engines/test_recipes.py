"""What a start command lacks is said before it is started, and the list of engines is the adapters' own."""

import msgspec
import pytest
from click.testing import CliRunner

from windtunnel.simulator.cli import cli
from windtunnel.simulator.engines.catalogue import engines
from windtunnel.simulator.engines.known import ADAPTERS
from windtunnel.simulator.engines.launch import expand
from windtunnel.simulator.engines.recipes import RECIPES, advice


@pytest.mark.parametrize(
    ("command", "environment", "missing"),
    [
        ("vllm serve m --port {port}", {}, ["VLLM_SERVER_DEV_MODE=1", "--enable-prompt-tokens-details"]),
        ("VLLM_SERVER_DEV_MODE=1 vllm serve m --port {port} --enable-prompt-tokens-details", {}, []),
        ("/env/bin/vllm serve m --port {port} --enable-prompt-tokens-details", {"VLLM_SERVER_DEV_MODE": "1"}, []),
        (
            "VLLM_SERVER_DEV_MODE=0 python -m vllm.entrypoints.openai.api_server --port {port}",
            {"VLLM_SERVER_DEV_MODE": "1"},
            ["VLLM_SERVER_DEV_MODE=1", "--enable-prompt-tokens-details"],
        ),
        ("python -m sglang.launch_server --port {port}", {}, ["--enable-metrics", "--enable-cache-report"]),
        ("llama-server -m a.gguf --port {port} --metrics --cache-ram 0", {}, ["--slot-save-path"]),
        ("my-own-server --port {port}", {}, []),
        ("emulator", {}, []),
    ],
)
def test_what_a_command_lacks_is_said(command, environment, missing):
    said = advice(expand(command), environment)
    assert [line.split(" without ")[1].split(":")[0] for line in said] == missing


def test_a_flag_that_spoils_a_measurement_is_said():
    command = "VLLM_SERVER_DEV_MODE=1 vllm serve m --enable-prompt-tokens-details --disable-log-stats"
    [line] = advice(command, {})
    assert line == "vllm is started with --disable-log-stats: it has no metrics"


def test_a_template_lacks_nothing_that_it_can_have():
    for recipe in RECIPES:
        command = recipe.command.replace("{model}", "m")
        assert advice(expand(command), {}) == []


def test_every_engine_that_is_recognised_is_listed_and_says_how_it_was_verified():
    listed = {one.name: one for one in engines()}
    assert set(listed) == {adapter.name for adapter in ADAPTERS}
    assert listed["vllm"].verified == "real"
    assert listed["dynamo"].verified == "real"
    assert listed["sglang"].verified == "source"
    assert listed["openai"].verified == "no"
    assert listed["llama.cpp"].lacks[:3] == ("kv_usage", "preemptions", "requests_finished")
    assert "waiting" in listed["dynamo"].lacks
    assert "running" in listed["openai"].lacks


def test_the_command_prints_a_table_or_json():
    text = CliRunner().invoke(cli, ["engines"]).stdout
    assert "vLLM  (vllm)   verified: real" in text
    assert "null      kv_usage" in text
    data = msgspec.json.decode(CliRunner().invoke(cli, ["engines", "--json"]).stdout)
    assert [one["name"] for one in data] == [one.name for one in engines()]
