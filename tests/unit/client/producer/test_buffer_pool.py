"""Memory is bounded, handed out in order, and never lost."""

from __future__ import annotations

from millstream.client.producer.buffer_pool import SPARE_WRITERS_MAX, BufferPool
from millstream.records import BatchWriter


def test_memory_is_taken_and_given_back() -> None:
    pool = BufferPool(100)

    assert pool.try_reserve(60)
    assert not pool.try_reserve(60)
    assert pool.release(60) == []
    assert pool.available == 100


def test_who_asked_first_is_served_first_even_if_a_later_one_would_fit() -> None:
    pool = BufferPool(100)
    pool.try_reserve(90)
    first, second = pool.enqueue(50), pool.enqueue(5)

    assert not pool.try_reserve(1), "nobody overtakes"
    assert pool.has_waiters
    assert pool.waiting() == [first, second]
    assert pool.release(10) == []
    assert pool.release(40) == [first, second]
    assert first.is_granted
    assert second.is_granted
    assert pool.available == 100 - 40 - 50 - 5


def test_what_is_free_is_granted_at_once() -> None:
    reservation = BufferPool(10).enqueue(10)

    assert reservation.is_granted


def test_a_cancelled_wait_lets_the_next_one_through() -> None:
    pool = BufferPool(100)
    pool.try_reserve(90)
    large, small = pool.enqueue(50), pool.enqueue(5)

    assert pool.cancel(large) == [small]
    assert pool.cancel(large) == []
    assert pool.cancel(small) == []
    assert pool.available == 10


def test_a_waiter_is_woken_when_granted_or_at_once_if_it_was() -> None:
    pool = BufferPool(10)
    pool.try_reserve(10)
    reservation = pool.enqueue(5)
    calls: list[str] = []
    reservation.when_granted(lambda: calls.append("woken"))
    assert calls == []

    for each in pool.release(10):
        each.wake()
    assert calls == ["woken"]
    reservation.when_granted(lambda: calls.append("again"))

    assert calls == ["woken", "again"]


def test_spare_buffers_stay_inside_the_bound_and_yield_to_who_needs_memory() -> None:
    pool = BufferPool(100)
    pool.try_reserve(60)
    writer = BatchWriter()
    assert pool.keep_spare(writer, 60)
    assert pool.available == 40

    assert pool.take_spare() == (writer, 60)
    assert pool.take_spare() is None
    assert pool.keep_spare(writer, 60)
    assert pool.try_reserve(80), "the spare one was given up"
    assert pool.available == 20
    assert pool.take_spare() is None


def test_no_spare_buffers_while_somebody_waits_nor_too_many() -> None:
    pool = BufferPool(1000)
    for _ in range(SPARE_WRITERS_MAX):
        assert pool.try_reserve(1)
        assert pool.keep_spare(BatchWriter(), 1)
    pool.try_reserve(1)
    assert not pool.keep_spare(BatchWriter(), 1)
    pool.enqueue(1000)

    assert pool.take_spare() is None
    assert not pool.keep_spare(BatchWriter(), 1)
