"""`windtunnel engines`: the command and its flags; what it says is in `engines.catalogue`."""

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def engines(as_json: bool) -> None:
    """Say which engines are known: how each is started, what can be read, reset and pinned, and how that was verified.

    verified: real (a process of it ran), source (read in its sources, tested against answers made after them), no.
    """
    import msgspec

    from windtunnel.simulator.engines import catalogue

    known = catalogue.engines()
    click.echo(msgspec.json.encode(known).decode() if as_json else catalogue.table(known), nl=as_json)
