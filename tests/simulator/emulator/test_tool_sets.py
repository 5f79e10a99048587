"""A recorded session with sub-agents, replayed: no call finds more in the cache than was expected of it."""

import json
from pathlib import Path

import pytest

from windtunnel.agents.expected import PrefixIndex, Trail
from windtunnel.agents.prompt import PATHS, Conversation, Options, Output, prepare
from windtunnel.simulator.engines.base import Capabilities, Resolved
from windtunnel.simulator.run.calibrate import Tokenizer, learn_rendering, refine
from windtunnel.traces.anonymise import anonymise
from windtunnel.traces.sources import load

LOCAL = Path(__file__).resolve().parents[4] / "shared/traces/claude-code/local-run-2.1.332-async-subagents"
UNIT = 16


@pytest.mark.parametrize("route", ["chat", "tokens"])
@pytest.mark.parametrize("shared", [False, True])
async def test_reported_cached_tokens_stay_under_the_ceiling(serve, route, shared) -> None:
    if not LOCAL.is_dir():
        pytest.skip("no recorded sessions: ../shared/traces is absent")
    recorded = load([str(LOCAL)]).traces[0]
    trace = anonymise(recorded, bytes(range(32))) if shared else recorded
    engine = await serve()
    resolved = Resolved(name="vllm", model="gpt-oss-20b", capabilities=Capabilities(tokenize=True))
    tokenizer = Tokenizer(engine.session, engine.url("/"), "gpt-oss-20b")
    rendering = await learn_rendering(tokenizer, resolved, [trace])
    assert not rendering.system_first, "its template writes the tools in front"
    prepared = prepare(trace, route, await refine(tokenizer, rendering, [prepare(trace, route, rendering)]))
    talk, index, trails = Conversation(prepared, Options("gpt-oss-20b")), PrefixIndex(UNIT), {}
    expected, reported = {}, {}
    longer = 0
    """Tokens that a prompt so far has more than were planned: so much more of it can be found."""
    for call in trace.calls:
        body = talk.body(call.id)
        trail = trails.setdefault(call.thread, Trail())
        match = index.sent(trail, body.kept_pieces, body.added_pieces, body.expected_prompt_tokens)
        talk.ended(call.id, Output(tokens=1))
        asked = json.loads(b"".join(body.parts)) | {"max_tokens": 1, "min_tokens": 1}
        usage = (await engine.stream(PATHS[route], asked))[-2]["usage"]
        planned = body.expected_prompt_tokens
        assert usage["prompt_tokens"] == pytest.approx(planned, rel=0.01 if route == "chat" else 0, abs=2)
        expected[call.id] = match.rounded
        reported[call.id] = usage["prompt_tokens_details"]["cached_tokens"]
        longer = max(longer, usage["prompt_tokens"] - planned)
        assert reported[call.id] <= match.exact + UNIT + longer
    first = next(c.id for c in trace.calls if c.thread == 1)
    begins = sum(recorded.blocks[b].tokens for b in recorded.toolsets[0].blocks[:3])
    assert reported[first] >= begins - UNIT > 2_000, "a sub-agent finds the main agent's first three tools"
    assert sum(reported.values()) == pytest.approx(sum(expected.values()), rel=0.01)
