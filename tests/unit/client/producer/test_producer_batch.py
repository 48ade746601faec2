"""A batch ends once, tells who waits, can be renumbered and split, and knows who has looked."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from millstream.client.producer import delivery, kernel
from millstream.client.producer.completions import Completions
from millstream.client.producer.delivery import BatchDelivery, Delivery
from millstream.client.producer.producer_batch import with_producer_state
from millstream.client.producer.record import ProducedRange, RecordMetadata
from millstream.errors import (
    BrokerUnreachable,
    InvalidRecord,
    MessageTooLarge,
    OperationTimeout,
)
from millstream.records import RecordBatch, TimestampType
from millstream.records.compression import Compression
from tests.unit.client.producer.fakes import TOPIC, InlineDispatcher, make_batch


@pytest.fixture(autouse=True, params=[delivery.Delivery, kernel.Delivery], ids=["plain", "kernel"])
def each_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here holds for both kinds of handles."""
    monkeypatch.setitem(globals(), "Delivery", request.param)


def test_a_renumbered_batch_is_the_same_but_for_its_numbers() -> None:
    batch = make_batch()
    batch.number(7, 1, 5)
    batch.seal(Compression.GZIP, 9, is_transactional=True)

    batch.number(8, 2, 0)

    assert batch.records is not None
    sealed = RecordBatch(batch.records)
    sealed.check_crc()
    assert (sealed.producer_id, sealed.producer_epoch, sealed.base_sequence) == (8, 2, 0)
    assert sealed.is_transactional
    assert [each.value for each in sealed.records()] == [b"0", b"1", b"2"]
    assert batch.is_renumbered
    assert with_producer_state(batch.records, 8, 2, 0) == batch.records


def test_sealing_again_changes_nothing() -> None:
    batch = make_batch()
    assert batch.seal(Compression.NONE, None, is_transactional=False) is not None

    assert batch.seal(Compression.NONE, None, is_transactional=False) is None


class TestOutcome:
    """What handles tell."""

    def test_places_follow_from_the_first(self) -> None:
        batch = make_batch()
        deliveries = [Delivery(batch, index, 100 + index) for index in range(3)]
        assert not deliveries[0].done()
        assert "pending" in repr(deliveries[0])

        batch.complete(40, -1)

        assert deliveries[2].result(0) == RecordMetadata(TOPIC, 0, 42, 102)
        assert deliveries[2].exception(0) is None
        assert "offset 42" in repr(deliveries[2])

    def test_the_brokers_time_wins_and_unknown_offsets_stay_unknown(self) -> None:
        batch = make_batch()
        batch.complete(-1, 999)

        assert Delivery(batch, 1, 5).result(0) == RecordMetadata(TOPIC, 0, -1, 999)

    def test_all_records_of_a_lost_batch_are_lost(self) -> None:
        batch = make_batch()
        batch.fail(MessageTooLarge("no"))

        with pytest.raises(MessageTooLarge):
            Delivery(batch, 0, 0).result(0)
        assert "lost" in repr(Delivery(batch, 0, 0))

    def test_a_bad_record_is_told_apart_from_its_neighbours(self) -> None:
        batch = make_batch()
        batch.fail(InvalidRecord("bad"), {1: "no key"})

        assert str(Delivery(batch, 1, 0).exception(0)) == "no key"
        assert "other records" in str(Delivery(batch, 0, 0).exception(0))

    def test_a_wait_that_takes_too_long_says_where_the_record_goes(self) -> None:
        with pytest.raises(OperationTimeout, match="topic-0"):
            Delivery(make_batch(), 0, 0).result(0)

    def test_threads_that_wait_are_woken(self) -> None:
        batch = make_batch()
        places: list[int] = []
        threads = [
            threading.Thread(
                target=lambda index=index: places.append(
                    Delivery(batch, index, 0).result(10).offset
                )
            )
            for index in range(3)
        ]
        for each in threads:
            each.start()
        batch.complete(10, -1)
        for each in threads:
            each.join()

        assert sorted(places) == [10, 11, 12]

    def test_callbacks_are_called_once_before_or_after_the_end(self) -> None:
        batch = make_batch()
        calls: list[int] = []
        Delivery(batch, 0, 0).add_done_callback(lambda done: calls.append(done.result(0).offset))
        assert calls == []

        batch.complete(7, -1)
        Delivery(batch, 1, 0).add_done_callback(lambda done: calls.append(done.result(0).offset))

        assert calls == [7, 8]

    def test_a_callback_that_raises_does_not_stop_the_next(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        batch = make_batch()
        calls: list[int] = []
        Delivery(batch, 0, 0).add_done_callback(lambda _: 1 // 0)
        Delivery(batch, 1, 0).add_done_callback(lambda _: calls.append(1))

        batch.complete(0, -1)

        assert calls == [1]
        assert "ZeroDivisionError" in caplog.text

    def test_awaiting_before_and_after_the_end(self) -> None:
        batch = make_batch()

        async def main() -> list[RecordMetadata]:
            waits = [asyncio.ensure_future(_place(Delivery(batch, n, 0))) for n in range(3)]
            await asyncio.sleep(0)
            threading.Thread(target=batch.complete, args=(5, -1)).start()
            places = list(await asyncio.gather(*waits))
            return [*places, await Delivery(batch, 0, 0)]

        assert [each.offset for each in asyncio.run(main())] == [5, 6, 7, 5]

    def test_a_cancelled_wait_has_not_looked(self) -> None:
        completions = Completions(InlineDispatcher())
        batch = make_batch(1, completions)

        async def main() -> None:
            waiting = asyncio.ensure_future(_place(Delivery(batch, 0, 0)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

        asyncio.run(main())
        batch.fail(MessageTooLarge("no"))

        assert completions.take_unseen() is not None


async def _place(delivery: Delivery) -> RecordMetadata:
    return await delivery


class TestUnseenLosses:
    """What `flush` raises for."""

    def test_only_those_that_nobody_has_looked_at_count(self) -> None:
        completions = Completions(InlineDispatcher())
        batch = make_batch(3, completions)
        batch.fail(MessageTooLarge("no"))
        Delivery(batch, 1, 0).exception(0)

        lost = completions.take_unseen()

        assert lost is not None
        assert lost.count == 2
        assert "2 records were not delivered" in str(lost)
        assert completions.take_unseen() is None

    def test_nothing_is_raised_when_all_were_seen_or_nothing_was_lost(self) -> None:
        completions = Completions(InlineDispatcher())
        make_batch(1, completions).complete(0, -1)
        batch = make_batch(1, completions)
        batch.fail(MessageTooLarge("no"))
        Delivery(batch, 0, 0).exception(0)

        assert completions.take_unseen() is None

    def test_a_wait_in_vain_is_no_look(self) -> None:
        completions = Completions(InlineDispatcher())
        batch = make_batch(1, completions)
        with pytest.raises(OperationTimeout):
            Delivery(batch, 0, 0).exception(0)
        batch.fail(MessageTooLarge("no"))

        assert completions.take_unseen() is not None


class TestSplitting:
    """A batch that was too large."""

    def test_the_parts_have_all_records_in_order_and_end_it(self) -> None:
        batch = make_batch(10)
        batch.reserved = 500
        batch.seal(Compression.ZSTD, None, is_transactional=False)
        ended: list[int] = []
        batch.listen(lambda: ended.append(1))

        parts = batch.split()

        assert [part.record_count for part in parts] == [5, 5]
        assert [part.first_index for part in parts] == [0, 5]
        assert [part.reserved for part in parts] == [500, 0]
        parts[0].complete(100, -1)
        assert Delivery(batch, 4, 0).result(0).offset == 104
        assert not Delivery(batch, 5, 0).done()
        assert ended == []
        parts[1].fail(MessageTooLarge("no"))
        assert ended == [1]
        assert isinstance(Delivery(batch, 5, 0).exception(0), MessageTooLarge)
        assert batch.is_done

    def test_one_large_record_goes_alone_wherever_it_is(self) -> None:
        for sizes in ([1000, 1, 1], [1, 1, 1000]):
            batch = make_batch(0)
            assert batch.writer is not None
            for size in sizes:
                batch.writer.append(0, None, b"x" * size)
            batch.record_count = 3
            batch.seal(Compression.NONE, None, is_transactional=False)

            counts = [part.record_count for part in batch.split()]

            assert counts == ([1, 2] if sizes[0] == 1000 else [2, 1])

    def test_a_part_can_be_split_again_and_losses_are_counted_once(self) -> None:
        completions = Completions(InlineDispatcher())
        batch = make_batch(8, completions)
        batch.seal(Compression.NONE, None, is_transactional=False)
        first, second = batch.split()
        first.seal(Compression.NONE, None, is_transactional=False)
        third, fourth = first.split()

        third.complete(0, -1)
        fourth.fail(MessageTooLarge("no"))
        second.complete(2, -1)
        Delivery(batch, 2, 0).exception(0)

        assert batch.is_done
        assert Delivery(batch, 7, 0).result(0).offset == 5
        lost = completions.take_unseen()
        assert lost is not None
        assert lost.count == 1

    def test_a_table_in_a_split_batch_knows_its_places(self) -> None:
        batch = make_batch(10)
        batch.seal(Compression.NONE, None, is_transactional=False)
        first, second = batch.split()
        delivery = BatchDelivery(TOPIC, [(batch, 2, 6)])
        assert not delivery.done()
        first.complete(100, -1)
        second.complete(200, -1)

        assert delivery.result(0) == [
            ProducedRange(TOPIC, 0, 102, 3),
            ProducedRange(TOPIC, 0, 200, 3),
        ]
        assert BatchDelivery(TOPIC, [(batch, 0, 2)]).result(0) == [ProducedRange(TOPIC, 0, 100, 2)]
        assert BatchDelivery(TOPIC, [(batch, 8, 2)]).result(0) == [ProducedRange(TOPIC, 0, 203, 2)]


class TestTables:
    """`BatchDelivery`."""

    def test_a_loss_is_raised_and_seen(self) -> None:
        completions = Completions(InlineDispatcher())
        good, bad = make_batch(2, completions), make_batch(2, completions)
        delivery = BatchDelivery(TOPIC, [(good, 0, 2), (bad, 0, 2)])
        good.complete(0, -1)
        with pytest.raises(OperationTimeout):
            delivery.result(0)
        with pytest.raises(OperationTimeout):
            delivery.exception(0)
        bad.fail(MessageTooLarge("no"))

        with pytest.raises(MessageTooLarge):
            delivery.result(0)

        assert isinstance(delivery.exception(0), MessageTooLarge)
        assert len(delivery) == 4
        assert completions.take_unseen() is None

    def test_it_says_how_it_fares(self) -> None:
        good, bad = make_batch(2), make_batch(3)
        delivery = BatchDelivery(TOPIC, [(good, 0, 2), (bad, 0, 3)])
        assert repr(delivery) == f"<BatchDelivery of 5 rows to {TOPIC!r}: sending>"
        good.complete(0, -1)
        bad.fail(MessageTooLarge("no"))

        assert repr(delivery) == f"<BatchDelivery of 5 rows to {TOPIC!r}: failed>"
        written = BatchDelivery(TOPIC, [(good, 0, 2)])
        assert repr(written) == f"<BatchDelivery of 2 rows to {TOPIC!r}: written>"

    @pytest.mark.parametrize(
        ("offsets", "expected"),
        [
            ((7, 9, 11), [(7, 6)]),
            ((7, 9, 20), [(7, 4), (20, 2)]),
            ((7, 20, 22), [(7, 2), (20, 4)]),
            ((-1, -1, -1), [(-1, 6)]),
        ],
    )
    def test_rows_that_follow_each_other_are_one_range(
        self, offsets: tuple[int, ...], expected: list[tuple[int, int]]
    ) -> None:
        batches = [make_batch(2) for _ in offsets]
        for batch, offset in zip(batches, offsets, strict=True):
            batch.complete(offset, -1)

        places = BatchDelivery(TOPIC, [(batch, 0, 2) for batch in batches]).result(0)

        assert places == [ProducedRange(TOPIC, 0, first, count) for first, count in expected]

    def test_it_can_be_awaited(self) -> None:
        batch = make_batch(2)

        async def main() -> list[ProducedRange]:
            waiting = asyncio.ensure_future(BatchDelivery(TOPIC, [(batch, 0, 2)]))
            await asyncio.sleep(0)
            await asyncio.to_thread(batch.complete, 3, -1)
            return await waiting

        assert asyncio.run(main()) == [ProducedRange(TOPIC, 0, 3, 2)]


def test_timestamps_are_the_producers() -> None:
    batch = make_batch()
    batch.seal(Compression.NONE, None, is_transactional=False)
    assert batch.records is not None

    sealed = RecordBatch(batch.records)

    assert sealed.timestamp_type is TimestampType.CREATE_TIME
    assert [each.timestamp for each in sealed.records()] == [0, 1, 2]


class Large:
    """A local variable of somebody who looks at a failed record."""


def test_a_failed_record_does_not_keep_what_its_readers_had() -> None:
    batch = make_batch()
    handle = Delivery(batch, 0, 0)
    batch.fail(MessageTooLarge("too large"))

    def look() -> weakref.ref[Large]:
        local, its_handle = Large(), handle
        with contextlib.suppress(MessageTooLarge):
            its_handle.result(0)
        error = its_handle.exception(0)
        assert error is not None
        assert (type(error), str(error)) == (MessageTooLarge, "too large")
        with contextlib.suppress(MessageTooLarge):
            raise error
        return weakref.ref(local)

    seen = look()
    gc.collect()

    assert seen() is None


def test_an_error_is_told_with_all_that_it_has() -> None:
    batch = make_batch()
    failure = BrokerUnreachable("gone", was_sent=True)
    failure.__cause__ = OSError(5, "why")
    batch.fail(failure)

    told = Delivery(batch, 1, 0).exception(0)

    assert isinstance(told, BrokerUnreachable)
    assert told is not failure
    assert (str(told), told.was_sent, told.__cause__) == ("gone", True, failure.__cause__)
