"""The command `traces anonymise`, and the key that its digests are made with.

The key makes the difference between a digest and a guess that can be checked: it stays with its owner, readable by
nobody else, and never goes where the shared files go, nor among the originals, which others may read or keep.
"""

import os
import re
import secrets
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from windtunnel.traces.errors import UsageError

KEY_NAME = "anonymise.key"
"""In the folder of the user's settings for this program."""
BESIDE = "windtunnel-anonymise.key"
"""Beside the source, where keys were made before: one that is there goes on being used."""


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="Folder for what can be shared.")
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    help="Key of this set of traces, made where it is missing (default: ~/.config/windtunnel/anonymise.key). Keep it.",
)
@click.option("--keep", multiple=True, metavar="NAME", help="A tool, model or agent whose name may be told.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def anonymise(sources: tuple[str, ...], out: Path, key_file: Path | None, keep: tuple[str, ...], as_json: bool) -> None:
    """Write traces that can be shared: token counts, digests and times, no text and no names.

    A replay of what is written sends prompts of the same sizes that share the same blocks. Digests are made with a
    secret key: with the same key a set can grow, without it nobody can test a guess.

    \b
      windtunnel traces anonymise ~/.claude/projects --out shared
    """  # noqa: D301 - the sign that keeps the lines below it as they are
    sys.exit(anonymise_command(sources, out, key_file, keep, as_json=as_json))


def anonymise_command(
    sources: Sequence[str], out: Path, key_file: Path | None, keep: Sequence[str] = (), *, as_json: bool = False
) -> int:
    """Anonymise all sessions of `sources` into `out`, one file each, and print the table of what was written."""
    from windtunnel.simulator.cli_traces import file_names
    from windtunnel.simulator.cli_traces_look import complain, print_table
    from windtunnel.simulator.results.text import count
    from windtunnel.traces.anonymise import anonymise as shape_of
    from windtunnel.traces.anonymise import hidden_names, key_id
    from windtunnel.traces.format import write_trace
    from windtunnel.traces.sources import load

    paths = [Path(source).expanduser() for source in sources if not _in_library(source)]
    _check_out(out, paths)
    loaded = load(sources)
    complain(loaded.problems)
    where = key_file or _key_beside(paths) or _key_of_user()
    if where.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"the key {where} would be shared with {out}: name a place outside of it with --key")
    made = not where.exists()
    key = _new_key(where) if made else _read_key(where)
    _check_key(out, where, key_id(key))
    written = [shape_of(trace, key, keep) for trace in loaded.traces]
    for name, trace in zip(file_names(written), written, strict=True):
        write_trace(trace, out / f"{name}.jsonl.zst")
    kept = (
        "was made now: keep it, for without it the set cannot grow, and share it with nobody" if made else "was there"
    )
    print(f"wrote {count(len(written), 'trace')} to {out}", file=sys.stderr)
    print(f"the key stays in {where} ({kept})", file=sys.stderr)
    hidden = hidden_names(loaded.traces, keep)
    if hidden:
        more = f" and {len(hidden) - 8} more" if len(hidden) > 8 else ""
        print(f"names that became digests: {', '.join(hidden[:8])}{more} (--keep NAME leaves one)", file=sys.stderr)
    print_table(written, loaded.problems, as_json=as_json)
    return 0


def _in_library(source: str) -> bool:
    return source == "library" or source.startswith("library:")


def _check_out(out: Path, sources: Sequence[Path]) -> None:
    """The shared files must not lie among the originals: neither would know any more which may be given away."""
    real = out.resolve()
    for source in sources:
        origin = source.resolve()
        folder = origin if origin.is_dir() else origin.parent
        if folder.is_relative_to(real) or (origin.is_dir() and real.is_relative_to(origin)):
            raise UsageError(f"--out {out} and the originals in {source} lie in one another: choose a folder apart")
    if real.exists() and not real.is_dir():
        raise UsageError(f"--out {out} is not a folder: choose another name")


def _key_beside(sources: Sequence[Path]) -> Path | None:
    """A key that was made beside a source before; UsageError where there are several."""
    beside = dict.fromkeys(source.resolve().parent / BESIDE for source in sources)
    made = [path for path in beside if path.exists()]
    if len(made) > 1:
        raise UsageError(f"{made[0]} and {made[1]} are two keys: say with --key FILE which one makes this set")
    return made[0] if made else None


def _key_of_user() -> Path:
    """The key of all sets that name none."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        folder = settings if settings.is_absolute() else Path.home() / ".config"
    except RuntimeError as error:
        raise UsageError("there is no home folder for a key: name a place with --key FILE") from error
    return folder / "windtunnel" / KEY_NAME


def _read_key(path: Path) -> bytes:
    try:
        text = path.read_text("ascii").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the key {path} cannot be read ({why}): name another with --key FILE") from error
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise UsageError(f"{path} is no key (64 hex digits): name one with --key FILE, or a new file to have one made")
    if stat.S_IMODE(mode) & 0o077:
        print(f"{path} can be read by others: chmod 600 {path}", file=sys.stderr)
    return bytes.fromhex(text)


def _new_key(path: Path) -> bytes:
    key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(key.hex() + "\n")
    except OSError as error:
        raise UsageError(
            f"the key {path} cannot be written ({error.strerror}): name a place with --key FILE"
        ) from error
    return key


def _check_key(out: Path, where: Path, key_id: str) -> None:
    """A set made with two keys shares nothing between its halves."""
    from windtunnel.traces.anonymise import key_id_of
    from windtunnel.traces.format import read_trace

    there = sorted(out.glob("*.jsonl.zst"), key=lambda path: path.stat().st_size)[:1]
    ids = {key_id_of(trace) for path in there for trace in read_trace(path).traces} - {None}
    if ids - {key_id}:
        raise UsageError(
            f"the traces in {out} were made with another key than {where}: name theirs with --key, or another --out"
        )
