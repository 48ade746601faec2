"""When a retrying consumer polls again before it is done with the records of the last poll."""

from __future__ import annotations

from millstream.client.retrying.pace import Pace
from millstream.records.kernel import ConsumerRecord

RECORD = ConsumerRecord("orders", 3, 7, 5, b"k", b"v", ())


def test_half_of_the_interval_is_kept_free() -> None:
    pace = Pace(1_000)
    pace.polled(50)

    assert not pace.must_poll(549)
    assert pace.must_poll(550)


def test_a_handler_as_slow_as_the_slowest_so_far_must_fit_in() -> None:
    pace = Pace(1_000)
    pace.polled(0)
    pace.handled(RECORD, 700)
    pace.polled(1_000)

    assert not pace.must_poll(1_299)
    assert pace.must_poll(1_300)


def test_only_a_handler_that_takes_the_whole_interval_explains_a_loss_of_the_group() -> None:
    pace = Pace(1_000)
    pace.polled(0)
    pace.handled(RECORD, 899)
    assert pace.explanation() is None

    pace.handled(RECORD, 1_500)
    assert "took 1.5 s for the record orders-3 at offset 7" in str(pace.explanation())

    pace.polled(2_000)
    assert pace.explanation() is None
