"""What an engine says of its own figures: emulated, of what, calibrated or not, how far off."""

import msgspec
import pytest

from windtunnel.simulator.emulator.about import labels
from windtunnel.simulator.emulator.flags import parse
from windtunnel.simulator.emulator.profile import Errors, Profile, Source


def test_without_a_profile_times_are_good_to_a_fifth() -> None:
    told = labels(parse(["--gpu", "b200", "--model", "llama-3.1-8b"]))
    assert (told["emulated"], told["emulates"]) == (True, "vLLM 0.32.0")
    assert "B200" in told["gpu"]
    assert "8B" in told["model"]
    assert (told["calibrated"], told["error_bar"]) == (False, 0.2)


@pytest.mark.parametrize(("held_out", "bar"), [(None, 0.01), (0.04, 0.04), (0.0, 0.0)])
def test_with_one_they_are_as_good_as_it_saw(held_out: float | None, bar: float) -> None:
    settings = parse(["--gpu", "b200", "--model", "llama-3.1-8b"])
    source = Source(run="r1", fingerprint="f", model="m", calls=300)
    profile = Profile(
        gpu="b200",
        engine="vllm",
        reached=settings.reached,
        error=Errors(in_sample=0.01, held_out=held_out),
        source=(source,),
    )
    told = labels(msgspec.structs.replace(settings, profile=profile))
    assert (told["calibrated"], told["error_bar"]) == (True, bar)
    assert told["fit"] == profile.label
    assert "calibrated on r1" in told["fit"]
