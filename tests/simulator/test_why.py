"""`windtunnel why` as a person runs it."""

import importlib.util
import json
from pathlib import Path

import msgspec
import pytest

from windtunnel.agents.events import CallEnd, CallStart, Phase, RunEnd, RunStart, SessionStart
from windtunnel.simulator.results.cost import traffic
from windtunnel.simulator.results.store import RunFolder, RunWriter
from windtunnel.simulator.results.summary import recompute
from windtunnel.simulator.results.text import render_summary
from windtunnel.simulator.results.why_text import Paper, one_break
from windtunnel.simulator.why import breaks_of, explain
from windtunnel.traces.breakers import find
from windtunnel.traces.errors import UsageError
from windtunnel.traces.format import fingerprint, write_trace

from .test_cli import one_sentence, windtunnel

_SPEC = importlib.util.spec_from_file_location("planted", Path(__file__).parents[1] / "traces" / "planted.py")
planted = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(planted)

S = 1_000_000_000


def dated(**more):
    text = planted.RULES + "\nToday's date is 2026-11-2{}.\n" + planted.RULES
    return planted.changed_system([text.format(8)], [text.format(9)], **more)


@pytest.fixture
def trace_file(tmp_path):
    write_trace(dated(), tmp_path / "dated.jsonl")
    return tmp_path / "dated.jsonl"


def said(capsys, *sources, width=80, limit=10, as_json=False):
    assert explain([str(s) for s in sources], limit=limit, width=width, as_json=as_json) == 0
    return capsys.readouterr().out


def test_a_trace(trace_file, capsys):
    out = said(capsys, trace_file)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    report = find(dated())
    assert f"1 call does not extend an earlier prompt: {report.lost_tokens} tokens" in " ".join(lines)
    assert "date in the prompt" in out
    assert "2026-11-28 became 2026-11-29" in out
    old = next(line for line in lines if line.startswith("  - "))
    new = next(line for line in lines if line.startswith("  + "))
    at = next(i for i, (a, b) in enumerate(zip(old[4:], new[4:], strict=True)) if a != b)
    assert (old[4:][at], new[4:][at]) == ("8", "9"), "the differing character is in view"
    assert old[4:][at - 9 : at + 1] == "2026-11-28"
    assert "--system-prompt-snapshot on" in out


@pytest.mark.parametrize("width", [60, 80, 160])
def test_lines_keep_to_the_width(trace_file, capsys, width):
    out = said(capsys, trace_file, width=width)
    assert [x for x in out.splitlines() if len(x) > width] == []


def test_a_trace_without_texts_says_so(tmp_path, capsys):
    write_trace(dated(shape_only=True), tmp_path / "shape.jsonl")
    out = said(capsys, tmp_path / "shape.jsonl")
    assert out.count("text never recorded") == 2
    assert "system prompt changed" in out


def test_a_session_that_only_extends(capsys):
    out = said(capsys, "library:fix-importer")
    assert "Every prompt extends an earlier one of its thread" in " ".join(out.split())
    assert "tokens lost" not in out


def test_json(trace_file, capsys):
    data = json.loads(said(capsys, trace_file, as_json=True))
    report = find(dated())
    assert data["total"]["lost_tokens"] == report.lost_tokens == data["culprits"][0]["lost_tokens"]
    assert data["culprits"][0]["culprit"] == "date"
    assert data["culprits"][0]["remedies"]["claude-code"]["source"]
    (found,) = data["sessions"][0]["breaks"]
    assert (found["call"], found["against"], found["place"]) == (2, 1, "system prompt")
    assert found["new"]["text"][found["new"]["at"]] == "9"


RECORDED = Path(__file__).parents[3] / "shared" / "traces" / "claude-code" / "entire-2.0.76-compact.jsonl"


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded session is not here")
def test_what_a_provider_let_go_and_what_rests_on_filler(capsys):
    out = said(capsys, RECORDED, width=100)
    text = " ".join(out.split())
    assert "1,357,913 of the prompt tokens (92.9%) are filler for what the log does not hold" in text
    assert "48,000 of 49,761 tokens before it (48,000 of them filler); 1,761 of those lost are filler" in text
    assert "The server's own cache: 3 calls found less than half of what an earlier prompt had put there" in text
    assert "461,727 tokens less in all: 3 after more than 5 min without use, as providers let a prefix go." in text
    assert out.splitlines()[-3:] == [
        "      154,796 of 154,796: call 5, unused for 22 min",
        "      153,871 of 153,871: call 3, unused for 10 min",
        "      153,060 of 153,060: call 2, unused for 8 min",
    ]
    assert max(map(len, out.splitlines())) <= 100
    data = json.loads(said(capsys, RECORDED, as_json=True))
    assert data["total"] | {"filler_tokens": 1_357_913, "let_go_calls": 3, "let_go_tokens": 461_727} == data["total"]
    assert [gone["call"] for gone in data["sessions"][0]["let_go"]] == [2, 3, 5]
    assert "more calls" not in said(capsys, RECORDED, limit=3)
    assert said(capsys, RECORDED, limit=1).rstrip().endswith("and 2 more calls (--limit)")


def test_nothing_is_said_of_filler_where_everything_was_recorded(trace_file, capsys):
    out = said(capsys, trace_file)
    assert "filler" not in out
    assert "own cache" not in out


def test_the_dearest_are_shown(tmp_path, capsys):
    write_trace(dated(), tmp_path / "one.jsonl")
    out = said(capsys, tmp_path, limit=0)
    assert "  - " not in out
    assert "1 not shown (--limit 1 shows all)" in out


def test_colour_marks_what_differs_and_nothing_else():
    found = find(dated()).breaks[0]
    lines = one_break(found, Paper(80, colour=True))
    assert "\x1b[7m8\x1b[0m" in lines[-2].replace("\x1b[31m", "")
    assert "\x1b[7m9\x1b[0m" in lines[-1].replace("\x1b[32m", "")


def test_wide_letters_and_control_signs_keep_to_the_width(tmp_path, capsys):
    old = "\u4f60\u597d" * 200 + "\x1b[31m one \n" + planted.RULES
    trace = planted.changed_system([old], [old.replace("one", "two")])
    write_trace(trace, tmp_path / "wide.jsonl")
    out = said(capsys, tmp_path / "wide.jsonl")
    assert "\x1b" not in out
    for line, word in zip((x for x in out.splitlines() if x[:4] in ("  - ", "  + ")), ("one", "two"), strict=True):
        assert sum(2 if ord(c) > 0x2E80 else 1 for c in line) <= 80
        assert word in line


@pytest.fixture
def run(tmp_path, trace_file):
    """A run of the dated trace on an engine with blocks of 16 tokens: the third call lost its beginning."""
    trace = dated()
    writer = RunWriter.create(tmp_path / "run", "r1", no_text=True)
    entry = {"id": "planted", "path": str(trace_file), "fingerprint": fingerprint(trace), "calls": 3}
    writer.write_run({"traces": [entry], "engine": {"block_size": 16, "kv_tokens": 700}})
    writer.emit(
        SessionStart(t=0, agent=0, session="s0", trace="planted", title="", copy=0, calls_total=3, turns_total=3)
    )
    tokens = trace.prompt_tokens()
    for call, (cached, expected) in enumerate(((0, 0), (160, tokens[0] // 16 * 16), (64, 64))):
        times = {"t_intended": call * 4 * S, "t_sent": call * 4 * S, "t_end": (call * 4 + 1) * S}
        writer.emit(
            CallEnd(
                t=times["t_end"],
                agent=0,
                session="s0",
                thread=0,
                call=call,
                request_id=f"c{call}",
                prompt_tokens=tokens[call],
                cached_tokens=cached,
                expected_cached_tokens=expected,
                **times,
            )
        )
    writer.close()
    return tmp_path / "run"


def test_a_run(run, capsys):
    out = said(capsys, run)
    tokens = dated().prompt_tokens()
    assert max(map(len, out.splitlines())) <= 80
    assert "blocks of 16 tokens" in " ".join(out.split())
    assert "evicted during gaps of 3.0 s" in " ".join(out.split())
    lost = tokens[1] // 16 * 16 - 64
    assert f"{lost:,} tokens lost" in out
    data = json.loads(said(capsys, run, as_json=True))
    assert data["match_unit"] == 16
    assert data["total"]["diverged"] == lost == data["culprits"][0]["lost_tokens"]
    assert data["total"]["missed"] == tokens[0] // 16 * 16 - 160
    assert sum(data["total"][k] for k in ("cached", "missed", "diverged", "fresh")) == data["total"]["prompt"]
    assert [c["cause"] for c in data["calls"]] == [None, "evicted", None]
    assert [(b["trace"], b["call"], b["culprit"]) for b in data["breaks"]] == [("planted", 2, "date")]


def test_a_run_on_the_emulator_says_so_first(run, capsys):
    assert "EMULATED" not in said(capsys, run)
    assert json.loads(said(capsys, run, as_json=True))["emulated"] is False
    about = json.loads((run / "run.json").read_text())
    about["engine"] |= {"emulated": True, "emulation": {"gpu": "H200 141GB", "error_bar": 0.2}}
    (run / "run.json").write_text(json.dumps(about))
    out = said(capsys, run)
    assert out.startswith("EMULATED, nothing of this is measured: H200 141GB;")
    assert "blocks of 16 tokens" in " ".join(out.split())
    assert json.loads(said(capsys, run, as_json=True))["emulated"] is True


def test_the_traces_of_a_run_are_read_together_and_one_that_is_gone_costs_itself_only(run, trace_file, capsys):
    """Of logs that share requests each counts once only where all are named, as the run did."""
    about = json.loads((run / "run.json").read_text())
    other = {**about["traces"][0], "id": "other", "path": str(trace_file.with_name("gone.jsonl"))}
    (run / "run.json").write_text(json.dumps({**about, "traces": [other, *about["traces"]]}))
    traces, notes = breaks_of(RunFolder.open(run))
    assert set(traces) == {("planted", 2)}
    assert [note.file for note in notes] == [other["path"]]


def test_a_run_whose_trace_is_gone_still_says_what_was_missed(run, trace_file, capsys):
    trace_file.unlink()
    assert explain([str(run)], limit=5, width=80, as_json=False) == 0
    out, talk = capsys.readouterr()
    assert "evicted during gaps" in out
    assert "cannot be read any more" in talk


def test_a_run_that_has_just_begun_and_an_engine_that_does_not_tell(tmp_path, capsys):
    writer = RunWriter.create(tmp_path / "run", "r1", no_text=True)
    writer.write_run({"engine": {}})
    writer.flush()
    assert "no call has completed" in said(capsys, tmp_path / "run")
    writer.emit(
        CallEnd(t=9, agent=0, session="s", thread=0, call=0, request_id="c", t_intended=1, t_sent=1, prompt_tokens=9)
    )
    writer.close()
    assert "--enable-prompt-tokens-details" in said(capsys, tmp_path / "run")


def test_wrong_use_is_one_sentence(run, trace_file, tmp_path):
    assert "does not exist" in one_sentence(windtunnel("why", str(tmp_path / "nothing")))
    assert "one run at a time" in one_sentence(windtunnel("why", str(run), str(trace_file)))


def test_a_recording_whose_only_call_broke_has_no_session_to_compare(tmp_path, capsys):
    """Nothing of it was kept: its folder of traces is there and empty."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "run.json").write_text('{"kind": "recording"}')
    where = {"agent": 0, "session": "a", "thread": 0, "call": 0, "request_id": "a-1"}
    broken = CallEnd(t=3 * S, t_intended=S, t_sent=S, t_first=2 * S, t_end=3 * S, failure="connection_closed", **where)
    events = [
        RunStart(t=0, agents=0, wall_clock=0.0),
        Phase(t=0, phase="steady"),
        CallStart(t=S, turn=1, turns=0, t_intended=S, expected_prompt_tokens=34, **where),
        broken,
        Phase(t=4 * S, phase="done"),
        RunEnd(t=4 * S, status="completed"),
    ]
    encode = msgspec.json.Encoder().encode
    (tmp_path / "events.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in events))
    summary = recompute(tmp_path)
    assert (summary.prompt_tokens, summary.prompt_tokens_per_s) == (None, None)
    text = render_summary(summary)
    assert "0 prompt" not in text
    assert "prompt not reported" in text
    assert said(capsys, tmp_path) == f"{tmp_path}: no call has completed.\n"
    assert explain([str(tmp_path)], limit=1, width=80, as_json=True) == 0
    told = capsys.readouterr()
    assert "no session of it was kept: prompts cannot be compared" in told.err
    assert msgspec.json.decode(told.out)["total"]["calls"] == 0
    breaks, notes = breaks_of(RunFolder.open(tmp_path))
    assert (breaks, [note.reason for note in notes]) == ({}, ["no session of it was kept: prompts cannot be compared"])
    with pytest.raises(UsageError, match="no token counts, so it has no price"):
        traffic(summary)
