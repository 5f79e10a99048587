"""The Messages and the Responses API, as Claude Code, Codex and pi speak them."""

import json
from typing import Any

CLAUDE = "/v1/messages?beta=true"
USER_ID = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "ses-claude"})
CLAUDE_HEADERS = {
    "user_agent": "claude-cli/2.1.332 (external, sdk-cli)",
    "x_claude_code_session_id": "ses-claude",
    "authorization": "Bearer sk-ant-oat01-" + "s" * 40,
}


def sse(*events: dict[str, Any]) -> list[bytes]:
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def claude(*messages: dict[str, Any], tools: bool = True, **more: Any) -> dict[str, Any]:
    system = [{"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}}]
    tool = {"name": "Bash", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    body = {"model": "opus", "max_tokens": 32000, "stream": True, "system": system, "messages": [*messages]}
    return {**body, "metadata": {"user_id": USER_ID}, **({"tools": [tool]} if tools else {}), **more}


def wrote(*blocks: dict[str, Any], fresh: int = 10, read: int = 0, made: int = 0, out: int = 20) -> list[bytes]:
    """An answer's events: text and tool use."""
    usage = {"input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": made}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}}]
    for i, block in enumerate(blocks):
        if block["type"] == "tool_use":
            start, deltas = (
                {**block, "input": {}},
                [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}],
            )
        elif block["type"] == "thinking":
            start, deltas = (
                {"type": "thinking", "thinking": ""},
                [{"type": "thinking_delta", "thinking": block["thinking"]}],
            )
        else:
            start, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        events.append({"type": "content_block_start", "index": i, "content_block": start})
        events += [{"type": "content_block_delta", "index": i, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": i})
    stop = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": out}})
    return sse(*events, {"type": "message_stop"})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(ident: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": arguments}


def gave(ident: str, words: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": words}


def test_claude_code(told: Any) -> None:
    """Marks of where to cache move, content turns from lists into strings, reminders share the user's role."""
    first = {"role": "user", "content": [text("<system-reminder>be brief</system-reminder>"), text("fix the typo")]}
    env = {"role": "system", "content": [{**text("# Environment"), "cache_control": {"type": "ephemeral"}}]}
    n = told.ask(CLAUDE, claude(first, env), at=0, **CLAUDE_HEADERS)
    told.answer(
        n,
        200,
        *wrote(
            {"type": "thinking", "thinking": "Hm, let me look."},
            text("Look."),
            use("t1", command="ls"),
            fresh=8,
            made=900,
            out=40,
        ),
    )
    answer = {"role": "assistant", "content": [text("Look."), use("t1", command="ls")]}
    results = {"role": "user", "content": [{**gave("t1", "hello.py"), "cache_control": {"type": "ephemeral"}}]}
    n = told.ask(
        CLAUDE, claude(first, {"role": "system", "content": "# Environment"}, answer, results), at=500, **CLAUDE_HEADERS
    )
    told.answer(n, 700, *wrote(text("Done."), fresh=12, read=908, made=30, out=9))
    (trace,) = told.finish()
    assert (trace.header.id, trace.header.agent, trace.header.agent_version) == ("ses-claude", "claude-code", "2.1.332")
    assert trace.header.title == "fix the typo"
    one, two = trace.calls
    assert (one.usage.prompt, one.usage.cached, one.usage.completion, one.stop) == (908, 0, 40, "tool_use")
    assert (two.usage.prompt, two.usage.cached, two.usage.completion, two.stop) == (950, 908, 9, "end_turn")
    assert (two.base, two.keep) == (0, 3)
    assert [trace.messages[m].role for m in two.append] == ["assistant", "tool"]
    assert trace.messages[one.output].reasoning  # which the client did not send back
    assert trace.messages[two.append[0]].reasoning == ()
    assert trace.toolsets[0].names == ("Bash",)
    assert trace.blocks[trace.toolsets[0].block].text == '[{"name":"Bash","input_schema":{"type":"object"}}]'
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 0.3)]


def test_claude_codes_ids_and_keys_are_not_written(told: Any) -> None:
    secret = "sk-ant-oat01-" + "s" * 40
    shown = f"env: KEY={secret} device_id={'d' * 64} AWS AKIAABCDEFGHIJKLMNOP"
    n = told.ask(CLAUDE, claude({"role": "user", "content": f"see {shown}"}), at=0, **CLAUDE_HEADERS)
    told.answer(n, 10, *wrote(text(f"I saw {shown}"), use("t", command=f"curl -H 'Authorization: Bearer {'x' * 30}'")))
    told.finish()
    written = "".join(p.read_text() for p in told.folder.iterdir())
    assert secret not in written
    assert "d" * 64 not in written
    assert "AKIAABCDEFGHIJKLMNOP" not in written
    assert "x" * 30 + "'" not in written
    assert "[redacted]" in written
    assert all(secret not in w.text and "d" * 64 not in w.text for w in told.sink.texts)


def test_a_subagent_that_starts_while_its_parent_still_writes(told: Any) -> None:
    """Claude Code runs a tool as soon as its block is complete. Two of them, told apart by their prompts."""
    first = {"role": "user", "content": "count things"}
    prompts = ["SUBTASK A: count the lines of hello.py.", "SUBTASK B: count the words of hello.py."]
    spawn = wrote(
        use("t1", "Agent", description="lines", prompt=prompts[0]),
        use("t2", "Agent", description="words", prompt=prompts[1]),
    )
    n = told.ask(CLAUDE, claude(first), at=0, **CLAUDE_HEADERS)
    told.arrive(n, 100, *spawn[:-2])
    children = []
    for i, prompt in reversed(list(enumerate(prompts))):
        head = {**CLAUDE_HEADERS, "x_claude_code_agent_id": f"agent-{i}"}
        children.append(told.ask(CLAUDE, claude({"role": "user", "content": [text(prompt)]}), at=105 + i, **head))
    told.answer(n, 110, *spawn[-2:])
    for i, child in enumerate(children):
        told.answer(child, 200 + 100 * i, *wrote(text(f"report {1 - i}")))
    (trace,) = told.finish()
    assert [(t.tool_call_id, t.name, t.spawn_call, t.background) for t in trace.threads[1:]] == [
        ("t2", "words", 0, False),
        ("t1", "lines", 0, False),
    ]
    assert [c.thread for c in trace.calls] == [0, 1, 2]


def test_a_whole_answer_without_a_stream(told: Any) -> None:
    n = told.ask("/v1/messages", claude({"role": "user", "content": "hi"}, stream=False), at=0)
    body = {"type": "message", "content": [text("Hello."), use("t9", command="ls")], "stop_reason": "tool_use"}
    body["usage"] = {"input_tokens": 50, "output_tokens": 12}
    told.answer(n, 30, json.dumps(body).encode(), kind="application/json")
    (trace,) = told.finish()
    (call,) = trace.calls
    assert (call.usage.prompt, call.usage.completion, call.stop, call.end_s) == (50, 12, "tool_use", 0.03)
    assert call.first_s is None, "nobody knows when its first token came"
    assert [c.id for c in trace.messages[call.output].tool_calls] == ["t9"]


CODEX = "/v1/responses"
INSTALLATION = "d7de504b-417f-4105-a0e0-433ee55fa4ad"


def codex_headers(thread: str = "root", **more: str) -> dict[str, str]:
    turn = {"installation_id": INSTALLATION, "session_id": "root", "thread_id": thread, "request_kind": "turn"}
    agent = {"user_agent": "codex_exec/0.171.0 (Debian) dumb", "session_id": "root", "thread_id": thread}
    return {**agent, "x_codex_turn_metadata": json.dumps(turn), **more}


def item(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def fcall(ident: str, name: str = "exec_command", **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": ident, "name": name, "arguments": json.dumps(arguments)}


def fout(ident: str, words: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": ident, "output": words}


def codex(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    tools = [
        {"type": "function", "name": "exec_command", "parameters": {}},
        {
            "type": "namespace",
            "name": "agents",
            "tools": [{"type": "function", "name": "spawn_agent", "parameters": {}}],
        },
    ]
    body = {"model": "gpt", "stream": True, "store": False, "instructions": "You are Codex.", "tools": tools}
    return {
        **body,
        "prompt_cache_key": "root",
        "input": [item("developer", "<skills>"), *items],
        "client_metadata": {"x-codex-installation-id": INSTALLATION},
        **more,
    }


def responded(*items: dict[str, Any], prompt: int = 500, cached: int = 0, out: int = 20) -> list[bytes]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "in_progress"}}]
    for i, given in enumerate(items):
        events.append(
            {"type": "response.output_item.added", "output_index": i, "item": {**given, "arguments": "", "content": []}}
        )
        if given["type"] == "message":
            events.append(
                {"type": "response.output_text.delta", "output_index": i, "delta": given["content"][0]["text"]}
            )
        else:
            events.append(
                {"type": "response.function_call_arguments.delta", "output_index": i, "delta": given["arguments"]}
            )
        events.append({"type": "response.output_item.done", "output_index": i, "item": given})
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    return sse(
        *events,
        {"type": "response.completed", "response": {"status": "completed", "output": list(items), "usage": usage}},
    )


def test_codex_and_its_subagents(told: Any) -> None:
    """`spawn_agent` returns at once, the end comes with a wait; all share session and cache key."""
    ask = item("user", "<environment_context>x</environment_context>"), item("user", "count the lines")
    spawn = item("assistant", "I delegate."), fcall("c1", "spawn_agent", message="Count the lines of hello.py, please.")
    n = told.ask(CODEX, codex(*ask), at=0, **codex_headers())
    told.answer(n, 100, *responded(*spawn))
    launched = fout("c1", '{"agent_id": "kid"}')
    n = told.ask(CODEX, codex(*ask, *spawn, launched), at=120, **codex_headers())
    head = codex_headers("kid", x_codex_parent_thread_id="root", x_openai_subagent="collab_spawn")
    kid = told.ask(CODEX, codex(item("user", "Count the lines of hello.py, please.")), at=125, **head)
    told.answer(n, 200, *responded(fcall("c2", "wait", ids=["kid"]), prompt=540))
    told.answer(kid, 900, *responded(item("assistant", "It has two lines."), prompt=300))
    done = fout("c2", '{"kid": {"completed": "It has two lines."}}')
    n = told.ask(
        CODEX, codex(*ask, *spawn, launched, fcall("c2", "wait", ids=["kid"]), done), at=930, **codex_headers()
    )
    told.answer(n, 999, *responded(item("assistant", "Two."), prompt=580, cached=512))
    (trace,) = told.finish()
    assert (trace.header.id, trace.header.agent, trace.header.agent_version) == ("root", "codex", "0.171.0")
    assert trace.header.title == "count the lines"
    assert [(t.parent, t.spawn_call, t.tool_call_id, t.background) for t in trace.threads[1:]] == [(0, 0, "c1", True)]
    assert [c.thread for c in trace.calls] == [0, 0, 1, 0]
    assert [c.joins for c in trace.calls] == [(), (), (), (1,)]
    assert trace.calls[3].usage.cached == 512
    assert trace.calls[0].usage.reasoning == 4
    assert (trace.calls[3].base, trace.calls[3].keep) == (1, 6)
    waits = [(w.before, w.cause, w.seconds) for w in trace.waits]
    assert waits == [(1, "tool", 0.02), (3, "tool", 0.73), (3, "subagent", 0.0)]
    assert trace.toolsets[0].names == ("exec_command", "spawn_agent")
    assert INSTALLATION not in "".join(p.read_text() for p in told.folder.iterdir())


def test_a_stream_that_broke_off_keeps_what_had_come(told: Any) -> None:
    n = told.ask(CODEX, codex(item("user", "go")), at=0, **codex_headers())
    told.answer(n, 100, *responded(item("assistant", "Half an answer"), fcall("c1", cmd="ls"))[:4], how="client_gone")
    (trace,) = told.finish()
    (call,) = trace.calls
    assert call.aborted
    assert [trace.blocks[b].text for b in trace.messages[call.output].blocks] == ["Half an answer"]


def test_an_error_in_the_stream_is_a_failure_and_no_call(told: Any) -> None:
    from windtunnel.agents import events as ev

    n = told.ask(CLAUDE, claude({"role": "user", "content": "hi"}), at=0)
    told.answer(n, 10, *sse({"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}}))
    n = told.ask(CODEX, codex(item("user", "go")), at=100)
    failed = {"type": "response.failed", "response": {"status": "failed", "error": {"message": "no room"}}}
    told.answer(n, 110, *sse(failed))
    assert told.finish() == []
    assert [(e.failure, e.detail) for e in told.sink.of(ev.CallEnd)] == [
        ("error_event", "too busy"),
        ("error_event", "no room"),
    ]


def test_a_tool_that_says_how_long_it_took_leaves_the_rest_to_the_client(told: Any) -> None:
    n = told.ask(CODEX, codex(item("user", "go")), at=0, **codex_headers())
    told.answer(n, 100, *responded(fcall("c1", cmd="pytest")))
    output = "Chunk ID: 736b69\nWall time: 1.3328 seconds\nProcess exited with code 0\nOutput:\nok"
    n = told.ask(
        CODEX, codex(item("user", "go"), fcall("c1", cmd="pytest"), fout("c1", output)), at=1600, **codex_headers()
    )
    told.answer(n, 1700, *responded(item("assistant", "ok"), prompt=560))
    (trace,) = told.finish()
    assert [(w.cause, w.seconds) for w in trace.waits] == [("tool", 1.3328), ("client", 0.1672)]
    (run,) = trace.tool_runs
    assert (run.start_s, run.end_s) == (0.1, 1.4328)
