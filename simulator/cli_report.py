"""`windtunnel report`: a page of a run or of experiments, and calls as tables."""

from pathlib import Path

import click

from windtunnel.simulator.cli_options import GivenPath

KINDS = (".csv", ".json", ".parquet")


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="RUN | EXPERIMENT ... | SEARCH", type=GivenPath())
@click.option("--out", "-o", type=GivenPath(), help="The page (default: report.html in the folder).")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@click.option("--markdown", is_flag=True, help="Print an experiment as Markdown instead.")
@click.option(
    "--calls",
    type=GivenPath(),
    help="Write a run's calls to FILE.csv, .json or .parquet; the page too only with --out or --open.",
)
def report(folders: tuple[Path, ...], out: Path | None, opens: bool, markdown: bool, calls: Path | None) -> None:
    """Write one HTML page that holds everything and works offline.

    Of a run: throughput, latencies, agents and KV cache over time. Of an experiment: its steps with their intervals and
    verdicts; of two experiments with the same steps, both side by side with what turns round between them.
    The answer of a capacity search is printed instead.
    """
    from windtunnel.simulator.report.write import printed, write_calls, write_page
    from windtunnel.simulator.results.searched import is_search
    from windtunnel.traces.errors import UsageError
    from windtunnel.traces.outlet import safe

    if calls is not None:
        click.echo(write_calls(folders, calls))
        if out is None and not opens and not markdown:
            return
    if len(folders) == 1 and is_search(folders[0]):
        if out is not None or opens:
            raise UsageError(f"{folders[0]} is a capacity search, which has no page: leave out --out and --open")
        from windtunnel.simulator.experiments.capacity import kept
        from windtunnel.simulator.experiments.capacity_text import printed as answer

        click.echo(safe(answer(kept(folders[0]))), nl=False)
        return
    if markdown:
        click.echo(printed(folders), nl=False)
        return
    page = write_page(folders, out)
    click.echo(page)
    if opens:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
