"""Traces as files of other programs' workload formats; `EXPORTERS` lists them.

Pure: traces in, bytes out. What a format cannot say is a `Problem` that names the call, never a silent loss. Recorded
text does not leave: a prompt is hashes of fixed blocks or regenerated text, and equal prefixes stay equal.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from windtunnel.traces.errors import UsageError
from windtunnel.traces.exporters import aiperf_turns, mooncake, weka
from windtunnel.traces.exporters.exported import Exported
from windtunnel.traces.model import Trace

__all__ = ["EXPORTERS", "Exported", "Exporter", "export"]


class Exporter(Struct, frozen=True):
    name: str
    suffix: str
    one_file: bool
    """All traces go into one file; else each has its own."""
    write: Callable[[Sequence[Trace]], Exported]


EXPORTERS: dict[str, Exporter] = {
    "weka": Exporter("weka", ".json", one_file=False, write=weka.write),
    "mooncake": Exporter("mooncake", ".jsonl", one_file=True, write=mooncake.write),
    "mooncake-dynamo": Exporter("mooncake-dynamo", ".jsonl", one_file=True, write=mooncake.write_dynamo),
    "mooncake-aiperf": Exporter("mooncake-aiperf", ".jsonl", one_file=True, write=mooncake.write_aiperf),
    "aiperf-multi-turn": Exporter("aiperf-multi-turn", ".jsonl", one_file=True, write=aiperf_turns.write),
}


def export(traces: Sequence[Trace], name: str) -> Exported:
    """The traces in the format `name`: one file, or one for each trace in their order."""
    if name not in EXPORTERS:
        raise UsageError(f"there is no export format {name!r}: use one of {', '.join(EXPORTERS)}")
    return EXPORTERS[name].write(traces)
