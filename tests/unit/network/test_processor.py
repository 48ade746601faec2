"""Turns: what is put off, what it answers, and in how many turns of the loop that leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.network.fakes import Parking, World, answered_ids, frame, receive

if TYPE_CHECKING:
    import pytest


def run_once(world: World) -> int:
    """One turn of the loop; how many callbacks it had."""
    callbacks, world.loop.soon = world.loop.soon, []
    for callback, arguments in callbacks:
        callback(*arguments)
    return len(callbacks)


def test_what_a_deferred_call_answers_leaves_in_the_same_turn_of_the_loop() -> None:
    handler = Parking()
    world = World(handler)
    channels = [world.connect() for _ in range(2)]
    for number, (channel, _) in enumerate(channels):
        receive(channel, frame(number))
    world.processor.defer(lambda: handler.complete(0))
    world.processor.defer(lambda: handler.complete(1))

    assert run_once(world) == 1

    assert [answered_ids(transport.written) for _, transport in channels] == [[0], [1]]
    assert world.loop.soon == []


def test_what_is_deferred_by_a_deferred_call_waits_for_the_next_turn() -> None:
    world = World(Parking())
    order: list[str] = []

    def first() -> None:
        order.append("first")
        world.processor.defer(lambda: order.append("second"))

    world.processor.defer(first)

    run_once(world)
    assert order == ["first"]
    run_once(world)
    assert order == ["first", "second"]
    assert world.loop.soon == []


def test_a_deferred_call_that_fails_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    handler = Parking()
    world = World(handler)
    channel, transport = world.connect()
    receive(channel, frame(7))

    def fail() -> None:
        raise RuntimeError("a mistake")

    world.processor.defer(fail)
    world.processor.defer(lambda: handler.complete(7))
    world.loop.run()

    assert answered_ids(transport.written) == [7]
    assert "a mistake" in caplog.text
