"""The commands that make traces of traces, and the one that checks them: fit, synth, validate."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from windtunnel.traces.errors import UsageError

Mode = Literal["filter", "scale", "compact"]
MODES: dict[str, Mode] = {"filter": "filter", "scale": "scale", "compact": "compact"}


@click.command()
@click.argument("sources", nargs=-1)
@click.option("--format", "form", metavar="NAME", help="Read the sources as this format instead of finding out.")
@click.option("--json", "as_json", is_flag=True)
def validate(sources: tuple[str, ...], form: str | None, as_json: bool) -> None:
    """Check traces and logs for faults.

    Damaged lines, broken promises of the format, and what cannot have happened, one a line as FILE:LINE: REASON. Exit 1
    when there are some.
    """
    sys.exit(validate_command(sources, form, as_json=as_json))


def validate_command(sources: Sequence[str], form: str | None = None, *, as_json: bool) -> int:
    """Print every problem as `file:line: reason` on stdout, and what was checked on stderr."""
    import msgspec

    from windtunnel.traces.pictures import plural
    from windtunnel.traces.validate import validate as check

    found = check(sources, form)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        for problem in found.problems:
            print(problem)
        parts = ((found.sessions, "session"), (found.calls, "call"), (found.files, "file"))
        checked = "{}, {} in {}".format(*(plural(number, noun) for number, noun in parts))
        said = plural(len(found.problems), "problem") if found.problems else "nothing wrong"
        print(f"{checked}: {said}", file=sys.stderr)
    return 1 if found.problems else 0


@click.command()
@click.argument("sources", nargs=-1)
@click.option("--max-context", required=True, metavar="N", help="Most tokens of prompt + output; 32k works.")
@click.option(
    "--fit",
    "mode",
    type=click.Choice(list(MODES)),
    default="filter",
    show_default=True,
    help="Larger sessions: leave out, shrink with their shape kept, or compact on the way.",
)
@click.option("--max-output", metavar="N", help="Cut longer outputs to N tokens first.")
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="Folder to write the traces to.")
@click.option("--json", "as_json", is_flag=True)
def fit(
    sources: tuple[str, ...], max_context: str, mode: str, max_output: str | None, out: Path, as_json: bool
) -> None:
    """Make sessions fit a context.

    Each is written as it is, made to fit, or left out; without SOURCES those of the bundled library.

    \b
      windtunnel traces fit ~/.claude/projects --max-context 32k --fit compact --out small
    """  # noqa: D301 - the sign that keeps the lines below it as they are
    modes: dict[str, Literal["filter", "scale", "compact"]] = {
        "filter": "filter",
        "scale": "scale",
        "compact": "compact",
    }
    sys.exit(fit_command(sources, max_context, modes[mode], max_output, out, as_json=as_json))


def fit_command(
    sources: Sequence[str],
    max_context: str,
    mode: Mode,
    max_output: str | None,
    out: Path,
    *,
    as_json: bool,
) -> int:
    """Fit, write one trace a session below `out`, print the table of what was written."""
    from windtunnel.simulator.cli_traces import write_traces
    from windtunnel.simulator.cli_traces_look import complain, print_table
    from windtunnel.simulator.run.config import parse_count
    from windtunnel.traces.fit import fit as fitted
    from windtunnel.traces.fit import largest
    from windtunnel.traces.sources import load

    limit = parse_count(max_context, "--max-context")
    most = None if max_output is None else parse_count(max_output, "--max-output")
    loaded = load(sources)
    complain(loaded.problems)
    made, counts = fitted(loaded.traces, limit, mode, most)
    if not made:
        least = min(largest(trace) for trace in loaded.traces)
        raise UsageError(
            f"none of the {len(loaded.traces)} sessions fits {limit:,} tokens by {mode} "
            f"(the smallest needs {least:,}): raise --max-context or choose another --fit"
        )
    write_traces(made, out)
    what = [f"{counts.kept:,} as they were"]
    what += [f"{n:,} {w}" for n, w in ((counts.scaled, "scaled"), (counts.compacted, "compacted")) if n]
    what += [f"{counts.filtered:,} left out"] if counts.filtered else []
    print(f"at most {limit:,} tokens: {', '.join(what)}", file=sys.stderr)
    print_table(made, loaded.problems, as_json=as_json)
    return 0


@click.command()
@click.argument("sources", nargs=-1)
@click.option("--sessions", type=click.IntRange(min=1), default=100, show_default=True, metavar="K", help="How many.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same sessions.")
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="Folder to write the traces to.")
@click.option("--json", "as_json", is_flag=True, help="Print both profiles as JSON.")
def synth(sources: tuple[str, ...], sessions: int, seed: int, out: Path, as_json: bool) -> None:
    """Make up sessions like given ones.

    They are shape only and nobody's; without SOURCES they are like the bundled library. Lengths, growth, outputs, tools
    and their times, sub-agents and waits for the user follow the given sessions; no text, digest or own tool name of
    theirs is kept.

    \b
      windtunnel traces synth ~/.claude/projects --sessions 200 --out made
    """  # noqa: D301 - the sign that keeps the lines below it as they are
    sys.exit(synth_command(sources, sessions, seed, out, as_json=as_json))


def synth_command(sources: Sequence[str], sessions: int, seed: int, out: Path, *, as_json: bool) -> int:
    """Write made-up sessions and print how close they are to the given ones."""
    import msgspec

    from windtunnel.simulator.cli_traces import write_traces
    from windtunnel.simulator.cli_traces_look import complain, pen
    from windtunnel.traces.profile import profile
    from windtunnel.traces.profile_text import compared_lines
    from windtunnel.traces.resample import resample
    from windtunnel.traces.sources import load

    loaded = load(sources or ("library",))
    complain(loaded.problems)
    made = resample(loaded.traces, sessions, seed)
    write_traces(made, out)
    given, got = profile(loaded.traces), profile(made)
    if as_json:
        data = {"given": given, "made": got, "problems": loaded.problems}
        print(msgspec.json.encode(data).decode())
    else:
        print("\n".join(compared_lines(given, got, pen())))
    return 0
