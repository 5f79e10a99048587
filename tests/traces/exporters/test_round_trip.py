"""What is exported and imported again says the same, as far as the format can say it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from windtunnel.traces.check import faults
from windtunnel.traces.errors import UsageError
from windtunnel.traces.exporters import EXPORTERS, export
from windtunnel.traces.exporters.blocks import BlockIds, parts, prompts
from windtunnel.traces.importers import import_path
from windtunnel.traces.model import Block, Call, Header, Message, Thread, Trace, Usage, Wait
from windtunnel.traces.sources import load
from windtunnel.traces.text import regenerate, stored

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"


def again(traces: Sequence[Trace], name: str, tmp_path: Path) -> list[Trace]:
    """The traces after a way through a format's files."""
    exporter = EXPORTERS[name]
    out: list[Trace] = []
    for number, data in enumerate(export(traces, name).files):
        path = tmp_path / f"{number}{exporter.suffix}"
        path.write_bytes(data)
        result = import_path(path, name)
        assert result.problems == ()
        out += result.traces
    assert [f for t in out for f in faults(t)] == []
    return out


def figures(trace: Trace) -> list[tuple[int, int, int | None, float | None]]:
    sums = trace.prompt_tokens()
    return [(c.thread, sums[c.id], c.usage.completion or None, c.start_s) for c in trace.calls]


def shared(traces: Sequence[Trace], block: int, *, partial: bool = False) -> list[int]:
    """Leading blocks of every prompt that an earlier prompt had too, in order of the prompts."""
    ids = BlockIds(block)
    seen: set[int] = set()
    out = []
    for trace in traces:
        for prompt in prompts(trace, ids):
            whole = prompt.ids if partial else prompt.ids[: prompt.tokens // block]
            out.append(sum(1 for i in whole if i in seen))
            seen.update(whole)
    return out


@pytest.fixture(scope="module")
def library() -> tuple[Trace, ...]:
    return load(["library:small"]).traces


@pytest.mark.parametrize("title", ["fix-importer", "monorepo-upgrade", "release-train"])
def test_weka_says_it_all(title: str, tmp_path: Path) -> None:
    (trace,) = load([f"library:{title}"]).traces
    (back,) = again([trace], "weka", tmp_path)
    assert figures(back) == figures(trace)
    assert shared([back], 64) == shared([trace], 64)
    assert [c.end_s for c in back.calls] == pytest.approx([c.end_s for c in trace.calls])
    assert [t.parent for t in back.threads] == [t.parent for t in trace.threads]


def test_several_weka_files_share_what_the_traces_share(library: tuple[Trace, ...], tmp_path: Path) -> None:
    back = again(library, "weka", tmp_path)
    assert [figures(t) for t in back] == [figures(t) for t in library]
    assert shared(back, 64) == shared(library, 64)
    assert sum(shared(library, 64)) > sum(sum(shared([t], 64)) for t in library)
    first = json.loads((tmp_path / "0.json").read_text())
    (alone,) = export(library[:1], "weka").files
    assert (first["hash_id_scope"], json.loads(alone)["hash_id_scope"]) == ("global", "local")
    assert max(first["requests"][0]["hash_ids"]) < 2**53


def test_mooncake_keeps_requests_times_and_prefixes(library: tuple[Trace, ...], tmp_path: Path) -> None:
    back = again(library, "mooncake", tmp_path)
    assert len(back) == sum(len(t.calls) for t in library)
    sizes = sorted((size, out) for t in library for _, size, out, _ in figures(t))
    assert sorted((size, out) for t in back for _, size, out, _ in figures(t)) == sizes
    assert [t.calls[0].start_s for t in back] == sorted(t.calls[0].start_s or 0 for t in back)
    assert sum(shared(back, 512)) == sum(shared(library, 512))


def test_dynamo_keeps_sessions_too(library: tuple[Trace, ...], tmp_path: Path) -> None:
    back = again(library, "mooncake-dynamo", tmp_path)
    flat = [t for t in library for _ in t.threads]
    assert len(back) == len(flat)
    expected = [
        [(size, out) for number, size, out, _ in figures(t) if number == thread.id]
        for t in library
        for thread in t.threads
    ]
    assert [[(size, out) for _, size, out, _ in figures(t)] for t in back] == expected
    assert sum(shared(back, 512)) == sum(shared([_only(t, n.id) for t in library for n in t.threads], 512))


def _only(trace: Trace, thread: int) -> Trace:
    """The calls of one thread as a trace that `prompts` can read."""
    calls = trace.calls_of(thread)
    number = {c.id: i for i, c in enumerate(calls)}
    streams = {c.id: tuple(m) for c, m in trace.prompts()}
    whole = tuple(Call(id=number[c.id], thread=0, append=streams[c.id], tools=c.tools) for c in calls)
    return Trace(trace.header, trace.blocks, trace.messages, trace.toolsets, (Thread(id=0),), whole)


def test_aiperf_keeps_prompts_where_they_grow(library: tuple[Trace, ...], tmp_path: Path) -> None:
    problems = export(library, "mooncake-aiperf").problems
    back = again(library, "mooncake-aiperf", tmp_path)
    anew = sum("a new session begins" in p.reason for p in problems)
    assert len(back) == sum(len(t.threads) for t in library) + anew
    told = {(p.file, p.line): int(p.reason.split()[3]) for p in problems if "tokens longer here" in p.reason}
    sums = {t.header.id: t.prompt_tokens() for t in library}
    expected = [
        (sums[t.header.id][c.id] + told.get((t.header.id, c.id), 0), c.usage.completion)
        for t in library
        for thread in t.threads
        for c in t.calls_of(thread.id)
    ]
    assert [(size, out) for t in back for _, size, out, _ in figures(t)] == expected
    assert 0 < sum(told.values()) < 0.02 * sum(size for size, _ in expected)
    assert all(c.keep == 2 * c.id - 1 for t in back for c in t.calls if c.id)


def test_aiperf_conversations_hold_turns_outputs_and_pauses(library: tuple[Trace, ...], tmp_path: Path) -> None:
    back = again(library, "aiperf-multi-turn", tmp_path)
    calls = [c for t in library for thread in t.threads for c in t.calls_of(thread.id)]
    copies = [c for t in back for c in t.calls]
    assert [c.usage.completion for c in copies] == [c.usage.completion for c in calls]
    whole = 0
    for t in library:
        same = next(b for b in back if b.header.id == t.header.id)
        # the estimates of an import take a mixed text for one kind: compare the text that was made for the counts
        first = t.calls_of(0)[0]
        stream = parts(t, first.tools, {c.id: ids for c, ids in t.prompts()}[first.id])
        kinds = {b.digest: b.kind for b in t.blocks}
        made_for = "".join(regenerate(digest, kinds[digest], size, stored()) for digest, _, size in stream)
        words = (same.blocks[i].text or "" for m in same.calls[0].append for i in same.messages[m].blocks)
        assert "".join(words) == made_for
        if len(same.calls) == len(t.calls):
            whole += 1
            paused = [sum(w.seconds or 0 for w in t.waits if w.before == c.id) for c in t.calls[1:]]
            assert [w.seconds for w in same.waits] == pytest.approx(paused, abs=0.001)
    assert whole
    fronts: dict[str, set[str]] = {}
    for t in library:
        same = next(b for b in back if b.header.id == t.header.id)
        front = same.blocks[same.messages[same.calls[0].append[0]].blocks[0]].text or ""
        first_block = next(parts(t, t.calls[0].tools, t.calls[0].append))[0]
        fronts.setdefault(first_block, set()).add(front[:2_000])
    assert len(fronts) < len(library)
    assert all(len(beginnings) == 1 for beginnings in fronts.values())
    assert not any(b.text for t in library for b in t.blocks)


def made() -> Trace:
    """Two calls of 100 and 190 tokens, the second with 30 tokens of output and 60 new ones, after 2 s of a tool."""
    sizes = (100, 30, 60, 7)
    return Trace(
        header=Header(id="made", agent="test"),
        blocks=tuple(Block(i, f"d{i}", "prose", n) for i, n in enumerate(sizes)),
        messages=(
            Message(0, "user", (0,)),
            Message(1, "assistant", (1,)),
            Message(2, "user", (2,)),
            Message(3, "assistant", (3,)),
        ),
        threads=(Thread(id=0),),
        calls=(
            Call(0, 0, (0,), output=1, usage=Usage(100, None, 30), start_s=0.5, end_s=1.5, stop="tool_use", model="m"),
            Call(1, 0, (1, 2), 0, 1, output=3, usage=Usage(190, None, 7), start_s=3.5, end_s=4.0, model="m"),
        ),
        waits=(Wait(1, "tool", 2.0, ("Bash",)),),
    )


def test_what_stands_in_a_weka_file() -> None:
    (data,) = export([made()], "weka").files
    value = json.loads(data)
    assert [(r["in"], r["out"], r["hash_ids"], r["t"], r["api_time"]) for r in value["requests"]] == [
        (100, 30, [1], 0.5, 1.0),
        (190, 7, [1, 3], 3.5, 0.5),
    ]
    assert value["requests"][1]["think_time"] == 2.0
    assert value["requests"][1]["input_types"] == ["tool_result"]


def test_what_stands_in_the_mooncake_rows() -> None:
    named = [n for n in EXPORTERS if n.startswith("mooncake")]
    rows = {name: [json.loads(r) for r in export([made()], name).files[0].splitlines()] for name in named}
    assert rows["mooncake"] == [
        {"timestamp": 500.0, "input_length": 100, "output_length": 30, "hash_ids": [0]},
        {"timestamp": 3500.0, "input_length": 190, "output_length": 7, "hash_ids": [1]},
    ]
    assert rows["mooncake-dynamo"][1] == {
        "session_id": "made",
        "delay": 2000.0,
        "input_length": 190,
        "output_length": 7,
        "hash_ids": [1],
    }
    assert (rows["mooncake-aiperf"][1]["input_length"], rows["mooncake-aiperf"][1]["delay"]) == (60, 2000.0)


def test_what_a_format_cannot_say_is_said() -> None:
    trace = made()
    cut = Call(1, 0, (2,), 0, 0, output=3, usage=Usage(60, None, 7), start_s=3.5)
    short = replace(trace, calls=(trace.calls[0], cut), waits=())
    problems = export([short], "mooncake-aiperf").problems
    assert [str(p) for p in problems] == ["made:1: the prompt does not extend the one before it: a new session begins"]
    with pytest.raises(UsageError, match="no export format 'csv': use one of weka, mooncake, mooncake-dynamo"):
        export([trace], "csv")


def test_recorded_weka_traces_come_back_as_they_were(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    source = SHARED / "weka-kv-cache-tester" / "trace_0277.json"
    (trace,) = import_path(source).traces
    (back,) = again([trace], "weka", tmp_path)
    raw, mine = json.loads(source.read_text()), json.loads((tmp_path / "0.json").read_text())
    rows = [[r for r in v["requests"] if "hash_ids" in r] for v in (raw, mine)]
    for key in ("t", "in", "out", "api_time", "think_time", "stop", "model"):
        assert [r.get(key) for r in rows[1]] == [r.get(key) for r in rows[0]], key
    for at in range(1, len(rows[0])):
        assert _same(rows[1][at - 1]["hash_ids"], rows[1][at]["hash_ids"]) == _same(
            rows[0][at - 1]["hash_ids"], rows[0][at]["hash_ids"]
        )
    assert sorted(figures(back)) == sorted(figures(trace))  # two sub-agents begin in the same millisecond


def _same(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
