"""Names with a prefix, and addresses."""

from __future__ import annotations

import pytest

from millstream.client.addresses import Address, parse_address, parse_bootstrap
from millstream.client.namespace import Namespace
from millstream.errors import InvalidArgument
from millstream.types import TopicPartition


def test_a_namespace_prefixes_names_and_hides_others() -> None:
    staging = Namespace("staging")

    assert staging.to_wire("orders") == "staging.orders"
    assert staging.from_wire("staging.orders") == "orders"
    assert staging.from_wire("staging.staging.orders") == "staging.orders"
    assert staging.from_wire("production.orders") is None
    assert staging.from_wire("stagingorders") is None
    assert staging.is_visible("staging.x")
    assert not staging.is_visible("orders")


def test_without_a_namespace_names_are_as_they_are() -> None:
    plain = Namespace()

    assert plain.to_wire("orders") == plain.from_wire("orders") == "orders"
    assert plain.is_visible("staging.orders")


def test_partitions_are_translated_as_their_topics_are() -> None:
    plain, staging = Namespace(), Namespace("staging")
    orders, wire = TopicPartition("orders", 0), TopicPartition("staging.orders", 0)

    assert plain.partition_to_wire(orders) == orders
    assert plain.partition_from_wire(orders) is orders
    assert staging.partition_to_wire(orders) == wire
    assert staging.partition_from_wire(wire) == orders
    assert staging.partitions_to_wire([orders]) == [wire]
    assert staging.keys_from_wire({wire: 1}) == {orders: 1}
    assert staging.keys_to_wire({orders: 1}) == {wire: 1}
    assert staging.shown("production.orders") == "production.orders"


@pytest.mark.parametrize("namespace", ["", "a.b", "a b", "é", "x" * 101])
def test_a_namespace_must_be_a_name_without_dots(namespace: str) -> None:
    with pytest.raises(InvalidArgument, match="namespace"):
        Namespace(namespace)


def test_bootstrap_addresses_are_read_from_text_and_lists() -> None:
    expected = (Address("a", 1), Address("b", 9092), Address("::1", 3))

    assert parse_bootstrap("a:1, b,[::1]:3,a:1") == expected
    assert parse_bootstrap(["a:1", "b", "[::1]:3"]) == expected
    assert parse_address("::1") == Address("::1", 9092)
    assert str(Address("a", 1)) == "a:1"


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:0", "a:70000", ":9092", "http://a:9092"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        parse_bootstrap(text)
