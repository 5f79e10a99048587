"""What a capacity search says: its sentence, how sure it is, and a line for each number of agents that was tried."""

from typing import Any

from windtunnel.simulator.experiments.capacity import Capacity, sentence
from windtunnel.traces.outlet import to_json


def printed(found: Capacity, *, as_json: bool = False) -> str:
    """For people, or `--json`."""
    if as_json:
        return to_json(found).decode() + "\n"
    lines = [sentence(found)]
    if found.emulated:
        lines.append(f"EMULATED, not measured{': ' if found.emulation else ''}{found.emulation or ''}")
    lines += [found.evidence] if found.evidence else []
    lines += [f"note: {note}" for note in found.notes]
    lines += ["", f"{'agents':>8}  {'runs met':>8}  {'valid':>7}  {'calls inside':>12}  {'tokens/s':>9}  {'KV use':>7}"]
    lines += [_row(point) for point in found.points]
    lines += ["", f"runs    {found.runs}"]
    return "\n".join(lines) + "\n"


def _row(point: dict[str, Any]) -> str:
    runs = f"of {point['runs']:<2}"
    return (
        f"{point['agents']:>8}  {point['met']:>3} {runs}  {point['valid']:>2} {runs}  "
        f"{_share(point['slo_share']):>11}  {_number(point['output_tokens_per_s']):>9}  {_share(point['kv_usage']):>7}"
        f"{'  NOT VALID' if point['not_valid'] else ''}"
    )


def _share(value: Any) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.0f}"
