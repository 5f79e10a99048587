"""Against a server that logs the time of its own writes: the counts are exact and the times are those of the wire.

The server is part of the optional data folder; without it or without a C compiler there is nothing to compare with.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from windtunnel.agents.client import StreamClient, parse_target
from windtunnel.agents.sse import check_length, parse

SOURCE = Path(__file__).parents[3] / "shared" / "perf" / "src" / "truth_server.c"
TTFT_MS, ITL_MS, TOKENS_PER_CHUNK, TOKENS, STREAMS = 60, 10, 3, 100, 16


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    gcc = shutil.which("gcc")
    if gcc is None or not SOURCE.exists():
        pytest.skip("needs gcc and ../shared/perf")
    binary = tmp_path_factory.mktemp("truth") / "truth_server"
    subprocess.run([gcc, "-O1", "-o", binary, SOURCE], check=True, capture_output=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    arguments = ["--port", port, "--ttft-ms", TTFT_MS, "--itl-ms", ITL_MS, "--tpc", TOKENS_PER_CHUNK]
    server = subprocess.Popen([binary, *map(str, arguments)], stderr=subprocess.PIPE)
    server.stderr.readline()
    yield port
    server.kill()
    server.wait()
    server.stderr.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_counts_are_exact_and_times_are_true(truth, run, path):
    base = f"http://127.0.0.1:{truth}"
    urllib.request.urlopen(urllib.request.Request(f"{base}/truth/reset", method="POST")).close()
    body = {"max_tokens": TOKENS, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    head, tail = json.dumps(body | {"prompt": "x"})[:-1].encode(), b"x" * 20_000 + b'"}'

    async def main():
        client = StreamClient(parse_target(base))
        calls = [client.stream(path, [head, b',"pad":"', tail], request_id=f"call-{i}") for i in range(STREAMS)]
        raws = await asyncio.gather(*calls)
        await client.close()
        return raws

    raws = run(main())
    with urllib.request.urlopen(f"{base}/truth/log") as answer:
        log = {entry["xid"]: entry for entry in map(json.loads, answer.read().splitlines())}
    first_lag, last_lag, ttft_error, tpot_error = [], [], [], []
    for raw in raws:
        got, true = parse(raw.take(), raw.failure, raw.detail), log[raw.request_id]
        assert (got.failure, got.finish, check_length(got, TOKENS)) == (None, "length", None)
        assert got.completion_tokens == sum(got.chunk_n) == len(got.text.split()) == TOKENS
        assert len(got.chunk_t) == true["n_chunk"] == 34
        assert raw.t_write <= true["t_full"]
        first_lag.append(got.t_first - true["t_c1"])
        last_lag.append(got.t_last - true["t_cN"])
        ttft_error.append((got.t_first - raw.t_sent) - (true["t_c1"] - true["t_full"]))
        true_tpot = (true["t_cN"] - true["t_c1"]) / (TOKENS - TOKENS_PER_CHUNK)
        tpot = sum(b - a for a, b in pairwise(got.chunk_t)) / (TOKENS - got.chunk_n[0])
        tpot_error.append(tpot / true_tpot - 1)
    assert min(first_lag) > 0
    assert min(last_lag) > 0
    assert quartile(first_lag) < 5_000_000
    assert quartile(last_lag) < 5_000_000
    assert quartile(map(abs, ttft_error)) < 5_000_000
    assert quartile(map(abs, tpot_error)) < 0.02


def quartile(values):
    """The lower one: what a machine shared with other programs still shows."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]
