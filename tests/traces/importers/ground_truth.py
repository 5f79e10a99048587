"""What the independent answers say, in the figures of an import: one reading for each way in which they count.

The index beside the recorded sessions says how each format was counted (`INDEX.md`, "How things were counted").
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.traces.model import Trace
from windtunnel.traces.stats import session_stats

Json = dict[str, Any]
Figures = dict[str, float]

TOGETHER = {
    "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d.jsonl": (
        "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d/subagents/agent-a881341.jsonl",
        "claude-code/spotter/258c7280-ae70-4798-800f-63464d01a85d/subagents/agent-acompact-fffbd0.jsonl",
    ),
    "claude-code/codemie-flat/-tmp-private/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": (
        "claude-code/codemie-flat/-tmp-private/agent-36541525.jsonl",
        "claude-code/codemie-flat/-tmp-private/agent-50243ee8.jsonl",
    ),
    (
        "claude-code/local-run-2.1.332-async-subagents/projects/-home-dev-projects-claude2-proj/"
        "b03b2e51-d564-4f13-a9ca-f9d833b9a7ff.jsonl"
    ): tuple(
        "claude-code/local-run-2.1.332-async-subagents/projects/-home-dev-projects-claude2-proj/"
        f"b03b2e51-d564-4f13-a9ca-f9d833b9a7ff/subagents/agent-{key}.jsonl"
        for key in ("a27cc872a4204b1b2", "a7a58eca87ba11a3a", "ac018fe4594dd1cdf")
    ),
}
"""Files that are one session with the named one: the answers count each by itself, an import brings them together."""


def measured(traces: Sequence[Trace]) -> Figures:
    """The figures of an import; what no trace states is absent."""
    stats = [session_stats(t) for t in traces]
    out: dict[str, float | None] = {
        "sessions": len(stats),
        "calls": sum(s.calls for s in stats),
        "tool_runs": sum(s.tool_runs for s in stats),
        "tool_results": sum(r.end_s is not None for t in traces for r in t.tool_runs),
        "sub_agents": sum(s.threads - 1 for s in stats),
        "prompt": sum(s.prompt_tokens for s in stats),
        "cached": sum(s.cached_tokens or 0 for s in stats),
        "completion": sum(s.completion_tokens or 0 for s in stats),
        "reasoning": sum(s.reasoning_tokens or 0 for s in stats),
        "max_prompt": max((s.max_prompt_tokens for s in stats), default=0),
        "first_prompt": stats[0].first_prompt_tokens if stats else 0,
        "last_prompts": sum(t.calls[-1].usage.prompt or 0 for t in traces),
        "last_start_s": max((c.start_s or 0.0 for t in traces for c in t.calls_of(0)), default=None),
        "span_s": max((s.span_s for s in stats if s.span_s is not None), default=None),
    }
    main = [c for t in traces for c in t.calls_of(0)]
    own = {(t.header.id, c.id) for t in traces for c in t.calls_of(0)}
    out |= {
        "main_calls": len(main),
        "main_prompt": sum(c.usage.prompt or 0 for c in main),
        "main_cached": sum(c.usage.cached or 0 for c in main),
        "main_completion": sum(c.usage.completion or 0 for c in main),
        "main_tool_runs": sum((t.header.id, r.call) in own for t in traces for r in t.tool_runs),
    }
    return {k: v for k, v in out.items() if v is not None}


def claude(name: str, answers: dict[str, Json]) -> Figures:
    answer = answers[name]
    others = [answers[other] for other in TOGETHER.get(name, ())]
    every = (answer, *others)
    if answer["inline_progress_agents"] and not others:
        # of sub-agents seen as progress only their requests were counted, not their tokens
        return {
            "main_calls": answer["llm_requests"],
            "main_tool_runs": answer["tool_calls"],
            "main_prompt": _claude_prompt(answer),
            "main_cached": answer["cache_read_sum"],
            "main_completion": answer["output_tokens"]["max_per_id"],
            "max_prompt": answer["max_prompt_tokens"],
            "first_prompt": answer["first_prompt_tokens"],
            "sub_agents": answer["inline_progress_agents"],
            "calls": answer["llm_requests"] + answer["inline_progress_llm_requests"],
            "span_s": answer["span_s"],
        }
    # a sub-agent's own file is a session without one; a compaction's (no root of its own) is no sub-agent
    alone = Path(name).name.startswith("agent-")
    return {
        "calls": sum(a["llm_requests"] for a in every),
        "tool_runs": sum(a["tool_calls"] for a in every),
        "tool_results": sum(a["tool_results"] for a in every),
        "prompt": sum(map(_claude_prompt, every)),
        "cached": sum(a["cache_read_sum"] for a in every),
        "completion": sum(a["output_tokens"]["max_per_id"] for a in every),
        "max_prompt": max(a["max_prompt_tokens"] for a in every),
        "first_prompt": answer["first_prompt_tokens"],
        "sub_agents": 0 if alone else sum(a["sidechain_roots"] for a in every),
        "span_s": answer["span_s"],
    }


def _claude_prompt(answer: Json) -> int:
    return int(answer["input_tokens_sum"] + answer["cache_creation_sum"] + answer["cache_read_sum"])


def codex(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_calls"],
        "tool_results": answer["tool_results"],
        "prompt": answer["sum_input_tokens"],
        "cached": answer["sum_cached_input_tokens"],
        "completion": answer["sum_output_tokens"],
        "reasoning": answer.get("sum_reasoning_output_tokens", 0),
        "max_prompt": answer["max_prompt_tokens"],
        "first_prompt": answer["first_prompt_tokens"],
        "sub_agents": 0,
        "span_s": answer["span_s"],
    }


def gemini(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_calls"],
        "prompt": answer["sum_input"],
        "cached": answer["sum_cached"],
        "completion": answer["sum_output"] + answer["sum_thoughts"],
        "reasoning": answer["sum_thoughts"],
        "max_prompt": answer["max_prompt_tokens"],
        "first_prompt": answer["first_prompt_tokens"],
        "sub_agents": 0,
        "span_s": answer["span_s"],
    }


def qwen(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_calls"],
        "tool_results": answer["tool_results"],
        "prompt": answer["sum_promptTokenCount"],
        "cached": answer["sum_cachedContentTokenCount"],
        "completion": answer["sum_candidatesTokenCount"],
        "reasoning": answer["sum_thoughtsTokenCount"],
        "max_prompt": answer["max_prompt_tokens"],
        "sub_agents": 0,
        "span_s": answer["span_s"],
    }


def cline(answer: Json) -> Figures:
    if "api_req_started" in answer:
        return {
            "calls": answer["llm_requests"],
            "prompt": answer["sum_tokensIn"] + answer["sum_cacheReads"] + answer["sum_cacheWrites"],
            "cached": answer["sum_cacheReads"],
            "completion": answer["sum_tokensOut"],
            "max_prompt": answer["max_prompt_tokens_incl_cache"],
            "first_prompt": answer["prompts"][0],
            "span_s": answer["span_s"],
        }
    if not answer["llm_requests"]:
        return {"calls": 0, "tool_runs": 0}
    return {
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_calls"],
        "prompt": answer["sum_inputTokens"],
        "cached": answer["sum_cacheReadTokens"],
        "completion": answer["sum_outputTokens"],
        "max_prompt": answer["max_prompt_tokens"],
        "first_prompt": answer["prompts"][0],
        "sub_agents": 0,
        "span_s": answer["span_s"],
    }


def opencode(answer: Json) -> Figures:
    sessions = [answer] if "llm_requests" in answer else list(answer.values())
    return {
        "calls": sum(a["llm_requests"] for a in sessions),
        "tool_runs": sum(a["tool_parts"] for a in sessions),
        "prompt": sum(a["sum_input_uncached"] + a["sum_cache_read"] + a["sum_cache_write"] for a in sessions),
        "cached": sum(a["sum_cache_read"] for a in sessions),
        "completion": sum(a["sum_output"] + a["sum_reasoning"] for a in sessions),
        "reasoning": sum(a["sum_reasoning"] for a in sessions),
        "max_prompt": max(a["max_prompt_incl_cache"] for a in sessions),
        "sub_agents": len(sessions) - 1,
    }


def pi(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_calls"],
        "tool_results": answer["tool_results"],
        "prompt": answer["sum_input"] + answer["sum_cacheRead"] + answer["sum_cacheWrite"],
        "cached": answer["sum_cacheRead"],
        "completion": answer["sum_output"],
        "max_prompt": answer["max_prompt_incl_cache"],
        "sub_agents": 0,
        "span_s": answer["span_s"],
    }


def swe_agent(answer: Json) -> Figures:
    return {"calls": answer["assistant_history"], "tool_runs": answer["history_tool_calls"], "sub_agents": 0}


def mini_swe_agent(answer: Json) -> Figures:
    if not answer["with_usage"]:
        return {"calls": answer["assistant_messages"], "tool_runs": answer["tool_calls"]}
    return {
        "calls": answer["llm_requests_api_calls"],
        "tool_runs": answer["tool_calls"],
        "prompt": answer["sum_prompt"],
        "completion": answer["sum_completion"],
        "max_prompt": answer["max_prompt_tokens"],
    }


def litellm(answer: Json) -> Figures:
    sizes = {"prompt": answer["prompt"], "first_prompt": answer["prompt"], "max_prompt": answer["prompt"]}
    figures = {"calls": 1, "cached": answer["cached"], "completion": answer["completion"], "span_s": answer["latency"]}
    return {**sizes, **figures}


def weka(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests"],
        "main_calls": answer["top_level_requests"],
        "sub_agents": answer.get("subagents", 0),
        "prompt": answer["sum_in"],
        "completion": answer["sum_out"],
        "max_prompt": answer["max_in"],
        "first_prompt": answer["prompts"][0],
        "last_start_s": answer["t_last"],
    }


def mooncake(answer: Json) -> Figures:
    return {
        "sessions": answer["rows"],
        "calls": answer["rows"],
        "prompt": answer["sum_input"],
        "completion": answer["sum_output"],
        "max_prompt": answer["max_input"],
        "last_start_s": answer["span_ms"] / 1000,
    }


def aiperf(answer: Json) -> Figures:
    sessions = answer["sessions"].values()
    return {
        "sessions": len(sessions),
        "calls": answer["rows"],
        "completion": sum(s["sum_output"] for s in sessions),
        "last_prompts": sum(s["final_context_incl_outputs"] for s in sessions),
    }


def tracelab(answer: Json) -> Figures:
    sessions = [answer["claude"], answer["codex"]]
    return {
        "sessions": 2,
        "calls": answer["rows"],
        "tool_runs": sum(s["tools"] for s in sessions),
        "prompt": sum(s["sum_input_total"] for s in sessions),
        "cached": sum(s["sum_prefix"] for s in sessions),
        "completion": sum(s["sum_output"] for s in sessions),
        "reasoning": sum(s["sum_reasoning"] for s in sessions),
        "max_prompt": max(s["max_input"] for s in sessions),
    }


def otel(answer: Json) -> Figures:
    if "llm_spans" in answer:
        return {"calls": answer["llm_spans"], "prompt": answer["sum_input"], "completion": answer["sum_output"]}
    return {
        "sessions": answer["sessions"],
        "calls": answer["llm_requests"],
        "tool_runs": answer["tool_results"],
        "prompt": answer["sum_input"] + answer["sum_cache_read"] + answer["sum_cache_creation"],
        "cached": answer["sum_cache_read"],
        "completion": answer["sum_output"],
    }


def atif(answer: Json) -> Figures:
    return {
        "calls": answer["agent_steps"],
        "tool_runs": answer["tool_calls"],
        "prompt": answer["sum_prompt"],
        "cached": answer["sum_cached"],
        "completion": answer["sum_completion"],
        "span_s": answer["span_s"],
    }


def har(answer: Json) -> Figures:
    return {
        "calls": answer["llm_requests_200"],
        "prompt": answer["sum_prompt"],
        "cached": answer["sum_cached"],
        "completion": answer["sum_completion"],
        "max_prompt": answer["max_prompt"],
    }


def aider(answer: Json) -> Figures:
    return {
        "sessions": answer["runs"],
        "prompt": answer["sum_sent_rounded"],
        "completion": answer["sum_received_rounded"],
    }


def wire(answer: Json) -> Figures:
    """What crossed the wire: requests with tools and, apart, those without (titles, compactions)."""
    return {
        "calls": answer["requests_with_tools"] + answer["tool_less_requests"],
        "tool_runs": answer["tool_calls"],
        "prompt": answer["sum_in"] + answer["side_in"],
        "cached": answer["sum_cached"],
        "completion": answer["sum_out"] + answer["side_out"],
        "reasoning": answer["sum_reasoning"],
        "max_prompt": answer["max_in"],
        "sub_agents": len(answer["sub"]),
    }


READINGS: dict[str, Callable[[Json], Figures]] = {
    "codex": codex,
    "gemini": gemini,
    "qwen-code": qwen,
    "cline": cline,
    "opencode": opencode,
    "pi": pi,
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "litellm": litellm,
    "weka-kv-cache-tester": weka,
    "mooncake": mooncake,
    "aiperf": aiperf,
    "tracelab": tracelab,
    "otel": otel,
    "atif": atif,
    "har": har,
    "aider": aider,
}
"""By the answer's folder; Claude Code's needs the answers of other files."""
FOLDERS = ("claude-code", "openhands", *READINGS)


def expected(name: str, answers: dict[str, Json]) -> Figures:
    """The figures that an entry of the answers states."""
    folder = name.partition("/")[0]
    if Path(name).name == "wire.jsonl":
        figures = wire(answers[name])
    else:
        figures = claude(name, answers) if folder == "claude-code" else READINGS[folder](answers[name])
    return {figure: value for figure, value in figures.items() if value is not None}
