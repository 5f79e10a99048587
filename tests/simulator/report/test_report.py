"""Pages and tables of a run and of experiments, made from virtual runs."""

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from windtunnel.agents.events import CallEnd, EngineSample
from windtunnel.simulator.cli_options import config_of
from windtunnel.simulator.cli_report import report
from windtunnel.simulator.experiments.metrics import parse
from windtunnel.simulator.experiments.outcome import assess
from windtunnel.simulator.experiments.runs import read
from windtunnel.simulator.experiments.step_runs import StepRuns
from windtunnel.simulator.experiments.table import markdown, render
from windtunnel.simulator.report import charts, page, svg
from windtunnel.simulator.report import gather as gathering
from windtunnel.simulator.report.gather import COLUMNS, _usage, gather
from windtunnel.simulator.report.write import COLUMNS as CALL_COLUMNS
from windtunnel.simulator.report.write import write_calls, write_page
from windtunnel.simulator.results.calls import NS
from windtunnel.simulator.results.store import RunFolder
from windtunnel.simulator.run.virtual import virtual_run
from windtunnel.traces.errors import UsageError
from windtunnel.traces.sources import load

VOID = {"meta", "br", "wbr", "path", "rect", "circle"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    config = config_of(["library:small", "--agents", "3", "--duration", "30", "--max-context", "8k", "--fit", "scale"])
    loaded = load(config.traces)
    made = {}
    for name, gpu in (("small", "L40S"), ("large", "B200")):
        engine = f"emulator --gpu {gpu} --model qwen3-30b-a3b --quantization fp8 --max-model-len 8192"
        virtual_run(msgspec.structs.replace(config, engine=engine), loaded, folder / name)
        made[name] = folder / name
    return made


class Strict(HTMLParser):
    """Every element is closed, and nothing is fetched from anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            assert name not in ("src", "href", "xlink:href", "onclick"), (tag, name)
            assert "http" not in (value or "") or name == "viewBox", (tag, name, value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def checked(html: str) -> str:
    """The page's words, once it was found whole and alone."""
    parser = Strict()
    parser.feed(html)
    assert parser.open == []
    for pair in re.findall(r'd="([^"]*)"', html):
        assert "nan" not in pair
        assert "inf" not in pair
    return " ".join(" ".join(parser.words).split())


def test_a_runs_page_says_what_its_summary_says(runs, tmp_path):
    target = write_page([runs["large"]], tmp_path / "p.html")
    words = checked(target.read_text())
    summary = json.loads((runs["large"] / "summary.json").read_text())
    assert "emulated" in words
    assert "uncalibrated, times +-20%" in words
    assert f"{summary['output_tokens']:,}" in words
    assert f"{summary['output_tokens_per_s']:,.0f}" in words or f"{summary['output_tokens_per_s']:,.2f}" in words
    assert f"{summary['cache_hit_ratio']:.1%}" in words
    late = summary["e2e_s"]
    assert f"p90 {late['p90']:,.2f} s, p95 {late['p95']:,.2f} s, p99 {late['p99']:,.2f} s, max" in words
    run = json.loads((runs["large"] / "run.json").read_text())
    for trace in run["traces"]:
        assert trace["fingerprint"] in words
    assert "cache_config.block_size = 16" in words


def test_damaged_events_are_said_with_their_number_and_place(runs, tmp_path):
    shutil.copytree(runs["small"], tmp_path / "run")
    lines = (tmp_path / "run" / "events.jsonl").read_bytes().split(b"\n")
    ends = [number for number, line in enumerate(lines) if b'"call_end"' in line][:4]
    for number in ends:
        lines[number] = lines[number][:40]
    (tmp_path / "run" / "events.jsonl").write_bytes(b"\n".join(lines))
    places = ", ".join(f"line {number + 1}" for number in ends[:3])
    said = f"4 lines of events.jsonl could not be read ({places}, ...; not a readable event:"
    assert said in checked(write_page([tmp_path / "run"], tmp_path / "p.html").read_text())
    assert said in write_calls([tmp_path / "run"], tmp_path / "c.csv")
    whole = read(runs["large"])
    steps = [
        StepRuns(name="whole", runs=dict.fromkeys(range(3), whole)),
        StepRuns(name="hurt", runs={0: read(tmp_path / "run")}, previous=0),
    ]
    outcome = assess(steps, [parse("output_tokens_per_s")], name="x")
    assert said in " ".join(outcome.steps[1].notes)
    assert outcome.steps[0].notes == ()
    assert "could not be read" not in checked(write_page([runs["small"]], tmp_path / "p.html").read_text())


def test_several_runs_are_no_page(runs, tmp_path):
    with pytest.raises(UsageError, match="is a run: report takes one run, or experiments"):
        write_page([runs["large"], runs["small"]], tmp_path / "p.html")


def test_what_is_drawn_adds_up_to_what_was_measured(runs):
    run = gather(runs["small"])
    step = run.length_s / len(run.tokens_per_s)
    assert sum(rate * step for _, rate in run.tokens_per_s) == pytest.approx(run.summary.output_tokens, rel=1e-6)
    assert [agent for agent, _ in run.lanes] == [0, 1, 2]
    for _, spans in run.lanes:
        assert sum(columns for _, columns, _ in spans) <= COLUMNS
        assert {state for _, _, state in spans} >= {"prefill", "decode"}
        ends = [first + columns for first, columns, _ in spans]
        assert all(first >= end for end, (first, _, _) in zip(ends, spans[1:], strict=False))
    assert max(value for _, value in run.working_set) <= 3 * 8192
    assert run.working_set[-1][1] == 0
    assert max(value for _, value in run.kv if value is not None) <= run.kv_tokens


def test_a_call_in_the_engines_queue_is_drawn_as_that_and_not_as_waiting(tmp_path):
    args = ["library:small", "--agents", "3", "--duration", "30", "--max-context", "8k", "--fit", "scale"]
    config = config_of(args)
    engine = "emulator --gpu L40S --model qwen3-30b-a3b --quantization fp8 --max-model-len 8192 --max-num-seqs 1"
    virtual_run(msgspec.structs.replace(config, engine=engine), load(config.traces), tmp_path / "run")
    run = gather(tmp_path / "run")
    states = {
        (agent, column): state
        for agent, spans in run.lanes
        for first, columns, state in spans
        for column in range(first, first + columns)
    }
    queued = [
        call
        for call in RunFolder.open(tmp_path / "run").events()
        if isinstance(call, CallEnd) and (call.queued_s or 0) > 3 * run.lanes_step_s
    ]
    assert len(queued) > 10
    seen = [states.get((call.agent, int((call.t_sent / NS + call.queued_s / 2) / run.lanes_step_s))) for call in queued]
    assert "waiting" not in seen
    # Another of the agent's threads may be served at the time.
    assert seen.count("queue") > 0.8 * len(seen)
    html = write_page([tmp_path / "run"], tmp_path / "p.html").read_text()
    words = checked(html)
    assert (
        "held back, on the way to the engine's queue, or in it prefill: until the first token waiting for the first token: queue"
        in words
    )
    assert '<path class="lane queue"' in html
    assert ".lane.queue { fill: var(--queue); }" in html


def test_latencies_that_leave_out_long_calls_are_told_so_under_their_chart(runs):
    run = gather(runs["small"])
    summary = msgspec.structs.replace(run.summary, calls_begun=42, calls_unended=16)
    words = checked(charts.latencies(msgspec.structs.replace(run, summary=summary)))
    assert "16 of the 42 calls begun in the window had not ended when the run did" in words
    summary = msgspec.structs.replace(run.summary, calls_begun=420, calls_unended=16)
    assert "had not ended" not in checked(charts.latencies(msgspec.structs.replace(run, summary=summary)))


def test_calls_cut_before_their_first_token_are_drawn_as_waiting_for_it_and_named(tmp_path):
    """`queued_s` comes with a call's end: of a call that was cut nobody knows whether it was queued or prefilled."""
    args = ["library:small", "--agents", "3", "--duration", "30", "--max-context", "8k", "--fit", "scale"]
    engine = "emulator --gpu L40S --model qwen3-30b-a3b --quantization fp8 --max-model-len 8192 --max-num-seqs 1"
    config = config_of(args)
    virtual_run(msgspec.structs.replace(config, engine=engine), load(config.traces), tmp_path / "run")
    run = gather(tmp_path / "run")
    ends = [event for event in RunFolder.open(tmp_path / "run").events() if isinstance(event, CallEnd)]
    cut = [
        call for call in ends if call.cut and call.t_first is None and call.t - call.t_sent > 3 * run.lanes_step_s * NS
    ]
    assert cut
    step = run.lanes_step_s
    lanes = {agent: {first + i: state for first, n, state in spans for i in range(n)} for agent, spans in run.lanes}
    assert {lanes[call.agent].get(int((call.t_sent + call.t) / 2 / NS / step)) for call in cut} <= {"first", "decode"}
    told = [call for call in ends if call.queued_s is not None and call.t_first - call.t_sent > 3 * step * NS]
    assert len(told) > 10
    assert "first" not in {lanes[call.agent].get(int((call.t_sent + call.t_first) / 2 / NS / step)) for call in told}
    html = write_page([tmp_path / "run"], tmp_path / "p.html").read_text()
    assert '<path class="lane first"' in html
    assert ".lane.first {" in html


def test_a_server_that_does_not_tell_its_queue_has_neither_queue_nor_prefill(runs):
    run = gather(runs["small"])
    lane = (0, [(0, 1, "first"), (1, 1, "decode")])
    words = checked(charts.lane_legend(msgspec.structs.replace(run, lanes=[lane])))
    assert words.startswith("held back by the client waiting for the first token: queue or prefill, which is not told")


def test_a_long_runs_page_leaves_out_what_it_does_not_draw_and_draws_the_same(runs, monkeypatch):
    whole = gather(runs["small"])
    monkeypatch.setattr(gathering, "LONG_BYTES", 0)
    short = gather(runs["small"])
    assert short.lanes == whole.lanes
    assert short.working_set == whole.working_set
    step = whole.length_s / len(whole.tokens_per_s)
    drawn = sum(rate * step for _, rate in short.tokens_per_s)
    assert drawn == pytest.approx(whole.summary.output_tokens, rel=1e-6)
    for a, b in zip(short.tokens_per_s, whole.tokens_per_s, strict=True):
        assert a[0] == b[0]
    halves = [[sum(rate for _, rate in run.tokens_per_s[i::1][:120]) for run in (short, whole)] for i in (0, 120)]
    for mine, theirs in halves:
        assert mine == pytest.approx(theirs, rel=0.03)
    for name, values in whole.latencies.items():
        assert short.latencies[name] == pytest.approx(values, rel=0.1)


def test_two_experiments_side_by_side_mark_the_steps_that_turn_round(runs, tmp_path):
    small, large = read(runs["small"]), read(runs["large"])
    metrics = [parse("output_tokens_per_s"), parse("tpot_s.p50")]
    outcomes = []
    for name, (a, b) in {"one": (small, large), "other": (large, small)}.items():
        steps = [
            StepRuns(name="base", runs=dict.fromkeys(range(3), a)),
            StepRuns(name="more", runs=dict.fromkeys(range(3), b), previous=0, changes=("--gpu <other>",)),
        ]
        outcomes.append(assess(steps, metrics, name=name))
    assert page.flips(outcomes, "output_tokens_per_s") == ["more"]
    assert page.flips(outcomes[:1], "output_tokens_per_s") == []
    about = {str(run.path): run.run for run in (small, large)}
    html = page.of_experiments(outcomes, about)
    words = checked(html)
    assert "--gpu <other>" in words
    assert "uncalibrated, times +-20%" in words
    assert "1 of the steps has another verdict beside" in words
    assert "What the emulated figures rest on" in words
    assert "cpu_step_ms" in words
    assert html.count('class="flip"') == 2


def test_a_flag_is_never_broken_and_json_only_after_its_commas(runs):
    small = read(runs["small"])
    change = """--speculative-config '{"method":"mtp","num_speculative_tokens":3}'"""
    steps = [
        StepRuns(name="base", runs=dict.fromkeys(range(3), small)),
        StepRuns(name="more", runs=dict.fromkeys(range(3), small), previous=0, changes=(change, "/a" * 40)),
    ]
    html = page.of_experiments([assess(steps, [parse("output_tokens_per_s")], name="one")], {})
    checked(html)
    assert '<span class="word">--speculative-config</span> ' in html
    assert '&quot;mtp&quot;,</span><wbr><span class="word">&quot;num_speculative_tokens' in html
    assert f"<code>{'/a' * 40}</code>" in html
    assert '<td data-label="output_tokens_per_s">' in html


def test_calls_as_csv_and_json(runs, tmp_path):
    summary = json.loads((runs["small"] / "summary.json").read_text())
    said = write_calls([runs["small"]], tmp_path / "c.csv")
    assert f"{summary['calls']} calls of 1 run" in said
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["calls"]
    assert list(rows[0]) == ["run", *CALL_COLUMNS]
    assert sum(int(row["completion_tokens"] or 0) for row in rows if row["cut"] == "False") <= summary["output_tokens"]
    write_calls([runs["small"]], tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text())
    assert [row["request_id"] for row in data] == [row["request_id"] for row in rows]
    assert data[0]["ttft_s"] == pytest.approx(data[0]["t_first_s"] - data[0]["t_intended_s"])


def test_calls_and_the_page_are_both_written_where_both_are_asked_for(runs, tmp_path):
    words = [str(runs["small"]), "--calls", str(tmp_path / "c.csv")]
    ran = CliRunner().invoke(report, [*words, "-o", str(tmp_path / "page.html")])
    assert (ran.exit_code, ran.exception) == (0, None)
    assert "calls of 1 run" in ran.stdout
    assert str(tmp_path / "page.html") in ran.stdout
    assert (tmp_path / "c.csv").stat().st_size
    assert "<html" in (tmp_path / "page.html").read_text()
    ran = CliRunner().invoke(report, words)
    assert ran.stdout.count("\n") == 1
    assert not (runs["small"] / "report.html").exists()


def test_calls_as_parquet(runs, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    write_calls([runs["small"]], tmp_path / "c.parquet")
    assert parquet.read_table(tmp_path / "c.parquet").num_rows == sum(
        1 for _ in (runs["small"] / "events.jsonl").open() if '"call_end"' in _
    )


@pytest.mark.parametrize("name", ["c.xlsx", "c"])
def test_a_format_that_is_none_is_refused(runs, tmp_path, name):
    with pytest.raises(UsageError, match="its ending says the format"):
        write_calls([runs["small"]], tmp_path / name)


@pytest.mark.parametrize("name", ["x" * 300, "missing/x", "file/x"])
def test_a_place_that_cannot_be_used_is_a_mistake_in_the_command(runs, tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written .*; give --out another file"):
        write_page([runs["small"]], tmp_path / f"{name}.html")
    for ending in ("csv", "json"):
        with pytest.raises(UsageError, match=r"cannot be written .*; give --calls another file"):
            write_calls([runs["small"]], tmp_path / f"{name}.{ending}")


def test_a_folder_of_nothing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="neither a run nor an experiment"):
        write_page([tmp_path], None)


def test_ticks_are_round():
    assert svg.nice_ticks(0, 10, 6) == [0, 2, 4, 6, 8, 10]
    assert svg.nice_ticks(0, 437, 6) == [0, 100, 200, 300, 400]
    assert svg.nice_ticks(3, 3, 5) == [3]
    assert [svg.short(v) for v in (0.02, 1500, 2e6, 12)] == ["0.02", "1.5k", "2M", "12"]


def test_an_experiment_can_be_moved_and_told_of_from_anywhere(runs, tmp_path, monkeypatch):
    for block in range(3):
        for name in ("small", "large"):
            shutil.copytree(runs[name], tmp_path / "e" / f"block-{block + 1:02}" / name)
    monkeypatch.chdir(tmp_path)
    steps = [
        StepRuns(name=name, runs={b: read(Path(f"e/block-{b + 1:02}/{name}")) for b in range(3)})
        for name in ("small", "large")
    ]
    outcome = assess(steps, [parse("output_tokens_per_s")], name="x", experiment_dir="e")
    (tmp_path / "e" / "outcome.json").write_bytes(msgspec.json.encode(outcome))
    (tmp_path / "e").rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    assert "cache_config.block_size = 16" in checked(write_page([tmp_path / "moved"], None).read_text())


def test_a_step_that_failed_later_keeps_its_runs_and_experiments_need_not_share_metrics(runs):
    small, large = read(runs["small"]), read(runs["large"])
    steps = [
        StepRuns(name="base", runs=dict.fromkeys(range(3), small)),
        StepRuns(name="more", runs=dict.fromkeys(range(2), large), previous=0, failed="no <memory>"),
        StepRuns(name="most", runs={}, previous=0, failed="no <room>"),
        StepRuns(name="later", runs={}, previous=0),
    ]
    one = assess(steps, [parse("output_tokens_per_s")], name="one")
    other = assess(steps, [parse("tpot_s.p50")], name="other")
    words = checked(page.of_experiments([one, other], {}))
    assert "did not start again: no <memory>" in words
    assert "did not start: no <room>" in words
    assert "not run yet" in words
    for text in (render(one), markdown(one)):
        assert "did not start again: no <memory>" in text
        assert "not run yet" in text
        assert f"{large.summary.output_tokens_per_s:,.0f}" in text


def test_a_page_stays_small_however_many_scrapes_there_are(runs):
    run = gather(runs["small"])
    samples = [EngineSample(t=i * NS, scrape_ms=1.0, kv_usage=(i % 100) / 100) for i in range(50_000)]
    drawn = _usage(samples, 1000)
    assert len(drawn) <= COLUMNS
    assert max(value for _, value in drawn) == 990
    assert _usage(samples[:5], 1000) == [(float(i), 10.0 * i) for i in range(5)]
    assert _usage(samples, None) == []
    assert len(page.of_run(msgspec.structs.replace(run, kv=drawn))) < 300_000


def test_one_is_one(runs):
    run = gather(runs["small"])
    alone = msgspec.structs.replace(run, summary=msgspec.structs.replace(run.summary, agents=1), lanes_left_out=1)
    words = checked(page.of_run(alone))
    assert "1 agent on windtunnel-emulator" in words
    assert "1 more agent is not drawn." in words
    assert "3 agents on windtunnel-emulator" in checked(page.of_run(run))
    step = StepRuns(name="base", runs={0: read(runs["small"])})
    html = page.of_experiments([assess([step], [parse("output_tokens_per_s")], name="x")], {})
    assert "base: 1 run</summary>" in html
