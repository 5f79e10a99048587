"""Answers that were not streamed: when their first token came is not known."""

import json
from typing import Any

import pytest
from test_recorder import CHAT, chat, user

from windtunnel.agents.events import CallEnd
from windtunnel.simulator.results.calls import in_one_piece

BODIES: dict[str, Any] = {
    CHAT: {
        "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 4},
    },
    "/v1/messages": {
        "type": "message",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 4},
    },
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("later", [0, 7])
def test_no_time_but_the_end_is_known(told: Any, path: str, later: int) -> None:
    """Also where it came in parts, or the connection was closed a while after it."""
    body = json.dumps(BODIES[path]).encode()
    n = told.ask(path, chat(user("hi"), stream=False), at=0)
    told.arrive(n, 30, body[:10], body[10:], kind="application/json")
    told.answer(n, 30 + later, kind="application/json")
    (trace,) = told.finish()
    assert (trace.calls[0].first_s, trace.calls[0].end_s) == (None, (30 + later) / 1000)
    (end,) = told.sink.of(CallEnd)
    assert in_one_piece(end)


def test_an_answer_of_one_token_ends_with_it(told: Any) -> None:
    body = BODIES[CHAT] | {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    n = told.ask(CHAT, chat(user("hi"), stream=False), at=0)
    told.answer(n, 30, json.dumps(body).encode(), kind="application/json")
    (trace,) = told.finish()
    assert trace.calls[0].first_s == trace.calls[0].end_s == 0.03
