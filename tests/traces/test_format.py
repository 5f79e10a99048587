import json
import time

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.check import faults
from windtunnel.traces.errors import TraceError
from windtunnel.traces.format import (
    TraceWriter,
    encode_trace,
    fingerprint,
    is_trace_file,
    lines_of,
    read_trace,
    write_trace,
)
from windtunnel.traces.model import Header


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_round_trip_is_equal_in_everything(small, tmp_path, suffix):
    assert faults(small) == []
    path = tmp_path / f"a{suffix}"
    write_trace(small, path)
    result = read_trace(path)
    assert result.problems == ()
    assert result.traces == (small,)
    assert is_trace_file(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_writer_appends_and_flushes_every_line(small, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    lines = list(lines_of(small))
    half = len(lines) // 2
    with TraceWriter(path) as writer:
        for line in lines[:half]:
            writer.write(line)
        unclosed = read_trace(path)
        assert unclosed.traces[0].header == small.header
        assert len(unclosed.traces[0].blocks) == sum(1 for line in lines[:half] if type(line).__name__ == "Block")
    with TraceWriter(path) as writer:
        for line in lines[half:]:
            writer.write(line)
    assert read_trace(path).traces == (small,)
    assert read_trace(path).problems == ()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_writing_goes_on_after_a_crash(small, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    with TraceWriter(path) as writer:
        for line in lines_of(small):
            writer.write(line)
    path.write_bytes(path.read_bytes()[:-9])
    again = replace(small, header=replace(small.header, id="s2"))
    with TraceWriter(path) as writer:
        for line in lines_of(again):
            writer.write(line)
    result = read_trace(path)
    assert [t.header.id for t in result.traces] == ["s1", "s2"]
    assert result.traces[1] == again
    assert result.problems


def test_several_traces_in_one_file(small, tmp_path):
    path = tmp_path / "two.jsonl"
    other = replace(small, header=replace(small.header, id="s2"))
    path.write_bytes(encode_trace(small) + encode_trace(other))
    assert read_trace(path).traces == (small, other)


def test_truncated_last_line_is_reported_and_the_rest_kept(small, tmp_path):
    path = tmp_path / "cut.jsonl"
    data = encode_trace(small)
    path.write_bytes(data[:-20])
    result = read_trace(path)
    assert len(result.problems) == 1
    assert str(result.problems[0]).startswith(f"{path}:{data.count(10)}: not JSON")
    assert result.traces[0].calls == small.calls


def _damaged(small, tmp_path, pick, new):
    lines = encode_trace(small).splitlines()
    at = next(i for i, line in enumerate(lines) if pick(json.loads(line)))
    lines[at] = new
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return at + 1, read_trace(path)


def test_broken_call_takes_what_builds_on_it_and_nothing_else(small, tmp_path):
    """Nothing proves what the lost call's prompt was, as its follower's prompt was not recorded."""
    last = replace(small.calls[3], usage=replace(small.calls[3].usage, prompt=None))
    trace = replace(small, calls=(*small.calls[:3], last))
    line, result = _damaged(trace, tmp_path, lambda o: o["type"] == "call" and o["id"] == 2, b'{"type":"call","id":2,')
    found = result.traces[0]
    assert [c.usage.prompt for c in found.calls] == [170, 40]
    assert faults(found) == []
    assert any(p.line == line and p.reason.startswith("not JSON") for p in result.problems)
    assert any("call 3 is dropped" in p.reason for p in result.problems)


def test_calls_after_a_lost_call_go_on_from_the_one_before(small, tmp_path):
    _, result = _damaged(small, tmp_path, lambda o: o["type"] == "call" and o["id"] == 2, b"\x00\x01")
    trace = result.traces[0]
    assert faults(trace) == []
    assert [c.usage.prompt for c in trace.calls] == [170, 40, 332]
    assert list(trace.prompts())[2][1] == list(small.prompts())[3][1]


def test_a_lost_block_is_replaced_by_what_the_sums_say(small, tmp_path):
    line, result = _damaged(small, tmp_path, lambda o: o["type"] == "block" and o["id"] == 9, b"\x00\xff\xfe junk \x80")
    trace = result.traces[0]
    assert faults(trace) == []
    assert [b.tokens for b in trace.blocks] == [b.tokens for b in small.blocks]
    assert trace.blocks[9].filler
    assert trace.calls == small.calls
    assert [p.line for p in result.problems] == [None, line]


def test_a_lost_message_is_replaced_by_what_the_sums_say(small, tmp_path):
    _, result = _damaged(small, tmp_path, lambda o: o["type"] == "message" and o["id"] == 3, b"[]")
    trace = result.traces[0]
    assert faults(trace) == []
    assert trace.calls == small.calls
    assert trace.message_tokens(3) == small.message_tokens(3) == 100


def test_a_lost_block_that_nothing_tells_costs_its_calls_and_the_rest_is_renumbered(small, tmp_path):
    """Without the sub-agent's recorded prompt, its lost system text cannot be inferred."""
    calls = (
        small.calls[0],
        replace(small.calls[1], usage=replace(small.calls[1].usage, prompt=None)),
        *small.calls[2:],
    )
    known = replace(small, calls=calls)
    line, result = _damaged(known, tmp_path, lambda o: o["type"] == "block" and o["id"] == 7, b"\x00\xff\xfe junk \x80")
    trace = result.traces[0]
    assert faults(trace) == []
    assert [c.usage.prompt for c in trace.calls] == [170, 307, 332]
    assert len(trace.threads) == 1
    assert trace.calls[1].joins == ()
    assert all(r.thread is None for r in trace.tool_runs)
    assert trace.prompt_tokens() == {0: 170, 1: 307, 2: 332}
    assert any(p.line == line for p in result.problems)
    assert any("thread 1 is dropped" in p.reason for p in result.problems)


@pytest.mark.parametrize("name", ["flaky-test", "memory-leak"])
def test_any_single_lost_line_leaves_a_sound_trace(name, tmp_path):
    whole = read_trace(library.path(name)).traces[0]
    lines = encode_trace(whole).splitlines()
    path = tmp_path / "x.jsonl"
    kept = []
    for at in range(1, len(lines), 7):
        path.write_bytes(b"\n".join([*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]]))
        result = read_trace(path)
        assert result.problems
        trace = result.traces[0]
        assert faults(trace) == []
        kept.append(len(trace.calls) / len(whole.calls))
    assert min(kept) > 0.7
    assert sum(kept) / len(kept) > 0.97


def test_lost_header_keeps_the_session(small, tmp_path):
    line, result = _damaged(small, tmp_path, lambda o: o["type"] == "trace", b"{{{")
    assert line == 1
    assert result.traces[0].header == Header("damaged")
    assert result.traces[0].calls == small.calls


def test_unknown_types_and_fields_are_skipped_silently(small, tmp_path):
    path = tmp_path / "newer.jsonl"
    lines = encode_trace(small).splitlines()
    lines[3] = lines[3][:-1] + b',"colour":"blue"}'
    lines.insert(2, b'{"type":"weather","sun":true}')
    path.write_bytes(b"\n".join(lines))
    result = read_trace(path)
    assert result.traces == (small,)
    assert result.problems == ()


def test_wrong_schema_is_said(small, tmp_path):
    path = tmp_path / "future.jsonl"
    write_trace(replace(small, header=replace(small.header, schema="windtunnel.trace/9")), path)
    result = read_trace(path)
    assert result.traces == ()
    assert [str(p) for p in result.problems] == [
        f"{path}:1: schema windtunnel.trace/9 is not windtunnel.trace/1; use a windtunnel that knows it"
    ]


@pytest.mark.parametrize("content", [b"", b"hello\nworld\n", b'{"role":"user"}\n', b"\x00\x01\x02" * 1000])
def test_what_is_no_trace_says_so_once(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    result = read_trace(path)
    assert result.traces == ()
    assert len(result.problems) == 1
    assert not is_trace_file(path)


def test_missing_file_is_an_error_with_its_name(tmp_path):
    with pytest.raises(TraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere.jsonl")


def test_truncated_zst_keeps_what_decodes(tmp_path):
    source = library.path("monorepo-upgrade")
    whole = read_trace(source).traces[0]
    data = source.read_bytes()
    path = tmp_path / "cut.jsonl.zst"
    path.write_bytes(
        zstandard.ZstdCompressor().compress(zstandard.ZstdDecompressor().decompress(data))[: len(data) // 2]
    )
    result = read_trace(path)
    trace = result.traces[0]
    assert 20 < len(trace.calls) < len(whole.calls)
    assert faults(trace) == []
    assert trace.header == whole.header
    assert any("breaks off" in p.reason for p in result.problems)


def test_flipped_bytes_in_zst_do_not_raise(tmp_path):
    data = bytearray(library.path("fix-importer").read_bytes())
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "flip.jsonl.zst"
    path.write_bytes(bytes(data))
    assert read_trace(path).problems


def test_fingerprint_is_of_the_content(small, tmp_path):
    moved = replace(small, header=replace(small.header, source="elsewhere"))
    changed = replace(small, calls=(replace(small.calls[0], stop="x"), *small.calls[1:]))
    assert fingerprint(small) == fingerprint(moved)
    assert len(fingerprint(small)) == 16
    assert fingerprint(small) != fingerprint(changed)


def test_a_large_session_reads_in_well_under_a_second(tmp_path):
    path = library.path("monorepo-upgrade")
    start = time.perf_counter()
    trace = read_trace(path).traces[0]
    took = time.perf_counter() - start
    assert len(trace.calls_of(0)) > 300
    assert took < 0.5


def test_file_grows_with_the_text_and_not_with_its_square():
    trace = read_trace(library.path("monorepo-upgrade")).traces[0]
    lines = len(encode_trace(trace).splitlines())
    parts = len(trace.blocks) + len(trace.messages) + len(trace.calls) + len(trace.waits) + len(trace.tool_runs)
    assert lines == parts + len(trace.threads) + len(trace.toolsets) + 1
    assert sum(len(msgspec.json.encode(c)) for c in trace.calls) < 400 * len(trace.calls)


def test_times_that_cannot_be_are_unknown(tmp_path, small):
    """A clock that was set back costs the times, not the call."""
    bad = replace(small.calls[1], start_s=3600.0, first_s=None, end_s=5.0)
    path = tmp_path / "t.jsonl"
    path.write_bytes(encode_trace(replace(small, calls=(small.calls[0], bad, *small.calls[2:]))))
    found = read_trace(path)
    (trace,) = found.traces
    assert len(trace.calls) == len(small.calls)
    assert (trace.calls[1].start_s, trace.calls[1].end_s) == (None, None)
    (problem,) = found.problems
    assert problem.line == 1 + path.read_text().splitlines().index(
        next(line for line in path.read_text().splitlines() if '"start_s":3600' in line)
    )
    assert problem.reason.endswith("before its start at 3600 s: its times are taken as unknown")


def test_what_is_no_line_by_itself_is_told_though_json_goes_on_over_it(tmp_path):
    """A whole file is decoded at once where each of its lines is an object; JSON alone does not see to that."""
    path = tmp_path / "t.jsonl"
    header = b'{"type":"trace","schema":"windtunnel.trace/1","id":"t"}\n'
    block = b'{"type":"block","id":%d,"kind":"code","tokens":5,"digest":"%032x"}\n'
    whole = header + block % (0, 0) + block % (1, 1)
    path.write_bytes(whole)
    assert [len(t.blocks) for t in read_trace(path).traces] == [2]
    assert not read_trace(path).problems
    for damaged, line in (
        (header + (block % (0, 0)).strip() + b" " + block % (1, 1), 2),
        (whole.replace(b'"id":1,', b'"id":1,\n'), 3),
        (whole.replace(b'"id":1,', b'"id":1\n,') + (block % (2, 2)).strip() + block % (3, 3), 3),
        (whole[:-2] + b"\xff}\n", 3),
    ):
        path.write_bytes(damaged)
        assert line in [problem.line for problem in read_trace(path).problems], damaged
    path.write_bytes(whole[:-1])
    assert [len(t.blocks) for t in read_trace(path).traces] == [2]
