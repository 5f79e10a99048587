"""Why a verdict of `windtunnel diagnose` is doubtful, whatever the client did: the calls that it is of."""

from windtunnel.simulator.results.cautions import FEWEST, left_out
from windtunnel.simulator.results.summary_model import Summary
from windtunnel.simulator.results.text import count


def of_calls(summary: Summary, calls: int) -> list[str]:
    """`calls`: how many of them it looks at. The rules are those for a run's percentiles; empty where all is well."""
    said = []
    if 0 < calls < FEWEST:
        of = count(calls, "call")
        said.append(f"the verdict is doubtful: it is of {of}, and from {FEWEST} on one hardly turns it")
    if calls and (found := left_out(summary)) is not None:
        unended, begun = found
        remedy = "" if summary.kind == "recording" else "; a longer --duration helps"
        said.append(
            f"{unended:,} of the {begun:,} calls begun in the window had not ended when the run did: "
            f"they are mostly the long ones, and their time is left out{remedy}"
        )
    return said
