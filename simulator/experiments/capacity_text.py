"""What a capacity search says: its sentence, how sure it is, a line for each number of agents that was tried, and where
several configurations were asked, or levers tried, these beside each other.
"""

import textwrap
from typing import Any

from windtunnel.simulator.experiments.capacity import Capacity, sentence, unsteady
from windtunnel.simulator.experiments.carried import LOSSY, Configuration, Versus
from windtunnel.traces.outlet import to_json

WIDTH = 110
NAME = 24
"""Columns of a configuration's name; a longer one has a line of its own."""
VERDICTS = {
    "more": "carries more",
    "fewer": "carries FEWER",
    "no_difference_shown": "no difference shown",
    "no_verdict": "no verdict",
}
BY_SEED = (
    "low to high: what all seeds carry to the most that any carries, on the same sessions with the same seeds; "
    "longer runs are no part of it; carries more, or fewer: the two ranges have nothing in common"
)
NOT_STEADY = "not steady: may be too high"
BARS = "ratios hold between emulated searches; how far the emulator itself may be off stands above"


def printed(found: Capacity, *, as_json: bool = False) -> str:
    """For people, or `--json`."""
    if as_json:
        return to_json(found).decode() + "\n"
    beside = found.configurations
    several = bool(beside) and not any(row.folder == "." and row.agents is not None for row in beside)
    name = next((row.name for row in beside if row.agents is not None), "")
    lines = [f"{name}: {sentence(found)}" if several else sentence(found)]
    lines += [tried(found, row) for row in beside if row.tried]
    if found.emulated:
        lines.append(f"EMULATED, not measured{': ' if found.emulation else ''}{found.emulation or ''}")
    lines += [found.evidence] if found.evidence else []
    if not several:  # there each one's stand with it
        lines += [f"note: {note}" for note in found.notes]
        lines += [
            "",
            f"{'agents':>8}  {'runs met':>8}  {'valid':>7}  {'calls inside':>12}  {'tokens/s':>9}  {'KV use':>7}",
        ]
        lines += [_row(point) for point in found.points]
    lines += ["", *_beside(found)] if len(beside) > 1 else []
    lines += ["", f"runs    {found.runs}"]
    return "\n".join(lines) + "\n"


def _row(point: dict[str, Any]) -> str:
    runs, counted = f"of {point['runs']:<2}", f"of {point.get('counted', point['runs']):<2}"
    return (
        f"{point['agents']:>8}  {point['met']:>3} {counted}  {point['valid']:>2} {runs}  "
        f"{_share(point['slo_share']):>11}  {_number(point['output_tokens_per_s']):>9}  {_share(point['kv_usage']):>7}"
        f"{'  NOT VALID' if point['not_valid'] else ''}"
    )


def _beside(found: Capacity) -> list[str]:
    lines = [
        f"{'configuration':<{NAME}}  {'agents':>9}  {'low to high':>14}  {'tokens/s':>8}  {'KV use':>6}  next limit"
    ]
    for row in found.configurations:
        lines += _configuration(row)
    lines += textwrap.wrap(BY_SEED, WIDTH)
    return lines + ([BARS] if any(row.emulated for row in found.configurations) else [])


def tried(found: Capacity, row: Configuration) -> str:
    """`12 (11 to 13) -> 17 (16 to 18) with --kv-cache-dtype fp8: carries more, ...`."""
    if row.same_as is not None:
        return f"{row.name}: no difference, the engine's settings resolve to the same with it"
    if row.agents is None or row.versus_first is None:
        return f"{row.name}: {_not_searched(row)}"
    first = next(one for one in found.configurations if one.folder == ".")
    agents = "agent" if row.agents == 1 else "agents"
    said = [f"{_range(first)} -> {_range(row)} {agents} {row.name}: {versus(row.versus_first)}"]
    return "; ".join([*said, *_first_of_all(row), *([_unsteady(row)] if row.unsteady else [])])


def _unsteady(row: Configuration) -> str:
    return unsteady(row.not_steady, row.deciding) if row.not_steady else NOT_STEADY


def _first_of_all(row: Configuration) -> list[str]:
    """What has to be known before its number is believed."""
    said = [LOSSY] if row.lossy else []
    return said + ([row.assumed] if row.assumed else [])


def versus(found: Versus) -> str:
    """`1.42x (1.07 to 1.50) carries more`."""
    word = VERDICTS[found.verdict]
    if found.why is not None:
        word = found.why
    if found.ratio is None or (not found.low and found.high is None):  # nothing is known of how they stand
        return word
    low, high = (None if value is None else f"{value:.2f}" for value in (found.low, found.high))
    reach = f"{low} to {high}" if high is not None else f"{low} or more"
    return f"{found.ratio:.2f}x the agents ({reach}), {word}"


def _range(row: Configuration) -> str:
    least = "at least " if row.capped else ""
    return f"{least}{row.agents:,}" + (
        f" ({row.low:,} to {row.high:,})" if (row.low, row.high) != (row.agents,) * 2 else ""
    )


def _configuration(row: Configuration) -> list[str]:
    short = len(row.name) <= NAME
    lines = [] if short else [row.name]
    name = row.name if short else ""
    if row.agents is None:
        return [
            *lines,
            *textwrap.wrap(f"{name:<{NAME}}  {_not_searched(row)}", WIDTH, subsequent_indent=" " * (NAME + 2)),
        ]
    agents = f"{'>= ' if row.capped else ''}{row.agents:,}"
    reach = f"{row.low:,} to {row.high:,}{'+' if row.open else ''}"
    limit = row.limit or ("none up to there" if row.capped else "not known")
    lines.append(
        f"{name:<{NAME}}  {agents:>9}  {reach:>14}  {_number(row.output_tokens_per_s):>8}  "
        f"{_share(row.kv_usage):>6}  {limit}{f'; {NOT_STEADY}' if row.unsteady else ''}"
    )
    said = [f"against the first: {versus(row.versus_first)}"] if row.versus_first is not None else []
    said += _first_of_all(row)
    if row.again is not None:
        agents_, low, high = row.again
        said.append(f"looked at again after the others: {agents_:,} ({low:,} to {high:,})")
    said += [f"note: {note}" for note in row.notes] if row.folder != "." else []
    said += [f"try {row.lever}"] if row.lever and row.folder != "." else []
    return lines + [
        line
        for text in said
        for line in textwrap.wrap(
            text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
        )
    ]


def _not_searched(row: Configuration) -> str:
    if row.same_as is not None:
        return f"the same settings as {row.same_as}: one configuration"
    return f"not searched: {row.failed}"


def _share(value: Any) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.0f}"
