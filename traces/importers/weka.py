"""Weka's KV-cache traces: reading requests, chains and sub-agents. `weka_build` makes the trace."""

from pathlib import Path

from windtunnel.traces.importers.documents import read_document
from windtunnel.traces.importers.imported import Imported
from windtunnel.traces.importers.records import (
    Notes,
    count,
    items,
    seconds,
    table,
    tables,
    text,
)
from windtunnel.traces.importers.weka_build import Builder, Chain, Origin, Request

__all__ = ["NAME", "detect", "read"]

NAME = "weka"
BLOCK_TOKENS = 64


def detect(path: Path, head: bytes) -> bool:
    return path.suffix == ".json" and b'"hash_id_scope"' in head and b'"requests"' in head


def read(path: Path) -> Imported:
    notes = Notes(str(path))
    value = table(read_document(path, notes))
    if not value:
        if not notes.all():
            notes.add(None, "is not a JSON object: nothing could be read")
        return Imported((), notes.all())
    size = value.get("block_size")
    if size != BLOCK_TOKENS:
        notes.add(None, f"block_size is not {BLOCK_TOKENS}: nothing could be read")
        return Imported((), notes.all())
    chains = _chains(value, notes)
    if not any(c.requests for c in chains):
        notes.add(None, "holds no request to a model: nothing to replay")
        return Imported((), notes.all())
    own = text(value.get("id")) or path.stem
    origin = Origin(
        format=NAME,
        id=own,
        scope=() if value.get("hash_id_scope") == "global" else (own,),
        block=BLOCK_TOKENS,
        source=f"{NAME} {path}",
        notes=("hash blocks of 64 tokens; tools are part of the system message",),
    )
    return Imported((Builder(origin, chains).trace(),), notes.all())


def _chains(value: dict[str, object], notes: Notes) -> list[Chain]:
    """The main chain, then the sub-agents in file order."""
    main = Chain(front=_front(value, notes))
    chains = [main]
    for number, item in enumerate(items(value.get("requests"))):
        where = f"request {number}"
        entry = table(item)
        if not entry:
            notes.add(None, f"{where} is not an object and was left out")
        elif entry.get("type") != "subagent":
            _take(main, entry, 0.0, where, notes)
        else:
            chains.append(_subagent(entry, where, notes))
    return [c for c in chains if c.requests or c is main]


def _subagent(entry: dict[str, object], where: str, notes: Notes) -> Chain:
    """`t` is when a sub-agent ended; its requests' times count from when it began."""
    end, took = seconds(entry.get("t")), seconds(entry.get("duration_ms"), 1e12)
    chain = Chain(front=_front(entry, notes), name=text(entry.get("subagent_type")) or None, end=end)
    chain.agent = text(entry.get("agent_id"))
    chain.begin = None if end is None or took is None else max(0.0, end - took / 1000)
    for number, inner in enumerate(tables(entry.get("requests"))):
        _take(chain, inner, chain.begin, f"{where}, request {number}", notes)
    if not chain.requests:
        notes.add(None, f"{where}: the sub-agent holds no usable request")
    return chain


def _front(entry: dict[str, object], notes: Notes) -> int:
    return sum(count(entry.get(k), notes, None, k) or 0 for k in ("tool_tokens", "system_tokens"))


def _take(chain: Chain, entry: dict[str, object], zero: float | None, where: str, notes: Notes) -> None:
    prompt = count(entry.get("in"), notes, None, f"{where}: in")
    hashes = entry.get("hash_ids")
    whole = isinstance(hashes, list) and all(isinstance(h, int) and not isinstance(h, bool) for h in hashes)
    if not prompt or not whole or not isinstance(hashes, list):
        notes.add(None, f"{where} has no prompt size or no list of hash ids and was left out")
        return
    if not prompt - BLOCK_TOKENS < len(hashes) * BLOCK_TOKENS <= prompt + BLOCK_TOKENS - 1:
        notes.add(None, f"{where}: its {len(hashes)} blocks are not the {prompt} tokens it names; left out")
        return
    at, took = seconds(entry.get("t")), seconds(entry.get("api_time"))
    to_first = seconds(entry.get("ttft"))
    start = None if at is None or zero is None else zero + at
    kinds = items(entry.get("input_types"))
    chain.requests.append(
        Request(
            hashes=tuple(hashes[: prompt // BLOCK_TOKENS]),
            prompt=prompt,
            out=count(entry.get("out"), notes, None, f"{where}: out"),
            start=start,
            first=None if start is None or to_first is None else start + to_first,
            end=None if start is None or took is None else start + took,
            think=seconds(entry.get("think_time")),
            cause="human" if "text" in kinds and "tool_result" not in kinds else "tool",
            stop=text(entry.get("stop")) or None,
            model=text(entry.get("model")) or None,
        )
    )
