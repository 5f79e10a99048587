"""What a run writes: events at once, long texts a part at a time, descriptions whole."""

import json

import msgspec
import pytest

from windtunnel.agents.events import AgentProgress, Heartbeat, Progress, RunStart
from windtunnel.simulator.results.store import RunFolder, RunWriter, TextLine
from windtunnel.traces.errors import UsageError

NS = 1_000_000_000


def lines(path):
    return path.read_text().splitlines()


def test_events_are_numbered_from_one_and_reach_the_disk_with_the_next_flush(writer):
    seen = []
    writer.subscribe(seen.append)
    writer.emit(RunStart(t=0, agents=2, wall_clock=5.0))
    writer.emit(Heartbeat(t=NS))
    assert lines(writer.path / "events.jsonl") == []
    writer.flush()
    got = [json.loads(line) for line in lines(writer.path / "events.jsonl")]
    assert got == [
        {"type": "run_start", "t": 0, "seq": 1, "agents": 2, "wall_clock": 5.0},
        {"type": "heartbeat", "t": NS, "seq": 2},
    ]
    assert [(type(e).__name__, e.seq) for e in seen] == [("RunStart", 1), ("Heartbeat", 2)]


@pytest.mark.parametrize("said", ["", ',"t":5,', '"}', "\\u00e9\n \x00"])
def test_what_is_said_again_is_written_as_if_it_were_new(writer, said):
    """And numbered, and told to whoever listens; also where it was said by another in between."""
    heard = []
    writer.subscribe(heard.append)
    agents = (AgentProgress(0, 0, 3, "decode", 7, said), AgentProgress(1, 0, 0, "prefill", 0))
    fields = {"output_tokens": 7, "prompt_tokens": 9, "in_flight": 2, "in_tool": 0, "waiting": 0, "agents": agents}
    other = Progress(t=NS, **{**fields, "output_tokens": 8}, parsed=False)
    first = Progress(t=0, **fields)
    writer.emit(first)
    second = writer.again(first, 5)
    third = writer.again(second, 2 * NS)
    writer.emit(other)
    writer.again(other, 3 * NS)
    last = writer.again(third, 4 * NS)
    writer.flush()
    assert [type(event).__name__ for event in heard] == ["Progress"] * 6
    assert heard[-1] is last
    assert (last.t, last.seq, last.agents) == (4 * NS, 6, agents)
    assert lines(writer.path / "events.jsonl") == [msgspec.json.encode(event).decode() for event in heard]
    assert list(RunFolder(writer.path, {}).events()) == heard


@pytest.mark.parametrize("name", ["a" * 300, "file/run", "file"])
def test_a_folder_that_cannot_be_made_names_its_flag(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"^cannot create the run folder .* \(.*\): choose another --out$"):
        RunWriter.create(tmp_path / name, "abc", no_text=True)


def test_the_default_folder_has_the_time_and_the_run_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    writer = RunWriter.create(None, "abc", no_text=True, wall_clock=lambda: 0.0)
    writer.close()
    assert writer.path.parent.name == "runs"
    assert writer.path.name.endswith("-abc")
    assert len(writer.path.name) == len("19700101-000000-abc")
    assert not (writer.path / "text.jsonl").exists()


def test_a_folder_that_holds_a_run_is_refused(tmp_path, writer):
    with pytest.raises(UsageError, match="already holds a run"):
        RunWriter.create(writer.path, "x", no_text=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create the run folder"):
        RunWriter.create(tmp_path / "file", "x", no_text=True)
    (tmp_path / "empty").mkdir()
    RunWriter.create(tmp_path / "empty", "x", no_text=True).close()


def test_run_json_is_replaced_whole_and_knows_its_folder(writer):
    writer.write_run({"seed": 1})
    writer.write_run({"seed": 2})
    run = json.loads((writer.path / "run.json").read_text())
    assert run == {"schema": "windtunnel.run/1", "run_dir": str(writer.path), "seed": 2}
    assert sorted(p.name for p in writer.path.iterdir()) == ["events.jsonl", "run.json", "text.jsonl"]


def test_names_that_are_no_utf_8_can_be_written(writer):
    writer.write_run({"argv": ["a\udcffb", "\udcc3\udcbc"], "n": {"x": (1, None, 2.5)}})
    run = msgspec.json.decode((writer.path / "run.json").read_bytes())
    assert (run["argv"], run["n"]) == (["a\ufffdb", "\u00fc"], {"x": [1, None, 2.5]})


def test_text_lines(writer):
    writer.write_run({})
    line = TextLine("r1", 0, "s", 0, 3, text="ä", tool_calls=({"id": "a", "name": "Bash", "arguments": "{}"},))
    writer.text(line)
    writer.flush()
    assert list(RunFolder.open(writer.path).texts()) == [line]


@pytest.mark.parametrize("text", ['é🎈\n"\\', "x", '"'])
def test_a_long_text_is_encoded_by_the_flushes(writer, text):
    """Its parts join to the same line, and the lines after it wait for their turn."""
    writer.write_run({})
    lines = [
        TextLine(f"r{n}", 0, "s", 0, n, text=text * 300_000, reasoning="r", tool_calls=({"id": "a", "arguments": ""},))
        for n in range(2)
    ]
    lines.append(TextLine("last", 0, "s", 0, 3, text="short"))
    for line in lines:
        writer.text(line)
    assert not writer._text
    writer.flush()
    assert 0 < (writer.path / "text.jsonl").stat().st_size < 4_000_000
    writer.close()
    assert list(RunFolder.open(writer.path).texts()) == lines


@pytest.mark.parametrize("calls", [(), ("a",), ("a", 'b"' * 300_000, "c")])
@pytest.mark.parametrize("reasoning", [("",), ("r", "s\n", "t" * 300_000)])
@pytest.mark.parametrize("text", [("",), ("x",), ("é" * 300_000, "\\", "🎈")])
def test_long_texts_come_in_parts(writer, text, reasoning, calls):
    writer.write_run({})
    tools = tuple({"id": "i", "name": "n", "arguments": arguments} for arguments in calls)
    line = TextLine("r1", 0, "s", 0, 3, text=text[0], reasoning=reasoning[0], tool_calls=tools)
    writer.text(line, text[1:], reasoning[1:])
    writer.close()
    whole = msgspec.structs.replace(line, text="".join(text), reasoning="".join(reasoning))
    assert list(RunFolder.open(writer.path).texts()) == [whole]


def test_a_text_of_megabytes_is_written_a_part_at_a_time_and_whole_at_the_end(writer):
    writer.write_run({})
    lines = [TextLine(f"r{n}", 0, "s", 0, n, text="x" * 3_000_000) for n in range(2)]
    sizes = []
    for line in lines:
        writer.text(line)
        writer.flush()
        sizes.append((writer.path / "text.jsonl").stat().st_size)
    assert sizes == [1 << 19, 1 << 20]
    writer.close()
    assert list(RunFolder.open(writer.path).texts()) == lines


def test_closing_twice_is_fine(writer):
    writer.emit(Heartbeat(t=1))
    writer.close()
    writer.close()
    assert len(lines(writer.path / "events.jsonl")) == 1
