"""The command line. Heavy modules are imported inside the commands, so that --help stays quick.

stdout is data, stderr is talk. Exit: 0 done; 1 the run failed; 2 wrong use; 130 interrupted.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from windtunnel.simulator.cli_options import run_options, theme_option, to_config
from windtunnel.simulator.version import VERSION
from windtunnel.traces.errors import UsageError, WindtunnelError
from windtunnel.traces.outlet import one_line, safe_streams, shown

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""A stdout that takes nothing more: a full disk, a terminal that was closed."""
UNUSABLE = frozenset({errno.ENAMETOOLONG, errno.EACCES})
"""A path that cannot even be asked for, whatever it was given for."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _ReaderGoneError(Exception):
    """Whoever read our output has gone: click would make a silent failure of the system's own error."""


class _Later(click.Group):
    """A group whose commands are read from other modules, the one that is asked for alone."""

    later: Mapping[str, str] = {}
    """A command's name to `module:function`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.later.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, function = place.partition(":")
        command = getattr(import_module(f"windtunnel.simulator.{module}"), function)
        return command if isinstance(command, click.Command) else None


class _Traces(_Later):
    later: Mapping[str, str] = {
        "anonymise": "cli_anonymise:anonymise",
        "fit": "cli_traces_make:fit",
        "synth": "cli_traces_make:synth",
        "validate": "cli_traces_make:validate",
    }


class _Commands(_Later):
    later: Mapping[str, str] = {
        "calibrate": "cli_validate:calibrate",
        "capacity": "cli_capacity:capacity",
        "compare": "cli_compare:compare",
        "cost": "cli_cost:cost",
        "diagnose": "cli_diagnose:diagnose",
        "engines": "cli_engines:engines",
        "record": "cli_record:record",
        "report": "cli_report:report",
        "validate": "cli_validate:validate",
        "view": "cli_view:view",
        "why": "cli_why:why",
    }

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error


@click.group(cls=_Commands, context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(VERSION, message="windtunnel %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """A wind tunnel for LLM inference engines.

    Replays recorded coding-agent sessions against a server, shows every agent live, and says what the engine carries.

    \b
      windtunnel watch                                  32 agents against the embedded emulator
      windtunnel watch --target http://localhost:8000   against your own vLLM
      windtunnel watch ~/.claude/projects --target URL  with your own sessions
    """  # noqa: D301 - click reads the control character
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@run_options
@click.option("--plain", is_flag=True, help="Progress lines instead of the screen.")
@click.option("--exit-when-done", is_flag=True, help="Close the screen by itself when the run has ended.")
@theme_option()
def watch(plain: bool, exit_when_done: bool, theme: str | None, **flags: Any) -> None:
    """Run and watch: every agent live on the screen. Without a terminal, the same as `run`."""
    from windtunnel.simulator.run.viewer import terminal

    as_json = bool(flags.pop("as_json"))
    screen = terminal() and not plain
    if theme is not None:
        os.environ["WINDTUNNEL_THEME"] = theme  # where the screen, a process of its own, looks for it
    sys.exit(_execute(flags, as_json=as_json, screen=screen, exit_when_done=exit_when_done))


@cli.command()
@run_options
@click.option("--plain", is_flag=True, hidden=True)
@theme_option(hidden=True)
def run(plain: bool, theme: str | None, **flags: Any) -> None:  # noqa: ARG001 - accepted so that a command line can be reused
    """Run without a screen: progress on stderr, the summary on stdout."""
    as_json = bool(flags.pop("as_json"))
    sys.exit(_execute(flags, as_json=as_json, screen=False, exit_when_done=True))


def _execute(flags: dict[str, Any], *, as_json: bool, screen: bool, exit_when_done: bool) -> int:
    config = to_config(flags)
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("reading the sessions", err=True)  # at once: what does the run takes a second to load
    if config.virtual:
        from windtunnel.simulator.run.virtual_command import execute_virtual

        return execute_virtual(config, as_json=as_json, screen=screen and not exit_when_done)
    from windtunnel.simulator.run.run import execute

    return execute(config, as_json=as_json, screen=screen, exit_when_done=exit_when_done)


@cli.command(name="import")
@click.argument("sources", nargs=-1, required=True)
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Folder to write the traces to.")
@click.option("--format", "form", metavar="NAME", help="Read the sources as this format instead of finding out.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def import_(sources: tuple[str, ...], out: Path | None, form: str | None, as_json: bool) -> None:
    """Read sessions of real agents (files or folders) and write them as traces."""
    from windtunnel.simulator.cli_traces import import_command

    sys.exit(import_command(sources, out, as_json=as_json, form=form))


@cli.group(cls=_Traces)
def traces() -> None:
    """Look at recorded sessions, check them, share them, make others of them."""


@traces.command(name="list")
@click.argument("sources", nargs=-1)
@click.option("--json", "as_json", is_flag=True)
def traces_list(sources: tuple[str, ...], as_json: bool) -> None:
    """List sessions (default: the bundled library)."""
    from windtunnel.simulator.cli_traces import list_command

    sys.exit(list_command(sources, as_json=as_json))


@traces.command(name="show")
@click.argument("source")
@click.option("--json", "as_json", is_flag=True)
def traces_show(source: str, as_json: bool) -> None:
    """Show one session along time and by calls.

    Every agent has a lane; folded stretches say how long nothing was in flight. Then a line for every call.
    """
    from windtunnel.simulator.cli_traces_look import show_command

    sys.exit(show_command(source, as_json=as_json))


@traces.command(name="stats")
@click.argument("sources", nargs=-1)
@click.option("--json", "as_json", is_flag=True)
def traces_stats(sources: tuple[str, ...], as_json: bool) -> None:
    """What sessions are like.

    Turns, context, output, tool times, waits, reuse, duty cycle at several idle caps, and what of it is a guess
    (default: the bundled library).
    """
    from windtunnel.simulator.cli_traces_look import stats_command

    sys.exit(stats_command(sources, as_json=as_json))


@traces.command(name="export")
@click.argument("sources", nargs=-1)
@click.option(
    "--format",
    "form",
    required=True,
    metavar="NAME",
    help="weka, mooncake, mooncake-dynamo, mooncake-aiperf, aiperf-multi-turn.",
)
@click.option("--out", "-o", type=click.Path(path_type=Path), help="File, or folder for weka (default: stdout).")
def traces_export(sources: tuple[str, ...], form: str, out: Path | None) -> None:
    """Write sessions in another program's workload format (shape only; default: the bundled library)."""
    from windtunnel.simulator.cli_traces import export_command

    sys.exit(export_command(sources, form, out))


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def engine(flags: tuple[str, ...]) -> None:
    """Start the emulator: vLLM's API, flags and metrics without a GPU (`windtunnel engine --help`)."""
    from windtunnel.simulator.emulator.serve import main as serve

    sys.exit(serve(list(flags)))


@cli.command()
@click.option("--target", required=True, metavar="URL", help="The running server.")
@click.option("--model", help="Which of its models.")
@click.option("--api-key", envvar="WINDTUNNEL_API_KEY", help="Sent as a bearer token.")
@click.option("--json", "as_json", is_flag=True)
def doctor(target: str, model: str | None, api_key: str | None, as_json: bool) -> None:
    """Check what a truthful run against this server needs, and which figures it cannot give."""
    from windtunnel.simulator.doctor import main as examine

    sys.exit(examine(target, model, api_key, as_json=as_json))


def main() -> None:
    """Entry point: turns every error a user can cause into one sentence and an exit code."""
    _open_streams()
    with safe_streams():
        _main()


def _main() -> None:
    try:
        try:
            status = cli.main(standalone_mode=False)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except WindtunnelError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Abort:
        _fail("interrupted", 130)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "windtunnel"
        _fail(f"{error.format_message().rstrip('.')} (see `{command} --help`)", UsageError.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except (BrokenPipeError, _ReaderGoneError):
        # The reader of our output went away (`| head`): not an error of ours, and nothing more can be said there.
        _drop_stdout()
        sys.exit(0)
    except OSError as error:
        if error.errno in UNUSABLE and error.filename is not None:
            _fail(f"{shown(str(error.filename))} cannot be used ({error.strerror}): give another path", 2)
        if error.errno not in FULL:
            raise
        _drop_stdout()
        _fail(f"cannot write the output ({error.strerror}): write it somewhere else", 1)


def _open_streams() -> None:
    """Standard streams that the caller closed become /dev/null: the event loop cannot do with fewer than three."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(fd, True)  # the screen takes this process's place
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of few characters shows the rest


def _drop_stdout() -> None:
    """What is still buffered for a stdout that takes nothing more must not fail once again at the exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    with contextlib.suppress(OSError):
        print(f"windtunnel: {one_line(message)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
