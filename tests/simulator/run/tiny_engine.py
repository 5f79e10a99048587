"""A plain OpenAI-compatible server as an engine command: python tiny_engine.py PORT.

It streams the tokens it is asked for, and says on stderr with its third call, and each one after it, that it compiles.
"""

import asyncio
import json
import sys

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
calls = 0


def answer(line, body):
    """Status line to come, content type and body."""
    global calls  # noqa: PLW0603
    if "/v1/models" in line:
        return "application/json", json.dumps({"data": [{"id": "tiny", "max_model_len": 8192}]})
    if "/chat/completions" not in line:
        return None
    asked = json.loads(body)
    calls += len(asked["messages"]) > 2
    if calls >= 3:
        print("INFO [kernel.py:7] Compiling a graph for shape (1, 64)", file=sys.stderr, flush=True)
    tokens = asked.get("max_tokens", 1)
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}}
    said = [{"choices": [{"index": 0, "delta": {"content": "w "}, "finish_reason": None}]} for _ in range(tokens)]
    said[-1]["choices"][0]["finish_reason"] = "length"
    said.append({"choices": [], "usage": usage})
    return "text/event-stream", "".join(f"data: {json.dumps(s)}\n\n" for s in said) + "data: [DONE]\n\n"


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(h[15:]) for h in head.lower().split("\r\n") if h.startswith("content-length:")), 0)
            found = answer(head.partition("\r\n")[0], await reader.readexactly(length))
            if found is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            else:
                kind, text = found
                await asyncio.sleep(0.02)
                writer.write((HEAD % (kind, len(text)) + text).encode())
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()


asyncio.run(main())
