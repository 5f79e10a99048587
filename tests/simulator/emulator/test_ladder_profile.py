"""`--profile ladder`: the file that is shipped is what the first rung gives."""

from pathlib import Path

import pytest
from msgspec.structs import asdict

from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.ladder import profile
from windtunnel.simulator.emulator.profile import load
from windtunnel.traces.errors import UsageError


def test_the_shipped_profile_is_what_the_first_rung_gives():
    shipped, fitted = load(Path("ladder")), profile()
    known = {name: value for name, value in asdict(fitted.reached).items() if isinstance(value, float)}
    assert {name: asdict(shipped.reached)[name] for name in known} == pytest.approx(known, rel=1e-4)
    assert shipped.figures == pytest.approx(fitted.figures, rel=1e-4)
    assert shipped.source == fitted.source


def test_a_profile_by_name_brings_its_gpu():
    settings = parse(
        ["--profile", "ladder", "--model", "nemotron-3.5-lightning-30b-a3b-nvfp4", "--max-model-len", "8192"]
    )
    assert "252GB" in settings.gpu.name
    assert settings.profile is not None
    assert "first rung" in settings.profile.label
    with pytest.raises(UsageError, match="--profile lader cannot be read"):
        parse(["--profile", "lader"])
