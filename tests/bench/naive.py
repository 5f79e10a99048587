"""A load client as it is usually written: aiohttp, the body serialised for each request, every line parsed as it comes.

It stands in the bench for what a script of thirty lines measures. Results as `raw_client` writes them.
Usage: naive.py PORT STREAMS REQUESTS PATH BODY_FILE OUT
"""

import array
import asyncio
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any


async def one(session: Any, url: str, payload: Any, number: int, intended: int) -> dict[str, Any]:
    times: list[int] = []
    text = ""
    start = time.perf_counter_ns()
    async with session.post(url, json=payload, headers={"X-Request-Id": f"naive-{number}"}) as response:
        async for raw in response.content:
            line = raw.decode().strip()
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                break
            choices = json.loads(line[6:])["choices"]
            if choices:
                piece = choices[0]["delta"].get("content") if "delta" in choices[0] else choices[0]["text"]
                if piece:
                    times.append(time.perf_counter_ns())
                    text += piece
    end = time.perf_counter_ns()
    ends = {"first": times[0], "last": times[-1]} if times else {"first": 0, "last": 0}
    told = {"id": f"naive-{number}", "intended": intended, "start": start, "sent": start, **ends, "end": end}
    return {**told, "chunks": len(times), "times": times}


async def main(port: str, streams: str, requests: str, path: str, body: str, out: str) -> None:
    import aiohttp

    payload = json.loads(Path(body).read_bytes())
    results: list[dict[str, Any]] = []
    numbers = itertools.count()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        began = time.perf_counter_ns()

        async def stream() -> None:
            intended = began
            while (number := next(numbers)) < int(requests):
                results.append(await one(session, f"http://127.0.0.1:{port}{path}", payload, number, intended))
                intended = results[-1]["end"]

        await asyncio.gather(*(stream() for _ in range(int(streams))))
    arrivals = array.array("q", [t for result in results for t in result.pop("times")])
    Path(out).write_text("".join(json.dumps(result) + "\n" for result in results))
    Path(f"{out}.times").write_bytes(arrivals.tobytes())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
