"""The small parts: buffers, quotas, accounts, rate-limited logs, requests."""

from __future__ import annotations

import logging

import pytest

from millstream.clock import ManualClock
from millstream.network.log_limiter import LogLimiter
from millstream.network.server import (
    NO_RESPONSE,
    Connection,
    Request,
    SocketServerConfig,
    header_versions,
)
from millstream.network.server.buffers import (
    KEPT_BYTES_MAX,
    LINGERING_BYTES_MAX,
    BufferPool,
    growth_bytes,
)
from millstream.network.server.connection_quotas import ConnectionQuotas
from millstream.network.server.connection_state import ConnectionState
from millstream.network.server.listener_limits import ListenerLimits
from millstream.network.server.liveness import NEVER_MS, Expiry, Liveness
from millstream.network.server.request_channel import RequestChannel
from millstream.protocol.api import ApiKey


def test_a_buffer_grows_with_what_arrived_not_with_what_was_announced() -> None:
    sizes: list[int] = []
    received = 4
    while not sizes or sizes[-1] < 100_000_000:
        sizes.append(growth_bytes(100_000_000, received))
        received = sizes[-1]

    assert sizes[0] <= 16 * 1024
    assert len(sizes) < 10
    assert growth_bytes(1_048_700, 262_144) >= 1_048_700


def test_a_pool_gives_back_what_it_was_given() -> None:
    pool = BufferPool()
    first = pool.take(100_000)
    pool.give_back(first)

    assert pool.take(90_000) is first
    assert pool.take(90_000) is not first
    assert pool.taken_bytes == 190_000


def test_a_pool_keeps_a_bounded_amount() -> None:
    pool = BufferPool()
    buffers = [pool.take(4 << 20) for _ in range(20)]
    huge = pool.take(KEPT_BYTES_MAX + 1)
    for buffer in [*buffers, huge]:
        pool.give_back(buffer)

    assert pool.taken_bytes == 0
    assert sum(len(buffer) for buffer in pool._free) <= KEPT_BYTES_MAX


def test_a_pool_that_lent_much_lets_nobody_linger() -> None:
    pool = BufferPool()
    assert pool.may_linger

    buffer = pool.take(LINGERING_BYTES_MAX + 1)

    assert not pool.may_linger
    pool.write_off(buffer)
    assert pool.may_linger


def test_the_rate_of_new_connections_is_counted_per_second() -> None:
    quotas = ConnectionQuotas(SocketServerConfig(max_connection_creation_rate=2))
    assert quotas.delay_ms("OUTSIDE", 5000) == 0
    for _ in range(2):
        quotas.admit("OUTSIDE", "10.0.0.1")

    assert quotas.delay_ms("INSIDE", 5400) == 600
    assert quotas.delay_ms("OUTSIDE", 6000) == 0


def test_refused_connections_count_for_the_rate_but_not_as_open() -> None:
    config = SocketServerConfig(max_connections_per_ip=1, max_connections=2)
    quotas = ConnectionQuotas(config)

    assert [quotas.admit("OUTSIDE", host) for host in "aab"] == [True, False, True]
    assert quotas.broker.is_full
    assert quotas.rejected == 1
    quotas.release("OUTSIDE", "a")
    assert not quotas.broker.is_full
    assert quotas.admit("INSIDE", "a")


def test_a_listener_has_limits_of_its_own_within_those_of_the_broker() -> None:
    limits = {"OUTSIDE": ListenerLimits(max_connections=1, max_connection_creation_rate=2)}
    quotas = ConnectionQuotas(SocketServerConfig(max_connections=2, listener_limits=limits))
    outside, inside = quotas.listener("OUTSIDE"), quotas.listener("INSIDE")
    assert quotas.delay_ms("OUTSIDE", 5000) == 0

    assert quotas.admit("OUTSIDE", "a")
    assert (outside.is_full, inside.is_full, quotas.broker.is_full) == (True, False, False)
    assert quotas.admit("INSIDE", "a")
    assert quotas.broker.is_full
    quotas.release("OUTSIDE", "a")
    assert quotas.admit("OUTSIDE", "a")
    assert quotas.delay_ms("OUTSIDE", 5300) == 700
    assert quotas.delay_ms("INSIDE", 5300) == 0

    quotas.update(SocketServerConfig())
    assert not outside.is_full
    assert quotas.delay_ms("OUTSIDE", 5300) == 0
    assert quotas.total == 2


class Waiter:
    """Takes room as soon as there is some."""

    def __init__(self, account: RequestChannel) -> None:
        self._account = account
        self.woken = 0

    def room_was_made(self) -> None:
        """Take it."""
        self.woken += 1
        self._account.take_bytes(100)


def test_room_goes_to_those_who_waited_longest() -> None:
    account = RequestChannel(SocketServerConfig(queued_max_request_bytes=100))
    account.take_bytes(100)
    waiters = [Waiter(account) for _ in range(3)]
    for waiter in waiters:
        account.wait(waiter)

    account.give_bytes(100)
    assert [waiter.woken for waiter in waiters] == [1, 0, 0]
    account.give_bytes(100)
    assert [waiter.woken for waiter in waiters] == [1, 1, 0]


def test_lines_of_different_kinds_do_not_hide_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    log = LogLimiter(clock)

    for _ in range(3):
        log.warning("a", "first %s", "kind")
        log.info("b", "second kind")
    clock.advance(10_000)
    log.warning("a", "first %s", "kind")

    assert caplog.messages == [
        "first kind",
        "second kind",
        "first kind (2 more like it since the last such line)",
    ]


def test_a_limited_line_has_fields_and_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = LogLimiter(clock)

    for _ in range(3):
        log.failure("a", "no answer", error=ValueError("x"), peer="10.0.0.7:1")
    clock.advance(10_000)
    log.failure("a", "no answer", error=ValueError("x"), peer="10.0.0.7:2")

    first, last = caplog.records
    assert first.exc_info is not None
    assert first.fields == {"peer": "10.0.0.7:1"}  # type: ignore[attr-defined]
    assert last.fields == {"peer": "10.0.0.7:2", "unwritten": 2}  # type: ignore[attr-defined]


def test_who_waits_for_us_is_not_idle() -> None:
    config = SocketServerConfig(connections_max_idle_ms=100)
    liveness = Liveness(config, ConnectionState(), now_ms=0)

    assert liveness.check(100, is_blocked=False, is_waiting=True) == 200
    assert liveness.check(200, is_blocked=False, is_waiting=False) is Expiry.IDLE


def test_progress_postpones_the_end_of_a_blocked_connection() -> None:
    config = SocketServerConfig(connections_max_idle_ms=-1, write_stall_max_ms=100)
    state = ConnectionState()
    liveness = Liveness(config, state, now_ms=0)

    state.bytes_out = 5
    assert liveness.check(10, is_blocked=True, is_waiting=False) == 110
    assert liveness.check(60, is_blocked=True, is_waiting=False) == 110
    state.bytes_out = 6
    assert liveness.check(109, is_blocked=True, is_waiting=False) == 209
    assert liveness.check(209, is_blocked=True, is_waiting=False) is Expiry.STALLED
    assert liveness.check(500, is_blocked=False, is_waiting=False) == NEVER_MS


def test_served_versions_are_looked_up_by_key_and_version() -> None:
    versions = header_versions({ApiKey.PRODUCE: ApiKey.PRODUCE.released})

    assert versions[0 << 16 | 8] == 1
    assert versions[0 << 16 | 9] == 2
    assert (0 << 16 | 2) not in versions
    assert (3 << 16 | 1) not in versions


def test_a_bare_connection_can_be_told_nothing() -> None:
    """The simulator overrides these; forgetting one is an error, not silence."""
    connection = Connection("PLAINTEXT")
    request = Request(connection, memoryview(b""), 0, 0, 0, 3, 1, 7, -1, 0)

    assert connection.principal == "User:ANONYMOUS"
    assert repr(request) == "Request(api_key=3, api_version=1, correlation_id=7)"
    with pytest.raises(NotImplementedError):
        request.complete(NO_RESPONSE)
    with pytest.raises(NotImplementedError):
        connection.mute_until(1)
    with pytest.raises(NotImplementedError):
        connection.close("because")
