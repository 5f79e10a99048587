"""The command `record`."""

import sys
from pathlib import Path

import click


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--upstream", required=True, metavar="URL", help="The server that answers.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the recording (default: runs/<time>-<id>).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (default: 8484; any with a COMMAND).")
@click.option("--tag", default="", metavar="NAME", help="Name of the run, for agents that send no session id.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def record(upstream: str, out: Path | None, port: int | None, tag: str, command: tuple[str, ...]) -> None:
    """Record real agents: a proxy in front of a server that writes what they do as traces.

    COMMAND is started with the variables that agents read and owns the terminal; `windtunnel view DIR` elsewhere
    watches. {base_url} in it is the proxy's URL. Agents that read a file (codex, opencode, pi, cline) get the lines for
    it printed before they start; without COMMAND all of them are printed. An --out that holds a recording goes on.

    \b
      windtunnel record --upstream http://localhost:8000 -- claude
      windtunnel record --upstream http://localhost:8000 --out mine
    """  # noqa: D301 - click reads the control character
    from windtunnel.simulator.record.record import execute

    sys.exit(execute(upstream, out, port, tag, command))
