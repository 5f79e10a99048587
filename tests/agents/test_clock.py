import asyncio
import time

import pytest

from windtunnel.agents.clock import DeadlockError, RealClock, VirtualClock


def test_hours_of_virtual_time_pass_at_once_and_to_the_nanosecond():
    clock = VirtualClock()

    async def main() -> list[int]:
        seen = []
        for deadline in (1, 1_000_000_007, 86_400_000_000_000 * 3 + 1):
            await clock.sleep_until(deadline)
            seen.append(clock.now_ns())
        return seen

    started = time.perf_counter()
    assert clock.run(main()) == [1, 1_000_000_007, 86_400_000_000_000 * 3 + 1]
    assert time.perf_counter() - started < 1


def test_ordinary_asyncio_code_runs_on_virtual_time():
    clock = VirtualClock()

    async def main() -> list[str]:
        log: list[str] = []

        async def worker(name: str, pause: float) -> None:
            for _ in range(3):
                await asyncio.sleep(pause)
                log.append(f"{name}@{clock.now_ns() // 1_000_000}")

        async with asyncio.TaskGroup() as group:
            group.create_task(worker("a", 0.5))
            group.create_task(worker("b", 0.7))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        log.append(f"timeout@{clock.now_ns() // 1_000_000}")
        return log

    expected = ["a@500", "b@700", "a@1000", "b@1400", "a@1500", "b@2100", "timeout@62100"]
    assert clock.run(main()) == expected
    assert VirtualClock().now_ns() == 0


def test_virtual_time_goes_on_between_runs_and_cannot_go_back():
    clock = VirtualClock(start_ns=5)

    async def main() -> int:
        await clock.sleep(1)
        await clock.sleep_until(0)
        return clock.now_ns()

    assert clock.run(main()) == 1_000_000_005
    assert clock.run(main()) == 2_000_000_005


def test_code_does_not_advance_virtual_time():
    clock = VirtualClock()

    async def main() -> int:
        for _ in range(1000):
            await asyncio.sleep(0)
        return clock.now_ns()

    assert clock.run(main()) == 0


def test_what_is_repeated_is_called_at_the_times_that_it_says_and_no_more_once_it_is_cancelled():
    clock = VirtualClock()
    seen: list[int] = []

    def look() -> int | None:
        seen.append(clock.now_ns())
        return None if len(seen) == 4 else (seen[-1] + 7 if len(seen) != 2 else seen[-1])

    async def main() -> None:
        await clock.repeat(look)
        forever = asyncio.create_task(clock.repeat(lambda: clock.now_ns() + 10))
        await clock.sleep_until(100)
        forever.cancel()
        await asyncio.gather(forever, return_exceptions=True)
        called = []
        clock.call_at(150, called.append, 1)
        clock.call_at(160, called.append, 2).cancel()
        await clock.sleep_until(200)
        assert called == [1]

    clock.run(main())
    assert seen == [0, 7, 7, 14]
    assert clock.now_ns() == 200


def test_an_error_where_nobody_waits_for_it_ends_the_run():
    clock = VirtualClock()

    async def main() -> None:
        clock.call_at(5, [].pop)
        await clock.sleep_until(10)

    with pytest.raises(IndexError):
        clock.run(main())


def test_waiting_for_nothing_is_an_error_and_not_a_hang():
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        VirtualClock().run(main())


def test_real_clock_wakes_never_early_and_hardly_late(run):
    clock = RealClock()

    async def main() -> list[int]:
        late = []
        for i in range(20):
            deadline = clock.now_ns() + 1_300_000 + i * 170_000
            await clock.sleep_until(deadline)
            late.append(clock.now_ns() - deadline)
        return late

    late = run(main())
    assert min(late) >= 0
    assert min(late) < 500_000  # a busy machine delays single wake-ups, never all twenty


def test_real_deadline_in_the_past_lets_others_run(run):
    clock = RealClock()

    async def main() -> bool:
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        await clock.sleep_until(0)
        return ran.is_set()

    assert run(main())


@pytest.mark.parametrize("alarms", [True, False])
def test_waits_end_in_the_order_of_their_deadlines_and_cancelled_ones_disturb_nobody(run, monkeypatch, alarms):
    if not alarms:

        def none(_loop):
            raise OSError("none here")

        monkeypatch.setattr("windtunnel.agents.clock.Alarm", none)
    clock = RealClock()

    async def main() -> list[int]:
        began, ended = clock.now_ns(), []

        async def wait(ms: int) -> None:
            await clock.sleep_until(began + ms * 1_000_000)
            ended.append(ms)

        tasks = [asyncio.create_task(wait(ms)) for ms in (9, 3, 14, 6, 1, 20)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[4].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    assert run(main()) == [3, 6, 14, 20]
    clock.close()
    clock.close()


def test_a_clock_goes_with_its_user_from_loop_to_loop():
    clock = RealClock()
    for _ in range(2):
        before = clock.now_ns()
        asyncio.run(clock.sleep(0.002))
        assert clock.now_ns() - before >= 2_000_000
