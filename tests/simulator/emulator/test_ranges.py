"""Files of a GPU or a profile hold numbers that there can be, or are refused in one sentence."""

from pathlib import Path

import msgspec
import pytest

from windtunnel.simulator.emulator import facts, ranges
from windtunnel.simulator.emulator.constants import constants
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.reached import Reached
from windtunnel.traces.errors import UsageError


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hw = 1e-300", "reached.hw is 1e-300 and must be a number from 0.001 to 10"),
        ("he = 1e-320", "reached.he is 9.99989e-321 and must be a number from 0.001 to 10"),
        ("step_ms = 1e308", "reached.step_ms is 1e+308 and must be a number from 0 to 1,000,000"),
        ("step_ms = 1e12", "reached.step_ms is 1e+12 and must be a number from 0 to 1,000,000"),
        ("prompt_us = inf", "reached.prompt_us is inf and must be a number from 0 to 1,000,000"),
        ("request_ms = -1", "reached.request_ms is -1 and must be a number from 0 to 1,000,000"),
        ("layer_us = true", "reached.layer_us is True and must be a number from 0 to 1,000,000"),
        ("hf = " + "[" * 2000, "cannot be read: it is nested too deep"),
        ("hf = " + "9" * 5000, "cannot be read: it has a number of too many digits"),
    ],
)
def test_a_profile_holds_no_number_that_no_engine_has(line: str, said: str, tmp_path: Path, profile_text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(profile_text.replace("[reached]\nhw = 0.66", f"[reached]\n{line}"))
    with pytest.raises(UsageError) as error:
        parse(["--profile", str(path)])
    assert said in str(error.value)
    assert str(error.value).startswith(f"--profile {path} ")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("skew = 0.9", "skew = nan", "figures.skew is nan and must be a number from 0.01 to 1;"),
        ("skew = 0.9", "eager_layer_us = 1e26", "figures.eager_layer_us is 1e+26 and must be a number from 0 to 1,"),
        ("held_out = 0.07", "held_out = inf", "error.held_out is inf and must be a number from 0 to 1,000,000;"),
    ],
)
def test_nor_do_its_other_tables(was: str, now: str, said: str, tmp_path: Path, profile_text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(profile_text.replace(was, now))
    with pytest.raises(UsageError) as error:
        parse(["--profile", str(path)])
    assert said in str(error.value)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("bf16", "0", "bf16 is 0 and must be a number from 0.1 to 1,000,000."),
        ("bf16", "-1", "bf16 is -1 and must be a number from 0.1 to 1,000,000."),
        ("tbps", "0", "tbps is 0 and must be a number from 0.001 to 10,000."),
        ("memory_gib", "1e308", "memory_gib is 1e+308 and must be a number from 0.1 to 10,000."),
        ("memory_gib", "-1", "memory_gib is -1 and must be a number from 0.1 to 10,000."),
        ("watts", "1.5", "watts is 1.5 and must be a whole number from 0 to 1,000,000."),
        ("watts", "99999999999999999999", "watts is 99999999999999999999 and must be a whole number from 0 to 1,000,"),
        ("bf16", "[" * 2000, "it is nested too deep."),
    ],
)
def test_a_gpu_file_holds_no_number_that_no_gpu_has(
    key: str, value: str, said: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"mine{suffix}"
    row = {"memory_gib": "48.0", "tbps": "2.0", "bf16": "300", key: value}
    if suffix == ".json":
        path.write_text("{" + ", ".join(f'"{name}": {text}' for name, text in row.items()) + "}")
    else:
        path.write_text("\n".join(f"{name} = {text}" for name, text in row.items()))
    with pytest.raises(UsageError) as error:
        parse(["--gpu", str(path), "--model", "llama-3.1-8b"])
    assert str(error.value).startswith(f"--gpu {path} is no description of a GPU: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("capability = nan", "capability is nan and must be a number from 0 to 100."),
        ("capability = inf", "capability is inf and must be a number from 0 to 100."),
        ("tbps = nan", "tbps is nan and must be a number from 0.001 to 10,000."),
        ("reached.hw = 0", "reached.hw is 0 and must be a number from 0.001 to 10."),
        ('tbps = "\\u001b[2J"', "tbps is '\\x1b[2J' and must be a number from 0.001 to 10,000."),
    ],
)
def test_toml_has_numbers_that_are_none(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    key = line.split(" =", maxsplit=1)[0]
    row = {"memory_gib": "48.0", "tbps": "2.0", "bf16": "300"}
    path.write_text("\n".join(f"{name} = {text}" for name, text in row.items() if name != key) + f"\n{line}\n")
    with pytest.raises(UsageError) as error:
        parse(["--gpu", str(path)])
    assert str(error.value) == f"--gpu {path} is no description of a GPU: {said}"


def test_what_is_shipped_is_within_the_ranges() -> None:
    for name, gpu in facts.gpus().items():
        row = msgspec.to_builtins(gpu)
        assert ranges.wrong(row, ranges.GPU) is None, name
        assert ranges.wrong(row["reached"], ranges.REACHED) is None, name
    assert ranges.wrong(msgspec.to_builtins(constants()), ranges.FIGURES) is None
    assert set(ranges.FIGURES) == set(msgspec.to_builtins(constants()))
    assert set(ranges.REACHED) == set(Reached.__struct_fields__) - {"fit"}
    assert parse(["--profile", "ladder"]).reached.hw == 0.418035
