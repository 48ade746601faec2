"""The event loop of a simulated process: its time, its turns, its end."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from millstream.network.client.selector import Connected, Disconnected, PeriodicRequest, Repeated
from millstream.testing.simulation.clock import EPOCH_MS, SimClock
from millstream.testing.simulation.loop import SimLoop
from millstream.testing.simulation.network import SimNetwork
from millstream.testing.simulation.schedule import Schedule
from millstream.testing.simulation.selector import SimSelector
from millstream.testing.simulation.workers import InlineExecutor, SimWorkers
from millstream.testing.simulation.world import World


class Process:
    """A loop and the schedule beneath it."""

    def __init__(self, drift_ppm: int = 0) -> None:
        self.schedule = Schedule(Random(1))
        self.clock = SimClock(self.schedule, offset_us=5_000_000, drift_ppm=drift_ppm)
        self.errors: list[dict[str, object]] = []
        self.loop = SimLoop(  # type: ignore[abstract]
            self.schedule, self.clock, on_error=self.errors.append
        )
        self.heard: list[object] = []

    def run(self, ms: int) -> None:
        self.schedule.run_until(self.schedule.now_us + ms * 1000)


def test_callbacks_come_in_order_and_timers_when_they_are_due() -> None:
    process = Process()
    process.loop.call_later(0.02, process.heard.append, "timer")
    for number in range(3):
        process.loop.call_soon(process.heard.append, number)
    process.loop.call_later(0.01, process.heard.append, "cancelled").cancel()

    process.run(19)
    assert process.heard == [0, 1, 2]
    process.run(1)
    assert process.heard == [0, 1, 2, "timer"]


def test_a_clock_that_runs_fast_makes_timers_come_early() -> None:
    process = Process(drift_ppm=100_000)
    before_ms = process.clock.monotonic_ms()
    process.loop.call_at(process.loop.time() + 11.0, process.heard.append, "due")

    process.run(9_999)
    assert process.heard == []
    process.run(2)
    assert process.heard == ["due"]
    assert process.clock.monotonic_ms() - before_ms == 11_001


def test_wall_time_jumps_and_monotonic_time_does_not() -> None:
    process = Process()
    before_ms = process.clock.monotonic_ms()
    process.clock.jump_wall(-1000)

    assert process.clock.wall_ms() == EPOCH_MS - 1000
    assert process.clock.monotonic_ms() == before_ms


def test_a_paused_process_does_nothing_until_it_goes_on() -> None:
    process = Process()
    process.loop.pause()
    process.loop.call_soon(process.heard.append, "soon")
    process.loop.call_later(0.01, process.heard.append, "timer")

    process.run(100)
    assert process.heard == []
    process.loop.resume()
    process.run(0)
    assert process.heard == ["soon", "timer"]


def test_a_slow_process_takes_its_time() -> None:
    process = Process()
    process.loop.cost_us = 50_000
    process.loop.call_soon(process.heard.append, 1)
    process.run(0)
    process.loop.call_soon(process.heard.append, 2)
    process.loop.call_later(0.01, process.heard.append, 3)

    process.run(40)
    assert process.heard == [1]
    process.run(10)
    assert process.heard == [1, 2, 3]


def test_tasks_run_and_a_dead_loop_drops_them() -> None:
    process = Process()

    async def work() -> None:
        forever: asyncio.Future[None] = process.loop.create_future()
        try:
            process.heard.append(await process.loop.run_in_executor(None, max, 1, 2))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.loop.create_future(), 1)
            process.heard.append(process.loop.time())
            await forever
            process.heard.append("never")
        finally:
            await forever

    began = process.loop.time()
    process.loop.create_task(work())
    process.run(1500)
    process.loop.die()
    process.run(5000)

    assert process.heard == [2, pytest.approx(began + 1, abs=0.01)]
    assert process.loop.is_closed()


def test_a_callback_that_raises_is_told() -> None:
    process = Process()
    process.loop.call_soon(int, "no number")

    process.run(0)

    assert isinstance(process.errors[0]["exception"], ValueError)


def test_work_is_done_later_and_in_order_of_its_pool() -> None:
    process = Process()
    workers = SimWorkers(process.loop, lambda: 10_000)
    workers.run("pool", lambda: "first", process.heard.append)
    workers.run("pool", lambda: "second", process.heard.append)

    process.run(5)
    assert process.heard == []
    process.run(10)
    assert process.heard == ["first"]
    process.run(10)
    assert process.heard == ["first", "second"]


def test_workers_that_close_finish_what_has_begun_and_drop_the_rest() -> None:
    process = Process()
    workers = SimWorkers(process.loop, lambda: 10_000)
    workers.submit("pool", lambda: process.heard.append("begun"))
    workers.submit("pool", lambda: process.heard.append("waits"))

    workers.close()
    process.run(100)

    assert process.heard == ["begun"]


def test_an_inline_executor_does_everything_at_once() -> None:
    executor = InlineExecutor()
    assert executor.submit(max, 1, 2).result() == 2
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(int, "x").result()


def test_a_periodic_request_is_sent_until_its_end() -> None:
    process = Process()
    network = SimNetwork(process.schedule, Random(2))
    listener = network.listen("server", ("server", 9092))
    events: list[object] = []
    selector: SimSelector
    selector = SimSelector(process.loop, network, "client", lambda: events.extend(selector.poll(0)))
    selector.connect(1, "server", 9092)
    process.run(10)
    assert events == [Connected(1)]
    server, _ = listener.accept()
    now_ms = process.clock.monotonic_ms()
    selector.repeat(1, 9, PeriodicRequest(bytes(12), now_ms, 100, now_ms + 250, 5))

    process.run(1000)
    sent = [each for each in events if isinstance(each, Repeated)]
    assert [each.correlation_id for each in sent] == [5, 6, 7]
    assert [data[8:12] for data in server.inbox] == [n.to_bytes(4, "big") for n in (5, 6, 7)]

    selector.repeat(1, 9, PeriodicRequest(bytes(12), now_ms + 2000, 100, now_ms + 9000, 5))
    server.send(b"\xff\xff\xff\xff")
    process.run(3000)
    assert isinstance(events[-1], Disconnected)
    assert len(server.inbox) == 3
    selector.wake()
    selector.shutdown()


def test_what_fails_inside_of_a_node_is_raised_by_the_world() -> None:
    world = World(1)
    world.schedule.after(10, lambda: world.fail("node1", None, "a promise is broken"))

    with pytest.raises(RuntimeError, match="a promise is broken"):
        world.run_for(1)


def test_a_world_in_which_time_stands_still_is_noticed() -> None:
    world = World(1)

    def again() -> None:
        world.schedule.after(0, again)

    again()
    with pytest.raises(AssertionError, match="time stands still"):
        world.run_for(1)
