"""Codex rollouts made up for the purpose."""

import json
from typing import Any

Json = dict[str, Any]


def codex_line(second: float, kind: str, **payload: Any) -> Json:
    return {"timestamp": f"2026-02-03T04:05:{second:06.3f}Z", "type": kind, "payload": payload}


def codex_message(second: float, role: str, text: str) -> Json:
    part = "output_text" if role == "assistant" else "input_text"
    return codex_line(second, "response_item", type="message", role=role, content=[{"type": part, "text": text}])


def codex_usage(second: float, total: int, usage: tuple[int, int, int, int]) -> Json:
    """Usage: input, cached, output, reasoning; `total` tells repeats apart."""
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": dict(zip(names, usage, strict=True))}
    return codex_line(second, "event_msg", type="token_count", info=info)


def codex_call(second: float, call: str, name: str, arguments: str) -> Json:
    return codex_line(second, "response_item", type="function_call", call_id=call, name=name, arguments=arguments)


def codex_output(second: float, call: str, output: str) -> Json:
    return codex_line(second, "response_item", type="function_call_output", call_id=call, output=output)


def shop() -> list[Json]:
    """Two turns; the first with two parallel tools, its usage repeated; reasoning forgotten at the second prompt."""
    meta = {
        "id": "c-1",
        "cli_version": "0.114.0",
        "cwd": "/home/me/shop",
        "base_instructions": {"text": "Be brief. " * 40},
    }
    return [
        codex_line(1, "session_meta", **meta),
        codex_message(1, "user", "Fix the adder"),
        codex_line(1, "event_msg", type="user_message", message="Fix the adder"),
        codex_line(1, "turn_context", model="gpt-x", effort="high"),
        codex_line(3, "response_item", type="reasoning", summary=[], encrypted_content="gAAAA"),
        codex_message(4, "assistant", "Looking."),
        codex_call(4, "k1", "exec", '{"cmd":"cat adder.py"}'),
        codex_call(4.1, "k2", "exec", '{"cmd":"ls"}'),
        codex_usage(4.2, 5_300, (5_000, 1_024, 300, 240)),
        codex_output(5, "k1", "def add(a, b):\n    return a - b\n"),
        codex_output(7, "k2", "adder.py\n"),
        codex_usage(7.1, 5_300, (5_000, 1_024, 300, 240)),
        codex_message(9, "assistant", "It subtracts where it should add."),
        codex_usage(9.1, 10_690, (5_350, 4_992, 40, 10)),
        codex_message(30, "user", "Then change it"),
        codex_line(30, "event_msg", type="user_message", message="Then change it"),
        codex_message(33, "assistant", "Changed."),
        codex_usage(33.1, 15_850, (5_150, 4_992, 10, 0)),
    ]


def usage_first(log: list[Json]) -> list[Json]:
    """As 0.40 wrote it: a response's usage comes before its items."""
    return [*log[:4], log[8], *log[4:8], *log[9:]]


def with_compaction(log: list[Json]) -> list[Json]:
    """The history is replaced before the second prompt."""
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What was done: " * 50}]}]
    log[-1]["payload"]["info"]["last_token_usage"]["input_tokens"] = 5_400
    return [*log[:14], codex_line(29, "compacted", message="", replacement_history=history), *log[14:]]


def with_sub_agent(log: list[Json]) -> tuple[list[Json], list[Json]]:
    """The session, whose first tool starts a sub-agent, and the sub-agent's rollout."""
    child: list[Json] = json.loads(json.dumps(log[:10]))
    child[0]["payload"].update(id="c-2", parent_thread_id="c-1", agent_nickname="Ada")
    for record in child:
        if "call_id" in record["payload"]:
            record["payload"]["call_id"] += "-child"
    main: list[Json] = json.loads(json.dumps(log))
    main[6]["payload"]["name"] = "spawn_agent"
    main[9]["payload"]["output"] = '{"agent_id":"c-2"}'
    main[14]["payload"]["content"][0]["text"] = '<subagent_notification>\n{"agent_path":"c-2","status":"x"}\n</x>'
    return main, child


def with_records(log: list[Json]) -> list[Json]:
    """As 0.171 writes it: usage records beside the events, items with their times, the last turn stopped."""
    asked = codex_line(4.15, "token_usage_record", usage=log[8]["payload"]["info"]["last_token_usage"])
    times = {"started_at_ms": 1_770_091_504_050, "completed_at_ms": 1_770_091_504_900}
    item = {"type": "CommandExecution", "id": "k1", "exit_code": 1}
    done = codex_line(5, "event_msg", type="item_completed", item=item, **times)
    stopped = codex_line(35, "event_msg", type="turn_aborted")
    return [*log[:8], asked, *log[8:9], done, *log[9:-1], stopped]


def fork(log: list[Json], stamp: str = "new", **meta: Any) -> list[Json]:
    """A rollout that begins with all of another one and goes on with a request of its own, a minute later.

    `stamp` says what the copied lines' times are: `new` (all of the fork's moment) or `old` (as they were).
    """
    head: Json = json.loads(json.dumps(log[0]))
    head["payload"].update({"id": "c-9", "forked_from_id": "c-1", "timestamp": "2026-02-03T04:06:00.000Z"} | meta)
    lines: list[Json] = [head, *json.loads(json.dumps(log))]
    for number, line in enumerate(lines):
        if stamp == "new" or not number:
            line["timestamp"] = f"2026-02-03T04:06:00.{number * 3:03}Z"
    own = [
        codex_line(2, "event_msg", type="task_started"),
        codex_message(2, "user", "Now the docs"),
        codex_line(2, "event_msg", type="user_message", message="Now the docs"),
        codex_message(5, "assistant", "Written."),
        codex_usage(5.1, 21_230, (5_360, 5_120, 20, 0)),
    ]
    for line in own:
        line["timestamp"] = line["timestamp"].replace("04:05:", "04:06:")
    return [*lines, *own]
