"""The emulator's flags beside those of the real `vllm serve`: the same names, as many words each, the same defaults."""

import json
import subprocess
from typing import Any

import pytest

from windtunnel.simulator.emulator import facts
from windtunnel.simulator.emulator.flag_parser import parser
from windtunnel.simulator.emulator.flag_words import unmodelled
from windtunnel.simulator.emulator.speculation import METHODS, _Config, conditional, speculation

from .conftest import python

pytestmark = pytest.mark.vllm

DUMP = """
import dataclasses, json, typing
from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
flags = [
    dict(names=a.option_strings, words=a.nargs, switch=a.nargs == 0, default=repr(a.default))
    for a in make_arg_parser(FlexibleArgumentParser())._actions if a.option_strings and "--help" not in a.option_strings
]
def flat(kind):
    return [m for a in typing.get_args(kind) for m in (flat(a) if typing.get_origin(a) is typing.Literal else [a])]
spread = {str(length): SpeculativeConfig._acceptance_length_to_rates(length, 4) for length in (1.0, 1.25, 2.5, 4.75, 5.0)}
print("DUMP" + json.dumps(dict(flags=flags, methods=flat(SpeculativeMethod), spread=spread,
    keys=[f.name for f in dataclasses.fields(SpeculativeConfig)])))
"""
OURS = {"--gpu", "--profile", "--tool-calls", "--exit-with-parent", "--help", "-h"}
"""Flags of the emulator alone."""
OTHER_DEFAULTS = {
    "--host",
    "--model",
    "--port",
    "--enable-prompt-tokens-details",
    "--enable-per-request-metrics",
    "--compilation-config",
    "--enable-chunked-prefill",
    "--enable-prefix-caching",
    "--mamba-backend",
}
"""Ours on purpose, or resolved later in vLLM to what the emulator has from the start."""


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """What the installed vLLM knows."""
    done = subprocess.run([python(), "-c", DUMP], capture_output=True, text=True, check=True, timeout=300)
    line = next(line for line in done.stdout.splitlines() if line.startswith("DUMP"))
    return json.loads(line.removeprefix("DUMP"))


def test_every_flag_is_known_and_none_is_invented(real: dict[str, Any]) -> None:
    names = {name for flag in real["flags"] for name in flag["names"]}
    switches = {f"--no-{name[2:]}" for name in unmodelled().switches}
    ours = parser().flags - OURS
    assert names - ours - unmodelled().names - switches == set()
    assert ours - names == set()
    assert unmodelled().names - names == set()
    assert ours & unmodelled().names == set()


def test_flags_that_are_not_modelled_take_as_many_words(real: dict[str, Any]) -> None:
    known = unmodelled()
    for flag in real["flags"]:
        for name in flag["names"]:
            if name in known.names:
                kind = known.switches if flag["switch"] else known.values if flag["words"] is None else known.lists
                assert name in kind, (name, flag["words"])


def test_modelled_flags_have_the_defaults_of_vllm(real: dict[str, Any]) -> None:
    defaults = {name: flag["default"] for flag in real["flags"] for name in flag["names"]}
    checked = 0
    for action in parser()._actions:
        name = next(iter(action.option_strings), "")
        if name in defaults and name not in OTHER_DEFAULTS:
            assert repr(action.default) == defaults[name], name
            checked += 1
    assert checked > 40


def test_speculation_has_the_methods_keys_and_acceptance_of_vllm(real: dict[str, Any]) -> None:
    assert set(METHODS) <= set(real["methods"])
    made = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
    assert set(_Config.__struct_fields__) == set(real["keys"]) - made
    for length, rates in real["spread"].items():
        config = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "synthetic"}
        spread = speculation(config | {"synthetic_acceptance_length": float(length)}, facts.model("qwen3-32b"))
        assert spread.acceptance == pytest.approx(conditional(rates))
