"""Connections of a simulated network: in order, late, cut, reset, half open."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.testing.simulation.network import SimNetwork
from millstream.testing.simulation.schedule import Schedule

if TYPE_CHECKING:
    from millstream.testing.simulation.sockets import SimListener, SimSocket

SECOND_US = 1_000_000


class Wire:
    """Two machines, one of which listens, and a connection between them."""

    def __init__(self) -> None:
        self.schedule = Schedule(Random(1))
        self.network = SimNetwork(self.schedule, Random(2))
        self.listener: SimListener = self.network.listen("server", ("server", 9092))
        self.client: SimSocket = self.network.connect("client", ("server", 9092))
        self.wait()
        self.server, _ = self.listener.accept()

    def wait(self, seconds: int = 1) -> None:
        self.schedule.run_until(self.schedule.now_us + seconds * SECOND_US)


def received(sock: SimSocket) -> bytes:
    return b"".join(sock.inbox)


def test_bytes_arrive_in_order_and_later() -> None:
    wire = Wire()
    for number in range(50):
        wire.client.send(bytes([number]))

    assert received(wire.server) == b""
    wire.wait()
    assert received(wire.server) == bytes(range(50))


def test_what_is_sent_while_the_way_is_cut_arrives_in_order_when_it_is_mended() -> None:
    wire = Wire()
    wire.client.send(b"under way")
    wire.network.cut("client", "server")
    wire.client.send(b", held")
    wire.wait()
    assert wire.network.is_cut("client", "server")
    assert received(wire.server) == b""

    wire.network.mend_all()
    wire.client.send(b", after")
    wire.wait()

    assert received(wire.server) == b"under way, held, after"


def test_a_cut_of_one_way_leaves_the_other() -> None:
    wire = Wire()
    wire.network.cut("client", "server")
    wire.server.send(b"answer")

    wire.wait()

    assert received(wire.client) == b"answer"


def test_a_slow_way_takes_longer() -> None:
    wire = Wire()
    wire.network.slow_down("client", "server", 5 * SECOND_US)
    wire.client.send(b"x")

    wire.wait(4)
    assert received(wire.server) == b""
    wire.wait(2)
    assert received(wire.server) == b"x"


def test_both_ends_of_a_reset_connection_hear_of_it() -> None:
    wire = Wire()
    (connection,) = wire.network.connections()
    wire.network.reset(connection)
    wire.wait()

    assert wire.client.is_reset
    assert wire.server.is_reset
    with pytest.raises(ConnectionResetError):
        wire.client.send(b"x")


def test_nobody_listens_and_a_connection_is_refused() -> None:
    wire = Wire()
    wire.listener.close()
    refused = wire.network.connect("client", ("server", 9092))

    wire.wait()

    assert refused.is_reset
    assert not refused.is_connected


def test_a_process_that_died_ends_its_connections() -> None:
    wire = Wire()
    wire.network.process_died("server")

    wire.wait()

    assert wire.client.is_ended


def test_a_machine_without_power_says_nothing_until_it_is_back_and_asked() -> None:
    wire = Wire()
    wire.network.power_lost("server")
    wire.client.send(b"lost")
    wire.wait()
    assert not wire.client.is_ended
    assert not wire.client.is_reset

    wire.network.power_returned("server")
    wire.client.send(b"x")
    wire.wait()

    assert wire.client.is_reset


def test_an_address_is_taken_once() -> None:
    wire = Wire()
    with pytest.raises(OSError, match="in use"):
        wire.network.listen("server", ("server", 9092))
