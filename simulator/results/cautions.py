"""What to know before a run's latencies are believed: what they leave out, and how few calls they are of."""

from windtunnel.simulator.results.summary_model import Summary

SHARE_LEFT_OUT = 0.05
"""Of the calls begun in the window; up to here what the end cut changes little."""
SHARE_UNSEEN = 0.05
"""Of the window; a mean changes little by what is missing of a shorter time."""
RESTARTS_SHOWN = 3
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


def restarted(summary: Summary) -> str:
    """When the engine's counters were seen to have begun anew; empty where they did not."""
    times = summary.engine.restarted_s or ()
    more = " and later" if len(times) > RESTARTS_SHOWN else ""
    return f"{', '.join(f'{t:.1f} s' for t in times[:RESTARTS_SHOWN])}{more}"


def by_progress(summary: Summary) -> str:
    """How the tokens of calls without an end were counted, which figures with ~ hold; empty where all calls ended."""
    tokens = summary.output_tokens_by_progress
    if not tokens:
        return ""
    prompts = "" if summary.kind == "recording" else "; their prompts count as planned, from the first token on"
    return f"~: {tokens:,} output tokens are of calls without an end, as far as the run's progress saw them{prompts}"


def cautions(summary: Summary) -> list[str]:
    """One sentence each, none where nothing is to be said."""
    said = []
    if (found := left_out(summary)) is not None:
        unended, begun = found
        remedy = "" if summary.kind == "recording" else "; a longer --duration helps"
        said.append(
            f"{unended:,} of the {begun:,} calls begun in the window had not ended when the run did; the tokens that "
            "they had got count, their latencies are left out, and they are mostly the long ones: E2E and the upper "
            f"percentiles are too low{remedy}"
        )
    if told := by_progress(summary):
        said.append(told)
    if summary.calls_in_one_piece and summary.e2e_s is not None:
        whole = summary.calls_in_one_piece
        calls = f"the {summary.e2e_s.n:,} calls were" if summary.e2e_s.n > 1 else "1 call was"
        said.append(
            f"{whole:,} of {calls} answered in one piece, not streamed: when the first token came is not known, and "
            "TTFT, stall and TPOT leave them out"
        )
    unseen = summary.engine.unseen_s
    if unseen and unseen > SHARE_UNSEEN * summary.window_s:
        said.append(
            f"the engine's metrics did not come for {unseen:,.0f} s of the window's {summary.window_s:,.0f} s: what it "
            "says of itself is of the rest"
        )
    if summary.kind == "recording" and (when := restarted(summary)):
        said.append(f"the engine was restarted (at {when}): what it says of itself lacks what it did just before")
    few = summary.e2e_s.n if summary.e2e_s is not None else 0
    if 0 < few < FEWEST:
        said.append(f"of {few} {'call' if few == 1 else 'calls'}: percentiles are single calls")
    return said
