"""What a broker is told in a fetch session, and when the session begins again."""

from __future__ import annotations

from random import Random

import pytest

from millstream.client.consumer.fetcher import Wanted
from millstream.network.client.fetch_session import FetchSession
from millstream.types import TopicPartition, Uuid

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OLD, NEW = Uuid.random(Random(1)), Uuid.random(Random(2))


def at(offset: int, topic_id: Uuid = OLD, run: int = 1) -> Wanted:
    return Wanted(run, topic_id, offset, 0, -1, 1 << 20)


@pytest.fixture
def session() -> FetchSession[Wanted]:
    """Both partitions were asked for, and the broker has opened session 7."""
    session: FetchSession[Wanted] = FetchSession()
    session.want(P0, at(0))
    session.want(P1, at(0))
    session.next_request(by_topic_id=True)
    session.on_answer(7)
    return session


def test_the_first_request_says_everything_and_asks_for_a_session() -> None:
    session: FetchSession[Wanted] = FetchSession()
    session.want(P0, at(5))

    request = session.next_request(by_topic_id=True)

    assert (request.session_id, request.epoch, request.is_full) == (0, 0, True)
    assert request.send == [(P0, at(5))]
    assert not session.is_open


def test_nothing_changed_nothing_said(session: FetchSession[Wanted]) -> None:
    request = session.next_request(by_topic_id=True)

    assert (request.session_id, request.epoch, request.send, request.forget) == (7, 1, [], [])
    assert not request.is_full


def test_only_what_changed_is_said(session: FetchSession[Wanted]) -> None:
    session.want(P0, at(3))
    session.want(P1, at(0))

    assert session.next_request(by_topic_id=True).send == [(P0, at(3))]
    assert session.told == {P0: at(3), P1: at(0)}


def test_what_is_no_longer_wanted_is_forgotten(session: FetchSession[Wanted]) -> None:
    session.forget(P1)
    session.forget(TopicPartition("other", 0))

    request = session.next_request(by_topic_id=True)

    assert (request.send, request.forget) == ([], [(P1, OLD)])
    assert P1 not in session.told


def test_wanted_and_forgotten_before_it_was_said_is_not_mentioned(
    session: FetchSession[Wanted],
) -> None:
    other = TopicPartition("other", 0)
    session.want(other, at(0))
    session.forget(other)

    request = session.next_request(by_topic_id=True)

    assert (request.send, request.forget) == ([], [])


def test_a_topic_that_was_made_anew_replaces_the_old_one(session: FetchSession[Wanted]) -> None:
    session.want(P0, at(0, NEW))

    request = session.next_request(by_topic_id=True)

    assert (request.send, request.forget) == ([(P0, at(0, NEW))], [(P0, OLD)])


def test_epochs_count_up_and_begin_again(session: FetchSession[Wanted]) -> None:
    epochs = []
    for _ in range(3):
        epochs.append(session.next_request(by_topic_id=True).epoch)
        session.on_answer(7)
    session._epoch = (1 << 31) - 1
    session.on_answer(7)

    assert epochs == [1, 2, 3]
    assert session.next_request(by_topic_id=True).epoch == 1


def test_ids_and_names_do_not_mix_in_a_session(session: FetchSession[Wanted]) -> None:
    request = session.next_request(by_topic_id=False)

    assert (request.session_id, request.epoch) == (7, 0)
    assert len(request.send) == 2


def test_a_broker_without_room_is_told_everything_each_time(session: FetchSession[Wanted]) -> None:
    session.next_request(by_topic_id=True)
    session.on_answer(0)

    request = session.next_request(by_topic_id=True)

    assert (request.session_id, request.epoch, len(request.send)) == (0, 0, 2)


def test_closing_tells_the_broker_if_it_keeps_something(session: FetchSession[Wanted]) -> None:
    request = session.closing_request()

    assert request is not None
    assert (request.session_id, request.epoch, request.is_full) == (7, -1, True)
    assert session.closing_request() is None


def test_topics_without_ids_are_noticed(session: FetchSession[Wanted]) -> None:
    assert session.has_topic_ids()
    session.want(P1, at(0, Uuid.ZERO))
    assert not session.has_topic_ids()
