"""What the agents of an answer really wait for."""

import pytest

from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.experiments import capacity as cap
from windtunnel.simulator.experiments.waits import overrides

PEOPLE = "for people at the recorded pace: --pace recorded"
NONE = "--tool-time none, --human-time none"


@pytest.mark.parametrize(
    ("flags", "told", "says"),
    [
        ([], {}, f"14 busy agents ({PEOPLE}) at"),
        (["--pace", "recorded"], {}, "14 agents at"),
        (
            ["--tool-time", "none", "--human-time", "none"],
            {"tool_time": "none", "human_time": "none"},
            f"14 agents (no waits between calls: {NONE}; {PEOPLE} without --human-time) at",
        ),
        (
            ["--pace", "recorded", "--human-time", "none"],
            {"human_time": "none"},
            f"14 agents (no human is waited for: --human-time none; {PEOPLE} without --human-time) at",
        ),
        (
            ["--tool-time", "x2", "--tool-time", "Bash=<=5"],
            {"tool_time": "x2", "tool_time Bash": "<=5"},
            f"14 agents (waits by --tool-time x2, --tool-time Bash=<=5, the others by --pace busy; {PEOPLE}) at",
        ),
        (["--pace", "recorded", "--human-time", "recorded"], {}, "14 agents at"),
        (
            ["--shape", "512x512"],
            {"shape": "512x512"},
            "14 agents (each makes single calls of 512x512, one after the other: they have no pace) at",
        ),
    ],
)
def test_what_overrides_the_pace_is_said(flags, told, says):
    config = config_of(flags)
    assert overrides(config) == told
    known = cap.Capacity(
        agents=14, low=14, high=14, limit=None, lever=None, points=[], slo="ttft_s.p90<3", capped=False,
        pace=config.pace, overrides=overrides(config), emulated=False, evidence=None, notes=(), runs="r",
    )  # fmt: skip
    assert cap.sentence(known).startswith(says)
