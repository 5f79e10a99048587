"""The bench's table, as text and as JSON, and whether it may be believed."""

import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Self

import msgspec
from compare import Measured, Two
from faults import Faults
from msgspec import Struct
from scenarios import Gate

from windtunnel.agents.reads import COMPILED

BUSY_CORES = 0.25
"""Above this much work of others, times say more about them than about a client."""
BUSY_CORES_SHORT = 1.0
"""The same for the short form, whose limits are wide."""


def busy_cores(*, short: bool) -> float:
    return BUSY_CORES_SHORT if short else BUSY_CORES


class ScenarioResult(Struct, frozen=True):
    name: str
    what: str
    clients: list[Measured]
    gates: list[Gate]

    @property
    def foreign_cores(self) -> float:
        return max(client.foreign_cores for client in self.clients)


class Report(Struct):
    when: str
    machine: str
    versions: str
    short: bool
    reps: int
    load: float
    """1-minute load average before the first scenario."""
    scenarios: list[ScenarioResult]
    faults: Faults | None = None
    fault_gates: list[Gate] = []

    @classmethod
    def begin(cls, *, short: bool, reps: int) -> Self:
        names = ("uvloop", "httptools", "msgspec", "aiohttp")
        return cls(
            when=time.strftime("%Y-%m-%d %H:%M"),
            machine=f"{cpu_name()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
            versions=", ".join(
                [
                    f"Python {platform.python_version()}",
                    *(f"{name} {version(name)}" for name in names),
                    f"reads {'compiled' if COMPILED else 'in Python'}",
                ]
            ),
            short=short,
            reps=reps,
            load=round(os.getloadavg()[0], 2),
            scenarios=[],
        )

    def judged(self) -> Iterator[tuple[str, Gate, bool]]:
        """Each gate with its scenario's name and whether it may be believed."""
        busy = busy_cores(short=self.short)
        for scenario in self.scenarios:
            for gate in scenario.gates:
                yield scenario.name, gate, gate.always or scenario.foreign_cores <= busy
        for gate in self.fault_gates:
            assert self.faults is not None
            yield "faults", gate, gate.always or self.faults.foreign_cores <= busy

    @property
    def failed(self) -> bool:
        return any(believed and not gate.holds for _, gate, believed in self.judged())

    @property
    def doubted(self) -> int:
        """Gates that say nothing because the machine was busy."""
        return sum(not believed for _, _, believed in self.judged())


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def save(report: Report, path: Path) -> None:
    extra = [
        {"scenario": name, "what": gate.what, "holds": gate.holds, "believed": believed}
        for name, gate, believed in report.judged()
    ]
    data = {**msgspec.to_builtins(report), "verdicts": extra, "failed": report.failed}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")


HEAD = (
    f"{'':11}{'CPU/chunk':>10}{'chunks/s':>9}{'cores':>6}{'TTFT error':>16}{'from sending':>16}{'gap error':>15}"
    f"{'first lag':>14}{'last lag':>14}{'TPOT':>7}{'memory':>8}"
)
UNITS = (
    f"{'':11}{'us':>10}{'per core':>9}{'':6}{'p50    p99 ms':>16}{'p50    p99 ms':>16}{'p50   p99 ms':>15}"
    f"{'p50   p99 ms':>14}{'p50   p99 ms':>14}{'/true':>7}{'+MB':>8}"
)


def _two(value: Two | None, width: int, digits: int = 2) -> str:
    return f"{'-' if value is None else f'{value.p50:.{digits}f} {value.p99:6.{digits}f}':>{width}}"


def _line(m: Measured) -> str:
    tpot = "-" if m.tpot_ratio is None else f"{m.tpot_ratio:.3f}"
    return (
        f"{m.client:11}{m.cpu_us_per_chunk:10.1f}{m.chunks_per_core_s:9,.0f}{m.cores:6.2f}{_two(m.ttft_error, 16, 1)}"
        f"{_two(m.sent_ttft_error, 16, 1)}{_two(m.gap_error, 15)}{_two(m.first_lag, 14)}{_two(m.last_lag, 14)}"
        f"{tpot:>7}{m.grown_mb:8.1f}"
    )


def _gates(gates: list[Gate], *, busy: bool) -> list[str]:
    lines = []
    for gate in gates:
        word = "ok" if gate.holds else "FAILED"
        if not gate.always and busy:
            word = "busy" if gate.holds else "busy!"
        sign = ">=" if gate.at_least else "<="
        if gate.always and gate.limit == 1 and gate.at_least:
            lines.append(f"  {word:7} {gate.what}")
        else:
            lines.append(f"  {word:7} {gate.what}: {gate.value:.2f} {gate.unit} ({sign} {gate.limit:g})")
    return lines


def render(report: Report) -> str:
    turns = "one turn" if report.reps == 1 else f"medians of {report.reps}"
    limit = busy_cores(short=report.short)
    form = ", short form with wide limits" if report.short else ""
    lines = [
        f"{report.when}  {report.machine}",
        f"{report.versions}; {turns}{form}; load {report.load:.2f} before",
        "Errors are reported minus true; a lag is arrival minus write of the same chunk. TTFT is counted from the moment",
        "that a request was due, and beside it from the moment that it had left.",
    ]
    for scenario in report.scenarios:
        lines += ["", f"{scenario.name}: {scenario.what}", HEAD, UNITS]
        lines += [_line(client) for client in scenario.clients]
        true = scenario.clients[0]
        if scenario.foreign_cores > 0.05:
            lines.append(f"  others used {scenario.foreign_cores:.2f} cores meanwhile")
        if true.true_ttft is not None:
            lines.append(f"  true TTFT {_two(true.true_ttft, 0)} ms, true gap {_two(true.true_gap, 0)} ms")
        lines += _gates(scenario.gates, busy=scenario.foreign_cores > limit)
    if report.faults is not None:
        lines += ["", "faults: what the result calls each of them"]
        for row in report.faults.rows:
            called = ", ".join(f"{name} x{count}" for name, count in sorted(row.called.items())) or "never seen"
            lines.append(f"  {'ok' if row.right else 'WRONG':7} {row.fault:14} {called}")
        found = report.faults
        lag, beside, clean = (_two(value, 0) for value in (found.lag, found.long_lag, found.clean_lag))
        lines.append(f"  chunk lag of the other streams {lag} ms, beside a line of 10 MB {beside} ms,")
        lines.append(f"  in runs without faults {clean} ms; {found.cut} calls cut")
        lines += _gates(report.fault_gates, busy=report.faults.foreign_cores > limit)
    lines.append("")
    if report.doubted:
        lines.append(f"{report.doubted} limits were not judged: others used more than {limit} cores. Run again alone.")
    lines.append("FAILED: a limit does not hold" if report.failed else "all limits that could be judged hold")
    return "\n".join(lines)
