"""The benchmark of late heartbeats counts every one that was due, and stamps what it relays."""

from __future__ import annotations

import socket
import sys

import pytest

from benchmarks.clients_punctual import (
    HEARTBEAT_SECONDS,
    Lateness,
    late_by_cadence,
    late_by_sending,
)
from benchmarks.clients_relay import SO_TIMESTAMPNS, Arrival, Pair, now

ALWAYS = {"began": 0.0, "ended": 1e9}


def test_heartbeats_that_a_late_one_left_out_are_late_too() -> None:
    late = late_by_cadence({"late": [1.0, 1.0 + 3.5 * HEARTBEAT_SECONDS]}, ALWAYS)

    assert late == pytest.approx([2.5 * HEARTBEAT_SECONDS, 1.5 * HEARTBEAT_SECONDS, 0.5 * 0.01])


def test_a_batch_is_late_by_what_exceeds_its_producers_linger() -> None:
    told = {"sent": [("a", 0.005, 1.0), ("b", 0.013, 1.0)]}

    late = late_by_sending({"a": [0.5, 1.006], "b": [1.012]}, told)

    assert late == pytest.approx([0.001, 0.0])


def test_one_in_a_hundred_may_be_late() -> None:
    assert Lateness.of([0.0] * 990 + [1.0] * 10).p99_us == 1e6
    assert Lateness.of([0.0] * 991 + [1.0] * 9).p99_us == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what a socket receives")
def test_a_relayed_request_has_the_time_at_which_it_was_sent() -> None:
    arrivals: list[Arrival] = []
    frame = b"\0\x0c\0\x04\0\0\0\x01\0\x02me"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with socket.create_connection(server.getsockname()) as client:
            outer, _ = server.accept()
            inner, broker = socket.socketpair()
            with outer, inner, broker:
                before = now()
                client.sendall(len(frame).to_bytes(4, "big") + frame)
                assert Pair(outer, inner, arrivals).pass_on()
                assert broker.recv(100)[4:] == frame

    ((key, client_id, at),) = arrivals
    assert (key, client_id) == (12, "me")
    assert before <= at <= now()
