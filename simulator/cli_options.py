"""The flags of a run, said once for `run` and `watch`."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from windtunnel.simulator.run.config import RunConfig

Command = Callable[..., Any]
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A header's name (RFC 9110, section 5.1)."""
SENDABLE = re.compile(r"[\x20-\x7e\t]*")
"""A header's value that arrives as it was typed: no line ends, ASCII only (RFC 9110, section 5.5)."""

_OPTIONS: list[Callable[[Command], Command]] = [
    click.argument("traces", nargs=-1, metavar="[TRACE ...]"),
    click.option("--shape", metavar="INxOUT", help="Single calls of this size instead of sessions, e.g. 512x512."),
    click.option("--agents", type=int, default=32, show_default=True, help="Sessions that run side by side."),
    click.option("--target", metavar="URL", help="A running OpenAI-compatible server."),
    click.option("--engine", metavar="CMD", help='Start this engine, e.g. "vllm serve MODEL --port {port}".'),
    click.option(
        "--metrics-url",
        multiple=True,
        metavar="URL",
        help="Read metrics there and not at the target; once for each replica.",
    ),
    click.option("--model", metavar="NAME", help="Which of the server's models (default: its first)."),
    click.option("--api-key", envvar="WINDTUNNEL_API_KEY", metavar="KEY", help="Sent as a bearer token."),
    click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="Extra request header."),
    click.option(
        "--api",
        type=click.Choice(["auto", "chat", "tokens"]),
        default="auto",
        show_default=True,
        help="Route: chat messages, or prompts as token ids (auto: tokens for shape-only traces).",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Order of sessions and start points."),
    click.option("--duration", metavar="S", help="Length of the measured window, after warm-up (default 300)."),
    click.option("--sessions", type=int, metavar="K", help="Start K sessions, then drain."),
    click.option("--calls", type=int, metavar="K", help="Start K calls, then drain."),
    click.option("--ramp", type=float, default=5.0, show_default=True, metavar="S", help="Agents start over this."),
    click.option("--warmup", metavar="N|Ns", help="Calls per agent (default 2), or seconds, before the window opens."),
    click.option(
        "--start",
        type=click.Choice(["fresh", "spread"]),
        default="spread",
        show_default=True,
        help="Sessions begin at their first call, or (spread) each one, also an agent's later ones, after 25 to 75% "
        "of its turns; sessions/h then counts sessions played in part.",
    ),
    click.option(
        "--pace",
        type=click.Choice(["busy", "typical", "recorded", "none"]),
        default="busy",
        show_default=True,
        help="Caps on idle gaps: 10 s, 60 s, none, no waiting at all.",
    ),
    click.option("--tool-time", multiple=True, metavar="DIAL", help="recorded, x2, '<=5', none; or Bash=x2."),
    click.option("--human-time", metavar="DIAL", help="recorded, x2, '<=5', none."),
    click.option(
        "--history",
        type=click.Choice(["auto", "recorded", "live"]),
        default="auto",
        show_default=True,
        help="Answers that go back into the prompts: the recorded ones, or the generated ones (auto: recorded ones "
        "as chat messages, generated ones as token ids).",
    ),
    click.option(
        "--lengths",
        type=click.Choice(["recorded", "natural"]),
        default="recorded",
        show_default=True,
        help="Output lengths: pinned to the recording, or where the model ends by itself (recorded length at most).",
    ),
    click.option("--max-context", metavar="N", help="Largest context (default: what the server takes); 32k works."),
    click.option(
        "--fit",
        type=click.Choice(["filter", "scale", "compact"]),
        default="filter",
        show_default=True,
        help="Sessions over the largest context: leave out, shrink with their shape kept, or compact on the way.",
    ),
    click.option(
        "--isolate",
        type=click.Choice(["auto", "reset", "salt", "none"]),
        default="auto",
        show_default=True,
        help="How earlier runs are kept out of this one's cache (auto: reset where the server can, else salt).",
    ),
    click.option("--rate", type=float, metavar="R", help="At most R requests per second."),
    click.option(
        "--workers",
        type=int,
        default=1,
        show_default=True,
        metavar="N",
        help="Processes that share the streams; 2 or more above about 30,000 chunks per second.",
    ),
    click.option("--max-failures", default="10%", show_default=True, metavar="SHARE", help="Of sessions."),
    click.option("--slo", metavar="EXPR", help="Service level, e.g. 'ttft_s.p90<3,tpot_s.p90<0.05'."),
    click.option(
        "--virtual",
        is_flag=True,
        help="Sessions and emulator in one process on a virtual clock: hours in seconds, the same for the same seed.",
    ),
    click.option("--out", metavar="DIR", help="Run folder (default: a new one in ./runs)."),
    click.option("--no-text", is_flag=True, help="Keep no generated text."),
    click.option("--json", "as_json", is_flag=True, help="Print summary.json on stdout."),
]


class GivenPath(click.Path):
    """A path as a `Path`. An empty one, of a variable without a value, would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A range of numbers. NaN is in none, though every comparison with it lets it through; infinite is no figure."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to reckon with: give a finite one", param, ctx)
        return super().convert(value, param, ctx)


THEMES = ("dark", "light", "okabe-ito")


def theme_option(*, hidden: bool = False) -> Callable[[Command], Command]:
    """The screen's colours; `hidden` where a command has no screen but takes the line of one that has."""
    about = "The screen's colours (default: WINDTUNNEL_THEME, or dark)."
    return click.option("--theme", type=click.Choice(THEMES), hidden=hidden, help=about)


def run_options(command: Command) -> Command:
    """Add the flags of a run to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def config_of(words: Sequence[str]) -> "RunConfig":
    """The config of a command line of `windtunnel run`, without the command's name."""
    from windtunnel.traces.errors import UsageError

    command = click.Command("run", params=[], add_help_option=False)
    for option in _OPTIONS:
        option(command)
    try:
        context = command.make_context("run", list(words), resilient_parsing=False)
    except click.UsageError as error:
        raise UsageError(error.format_message().rstrip(".")) from error
    return to_config({key: value for key, value in context.params.items() if key != "as_json"})


def _traces(named: tuple[str, ...], shape: str | None) -> tuple[str, ...]:
    from windtunnel.traces.errors import UsageError
    from windtunnel.traces.shapes import PREFIX

    if shape is None:
        return tuple(named) or ("library",)
    if named:
        raise UsageError(f"--shape {shape} stands in place of traces: leave out {named[0]}")
    return (PREFIX + shape,)


def to_config(flags: dict[str, Any]) -> "RunConfig":
    """The flags as a checked RunConfig; UsageError says which flag is wrong."""
    from windtunnel.agents.policy import Dial, parse_dial
    from windtunnel.simulator.results import slo
    from windtunnel.simulator.run.config import (
        RunConfig,
        Warmup,
        parse_count,
        parse_seconds,
        parse_share,
        parse_warmup,
    )
    from windtunnel.traces.errors import UsageError
    from windtunnel.traces.outlet import readable, shown

    for option, typed in flags.items():
        if isinstance(typed, str) and option != "out" and (text := readable(typed)) != typed:
            raise UsageError(f"--{option.replace('_', '-')} {shown(text)}: it holds bytes that are no UTF-8, mend them")
    tool_time: Dial | None = None
    per_tool: dict[str, Dial] = {}
    for text in flags["tool_time"]:
        name, found, dial = text.partition("=")
        if found and not name.strip():
            raise UsageError(f"--tool-time {text}: the tool's name is missing, write Bash=x2")
        if found and not name.endswith("<"):
            per_tool[name] = parse_dial(dial)
        else:
            tool_time = parse_dial(text)
    headers: list[tuple[str, str]] = []
    for text in flags["header"]:
        name, found, value = text.partition(":")
        if not found or not TOKEN.fullmatch(name.strip()):
            raise UsageError(f"--header {text!r}: expected 'NAME: VALUE'")
        if not SENDABLE.fullmatch(value.strip()):
            raise UsageError(f"--header {name.strip()}: its value has characters that no header can carry")
        headers.append((name.strip(), value.strip()))
    if flags["api_key"]:
        if not SENDABLE.fullmatch(flags["api_key"]):
            raise UsageError("--api-key: it has characters that no header can carry, copy it again")
        headers.append(("Authorization", f"Bearer {flags['api_key']}"))
    if flags["slo"] is not None and not slo.asked(flags["slo"]):
        raise UsageError("--slo: it is empty, write it like ttft_s.p90<3")
    duration, max_context, warmup = flags["duration"], flags["max_context"], flags["warmup"]
    return RunConfig(
        traces=_traces(flags["traces"], flags["shape"]),
        agents=flags["agents"],
        target=flags["target"],
        engine=flags["engine"],
        model=flags["model"],
        api=flags["api"],
        seed=flags["seed"],
        duration_s=None if duration is None else parse_seconds(duration, "--duration"),
        sessions=flags["sessions"],
        calls=flags["calls"],
        ramp_s=flags["ramp"],
        warmup=Warmup() if warmup is None else parse_warmup(warmup),
        start=flags["start"],
        pace=flags["pace"],
        tool_time=tool_time,
        human_time=None if flags["human_time"] is None else parse_dial(flags["human_time"]),
        per_tool=per_tool,
        history=flags["history"],
        lengths=flags["lengths"],
        max_context=None if max_context is None else parse_count(max_context, "--max-context"),
        fit=flags["fit"],
        isolate=flags["isolate"],
        rate=flags["rate"],
        metrics_urls=flags["metrics_url"],
        workers=flags["workers"],
        max_failures=parse_share(flags["max_failures"], "--max-failures"),
        slo=flags["slo"],
        out=flags["out"],
        text=not flags["no_text"],
        headers=tuple(headers),
        virtual=flags["virtual"],
    ).checked()
