"""How long one connection keeps others waiting: frames and time of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.network.server.processor import (
    FULL_PATH_FRAMES,
    PUT_OFF_FRAMES_MAX,
    TURN_FRAMES_MAX,
    TURN_MS_MAX,
)
from tests.unit.network.fakes import World, answer, answered_ids, frame, receive

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.server import Outcome, Request, Response

FIRST = TURN_FRAMES_MAX // FULL_PATH_FRAMES
NEXT = PUT_OFF_FRAMES_MAX // FULL_PATH_FRAMES
MANY = FIRST + 5 * NEXT + 1


class Diary:
    """A handler that notes which connection is served, and may take its time."""

    def __init__(self) -> None:
        self.served: list[int] = []
        self.takes_time: Callable[[], None] = lambda: None

    def __call__(self, request: Request) -> Response | Outcome:
        self.served.append(request.connection.connection_id)
        self.takes_time()
        return answer(request)


def frames(count: int, size: int = 0) -> bytes:
    return b"".join(frame(number, bytes(size)) for number in range(count))


@pytest.mark.parametrize("size", [0, 1000, 7000], ids=["carried", "own buffer", "large reads"])
def test_a_connection_that_pipelines_lets_others_go_first(size: int) -> None:
    diary = Diary()
    world = World(diary)
    eager, eager_end = world.connect()
    modest, modest_end = world.connect()
    stream = receive(eager, frames(MANY, size))
    assert diary.served == [1] * FIRST
    receive(modest, frame(7))
    assert diary.served[FIRST:] == [2]
    assert answered_ids(modest_end.written) == [7]
    while stream or eager.is_muted:
        world.loop.run()
        stream = receive(eager, stream)
    assert answered_ids(eager_end.written) == list(range(MANY))
    assert eager_end.is_reading
    assert world.processor.mutes == 0


def test_connections_that_pipeline_take_turns() -> None:
    diary = Diary()
    world = World(diary)
    for _ in range(2):
        channel, _ = world.connect()
        receive(channel, frames(FIRST + 2 * NEXT))
    world.loop.run()
    assert diary.served == [1] * FIRST + [2] * FIRST + ([1] * NEXT + [2] * NEXT) * 2


def test_requests_that_take_long_are_put_off_one_by_one() -> None:
    diary = Diary()
    world = World(diary)
    diary.takes_time = lambda: world.clock.advance(TURN_MS_MAX)
    for _ in range(2):
        channel, _ = world.connect()
        receive(channel, frames(3))
    assert diary.served == [1, 2]
    world.loop.run()
    assert diary.served == [1, 2, 1, 2, 1, 2]


def test_between_two_that_take_long_the_loop_looks_at_its_sockets() -> None:
    diary = Diary()
    world = World(diary)
    diary.takes_time = lambda: world.clock.advance(TURN_MS_MAX)
    for _ in range(3):
        channel, _ = world.connect()
        receive(channel, frames(2))
    (callback, arguments) = world.loop.soon.pop(0)
    callback(*arguments)
    assert diary.served == [1, 2, 3, 1]
    assert len(world.loop.soon) == 1


def test_a_connection_that_ends_while_it_is_put_off_is_forgotten() -> None:
    diary = Diary()
    world = World(diary)
    channel, _ = world.connect()
    receive(channel, frames(MANY))
    channel.connection_lost(ConnectionResetError())
    world.loop.run()
    assert len(diary.served) == FIRST
    assert world.closed == [channel]
