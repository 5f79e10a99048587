"""What every command's --help looks like: for people at a terminal of 80 columns."""

from collections.abc import Iterator

import click
import pytest

from windtunnel.simulator.cli import cli


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path) or "windtunnel", group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, (*path, name))


@pytest.mark.parametrize(
    ("name", "command"), list(commands(cli)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_help_is_readable(name: str, command: click.Command) -> None:
    context = click.Context(command, info_name=name, terminal_width=80)
    text = command.get_help(context)
    assert "\\b" not in text
    assert "\b" not in text
    assert command.get_short_help_str(limit=60).strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden and parameter.name != "help":
            plain = parameter.name in {"as_json", "version"}
            assert parameter.help or plain, f"{name} {parameter.opts[0]} says nothing"
