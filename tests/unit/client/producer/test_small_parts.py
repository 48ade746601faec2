"""Partitioners, interceptors, records, settings and the dispatcher."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

import pytest

from millstream.client.config import keyword_names
from millstream.client.producer.config import ProducerConfig, ProducerSettings
from millstream.client.producer.dispatcher import DispatcherThread
from millstream.client.producer.interceptors import ProducerInterceptor, make_chain
from millstream.client.producer.partitioner import RoundRobin, draw_partition, resolve_partitioner
from millstream.client.producer.record import (
    ProducerRecord,
    RecordMetadata,
    normal_headers,
    timestamp_ms,
)
from millstream.client.producer.settings import config_from_dotted, config_from_kwargs
from millstream.errors import InvalidArgument, MessageTooLarge
from millstream.records.compression import Compression


class Partitions(NamedTuple):
    """A topic for partitioners."""

    count: int  # type: ignore[assignment]  # As `core` has it.
    available: list[int]


class TestPartitioners:
    """Who chooses."""

    def test_shorter_queues_are_drawn_more_often_and_every_one_now_and_then(self) -> None:
        random = Random(1)

        drawn = Counter(draw_partition([4, 5, 6], [0, 3, 9], random) for _ in range(3000))

        assert drawn[4] > drawn[5] > drawn[6] > 0

    def test_without_sizes_all_are_drawn_alike(self) -> None:
        drawn = Counter(
            draw_partition([0, 1], None, rnd) for rnd in [Random(2)] for _ in range(999)
        )

        assert min(drawn.values()) > 400

    def test_round_robin_uses_those_with_leaders_if_there_are_any(self) -> None:
        robin = RoundRobin()

        some = [robin.partition("t", None, None, Partitions(4, [1, 3])) for _ in range(3)]
        none = [robin.partition("u", None, None, Partitions(2, [])) for _ in range(3)]

        assert some == [1, 3, 1]
        assert none == [0, 1, 0]

    def test_a_setting_may_be_a_name_a_class_an_object_or_a_function(self) -> None:
        def function(*_: object) -> int:
            return 3

        assert resolve_partitioner(None) is resolve_partitioner("sticky") is None
        assert isinstance(resolve_partitioner("round_robin"), RoundRobin)
        assert isinstance(resolve_partitioner(RoundRobin), RoundRobin)
        robin = RoundRobin()
        assert resolve_partitioner(robin) is robin
        made = resolve_partitioner(function)
        assert made is not None
        assert made.partition("t", None, None, Partitions(4, [])) == 3
        named = resolve_partitioner("millstream.client.producer.partitioner.RoundRobin")
        assert isinstance(named, RoundRobin)
        with pytest.raises(InvalidArgument, match="round_robin"):
            resolve_partitioner("random")
        with pytest.raises(InvalidArgument, match="cannot be imported"):
            resolve_partitioner("no.such.module")


class Marker(ProducerInterceptor):
    """Adds to the value."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value + b"!")


class Failing:
    """Raises, or gives nonsense."""

    closed = False

    def on_send(self, record: ProducerRecord) -> Any:
        if record.value == b"nonsense!":
            return None
        raise RuntimeError("interceptor")

    def close(self) -> None:
        Failing.closed = True


class Listening:
    """Only hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.heard.append(metadata or error)


class TestInterceptors:
    """The chain."""

    def test_each_sees_what_the_one_before_made_and_failures_are_passed_over(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        listening = Listening()
        chain = make_chain([Marker, Failing(), listening, Marker()])

        assert chain.on_send(ProducerRecord("t", b"a")).value == b"a!!"
        assert chain.on_send(ProducerRecord("t", b"nonsense")).value == b"nonsense!!"
        place, error = RecordMetadata("t", 0, 1, 2), MessageTooLarge()
        chain.acknowledge(place, None)
        chain.acknowledge(None, error)
        chain.close()

        assert listening.heard == [place, error]
        assert Failing.closed
        assert "interceptor" in caplog.text
        assert "instead of a record" in caplog.text

    def test_names_are_imported(self) -> None:
        chain = make_chain(f"{__name__}.Marker, {__name__}.Marker")

        assert chain.on_send(ProducerRecord("t", b"a")).value == b"a!!"
        assert not make_chain(None)
        assert not make_chain(())

    def test_names_and_objects_keep_their_order(self) -> None:
        class Question:
            def on_send(self, record: ProducerRecord) -> ProducerRecord:
                return ProducerRecord(record.topic, record.value + b"?")

        chain = make_chain([Question(), f"{__name__}.Marker", Question])

        assert chain.on_send(ProducerRecord("t", b"a")).value == b"a?!?"

    @pytest.mark.parametrize("given", ["no.such.module", "nodots", 5, object()])
    def test_what_is_none_is_refused(self, given: object) -> None:
        with pytest.raises(InvalidArgument, match="interceptor"):
            make_chain(given)


class TestRecords:
    """Headers and times as callers give them."""

    def test_headers_are_mappings_or_pairs_of_texts_and_bytes(self) -> None:
        assert normal_headers(None) == ()
        assert normal_headers({"a": b"1", "b": "é", "c": None}) == (
            ("a", b"1"),
            ("b", "é".encode()),
            ("c", None),
        )
        assert normal_headers([("a", bytearray(b"1")), ("a", memoryview(b"2"))]) == (
            ("a", b"1"),
            ("a", b"2"),
        )

    @pytest.mark.parametrize("bad", [{5: b""}, {"a": 5}, [("a",)], 7, ["abc"]])
    def test_what_is_no_header_says_what_would_be(self, bad: Any) -> None:
        with pytest.raises(InvalidArgument, match="header"):
            normal_headers(bad)

    def test_times_are_milliseconds_or_have_a_zone(self) -> None:
        assert timestamp_ms(5) == 5
        assert timestamp_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
        for bad in (datetime(2026, 1, 1), -1, 1.5, True):  # noqa: DTZ001  # Meant to be wrong.
            with pytest.raises(InvalidArgument, match="timestamp"):
                timestamp_ms(bad)


class TestSettings:
    """`ProducerConfig`."""

    def test_the_types_and_the_settings_are_the_same(self) -> None:
        own_parameters = {"bootstrap_servers", "key_serializer", "value_serializer"}
        declared = set(keyword_names(ProducerConfig)) - own_parameters

        assert set(ProducerSettings.__annotations__) == declared

    def test_defaults_are_safe(self) -> None:
        config = config_from_kwargs("h:1", {})

        assert config.is_idempotent
        assert config.required_acks == -1
        assert (config.batch_size, config.linger_ms) == (256 * 1024, 5)

    def test_idempotence_yields_to_other_settings_unless_it_was_asked_for(self) -> None:
        assert not config_from_kwargs("h:1", {"acks": 1}).is_idempotent
        assert not config_from_kwargs("h:1", {"retries": 0}).is_idempotent
        assert not config_from_kwargs(
            "h:1", {"max_in_flight_requests_per_connection": 6}
        ).is_idempotent
        assert not config_from_kwargs("h:1", {"enable_idempotence": False}).is_idempotent
        for conflict in ({"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 9}):
            with pytest.raises(InvalidArgument, match="idempotence"):
                config_from_kwargs("h:1", {"enable_idempotence": True, **conflict})

    def test_transactions_need_idempotence_and_a_name(self) -> None:
        assert config_from_kwargs("h:1", {"transactional_id": "t"}).is_idempotent
        with pytest.raises(InvalidArgument, match="needs enable_idempotence"):
            config_from_kwargs("h:1", {"transactional_id": "t", "enable_idempotence": False})
        with pytest.raises(InvalidArgument, match="must not be empty"):
            config_from_kwargs("h:1", {"transactional_id": ""})

    def test_levels_belong_to_their_codec(self) -> None:
        config = config_from_kwargs(
            "h:1", {"compression_type": "zstd", "compression_zstd_level": 9}
        )

        assert (config.compression, config.compression_level) == (Compression.ZSTD, 9)
        assert config_from_kwargs("h:1", {"compression_type": "lz4"}).compression_level is None
        with pytest.raises(InvalidArgument, match="gzip has no level 12"):
            config_from_kwargs("h:1", {"compression_type": "gzip", "compression_gzip_level": 12})

    def test_times_must_leave_room_for_one_request(self) -> None:
        with pytest.raises(InvalidArgument, match="delivery_timeout"):
            config_from_kwargs("h:1", {"delivery_timeout": 1.0})

    def test_both_kinds_of_names_give_the_same(self) -> None:
        by_kwargs = config_from_kwargs(["h:1", "i:2"], {"linger": 0.01, "acks": 1})
        by_names = config_from_dotted(
            {"bootstrap.servers": "h:1,i:2", "linger.ms": "10", "acks": "1"}
        )

        assert by_kwargs == by_names


class TestDispatcher:
    """The thread of callbacks."""

    def test_calls_run_in_order_on_one_thread_which_ends(self) -> None:
        dispatcher = DispatcherThread("callbacks-of-the-test")
        calls: list[tuple[int, str]] = []
        for number in range(20):
            dispatcher.submit(lambda n=number: calls.append((n, threading.current_thread().name)))

        assert dispatcher.drain(10)
        dispatcher.stop(10)

        assert calls == [(number, "callbacks-of-the-test") for number in range(20)]
        assert "callbacks-of-the-test" not in {each.name for each in threading.enumerate()}

    def test_nothing_starts_before_the_first_call(self) -> None:
        dispatcher = DispatcherThread("never")

        assert dispatcher.drain(0)
        dispatcher.stop(0)

    def test_a_callback_that_exits_ends_neither_the_thread_nor_the_others(self) -> None:
        dispatcher = DispatcherThread("does-not-exit")
        called: list[int] = []

        dispatcher.submit(sys.exit, 1)
        dispatcher.submit(called.append, 1)

        assert dispatcher.drain(10)
        assert called == [1]
        dispatcher.stop(10)

    def test_a_callback_does_not_wait_for_itself(self) -> None:
        dispatcher = DispatcherThread("drains-itself")
        drained: list[bool] = []
        dispatcher.submit(lambda: drained.append(dispatcher.drain(10)))
        dispatcher.submit(lambda: dispatcher.stop(10))
        assert dispatcher.drain(10)

        assert drained == [True]
