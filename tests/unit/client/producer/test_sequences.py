"""Numbers of batches: kept when sent again, begun anew when lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.producer.kernel import PartitionQueue, TopicQueues
from millstream.client.producer.partition_state import PartitionState
from millstream.client.producer.produce_sink import (
    NOBODY,
    SEQUENCES,
    UNLIMITED,
    ProducerIdentity,
)
from millstream.client.producer.sequences import EPOCH_MAX, Sequences
from millstream.errors import (
    MessageTooLarge,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from tests.unit.client.producer.fakes import TOPIC, make_batch

if TYPE_CHECKING:
    from millstream.client.producer.producer_batch import ProducerBatch

ME = ProducerIdentity(7, 0)
OUT_OF_ORDER = OutOfOrderSequenceNumber()
UNKNOWN = UnknownProducerId()


def new_state(index: int = 0) -> PartitionState:
    """A partition of which nothing was sent."""
    return PartitionState(PartitionQueue(TopicQueues(TOPIC), index, 100), TOPIC)


class Numbers:
    """A partition whose first batch was acknowledged, and the sequences."""

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.sequences = Sequences(is_transactional=is_transactional)
        self.sequences.become(ME)
        self.state = new_state()
        self.ack(self.send(), 0)

    def send(self, count: int = 10) -> ProducerBatch:
        """Number a batch and send it."""
        assert self.may_begin()
        return self.number(self.state, count)

    def number(self, state: PartitionState, count: int = 10) -> ProducerBatch:
        """Number a batch as the sink does, and send it."""
        batch = make_batch(count)
        batch.number(*self.sequences.begin(state), state.queue.next_sequence)
        state.queue.next_sequence = (state.queue.next_sequence + count) % SEQUENCES
        self.sequences.on_sent(state, batch)
        batch.attempts = 1
        return batch

    def may_begin(self, state: PartitionState | None = None) -> bool:
        """Whether a new batch may be sent."""
        return self.sequences.allowance(state or self.state) > 0

    def raise_epoch(self) -> bool:
        """Go on in the next epoch; False if there is none."""
        self.sequences.become(self.sequences.next_identity())
        return self.sequences.has_identity

    def ack(self, batch: ProducerBatch, offset: int = -1) -> None:
        """The broker has it."""
        self.sequences.on_acked(self.state, batch, offset)

    def retry(self, batch: ProducerBatch, error: Any, log_start: int = -1) -> bool:
        """Whether a refused batch goes again."""
        return self.sequences.can_retry(self.state, batch, error, log_start)


def test_numbers_count_records_and_nobody_has_none() -> None:
    numbers = Numbers()
    first, second = numbers.send(3), numbers.send(4)

    assert (first.base_sequence, second.base_sequence) == (10, 13)
    assert (first.producer_id, first.producer_epoch) == ME
    assert numbers.state.queue.next_sequence == 17
    numbers.sequences.become(NOBODY)
    assert not numbers.may_begin()


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    numbers = Numbers()
    state = new_state(1)
    assert numbers.sequences.allowance(state) == 1
    first = numbers.number(state)

    assert numbers.sequences.allowance(state) == 0
    numbers.sequences.on_acked(state, first, 0)
    assert numbers.sequences.allowance(state) == UNLIMITED


def test_numbers_begin_again_after_the_last() -> None:
    numbers = Numbers()
    numbers.state.queue.next_sequence = SEQUENCES - 5
    numbers.state.last_acked_sequence = SEQUENCES - 6

    batch, after = numbers.send(10), numbers.send(1)
    numbers.ack(batch)

    assert after.base_sequence == 5
    assert numbers.state.last_acked_sequence == 4
    assert numbers.retry(after, OUT_OF_ORDER)
    assert numbers.sequences.wants_new_epoch, "it was the next, so its number is lost"


def test_repetitions_go_one_at_a_time_in_their_order() -> None:
    numbers = Numbers()
    first, second = numbers.send(), numbers.send()
    queue = numbers.state.queue

    queue.put_back(second, 0)
    assert numbers.sequences.allowance(numbers.state) == 0
    queue.put_back(first, numbers.state.place_of(first))
    assert numbers.sequences.allowance(numbers.state) == 1
    queue.remove(first)
    numbers.ack(first)
    assert numbers.sequences.allowance(numbers.state) == 1
    queue.remove(second)
    numbers.ack(second)
    assert numbers.sequences.allowance(numbers.state) == UNLIMITED


def test_a_gap_because_of_one_before_is_only_tried_again() -> None:
    numbers = Numbers()
    numbers.send()
    second = numbers.send()

    assert numbers.retry(second, OUT_OF_ORDER)
    assert not numbers.sequences.wants_new_epoch


def test_ordinary_errors_are_retried_if_they_may_go_away() -> None:
    numbers = Numbers()
    batch = numbers.send()

    assert numbers.retry(batch, NotLeaderOrFollower())
    assert not numbers.retry(batch, MessageTooLarge())


def test_lost_numbers_begin_a_new_epoch_in_that_partition_only() -> None:
    numbers = Numbers()
    other = new_state(1)
    elsewhere = numbers.number(other)
    first, second = numbers.send(3), numbers.send(4)
    assert numbers.retry(first, OUT_OF_ORDER)

    assert numbers.raise_epoch()

    assert (first.producer_epoch, first.base_sequence) == (1, 0)
    assert (second.producer_epoch, second.base_sequence) == (1, 3)
    assert first.is_renumbered
    assert numbers.state.last_acked_sequence == -1
    assert (elsewhere.producer_epoch, elsewhere.base_sequence) == (0, 0)
    assert not numbers.may_begin(other), "its epochs must not mix"
    numbers.sequences.on_acked(other, elsewhere, 0)
    assert numbers.may_begin(other)


def test_a_new_id_is_needed_when_the_epochs_are_used_up() -> None:
    numbers = Numbers()
    numbers.sequences.become(ProducerIdentity(7, EPOCH_MAX))
    batch = numbers.send()
    numbers.sequences.restart(numbers.state)

    assert not numbers.raise_epoch()
    assert not numbers.sequences.has_identity
    numbers.sequences.become(ProducerIdentity(8, 0))

    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_a_refused_batch_leaves_a_gap_that_the_next_epoch_closes() -> None:
    numbers = Numbers()
    refused, behind = numbers.send(), numbers.send()

    numbers.sequences.on_failed(numbers.state, refused, is_refused=True)
    assert numbers.sequences.wants_new_epoch
    numbers.raise_epoch()

    assert behind.base_sequence == 0
    numbers.sequences.on_failed(numbers.state, refused, is_refused=True)
    assert not numbers.sequences.wants_new_epoch, "it was told once"


def test_in_a_transaction_those_behind_a_refused_one_move_up() -> None:
    numbers = Numbers(is_transactional=True)
    refused, behind = numbers.send(4), numbers.send(5)

    numbers.sequences.on_failed(numbers.state, refused, is_refused=True)

    assert behind.base_sequence == 10
    assert numbers.state.queue.next_sequence == 15
    assert not numbers.sequences.wants_new_epoch


class TestTimeouts:
    """A batch that was given up, and may have been written."""

    def test_nothing_new_goes_until_those_behind_tell_of_it(self) -> None:
        numbers = Numbers()
        late, behind = numbers.send(), numbers.send()
        numbers.sequences.on_failed(numbers.state, late, is_refused=False)

        assert not numbers.may_begin()
        numbers.sequences.resolve()
        assert numbers.state.is_unresolved
        numbers.ack(behind)
        numbers.sequences.resolve()

        assert numbers.may_begin()
        assert not numbers.sequences.wants_new_epoch

    def test_if_nobody_tells_the_epoch_is_raised(self) -> None:
        numbers = Numbers()
        late = numbers.send()
        numbers.sequences.on_failed(numbers.state, late, is_refused=False)

        numbers.sequences.resolve()

        assert numbers.sequences.wants_new_epoch

    def test_a_late_word_helps(self) -> None:
        numbers = Numbers()
        late = numbers.send()
        numbers.sequences.on_failed(numbers.state, late, is_refused=False)
        numbers.ack(late)

        numbers.sequences.resolve()

        assert not numbers.sequences.wants_new_epoch

    def test_a_gap_behind_it_means_that_it_was_not_written(self) -> None:
        numbers = Numbers()
        late, behind = numbers.send(), numbers.send()
        numbers.sequences.on_failed(numbers.state, late, is_refused=False)

        assert numbers.retry(behind, OUT_OF_ORDER)
        assert numbers.sequences.wants_new_epoch

    def test_in_a_transaction_its_owner_must_decide(self) -> None:
        numbers = Numbers(is_transactional=True)
        late = numbers.send()
        numbers.sequences.on_failed(numbers.state, late, is_refused=False)

        numbers.sequences.resolve()

        assert numbers.sequences.lost_numbers is not None
        assert not numbers.sequences.wants_new_epoch
        numbers.sequences.become(ProducerIdentity(7, 1))
        assert numbers.sequences.lost_numbers is None

    def test_one_that_was_never_sent_leaves_nothing_open(self) -> None:
        numbers = Numbers()
        batch = numbers.send()
        batch.attempts = 0

        numbers.sequences.on_failed(numbers.state, batch, is_refused=False)

        assert not numbers.state.is_unresolved


class TestForgottenProducers:
    """UNKNOWN_PRODUCER_ID: the broker has nothing of us any more."""

    def test_without_a_log_start_it_is_tried_again(self) -> None:
        numbers = Numbers()

        assert numbers.retry(numbers.send(), UNKNOWN, log_start=-1)

    def test_if_retention_removed_our_records_numbers_begin_again_in_this_epoch(self) -> None:
        numbers = Numbers()
        batch = numbers.send()

        assert numbers.retry(batch, UNKNOWN, log_start=1000)

        assert (batch.producer_epoch, batch.base_sequence) == (0, 0)
        assert numbers.retry(batch, UNKNOWN, log_start=1000), "its number is new: once more"

    @pytest.mark.parametrize("is_transactional", [False, True])
    def test_otherwise_only_a_new_epoch_helps(self, is_transactional: bool) -> None:
        numbers = Numbers(is_transactional=is_transactional)
        batch = numbers.send()

        assert numbers.retry(batch, UNKNOWN, log_start=0) is not is_transactional
        assert numbers.sequences.wants_new_epoch is not is_transactional


def test_a_batch_that_was_written_under_its_old_number_begins_a_new_epoch() -> None:
    numbers = Numbers()
    batch = numbers.send()
    numbers.sequences.restart(numbers.state)
    numbers.raise_epoch()

    numbers.ack(batch, 5)

    assert numbers.sequences.wants_new_epoch


def test_parts_share_the_numbers_of_the_whole() -> None:
    numbers = Numbers()
    whole, behind = numbers.send(10), numbers.send(5)
    parts = [make_batch(4), make_batch(6)]

    numbers.sequences.split(numbers.state, whole, parts)

    assert [part.base_sequence for part in parts] == [10, 14]
    assert numbers.state.numbered == [*parts, behind]


def test_what_is_put_back_stands_in_its_old_place() -> None:
    numbers = Numbers()
    batches = [numbers.send() for _ in range(3)]
    for batch in reversed(batches):
        numbers.state.queue.put_back(batch, numbers.state.place_of(batch))

    assert numbers.state.queue.repeats() == batches
    assert "topic-0" in repr(numbers.state)
