"""What clients find by themselves: whose fault it is, whether to try again, and that it pickles."""

from __future__ import annotations

import pickle

import pytest

from millstream import errors


def test_what_may_succeed_later_says_so() -> None:
    assert errors.is_retriable(errors.BrokerUnreachable("gone"))
    assert errors.is_retriable(errors.OperationTimeout("late"))
    assert errors.is_retriable(errors.NotLeaderOrFollower())
    assert not errors.is_retriable(errors.DeliveryTimeout("late"))
    assert not errors.is_retriable(errors.ClientClosed("closed"))
    assert not errors.is_retriable(errors.InvalidArgument("wrong"))


def test_timeouts_are_pythons_timeouts_too() -> None:
    assert issubclass(errors.BufferExhausted, TimeoutError)
    assert issubclass(errors.OperationTimeout, errors.ClientError)


@pytest.mark.parametrize(
    "error",
    [
        errors.BrokerUnreachable("gone", was_sent=True),
        errors.DeliveryFailed("2 lost", count=2, errors=[errors.OperationTimeout("late")]),
        errors.LogTruncation("cut", divergent_offsets={"a-0": 5}),
        errors.RecordNotReadable("torn", topic="a", partition=0, offset=5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: errors.MillstreamError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_a_record_that_was_not_readable_is_named() -> None:
    error = errors.RecordNotReadable("torn", topic="a", partition=0, offset=5)
    copy = pickle.loads(pickle.dumps(error))

    assert (copy.topic, copy.partition, copy.offset) == ("a", 0, 5)


def test_a_lost_delivery_says_how_many_and_why() -> None:
    late = errors.OperationTimeout("late")
    copy = pickle.loads(pickle.dumps(errors.DeliveryFailed("2 lost", count=2, errors=[late])))

    assert copy.count == 2
    assert [str(each) for each in copy.errors] == ["late"]
