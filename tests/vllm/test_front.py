"""A real vLLM tells of each call how long it queued and prefilled; what is left of its first token is the front's."""

import subprocess
import sys
from statistics import median

import pytest

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.calls import front_s
from windtunnel.simulator.results.store import RunFolder

pytestmark = pytest.mark.vllm


def test_tokenizing_a_prompt_is_told_apart_from_its_prefill(vllm_url, tmp_path):
    words = ["--shape", "3000x8", "--agents", "1", "--calls", "6", "--warmup", "1", "--pace", "none", "--api", "chat"]
    command = [sys.executable, "-m", "windtunnel.simulator.cli", "run", *words, "--target", vllm_url]
    done = subprocess.run([*command, "--out", str(tmp_path / "r")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = [event for event in RunFolder.open(tmp_path / "r").events() if isinstance(event, CallEnd)]
    assert len(ends) == 6
    for call in ends:
        # A client that has to wait for a core notes late that its request is sent: the server may have it before.
        waited = (call.t_first - call.t_intended) / 1e9
        assert 0 <= call.queued_s < waited
        assert 0 < call.prefilled_s < waited
    assert median(map(front_s, ends)) > 0.0005, "HTTP alone takes longer"
