import asyncio
from itertools import pairwise

import pytest

from windtunnel.agents.clock import VirtualClock
from windtunnel.agents.http import RawStream
from windtunnel.agents.reading import Reader


def received(say, request_id, *texts, usage=None, ended=True):
    raw = RawStream(request_id=request_id, status=200)
    raw.pieces = [(i, event) for i, event in enumerate(say.words(*texts, usage=usage))]
    if ended:
        raw.t_end = len(raw.pieces)
    return raw


def test_progress_is_seen_while_a_stream_runs_and_the_result_is_whole(say):
    async def main():
        reader = Reader()
        raw = received(say, "a", "one ", "two ", "three", usage=3, ended=False)
        last = raw.pieces[3:]
        raw.pieces = raw.pieces[:3]
        reading = reader.open(raw)
        await reader.catch_up()
        assert (reading.parser.tokens_so_far, reading.parser.tail, raw.pieces) == (2, "one two ", [])
        raw.pieces.extend(last)
        raw.t_end = 9
        got = await reader.finish(raw)
        assert (got.text, got.failure, got.completion_tokens, reader.live) == ("one two three", None, 3, {})

    VirtualClock().run(main())


def test_the_transport_failure_reaches_the_result(say):
    async def main():
        reader = Reader()
        raw = received(say, "a", "x")
        raw.pieces = raw.pieces[:1]
        raw.failure, raw.detail = "connection_reset", "by peer"
        reader.open(raw)
        got = await reader.finish(raw)
        assert (got.failure, got.detail) == ("connection_reset", "by peer")

    VirtualClock().run(main())


def test_others_run_between_the_slices(say):
    async def main():
        now = [0]

        def tick():
            now[0] += 200_000
            return now[0]

        reader = Reader(now_ns=tick)
        raws = [received(say, str(i), *["w"] * 100) for i in range(50)]
        for raw in raws:
            reader.open(raw)
        turns = 0

        async def neighbour():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(neighbour())
        results = await asyncio.gather(*(reader.finish(raw) for raw in raws))
        assert {got.text for got in results} == {"w" * 100}
        assert turns >= 100
        turns = 0
        for raw in raws:
            raw.pieces = [(1, e) for e in say.words(*["w"] * 100)]
            reader.open(raw)
        await reader.catch_up()
        assert turns >= 100
        task.cancel()

    VirtualClock().run(main())


def test_a_cancelled_wait_leaves_the_others_alone(say):
    async def main():
        reader = Reader()
        first, second = received(say, "a", "x"), received(say, "b", "y")
        reader.open(first)
        reader.open(second)
        waiting = asyncio.create_task(reader.finish(first))
        other = asyncio.create_task(reader.finish(second))
        await asyncio.sleep(0)
        waiting.cancel()
        assert (await other).text == "y"
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert reader.live == {}

    VirtualClock().run(main())


def test_a_parser_that_raises_is_heard(say, monkeypatch):
    async def main():
        reader = Reader()
        raw = received(say, "a", "x")
        reading = reader.open(raw)
        monkeypatch.setattr(reading.parser, "feed", None)
        with pytest.raises(TypeError):
            await reader.finish(raw)

    VirtualClock().run(main())


def test_a_line_of_megabytes_is_taken_in_steps_of_about_a_read(say):
    async def main():
        reader = Reader()
        event = b"".join(say.words("x" * 1_000_000, "y", usage=2))
        raw = RawStream(request_id="long", status=200, t_end=9)
        raw.pieces = [(at, event[at : at + 50_000]) for at in range(0, len(event), 50_000)]
        reading = reader.open(raw)
        left, used = [], []
        while not reading.step():
            left.append(len(raw.pieces))
            used.append(len(reading.parser.used))
        # What the line was is freed a little at a time, too.
        assert max(used) > 10
        assert max(a - b for a, b in pairwise([*used, len(reading.parser.used)])) <= 4
        assert reading.parser.used == []
        assert len(left) >= len(event) // 100_000 - 1
        assert left == sorted(left, reverse=True)
        got = await reader.finish(raw)
        assert (len(got.whole_text), got.failure, got.completion_tokens) == (1_000_001, None, 2)

    VirtualClock().run(main())


@pytest.mark.parametrize(
    "flood", [b"\n" * 65_536, b"x" * 65_536, b": still here\n\n" + b"x" * 65_520, b"data: x\n" * 8192]
)
def test_what_comes_faster_than_it_is_parsed_is_given_up(flood):
    """Each turn of the loop brings more than a step of it."""

    async def main():
        reader = Reader()
        raw = RawStream(request_id="a", status=200, most_tokens=10)
        given = []

        def give_up(failure, detail):
            given.append((failure, detail))
            raw.t_end, raw.give_up, raw.failure = 1, None, failure

        raw.give_up = give_up

        async def server():
            while not raw.done:
                for _ in range(64):
                    raw.pieces.append((0, flood))
                await asyncio.sleep(0)

        serving = asyncio.create_task(server())
        reader.open(raw)
        await asyncio.wait_for(reader.catch_up(), 20)
        serving.cancel()
        ((name, detail),) = given
        assert name == "endless"
        assert detail.endswith(" MiB and no end where at most 10 tokens were asked for")
        assert 64 <= int(detail.split()[0]) < 80
        assert raw.pieces == []

    asyncio.run(main())
