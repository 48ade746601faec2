"""Options of a write: defaults, and what is refused with what advice."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidArgument
from millstream.spark.sink.sink_options import SinkOptions

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


def test_rows_are_delivered_at_least_once_unless_asked_otherwise() -> None:
    options = SinkOptions.parse({**BROKER, "topic": "t"}, is_stream=True)

    assert not options.is_exactly_once
    assert options.topic == "t"
    assert options.client == {"bootstrap.servers": "localhost:9092"}


def test_names_have_no_case_and_spark_may_add_its_own() -> None:
    given = {**BROKER, "DELIVERY": "exactly-once", "checkpointLocation": "/c", "path": "/p"}

    options = SinkOptions.parse({**given, "kafka.LINGER.ms": 5}, is_stream=True)

    assert options.is_exactly_once
    assert options.client["linger.ms"] == "5"


def test_transactions_may_take_as_long_as_brokers_allow_unless_told_otherwise() -> None:
    given = {**BROKER, "delivery": "exactly-once"}
    shorter = {**given, "kafka.transaction.timeout.ms": "1000"}

    assert (
        SinkOptions.parse(given, is_stream=True).client["transaction.timeout.ms"],
        SinkOptions.parse(shorter, is_stream=True).client["transaction.timeout.ms"],
    ) == ("900000", "1000")


def test_a_batch_is_written_exactly_once_under_a_name_of_the_users() -> None:
    given = {**BROKER, "delivery": "exactly-once", "writeId": "w", "batchId": "12"}

    options = SinkOptions.parse(given, is_stream=False)

    assert (options.write_id, options.batch_id) == ("w", 12)


@pytest.mark.parametrize(
    ("given", "is_stream", "message"),
    [
        ({"delivery": "exactly-once"}, False, "writeId: missing; Spark has no name by which"),
        ({"writeId": "w"}, True, "writeId: a stream is known by its checkpoint"),
        ({"batchId": "1"}, True, "batchId: a stream is known by its checkpoint"),
        ({"batchId": "-1"}, False, "batchId='-1': must be"),
        ({"delivery": "once"}, True, "delivery='once': must be"),
        ({"topics": "t"}, True, "topics: there is no such option; did you mean topic"),
        ({"topic": ""}, True, "topic: it is empty"),
        ({"transactionalIdPrefix": ""}, True, "transactionalIdPrefix: it is empty"),
        ({"kafka.transactional.id": "x"}, True, "kafka.transactional.id: not here"),
        ({"kafka.value.serializer": "x"}, True, "kafka.value.serializer: not here"),
        ({"kafka.linger.ms": "soon"}, True, "kafka.linger.ms='soon': must be"),
        (
            {"delivery": "exactly-once", "kafka.enable.idempotence": "false"},
            True,
            r"kafka\.\*: .*idempotence",
        ),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    given: dict[str, Any], is_stream: bool, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SinkOptions.parse({**BROKER, **given}, is_stream=is_stream)
