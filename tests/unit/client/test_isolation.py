"""Names with a prefix, and addresses."""

from __future__ import annotations

import pytest

from millstream.client.addresses import Address, parse_address, parse_bootstrap
from millstream.client.isolation import Isolation
from millstream.errors import InvalidArgument


def test_an_environment_prefixes_names_and_hides_others() -> None:
    staging = Isolation("staging")

    assert staging.to_wire("orders") == "staging.orders"
    assert staging.from_wire("staging.orders") == "orders"
    assert staging.from_wire("staging.staging.orders") == "staging.orders"
    assert staging.from_wire("production.orders") is None
    assert staging.from_wire("stagingorders") is None
    assert staging.is_visible("staging.x")
    assert not staging.is_visible("orders")


def test_without_an_environment_names_are_as_they_are() -> None:
    plain = Isolation()

    assert plain.to_wire("orders") == plain.from_wire("orders") == "orders"
    assert plain.is_visible("staging.orders")


@pytest.mark.parametrize("environment", ["", "a.b", "a b", "é", "x" * 101])
def test_an_environment_must_be_a_name_without_dots(environment: str) -> None:
    with pytest.raises(InvalidArgument, match="environment"):
        Isolation(environment)


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
