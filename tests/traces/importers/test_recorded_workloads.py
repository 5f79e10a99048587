"""Every recorded workload file, trajectory and wire log against its independent answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.traces.check import faults
from windtunnel.traces.importers import Imported, import_path
from windtunnel.traces.model import Trace

Answers = dict[str, dict[str, Any]]

PLACEHOLDERS = {
    "atif/claude-code-codemie-subagent.trajectory.json": {("step 9", 1), ("step 11", 3)},
    "atif/claude-code-tracelab.trajectory.json": set(),
}
"""Output counts that Claude Code logged from the stream's first event: 1 and 3 tokens for a sentence and a tool call.
The converter passed them on. Estimates stand in their place, marked so; all other counts are the answer's."""


def load(path: Path, name: str | None = None, problems: int = 0) -> Imported:
    result = import_path(path, name)
    assert len(result.problems) == problems
    assert [f for t in result.traces for f in faults(t)] == []
    for trace in result.traces:
        sums = trace.prompt_tokens()
        assert all(sums[c.id] == c.usage.prompt for c in trace.calls)
    return result


def total(traces: tuple[Trace, ...], figure: str) -> int:
    return sum(getattr(c.usage, figure) or 0 for t in traces for c in t.calls)


def last(trace: Trace) -> float:
    ends = [t for c in trace.calls for t in (c.start_s, c.end_s) if t is not None]
    return round(max([*ends, *(r.end_s or 0.0 for r in trace.tool_runs)]), 3)


def test_mooncake(recorded: Path, answers: Answers) -> None:
    name = "mooncake/synthetic_trace.jsonl"
    answer, traces = answers[name], load(recorded / name).traces
    calls = [t.calls[0] for t in traces]
    assert len(traces) == len(calls) == answer["rows"]
    assert total(traces, "prompt") == answer["sum_input"]
    assert total(traces, "completion") == answer["sum_output"]
    assert max(c.usage.prompt or 0 for c in calls) == answer["max_input"]
    starts = [c.start_s or 0.0 for c in calls]
    assert starts == sorted(starts)
    assert round((starts[-1] - starts[0]) * 1000) == answer["span_ms"]
    seen: set[str] = set()
    blocks = leading = 0
    for trace in traces:
        digests = [b.digest for b in (trace.blocks[i] for i in trace.message_blocks(trace.messages[0]))]
        assert trace.calls[0].append[0] == 0
        blocks += len(digests)
        leading += next((i for i, d in enumerate(digests) if d not in seen), len(digests))
        seen.update(digests)
    assert blocks == answer["total_blocks"]
    assert len(seen) == answer["distinct_block_ids"]
    assert leading == answer["leading_blocks_already_seen"]


def test_aiperf(recorded: Path, answers: Answers) -> None:
    name = "aiperf/inference-day-2026.excerpt.jsonl"
    traces = load(recorded / name, "mooncake-aiperf").traces
    sessions = answers[name]["sessions"]
    assert [t.header.id for t in traces] == list(sessions)
    for trace in traces:
        answer = sessions[trace.header.id]
        assert len(trace.calls) == answer["turns"]
        assert total((trace,), "completion") == answer["sum_output"]
        assert trace.calls[-1].usage.prompt == answer["final_context_incl_outputs"]
        fed = sum(c.usage.completion or 0 for c in trace.calls[:-1])
        assert (trace.calls[-1].usage.prompt or 0) - fed == answer["sum_delta_input"]
        assert sum(w.seconds or 0 for w in trace.waits) * 1000 == pytest.approx(answer["sum_delay_ms"])
    first, second = ([t.blocks[b].digest for b in t.message_blocks(t.messages[0])] for t in traces)
    assert sum(a == b for a, b in zip(first, second, strict=False)) == 63
    (problem,) = import_path(recorded / name).problems
    assert problem.line == 2
    assert "mooncake-aiperf" in problem.reason


@pytest.mark.parametrize("name", ["tracelab/derived_round_trace.jsonl", "tracelab/sanitized_round_trace.jsonl"])
def test_tracelab(name: str, recorded: Path, answers: Answers) -> None:
    traces = load(recorded / name).traces
    assert sum(len(t.calls) for t in traces) == answers[name]["rows"]
    for trace, provider in zip(traces, ("claude", "codex"), strict=True):
        answer, one = answers[name][provider], (trace,)
        assert len(trace.calls) == answer["rounds"]
        assert total(one, "prompt") == answer["sum_input_total"]
        assert total(one, "cached") == answer["sum_prefix"]
        assert total(one, "completion") == answer["sum_output"]
        assert total(one, "reasoning") == answer["sum_reasoning"]
        assert len(trace.tool_runs) == answer["tools"]
        assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_input"]


@pytest.mark.parametrize(("at", "log"), [(0, "claude-code/tracelab-2026.jsonl"), (1, "codex/tracelab-2026.jsonl")])
def test_tracelab_agrees_with_the_logs_it_was_made_from(at: int, log: str, recorded: Path) -> None:
    extracted = load(recorded / "tracelab/derived_round_trace.jsonl").traces[at]
    (source,) = import_path(recorded / log).traces
    assert [c.usage for c in extracted.calls] == [c.usage for c in source.calls]
    zero = (source.calls[0].start_s or 0.0) - (extracted.calls[0].start_s or 0.0)
    for ours, theirs in zip(extracted.calls, source.calls, strict=True):
        assert (ours.start_s or 0.0) + zero == pytest.approx(theirs.start_s, abs=0.002)
        assert (ours.end_s or 0.0) + zero == pytest.approx(theirs.end_s, abs=0.002)
    waits = [[(w.before, w.cause, w.tools) for w in t.waits] for t in (extracted, source)]
    assert waits[0] == waits[1]
    assert [w.seconds for w in extracted.waits] == pytest.approx([w.seconds for w in source.waits], abs=0.002)


@pytest.mark.parametrize("name", sorted(PLACEHOLDERS))
def test_atif(name: str, recorded: Path, answers: Answers) -> None:
    answer, (trace,) = answers[name], load(recorded / name).traces
    raw = json.loads((recorded / name).read_text())
    assert (trace.header.agent, trace.header.agent_version) == (answer["agent"], answer["version"])
    assert len(trace.calls) == answer["agent_steps"]
    assert total((trace,), "prompt") == answer["sum_prompt"]
    assert total((trace,), "cached") == answer["sum_cached"]
    assert len(trace.tool_runs) == answer["tool_calls"]
    results = [m for m in trace.messages if m.role == "tool"]
    assert len({m.tool_call_id for m in results}) == answer["observation_results"]
    assert last(trace) == answer["span_s"]
    replaced = PLACEHOLDERS[name]
    estimated = [c for c in trace.calls if c.marks.get("completion") == "estimated"]
    assert len(estimated) == len(replaced)
    kept = total((trace,), "completion") - sum(c.usage.completion or 0 for c in estimated)
    assert kept + sum(count for _, count in replaced) == answer["sum_completion"]
    steps = {f"step {s['step_id']}": s["metrics"]["completion_tokens"] for s in raw["steps"] if "metrics" in s}
    assert {(step, steps[step]) for step, _ in replaced} == replaced


def test_the_sub_agent_of_a_trajectory(recorded: Path) -> None:
    (trace,) = load(recorded / "atif/claude-code-codemie-subagent.trajectory.json").traces
    main, child = trace.threads
    assert (child.parent, child.spawn_call, child.background) == (main.id, 0, False)
    assert len(trace.calls_of(child.id)) == 6
    assert [c.id for c in trace.calls if c.joins] == [trace.calls_of(0)[1].id]
    assert [c.id for c in trace.calls] == sorted(c.id for c in trace.calls)
    assert trace.calls_of(0)[1].id > max(c.id for c in trace.calls_of(child.id))


def test_claude_code_events(recorded: Path, answers: Answers) -> None:
    name = "otel/claude-code-otel-events.sample.jsonl"
    answer, result = answers[name], load(recorded / name, problems=2)
    traces = result.traces
    assert len(traces) == answer["sessions"]
    assert sum(len(t.calls) for t in traces) == answer["llm_requests"]
    every = answer["sum_input"] + answer["sum_cache_read"] + answer["sum_cache_creation"]
    assert total(traces, "prompt") == every
    assert total(traces, "cached") == answer["sum_cache_read"]
    assert total(traces, "completion") == answer["sum_output"]
    assert sum(len(t.tool_runs) for t in traces) == answer["tool_results"]
    assert [p.line for p in result.problems] == [9, 15]
    assert "none of its requests is logged" in result.problems[0].reason
    assert "only a sub-agent's" in result.problems[1].reason
    assert next((w.cause, w.seconds) for w in traces[0].waits if w.before == 1) == ("tool", 0.355)


@pytest.mark.parametrize("number", [1, 2])
def test_spans_without_a_request_say_so(number: int, recorded: Path, answers: Answers) -> None:
    name = f"otel/vscopilot-sample-{number}_traces.jsonl"
    result = load(recorded / name, problems=1)
    assert (result.traces, answers[name]["llm_spans"]) == ((), 0)
    tools = answers[name]["ops"]["execute_tool"]
    assert f"tells of {tools} tool runs and of no request to a model" in result.problems[0].reason


def test_litellm(recorded: Path, answers: Answers) -> None:
    (trace,) = load(recorded / "litellm").traces
    told = [answers[k] for k in sorted(answers) if k.startswith("litellm/")]
    assert len(trace.calls) == len(told) == 6
    for call, answer in zip(trace.calls, told, strict=True):
        assert (call.usage.prompt, call.usage.completion, call.usage.cached) == (
            answer["prompt"],
            answer["completion"],
            answer["cached"],
        )
        assert (call.end_s or 0.0) + (trace.header.started_at or 0.0) == pytest.approx(answer["timestamp"], abs=1e-5)
        assert (call.end_s or 0.0) - (call.start_s or 0.0) == pytest.approx(answer["latency"], abs=1e-5)
    assert {len(trace.toolsets[c.tools].names) for c in trace.calls if c.tools is not None} == {told[0]["tools"]}
    assert all(c.keep for c in trace.calls[1:])
    for (_, messages), answer in zip(trace.prompts(), told, strict=True):
        # what the log lacks of the prompt stands in the system message that is there
        assert len(messages) == answer["messages"]


def test_har(recorded: Path, answers: Answers) -> None:
    name = "har/pi-via-mitmproxy-12.3.1.har"
    answer, result = answers[name], load(recorded / name, problems=1)
    (trace,) = result.traces
    wire = [json.loads(r) for r in (recorded / "har/wire.jsonl").read_text().splitlines()]
    sent = [w for w in wire if w["kind"] == "LLM"]
    assert len(trace.calls) == answer["llm_requests_200"] == len(sent)
    assert total((trace,), "prompt") == answer["sum_prompt"]
    assert total((trace,), "completion") == answer["sum_completion"]
    assert total((trace,), "cached") == answer["sum_cached"]
    assert total((trace,), "reasoning") == answers["har/wire.jsonl"]["sum_reasoning"]
    assert max(c.usage.prompt or 0 for c in trace.calls) == answer["max_prompt"]
    assert len(trace.tool_runs) == answers["har/wire.jsonl"]["tool_calls"]
    zero = trace.header.started_at or 0.0
    for call, seen in zip(trace.calls, sent, strict=True):
        assert (call.usage.prompt, call.usage.completion) == (seen["usage"]["in"], seen["usage"]["out"])
        assert zero + (call.start_s or 0.0) == pytest.approx(seen["t"], abs=0.02)
        assert zero + (call.end_s or 0.0) == pytest.approx(seen["t_end"], abs=0.06)  # the proxy waits for the close
        assert (call.start_s or 0.0) < (call.first_s or 0.0) <= (call.end_s or 0.0)
    spent = sum((c.end_s or 0.0) - (c.start_s or 0.0) for c in trace.calls)
    assert spent * 1000 == pytest.approx(answer["sum_time_ms"] - 46.77, abs=0.1)  # the refused request took 46.77 ms
    assert "entry 6: the request was answered with status 500" in result.problems[0].reason


@pytest.mark.parametrize("name", ["zen", "monochromatic"])
def test_aider_runs_without_an_answer(name: str, recorded: Path, answers: Answers) -> None:
    answer = answers[f"aider/{name}.aider.chat.history.md"]
    result = load(recorded / f"aider/{name}.aider.chat.history.md", problems=1)
    assert (result.traces, answer["any_tokens_lines"]) == ((), 0)
    assert result.problems[0].reason == (
        f"{answer['runs']} runs with {answer['user_lines']} typed lines hold no answer of a model: nothing to replay"
    )


@pytest.mark.parametrize(
    ("name", "calls", "said"),
    [
        ("mooncake/synthetic_trace.jsonl", 2_659, "the last line is cut off"),
        ("tracelab/derived_round_trace.jsonl", 10, "the last line is cut off"),
        ("otel/claude-code-otel-events.sample.jsonl", 2, "the last line is cut off"),
        ("atif/claude-code-codemie-subagent.trajectory.json", 4, "cut off here: what comes after is lost"),
        ("har/pi-via-mitmproxy-12.3.1.har", 6, "cut off here: what comes after is lost"),
    ],
)
def test_a_file_cut_off_at_60_percent_keeps_what_it_holds(
    name: str, calls: int, said: str, recorded: Path, tmp_path: Path
) -> None:
    data = (recorded / name).read_bytes()
    cut = tmp_path / Path(name).name
    cut.write_bytes(data[: len(data) * 6 // 10])
    result = import_path(cut)
    assert sum(len(t.calls) for t in result.traces) == calls
    assert [f for t in result.traces for f in faults(t)] == []
    (problem,) = [p for p in result.problems if said in p.reason]
    assert problem.line is not None
    assert problem.line >= cut.read_bytes().count(b"\n")
