"""Megabytes from one server do not keep the client from the others."""

import asyncio

from windtunnel.agents.http import Connection
from windtunnel.agents.sse import parse


def test_a_line_of_ten_megabytes_lets_the_other_sockets_go_first(run, talk, say, monkeypatch):
    turn, reads = 0, []
    received = Connection.data_received

    def noted(self, data):
        reads.append((turn, len(data)))
        received(self, data)

    monkeypatch.setattr(Connection, "data_received", noted)

    async def main():
        loop, going = asyncio.get_running_loop(), True

        def count():
            nonlocal turn
            turn += 1
            if going:
                loop.call_soon(count)

        async def answer(request, writer):
            writer.write(say.head + say.chunked(*say.words("x" * 10_000_000, usage=1)))
            return True

        async with talk(answer) as (client, _):
            count()
            raw = await client.stream("/v1/x", [b"{}"], request_id="r")
            going = False
            got = parse(raw.take(), raw.failure, raw.detail)
            assert (got.failure, len(got.whole_text)) == (None, 10_000_000)

    run(main())
    large = [at for at, size in reads if size >= 65_536]
    assert len(large) > 20
    assert len(set(large)) == len(large)
