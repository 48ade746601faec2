"""What becomes of a record whose handler fails, told record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.groups import OffsetAndMetadata
from millstream.client.retrying.core import Handle, Hold, Reroute, RetryCore, RetryPolicy, Skip
from millstream.client.retrying.seen import MemorySeen, SqliteSeen
from millstream.client.retrying.topics import RetryTopics
from millstream.client.serialization import as_deserializer
from millstream.errors import InvalidArgument
from millstream.records.kernel import ConsumerRecord
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
RETRY_1 = "orders.billing.retry.1"
RETRY_2 = "orders.billing.retry.2"
DEAD = "orders.billing.dead"


class OutOfStock(Exception):
    pass


def core(seen: Any = None, **policy: Any) -> RetryCore:
    topics = RetryTopics(("orders",), "billing", 2)
    settings: dict[str, Any] = {
        "delays_ms": (1_000, 60_000),
        "key_deserializer": as_deserializer("str"),
        "value_deserializer": as_deserializer("json"),
    }
    return RetryCore(topics, "billing", RetryPolicy(**(settings | policy)), seen)


def order(offset: int = 7, **changes: Any) -> ConsumerRecord:
    fields: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": 5,
        "key": b"k",
        "value": b'{"id":1}',
        "headers": (("trace", b"t"),),
    }
    return ConsumerRecord(**(fields | changes))


def sent(route: Reroute, offset: int) -> ConsumerRecord:
    """The record as it is read from the topic that it was sent to."""
    return ConsumerRecord(route.topic, 0, offset, NOW, route.key, route.value, tuple(route.headers))


def failed(machine: RetryCore, record: ConsumerRecord, error: Exception, now: int) -> Reroute:
    route = machine.fail(record, error, now)
    machine.rerouted(record, route)
    return route


def test_a_record_is_handled_decoded_and_then_committed() -> None:
    machine = core()

    decision = machine.admit(order(), NOW)

    assert isinstance(decision, Handle)
    attempt = decision.attempt
    assert (attempt.topic, attempt.partition, attempt.offset) == ("orders", 3, 7)
    assert (attempt.key, attempt.value, attempt.number) == ("k", {"id": 1}, 1)
    assert machine.take_finished() == {}
    machine.succeed(order(), attempt, NOW)
    assert machine.take_finished() == {TopicPartition("orders", 3): OffsetAndMetadata(8)}
    assert machine.take_finished() == {}
    assert machine.counts.handled == 1


def test_failures_go_from_stage_to_stage_and_end_with_the_dead() -> None:
    machine = core()

    first = failed(machine, order(), OutOfStock("none left"), NOW)
    second = failed(machine, sent(first, 0), OutOfStock("still none"), NOW + 2_000)
    last = failed(machine, sent(second, 0), OutOfStock("never"), NOW + 99_000)

    assert [first.topic, second.topic, last.topic] == [RETRY_1, RETRY_2, DEAD]
    assert [first.is_dead, second.is_dead, last.is_dead] == [False, False, True]
    assert (machine.counts.retried, machine.counts.dead) == (2, 1)
    told = {name: value for name, value in last.headers if value is not None}
    assert told["trace"] == b"t"
    assert told["millstream.retry.topic"] == b"orders"
    assert told["millstream.retry.partition"] == b"3"
    assert told["millstream.retry.offset"] == b"7"
    assert told["millstream.retry.timestamp"] == b"5"
    assert told["millstream.retry.group"] == b"billing"
    assert told["millstream.retry.failures"] == b"3"
    assert told["millstream.retry.first.failed"] == str(NOW).encode()
    assert told["millstream.retry.last.failed"] == str(NOW + 99_000).encode()
    assert told["millstream.retry.error.type"].endswith(b"OutOfStock")
    assert told["millstream.retry.error.message"] == b"never"
    assert b"OutOfStock: never" in told["millstream.retry.error.trace"]
    assert "millstream.retry.not.before" not in told
    assert len(told) == len(last.headers), "no header twice"


def test_a_retry_keeps_the_bytes_and_tells_the_handler_where_it_came_from() -> None:
    machine = core()
    route = failed(machine, order(), OutOfStock(), NOW)

    decision = machine.admit(sent(route, 12), NOW + 1_000)

    assert (route.key, route.value) == (b"k", b'{"id":1}')
    assert isinstance(decision, Handle)
    attempt = decision.attempt
    assert (attempt.topic, attempt.partition, attempt.offset) == ("orders", 3, 7)
    assert (attempt.timestamp, attempt.number) == (5, 2)
    assert attempt.headers == (("trace", b"t"),)
    assert attempt.id == "orders-3@7"


def test_a_retry_waits_for_its_time_and_its_partition_waits_with_it() -> None:
    machine = core()
    early = sent(failed(machine, order(1), OutOfStock(), NOW), 0)
    later = sent(failed(machine, order(2), OutOfStock(), NOW + 5), 1)
    held = TopicPartition(RETRY_1, 0)

    assert machine.admit(early, NOW + 10) == Hold(held, 0, NOW + 1_000)
    assert machine.admit(later, NOW + 10) is None
    assert machine.next_due_ms() == NOW + 1_000
    assert machine.take_due(NOW + 999) == []
    assert machine.take_due(NOW + 1_000) == [held]
    assert machine.next_due_ms() is None
    assert isinstance(machine.admit(early, NOW + 1_000), Handle)


def test_other_partitions_go_on_while_one_waits() -> None:
    machine = core()
    machine.admit(sent(failed(machine, order(1), OutOfStock(), NOW), 0), NOW)

    assert isinstance(machine.admit(order(2), NOW), Handle)


def test_an_error_that_no_retry_helps_goes_straight_to_the_dead() -> None:
    machine = core(give_up_on=(OutOfStock,))

    assert machine.fail(order(), OutOfStock(), NOW).topic == DEAD
    assert machine.fail(order(), ValueError(), NOW).topic == RETRY_1


def test_bytes_that_cannot_be_read_go_straight_to_the_dead() -> None:
    machine = core()

    route = machine.admit(order(value=b"{"), NOW)

    assert isinstance(route, Reroute)
    assert route.is_dead
    assert route.value == b"{"


def test_history_that_somebody_spoilt_does_not_stop_the_consumer() -> None:
    machine = core()
    spoilt = ConsumerRecord(
        RETRY_1, 1, 9, NOW, None, b"1", (("millstream.retry.offset", b"x"), ("a", None))
    )

    decision = machine.admit(spoilt, NOW)

    assert isinstance(decision, Handle)
    assert decision.attempt.offset == 9
    assert decision.attempt.number == 2


def test_what_was_handled_is_passed_over() -> None:
    machine = core(MemorySeen())
    decision = machine.admit(order(), NOW)
    assert isinstance(decision, Handle)
    machine.succeed(order(), decision.attempt, NOW)

    assert machine.admit(order(), NOW) == Skip()
    machine.skip(order())
    assert machine.counts.duplicates == 1
    assert machine.take_finished()[TopicPartition("orders", 3)].offset == 8


@pytest.mark.parametrize(
    "identify", [lambda attempt: attempt.key, lambda attempt: attempt.key.encode()]
)
def test_records_may_be_the_same_by_key(identify: Any) -> None:
    machine = core(MemorySeen(), identify=identify)
    decision = machine.admit(order(1), NOW)
    assert isinstance(decision, Handle)
    machine.succeed(order(1), decision.attempt, NOW)

    assert machine.admit(order(2), NOW) == Skip()
    assert isinstance(machine.admit(order(3, key=b"other"), NOW), Handle)


def test_a_record_without_identity_is_always_handled() -> None:
    machine = core(MemorySeen(), identify=lambda _: None)
    for _ in range(2):
        decision = machine.admit(order(), NOW)
        assert isinstance(decision, Handle)
        machine.succeed(order(), decision.attempt, NOW)


def test_an_identity_that_cannot_be_told_is_a_failure_of_the_record() -> None:
    def identify(_: object) -> str:
        raise KeyError("id")

    route = core(MemorySeen(), identify=identify).admit(order(), NOW)

    assert isinstance(route, Reroute)
    assert route.topic == RETRY_1


def test_partitions_that_were_taken_away_are_neither_committed_nor_resumed() -> None:
    machine = core()
    hold = sent(failed(machine, order(), OutOfStock(), NOW), 0)
    machine.admit(hold, NOW)

    machine.forget([TopicPartition("orders", 3), TopicPartition(RETRY_1, 0)])

    assert machine.take_finished() == {}
    assert machine.next_due_ms() is None


def test_the_memory_of_ids_is_bounded() -> None:
    seen = MemorySeen(capacity=2)
    for name in ("a", "b", "a", "c"):
        seen.add(name, NOW)

    assert [name in seen for name in "abc"] == [True, False, True]
    seen.close()
    assert "a" not in seen


def test_ids_in_a_file_survive_a_restart_and_are_forgotten_in_time(tmp_path: Path) -> None:
    first = SqliteSeen(tmp_path / "seen.db", keep_days=1)
    first.add("a", NOW)
    first.close()
    again = SqliteSeen(tmp_path / "seen.db", keep_days=1)

    assert "a" in again
    assert "b" not in again
    again.add("b", NOW + 2 * 86_400_000)
    assert "a" not in again
    assert "b" in again
    again.close()


def test_the_topics_have_names_by_group_and_stage() -> None:
    topics = RetryTopics(("a", "b"), "g", 1)

    assert topics.consumed == ("a", "a.g.retry.1", "b", "b.g.retry.1")
    assert topics.dead_letters("b") == "b.g.dead"


@pytest.mark.parametrize(
    ("names", "group"),
    [(("orders",), "billing group"), (("x" * 240,), "billing"), (("a", "a.g.retry.1"), "g")],
)
def test_names_that_cannot_be_are_refused(names: tuple[str, ...], group: str) -> None:
    with pytest.raises(InvalidArgument, match="retry_name="):
        RetryTopics(names, group, 1)


def test_what_could_not_be_committed_is_kept_for_the_next_time_unless_it_is_lost() -> None:
    machine = core()
    places = [TopicPartition("orders", each) for each in (0, 3)]
    for place in places:
        record = order(7, partition=place.partition)
        machine.keep(record, machine.fail(record, OutOfStock(), NOW))
    finished, kept = machine.take_finished(), machine.take_kept()
    assert [each for each, _ in kept] == places
    assert machine.take_kept() == []

    later = order(8)
    machine.keep(later, machine.fail(later, OutOfStock(), NOW))
    machine.restore(finished, kept)
    machine.forget([places[0]])

    assert machine.take_finished() == {places[1]: OffsetAndMetadata(9)}
    assert [each for each, _ in machine.take_kept()] == [places[1], places[1]]
