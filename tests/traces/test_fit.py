import pytest
from msgspec.structs import replace

from windtunnel.traces import library
from windtunnel.traces.check import faults
from windtunnel.traces.fit import FitCounts, fit, largest, output_tokens
from windtunnel.traces.format import read_trace
from windtunnel.traces.sources import load

TRACES = load([]).traces


@pytest.mark.parametrize("limit", [3_000, 16_384, 32_768, 100_000])
@pytest.mark.parametrize("mode", ["filter", "scale", "compact"])
def test_every_call_fits_and_every_session_is_counted(limit, mode):
    out, counts = fit(TRACES, limit, mode)
    assert counts.kept + counts.filtered + counts.scaled + counts.compacted == len(TRACES)
    assert len(out) == len(TRACES) - counts.filtered
    for trace in out:
        assert largest(trace) <= limit
        assert faults(trace) == []
    if mode == "scale":
        assert counts.filtered == 0
        assert min(largest(t) for t in out if t.header.notes[-1].startswith("scaled")) > 0.9 * limit


def test_what_fits_is_left_alone(small):
    for mode in ("filter", "scale", "compact"):
        out, counts = fit([small], 337, mode)
        assert out == [small]
        assert counts == FitCounts(kept=1)
    assert fit([small], 336, "filter") == ([], FitCounts(filtered=1))


def test_scale_keeps_the_shape(small):
    (trace,), counts = fit([small], 100, "scale")
    assert counts == FitCounts(scaled=1)
    assert trace.messages == small.messages
    assert trace.waits == small.waits
    assert [b.digest for b in trace.blocks] == [b.digest for b in small.blocks]
    assert all(b.tokens >= 1 for b in trace.blocks)
    factor = trace.blocks[0].tokens / small.blocks[0].tokens
    assert factor == pytest.approx(100 / 337, rel=0.15)
    assert trace.blocks[1].tokens == pytest.approx(50 * factor, abs=1)
    assert "scaled by" in trace.header.notes[-1]


def test_scale_below_one_token_a_block_is_left_out(small):
    assert fit([small], 5, "scale") == ([], FitCounts(filtered=1))


def test_max_output_caps_the_pinned_length(small):
    (trace,), counts = fit([small], 300 + 100, "filter", max_output=6)
    assert counts.kept == 1
    assert [output_tokens(c) for c in trace.calls] == [6, 6, 5, 5]
    assert trace.calls[0].marks["completion"] == "derived"
    assert trace.calls[3] == small.calls[3]


def test_recorded_zero_counts_as_one(small):
    zero = replace(small.calls[0], usage=replace(small.calls[0].usage, completion=0))
    assert output_tokens(zero) == 1


def test_compaction_goes_on_from_system_and_summary():
    trace = read_trace(library.path("port-to-typescript")).traces[0]
    limit = 32_768
    (out,), counts = fit([trace], limit, "compact")
    assert counts == FitCounts(compacted=1)
    prompts = {call.id: prompt for call, prompt in out.prompts()}
    made = [c for c in out.calls if c.kind == "compaction"]
    assert len(made) >= 2
    assert len(out.calls) == len(trace.calls) + len(made)
    assert sum(c.usage.completion for c in out.calls if c.kind != "compaction") == sum(
        c.usage.completion for c in trace.calls
    )
    for call in made:
        before, after = prompts[call.id - 1], prompts[call.id + 1]
        assert call.base == call.id - 1
        assert call.usage.completion == limit // 16 if limit // 16 < 2000 else 2000
        assert prompts[call.id][:-1] == before
        assert out.messages[prompts[call.id][-1]].role == "user"
        summary = out.messages[call.output].blocks
        assert out.messages[after[0]].role == "system"
        assert out.messages[after[1]].blocks == summary
        assert out.messages[after[1]].role == "user"
        assert out.messages[after[2]].role == "assistant"
        assert after[2] == out.calls[call.id - 1].output
        assert call.usage.prompt > 0.6 * limit
    tool_answers = [m for m in out.messages if m.role == "tool"]
    asked = {c.id for m in out.messages for c in m.tool_calls}
    assert all(m.tool_call_id in asked for m in tool_answers)


def test_compaction_takes_over_waits_and_joins():
    trace = read_trace(library.path("schema-migration")).traces[0]
    (out,), _ = fit([trace], 40_000, "compact")
    assert sum(w.seconds for w in out.waits) == pytest.approx(sum(w.seconds for w in trace.waits))
    assert sorted(j for c in out.calls for j in c.joins) == sorted(j for c in trace.calls for j in c.joins)
    for call in out.calls:
        if call.kind == "compaction":
            assert any(w.before == call.id for w in out.waits)
            assert not any(w.before == call.id + 1 and out.calls[call.id + 1].thread == call.thread for w in out.waits)


def test_no_tool_answer_without_its_question_in_any_compacted_prompt():
    out, _ = fit(TRACES, 24_000, "compact")
    for trace in out:
        for _call, prompt in trace.prompts():
            asked = set()
            for m in prompt:
                message = trace.messages[m]
                asked |= {c.id for c in message.tool_calls}
                assert message.role != "tool" or message.tool_call_id in asked


def test_a_front_that_fills_the_context_is_left_out():
    trace = read_trace(library.path("dark-theme")).traces[0]
    assert fit([trace], 16_384, "compact") == ([], FitCounts(filtered=1))


def test_shared_fronts_stay_shared_when_compacted():
    out, _ = fit(TRACES, 32_768, "compact")
    fronts = {}
    for trace in out:
        tools = trace.blocks[trace.toolsets[trace.calls[0].tools].block]
        fronts.setdefault(trace.header.agent, set()).add((tools.digest, tools.tokens))
    assert all(len(found) == 1 for found in fronts.values())
