"""Weka traces made up for the purpose."""

from typing import Any

Json = dict[str, Any]


def shop() -> Json:
    """A main chain of three requests (the third rewrites the second's end) and a sub-agent between the first two."""

    def request(t: float, size: int, out: int, hashes: list[int], kind: str, **more: Any) -> Json:
        base = {"t": t, "type": "n", "model": "claude-x", "in": size, "out": out, "hash_ids": hashes}
        return {**base, "input_types": [kind], "output_types": ["text"], "stop": "end_turn", "api_time": 2.0, **more}

    inner = [
        request(0.0, 130, 9, [1, 50], "text", think_time=0.0),
        request(4.0, 200, 9, [1, 50, 51], "tool_result", think_time=2.0),
    ]
    return {
        "id": "w-1",
        "models": ["claude-x"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 40,
        "system_tokens": 20,
        "requests": [
            request(0.0, 200, 30, [1, 2, 3], "text", think_time=0.0),
            {
                "t": 9.0,
                "type": "subagent",
                "agent_id": "a",
                "subagent_type": "Explore",
                "duration_ms": 6_500,
                "requests": inner,
            },
            request(12.0, 400, 50, [1, 2, 3, 4, 5, 6], "tool_result", think_time=10.0),
            request(60.0, 390, 5, [1, 2, 3, 4, 7, 8], "text", think_time=46.0),
        ],
    }
