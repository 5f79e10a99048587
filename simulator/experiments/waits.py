"""What agents really wait for between their calls: `--pace`, and what takes its place."""

from collections.abc import Mapping

from windtunnel.simulator.run.config import RunConfig
from windtunnel.traces.shapes import PREFIX

PEOPLE = "for people at the recorded pace: --pace recorded"
"""Idle sessions' contexts want their place in the cache too: no factor makes people of busy agents."""
SHAPE, TOOLS, HUMAN = "shape", "tool_time", "human_time"


def overrides(config: RunConfig) -> dict[str, str]:
    """What takes the place of the pace's own waits, by the name of its flag; of single calls their shape alone."""
    if config.traces and all(trace.startswith(PREFIX) for trace in config.traces):
        return {SHAPE: ", ".join(trace.removeprefix(PREFIX) for trace in config.traces)}
    found = {}
    for name, dial in ((TOOLS, config.tool_time), (HUMAN, config.human_time)):
        if dial is not None and dial.kind != config.pace:
            found[name] = str(dial)
    for tool, dial in config.per_tool.items():
        found[f"{TOOLS} {tool}"] = str(dial)
    return found


def beside_pace(pace: str, found: Mapping[str, str]) -> list[str]:
    """What has to be known of a number of agents: what they wait for, and that they are no people."""
    if SHAPE in found:
        return [f"each makes single calls of {found[SHAPE]}, one after the other: they have no pace"]
    people = pace in ("busy", "typical")
    if not found:
        return [PEOPLE] if people else []
    flags = ", ".join(_flag(name, value) for name, value in found.items())
    nobody = found.get(HUMAN) == "none"
    if nobody and found.get(TOOLS, pace) == "none" and not any(name.startswith(f"{TOOLS} ") for name in found):
        said = f"no waits between calls: {flags}"
    elif nobody:
        said = f"no human is waited for: {flags}"
    else:
        said = f"waits by {flags}, the others by --pace {pace}"
    if HUMAN not in found:
        return [said, PEOPLE] if people else [said]
    return [said, f"{PEOPLE} without --human-time"]


def _flag(name: str, value: str) -> str:
    flag, _, tool = name.partition(" ")
    return f"--{flag.replace('_', '-')} {f'{tool}={value}' if tool else value}"
