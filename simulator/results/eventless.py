"""A run whose `events.jsonl` is gone, in one sentence: what is made of no events must not be told as what happened."""

from msgspec.structs import replace

from windtunnel.simulator.results.damage import DAMAGED
from windtunnel.simulator.results.store import EVENTS_FILE, SUMMARY_FILE, RunFolder
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.traces.errors import UsageError


def without_events(folder: RunFolder) -> str:
    """What to do, and what is still known; empty where the events are there.

    A run makes the file before its `run.json`, and a summary is only written of a run that had events.
    """
    summed_up = (folder.path / SUMMARY_FILE).exists()
    if folder.event_bytes() or ((folder.path / EVENTS_FILE).exists() and not summed_up):
        return ""
    known = f" (its {SUMMARY_FILE} is still there)" if summed_up else ""
    return (
        f"{folder.path} has lost its {EVENTS_FILE}, which says what happened{known}: copy it again from where the "
        f"folder came from"
    )


def with_events(folder: RunFolder) -> RunFolder:
    """The same folder; UsageError where its events are gone."""
    if said := without_events(folder):
        summed_up = (folder.path / SUMMARY_FILE).exists()
        raise UsageError(said + (f"; `windtunnel view --plain {folder.path}` prints its summary" if summed_up else ""))
    return folder


def doubted(summary: Summary) -> Summary:
    """A summary as it stands where what it was made of is gone."""
    if DAMAGED in summary.invalid_reasons:
        return summary
    return replace(summary, valid=False, invalid_reasons=(*summary.invalid_reasons, DAMAGED))
