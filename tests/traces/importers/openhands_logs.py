"""Small OpenHands conversations, made up: what the importer's tests and the mutations start from."""

import json
from pathlib import Path
from typing import Any

from .agent_logs import ADDER, UNIX, Json, chat_call, naive


def event(second: float, number: int, kind: str, source: str = "agent", **more: Any) -> Json:
    return {"id": f"e{number}", "timestamp": naive(second), "source": source, "kind": kind, **more}


def text_part(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def typed(second: float, number: int, text: str) -> Json:
    message = {"role": "user", "content": text_part(text)}
    return event(second, number, "MessageEvent", "user", llm_message=message)


def action(second: float, number: int, response: str, tool: str, thought: str = "", name: str = "terminal") -> Json:
    call = {"id": tool, "name": name, "arguments": '{"command":"cat adder.py"}'}
    return event(
        second,
        number,
        "ActionEvent",
        thought=text_part(thought) if thought else [],
        tool_name=name,
        tool_call_id=tool,
        tool_call=call,
        llm_response_id=response,
    )


def observed(second: float, number: int, tool: str, text: str) -> Json:
    observation = {"content": text_part(text), "is_error": False, "kind": "TerminalObservation"}
    return event(second, number, "ObservationEvent", "environment", tool_call_id=tool, observation=observation)


def answered(second: float, number: int, response: str, text: str) -> Json:
    message = {"role": "assistant", "content": text_part(text)}
    return event(second, number, "MessageEvent", llm_message=message, llm_response_id=response)


def metrics(rows: list[tuple[str, float, float, tuple[int, int, int, int]]]) -> Json:
    """Rows: response, end, latency, usage (prompt, cached, completion, reasoning)."""
    names = ("prompt_tokens", "cache_read_tokens", "completion_tokens", "reasoning_tokens")
    return {
        "model_name": "openai/gpt-x",
        "costs": [{"model": "gpt-x", "cost": 0.1, "timestamp": UNIX + end} for _, end, _, _ in rows],
        "response_latencies": [{"response_id": r, "latency": latency} for r, _, latency, _ in rows],
        "token_usages": [
            {"response_id": r, "model": "gpt-x", **dict(zip(names, u, strict=True))} for r, _, _, u in rows
        ],
    }


def state(key: str, **usage: Json) -> Json:
    llm = {"model": "openai/gpt-x", "usage_id": "agent"}
    return {
        "id": key,
        "agent": {"llm": llm, "kind": "Agent"},
        "workspace": {"working_dir": "/home/me/shop"},
        "execution_status": "finished",
        "stats": {"usage_to_metrics": usage},
    }


def v1_log() -> list[Json]:
    """A state and its events: a prompt, two parallel actions, an answer, a second prompt and its answer."""
    rows = [
        ("r1", 4.0, 2.5, (5_000, 0, 90, 30)),
        ("r2", 9.0, 1.5, (5_200, 4_096, 40, 0)),
        ("r3", 33.0, 2.0, (5_260, 5_120, 12, 0)),
    ]
    tools = [{"title": "terminal", "description": "Runs a command."}, {"title": "finish", "description": "Ends."}]
    prompt = event(0.5, 0, "SystemPromptEvent", system_prompt={"type": "text", "text": "Be brief. " * 40}, tools=tools)
    return [
        state("o-1", agent=metrics(rows)),
        prompt,
        typed(1, 1, "Fix the adder in the shop"),
        action(4.1, 2, "r1", "t1", "Looking."),
        action(4.2, 3, "r1", "t2"),
        observed(5.1, 4, "t1", ADDER),
        observed(7.2, 5, "t2", "adder.py\n"),
        answered(9.05, 6, "r2", "It subtracts where it should add."),
        typed(30, 7, "Then change it"),
        answered(33.05, 8, "r3", "Changed."),
    ]


def write_v1(folder: Path, log: list[Json]) -> Path:
    """A conversation's folder: the first item is the state."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    (folder / "base_state.json").write_text(json.dumps(log[0]))
    for number, item in enumerate(log[1:]):
        (folder / "events" / f"event-{number:05d}-x.json").write_text(json.dumps(item))
    return folder


def v0_response(key: str, usage: tuple[int, int, int, int], text: str, calls: list[Json]) -> Json:
    prompt, cached, completion, reasoning = usage
    return {
        "id": key,
        "model": "gpt-x",
        "choices": [{"message": {"role": "assistant", "content": text, "tool_calls": calls}}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        },
    }


def v0_action(second: float, number: int, kind: str, source: str = "agent", **more: Any) -> Json:
    return {"id": number, "timestamp": naive(second), "source": source, "message": "", "action": kind, **more}


def v0_observed(second: float, number: int, kind: str, cause: int, tool: str, text: str) -> Json:
    return {
        "id": number,
        "timestamp": naive(second),
        "source": "agent",
        "message": "",
        "cause": cause,
        "observation": kind,
        "content": text,
        "extras": {},
        "tool_call_metadata": {"tool_call_id": tool},
    }


def v0_log() -> list[Json]:
    """A prompt, two parallel actions of one response, the end of the run; the last has a latency."""
    calls = [
        chat_call("t1", "execute_bash", '{"command":"cat adder.py"}'),
        chat_call("t2", "execute_bash", '{"command":"ls"}'),
    ]
    first = v0_response("r1", (5_000, 0, 90, 30), "Looking.", calls)
    last = v0_response("r2", (5_200, 4_096, 40, 0), "Done.", [chat_call("t3", "finish", "{}")])
    latency = {"response_latencies": [{"response_id": "r2", "latency": 1.5}]}

    def named(tool: str, name: str, response: Json) -> Json:
        return {"function_name": name, "tool_call_id": tool, "model_response": response}

    return [
        v0_action(0.5, 0, "system", args={"content": "Be brief. " * 40, "tools": []}),
        v0_action(1, 1, "message", "user", args={"content": "Fix the adder in the shop", "image_urls": []}),
        v0_action(4, 2, "run", args={"command": "cat adder.py"}, tool_call_metadata=named("t1", "execute_bash", first)),
        v0_observed(5, 3, "run", 2, "t1", ADDER),
        v0_action(5.1, 4, "run", args={"command": "ls"}, tool_call_metadata=named("t2", "execute_bash", first)),
        v0_observed(7, 5, "run", 4, "t2", "adder.py\n"),
        v0_action(9, 6, "finish", args={}, tool_call_metadata=named("t3", "finish", last), llm_metrics=latency),
    ]
