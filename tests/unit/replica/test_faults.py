"""What fails, fails for whom it concerns, with an error that says what it is."""

from __future__ import annotations

import errno
import logging

import pytest

from millstream.errors import (
    InvalidTxnState,
    KafkaStorageError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from millstream.storage.log.producer_entry import AppendOrigin
from tests.unit.replica.fakes import FakeVerifier
from tests.unit.replica.harness import LOCAL, World, asked, codes, error_codes, sizes
from tests.unit.storage.batches import batch_bytes, marker_batch


@pytest.fixture
def world() -> World:
    """A broker that leads t-0 and t-1 alone."""
    world = World()
    world.create(partitions=2)
    return world


def test_a_full_disk_fails_the_append_and_nothing_else(world: World) -> None:
    def is_full(operation: str, path: str, size: int) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)

    world.produce()
    world.filesystem.before_operation = is_full
    refused = world.produce().value
    read = world.fetch(asked(0)).value
    world.filesystem.before_operation = None
    accepted = world.produce().value

    assert codes(refused) == [KafkaStorageError.code]
    assert "full" in str(refused[0].error)
    assert sizes(read) != [0]
    assert [result.base_offset for result in accepted] == [1]


def test_a_disk_that_cannot_be_read_takes_its_partitions_offline(world: World) -> None:
    world.produce()
    waiting = world.fetch(asked(0, index=1), max_wait_ms=500)
    world.filesystem.fail_directory("/disk1")

    first = world.fetch(asked(0)).value
    world.settle()

    assert error_codes(first) == [KafkaStorageError.code]
    assert error_codes(waiting.value) == [KafkaStorageError.code]
    assert codes(world.produce(index=1).value) == [KafkaStorageError.code]


def test_a_disk_that_fails_a_lookup_by_time_is_noticed(world: World) -> None:
    world.produce()
    world.filesystem.fail_directory("/disk1")

    with pytest.raises(KafkaStorageError):
        world.manager.list_offset("t", 0, 0)

    assert codes(world.produce(index=1).value) == [KafkaStorageError.code]


def test_a_partition_whose_log_cannot_be_made_is_offline(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.filesystem.fail_directory("/disk1")

    with caplog.at_level(logging.WARNING):
        world.create("late")

    assert codes(world.produce(topic="late").value) == [KafkaStorageError.code]
    assert "late-0 is offline" in caplog.text


def test_a_topic_on_a_failed_disk_can_be_deleted(world: World) -> None:
    world.filesystem.fail_directory("/disk1")
    world.produce()

    world.remove()

    assert codes(world.produce().value) == [UnknownTopicOrPartition.code]


def test_a_bug_in_one_partition_does_not_spoil_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = world.partition()

    class Broken:
        """A log that is wrong about itself."""

        def __getattr__(self, name: str) -> object:
            if name == "log_start_offset":
                return 0
            raise ZeroDivisionError(name)

    monkeypatch.setattr(broken, "log", Broken())
    with caplog.at_level(logging.ERROR):
        appended = world.produce(batch_bytes(), batch_bytes()).value
        fetched = world.fetch(asked(0), asked(0, index=1)).value

    assert codes(appended) == [UnknownServerError.code, 0]
    assert error_codes(fetched) == [UnknownServerError.code, 0]
    assert "none should" in caplog.text


def test_a_transactional_batch_without_verification_begins_no_transaction(world: World) -> None:
    batch = batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True)

    assert codes(world.produce(batch).value) == [InvalidTxnState.code]


def test_partitions_that_are_not_here_are_not_verified() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()
    batch = batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True)

    reply = world.produce(batch, topic="nobody", transactional_id="x")

    assert codes(reply.value) == [UnknownTopicOrPartition.code]
    assert verifier.questions == []


@pytest.mark.parametrize(
    "records", [batch_bytes(), b"", bytes(70), batch_bytes(is_transactional=True)]
)
def test_what_is_no_transactional_batch_is_not_verified(records: bytes) -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()

    reply = world.produce(records, transactional_id="x")

    assert not reply.is_pending
    assert verifier.questions == []


def test_an_abort_that_lands_while_verifying_makes_the_guard_worthless() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()
    batch = batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True)
    reply = world.produce(batch, transactional_id="x")

    marker = bytes(marker_batch(0, pid=5, epoch=0, is_abort=True).view)
    assert codes(world.produce(marker, origin=AppendOrigin.COORDINATOR).value) == [0]
    verifier.answers[0]({})
    assert reply.is_pending
    (partition,) = verifier.questions[1][3]
    verifier.answers[1]({partition: InvalidTxnState("it was aborted")})

    assert codes(reply.value) == [InvalidTxnState.code]
    assert len(verifier.questions) == 2


def test_verified_appends_may_wait_for_replicas_too() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    batch = batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True)
    reply = world.produce(batch, transactional_id="x")
    verifier.answers[0]({})
    assert reply.is_pending

    world.follow(1)
    world.settle()

    assert codes(reply.value) == [0]


def test_a_retry_of_a_waiting_batch_waits_for_the_first_copy() -> None:
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    batch = batch_bytes(pid=5, epoch=0, sequence=0)
    first, retry = world.produce(batch), world.produce(batch)
    assert retry.is_pending

    world.follow(1)
    world.settle()

    assert first.value == retry.value
    assert world.partition().log.log_end_offset == 1


def test_errors_name_the_partition(world: World) -> None:
    world.register(2)
    world.create("followed", replicas=(2, LOCAL))

    error = world.produce(topic="followed").value[0].error

    assert "followed-0" in str(error)
    assert "broker 2" in str(error)


class TestWithoutRoom:
    """Logs that cannot be made because the disk is full, or no descriptor is left."""

    @pytest.fixture(params=[errno.ENOSPC, errno.EMFILE])
    def full(self, request: pytest.FixtureRequest) -> World:
        """A broker that led t-0 before the disk was full."""
        world = World()
        world.create()

        def refuse(operation: str, path: str, size: int) -> None:
            if operation in ("open", "write", "allocate") and "/t-0/" not in path:
                raise OSError(request.param, "injected", path)

        world.filesystem.before_operation = refuse
        return world

    def test_they_are_offline_and_opened_when_there_is_room(self, full: World) -> None:
        full.create("new", partitions=2)
        assert codes(full.produce(topic="new").value) == [KafkaStorageError.code]
        assert full.manager.changes.reopen(full.clock.monotonic_ms()) == {}
        assert codes(full.produce().value) == [0], "the others go on"

        full.filesystem.before_operation = None
        opened = full.manager.changes.reopen(full.clock.monotonic_ms())

        assert {name.topic for name in opened} == {"new"}
        assert len(opened) == 2
        assert full.manager.changes.unopened == {}
        for index in range(2):
            assert codes(full.produce(topic="new", index=index).value) == [0]

    def test_what_happens_to_the_partition_meanwhile_counts(self, full: World) -> None:
        full.create("new")
        full.create("gone")
        full.change("new", leader=LOCAL)
        full.remove("gone")
        full.filesystem.before_operation = None

        opened = full.manager.changes.reopen(full.clock.monotonic_ms())

        assert [name.topic for name in opened] == ["new"]
        assert full.partition("new").leader_epoch == 1

    def test_it_is_said_now_and_then(self, full: World, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, logger="millstream.replica"):
            for number in range(40):
                full.create(f"new-{number}")
            full.manager.changes.reopen(full.clock.monotonic_ms())
            assert self.levels(caplog) == ["ERROR"]
            full.clock.advance(10_000)
            full.manager.changes.reopen(full.clock.monotonic_ms())
            full.filesystem.before_operation = None
            full.manager.changes.reopen(full.clock.monotonic_ms())

        assert self.levels(caplog) == ["ERROR", "ERROR", "INFO"]

    def levels(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        """Of what replicas say; the storage beneath says that the disk is full."""
        return [each.levelname for each in caplog.records if "replica" in each.name]

    def test_a_directory_that_fails_ends_the_wait(self, full: World) -> None:
        full.create("new")
        full.filesystem.before_operation = None
        full.filesystem.fail_directory("/disk1")

        assert full.manager.changes.reopen(full.clock.monotonic_ms()) == {}

        assert full.manager.changes.unopened == {}
