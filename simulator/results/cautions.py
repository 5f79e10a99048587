"""What to know before a run's latencies are believed: whose calls they leave out, and how few they are of."""

from windtunnel.simulator.results.summary_model import Summary

SHARE_LEFT_OUT = 0.05
"""Of the calls begun in the window; up to here what the end cut changes little."""
FEWEST = 30
"""Calls; of fewer a high percentile is one call or two."""


def left_out(summary: Summary) -> tuple[int, int] | None:
    """(calls without an end, calls begun in the window) where those are too many to be left out unsaid.

    Whether a call has ended by then depends on its length, so those left out are the long ones.
    """
    unended, begun = summary.calls_unended, summary.calls_begun
    if not unended or not begun or unended <= SHARE_LEFT_OUT * begun:
        return None
    return unended, begun


def cautions(summary: Summary) -> list[str]:
    """One sentence each, none where nothing is to be said."""
    said = []
    if (found := left_out(summary)) is not None:
        unended, begun = found
        remedy = "" if summary.kind == "recording" else "; a longer --duration helps"
        said.append(
            f"{unended:,} of the {begun:,} calls begun in the window had not ended when the run did; they are left "
            f"out, and are mostly the long ones: E2E and the upper percentiles are too low{remedy}"
        )
    few = summary.e2e_s.n if summary.e2e_s is not None else 0
    if 0 < few < FEWEST:
        said.append(f"of {few} {'call' if few == 1 else 'calls'}: percentiles are single calls")
    return said
