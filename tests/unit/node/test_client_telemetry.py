"""What clients push is read as OTLP and written to the log, at a rate that clients cannot raise."""

from __future__ import annotations

import logging
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.clock import ManualClock
from millstream.errors import InvalidRecord
from millstream.node.client_telemetry import (
    LINES_PER_SECOND_MAX,
    TelemetryLog,
    telemetry_receiver,
)
from millstream.node.otlp_metrics import DataPoint, read_data_points
from millstream.server.ports import ClientMetricsContext
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTEXT = ClientMetricsContext(
    Uuid(b"an instance's id"),
    "billing",
    "librdkafka",
    "2.6",
    "User:ANONYMOUS",
    "10.0.0.7",
    999,
    False,
)


def varint(number: int) -> bytes:
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def message(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number: int, value: float, *, is_int: bool = False) -> bytes:
    return varint(number << 3 | 1) + (pack("<q", value) if is_int else pack("<d", value))


def attribute(number: int, key: str, value: bytes) -> bytes:
    return message(number, message(1, key) + message(2, value))


def metrics_data(*metrics: bytes) -> bytes:
    scope = message(1, message(1, "scope")) + b"".join(message(2, each) for each in metrics)
    resource = message(1, attribute(1, "host", message(1, "here"))) + message(2, scope)
    return message(1, resource)


def gauge(name: str, *points: bytes) -> bytes:
    return message(1, name) + message(5, b"".join(message(1, point) for point in points))


def read(data: bytes) -> list[DataPoint]:
    return list(read_data_points(data))


def test_numbers_sums_and_histograms_are_read() -> None:
    labels = attribute(7, "node", message(1, "b1")) + attribute(
        7, "tries", varint(3 << 3) + b"\x05"
    )
    ratio = attribute(7, "ratio", fixed(4, 0.5))
    total = message(1, "total") + message(7, message(1, fixed(6, -3, is_int=True)) + b"\x18\x01")
    spread = message(1, "spread") + message(
        9,
        message(
            1, attribute(9, "q", message(1, "p99")) + fixed(4, 12, is_int=True) + fixed(5, 1.5)
        ),
    )
    summary = message(1, "summary") + message(11, message(1, fixed(5, 7.0)))

    found = read(metrics_data(gauge("rate", labels + fixed(4, 2.5), ratio), total, spread, summary))

    assert found == [
        DataPoint("rate", {"node": "b1", "tries": "5"}, 2.5),
        DataPoint("rate", {"ratio": "0.5"}, 0),
        DataPoint("total", {}, -3),
        DataPoint("spread", {"q": "p99"}, 1.5, 12),
        DataPoint("summary", {}, 7.0),
    ]


def test_fields_that_nobody_asked_for_are_skipped() -> None:
    unknown = varint(99 << 3 | 5) + b"\0\0\0\0" + varint(98 << 3) + b"\x01"
    point = unknown + fixed(4, 1.0) + attribute(7, "empty", b"")

    assert read(unknown + metrics_data(gauge("rate", point))) == [
        DataPoint("rate", {"empty": ""}, 1.0)
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\x05abc",
        b"\x0b\x01",
        b"\x08\x01" * 2 + b"\x0a",
        b"\xff" * 12,
        b"\x08",
        b"\x0a\x02\x10\x01",
    ],
)
def test_what_is_no_otlp_is_refused(payload: bytes) -> None:
    if payload == b"\x0a\x02\x10\x01":
        payload = message(1, b"\x10\x01")  # A number where the metrics of a scope belong.
    with pytest.raises(InvalidRecord, match="the metrics"):
        read(payload)


@given(st.binary(max_size=300))
def test_noise_is_read_or_refused(payload: bytes) -> None:
    try:
        points: Iterable[DataPoint] = read(payload)
    except InvalidRecord:
        return
    assert all(isinstance(point, DataPoint) for point in points)


def test_a_push_is_one_line_with_its_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    payload = metrics_data(gauge("rate", attribute(7, "node", message(1, "b1")) + fixed(4, 2.5)))

    TelemetryLog(ManualClock()).export(payload, CONTEXT)

    (record,) = caplog.records
    assert record.getMessage() == "billing of librdkafka 2.6 at 10.0.0.7: rate{node=b1}=2.5"
    fields: dict[str, Any] = record.__dict__["fields"]
    assert fields["client_id"] == "billing"
    assert fields["metrics"] == [{"name": "rate", "attributes": {"node": "b1"}, "value": 2.5}]


def test_a_flood_of_pushes_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    receiver = TelemetryLog(clock)
    for _ in range(LINES_PER_SECOND_MAX + 50):
        receiver.export(b"", CONTEXT)
    assert len(caplog.records) == LINES_PER_SECOND_MAX
    clock.advance(1000)
    receiver.export(b"", CONTEXT)

    assert caplog.messages[-2] == "metrics of clients came too often: 50 not shown"
    assert caplog.messages[-1].endswith("no values")


def test_the_setting_says_whether_there_is_a_receiver() -> None:
    assert isinstance(telemetry_receiver("log", ManualClock()), TelemetryLog)
    assert telemetry_receiver("none", ManualClock()) is None
