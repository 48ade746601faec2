"""Faults in front of request handlers: which request meets which, and in what order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.errors import ApiError, InvalidArgument, NotLeaderOrFollower
from millstream.network.server.request import CLOSE, NO_RESPONSE, PENDING, Connection, Request
from millstream.protocol.api import ApiKey
from millstream.testing.faults import Faults, FaultyHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.server.request import Outcome, Response


class Client(Connection):
    """A connection that remembers what it was answered."""

    def __init__(self) -> None:
        super().__init__("PLAINTEXT")
        self.answers: list[tuple[int, Response | Outcome]] = []

    def answered(self, request: Request) -> None:
        self.answers.append((request.correlation_id, request.response))

    def request(self, correlation_id: int, api: ApiKey = ApiKey.PRODUCE) -> Request:
        return Request(self, memoryview(bytearray(20)), 4, 14, 20, api, 3, correlation_id, -1, 0)


class Apis:
    """Answers with the correlation id, or later."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.answer: Response | Outcome | None = None

    def handle(self, request: Request) -> Response | Outcome:
        self.handled.append(request.correlation_id)
        return b"%d" % request.correlation_id if self.answer is None else self.answer

    def refuse(self, request: Request, error: ApiError) -> Response | Outcome:
        return error.wire_name.encode()


class Loop:
    """Timers that fire when a test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, function: Callable[..., None], *arguments: object) -> None:
        self.timers.append((delay, lambda: function(*arguments)))

    def fire(self) -> float:
        delay, function = self.timers.pop(0)
        function()
        return delay


class Bench:
    """A faulty handler with everything around it."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.apis = cast("Any", Apis())
        self.loop = cast("Any", Loop())
        self.client = Client()
        self.handle = FaultyHandler(self.apis, self.faults, self.loop)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_faults_requests_pass_through(bench: Bench) -> None:
    assert bench.faults.is_quiet
    assert bench.handle(bench.client.request(1)) == b"1"


def test_an_error_is_answered_as_often_as_asked_for_and_nothing_is_done(bench: Bench) -> None:
    bench.faults.fail("Produce", NotLeaderOrFollower, times=2)

    answers = [bench.handle(bench.client.request(number)) for number in (1, 2, 3)]

    assert answers == [b"NOT_LEADER_OR_FOLLOWER", b"NOT_LEADER_OR_FOLLOWER", b"3"]
    assert bench.apis.handled == [3]
    assert bench.faults.is_quiet


class FastPath:
    """What knows which APIs it must leave to the handlers."""

    declined_apis = 0


def test_the_fast_path_leaves_only_apis_with_faults_to_the_handlers(bench: Bench) -> None:
    fast_path = FastPath()
    bench.faults.intercept(fast_path)
    assert fast_path.declined_apis == 0

    bench.faults.fail("Fetch", NotLeaderOrFollower)
    bench.faults.delay("Produce", 1)
    assert fast_path.declined_apis == 1 << ApiKey.PRODUCE | 1 << ApiKey.FETCH
    bench.handle(bench.client.request(1, ApiKey.FETCH))
    assert fast_path.declined_apis == 1 << ApiKey.PRODUCE
    bench.faults.drop("ShareGroupHeartbeat")
    assert fast_path.declined_apis == 1 << ApiKey.PRODUCE | 1 << 63
    bench.faults.clear()
    assert fast_path.declined_apis == 0
    with bench.faults.unavailable():
        assert fast_path.declined_apis == (1 << 64) - 1
    assert fast_path.declined_apis == 0


@pytest.mark.parametrize(
    "error", ["not_leader_or_follower", 6, NotLeaderOrFollower, NotLeaderOrFollower("now")]
)
def test_an_error_may_be_named_in_several_ways(bench: Bench, error: Any) -> None:
    bench.faults.fail("Produce", error)

    assert bench.handle(bench.client.request(1)) == b"NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize("api", ["Fetch", "FETCH", "fetch", ApiKey.FETCH])
def test_other_apis_meet_no_fault(bench: Bench, api: ApiKey | str) -> None:
    bench.faults.drop(api)

    assert bench.handle(bench.client.request(1)) == b"1"
    assert bench.handle(bench.client.request(2, ApiKey.FETCH)) is CLOSE


def test_faults_of_an_api_happen_in_the_order_in_which_they_were_asked_for(bench: Bench) -> None:
    bench.faults.drop("Produce")
    bench.faults.fail("Produce", "NOT_ENOUGH_REPLICAS")

    answers = [bench.handle(bench.client.request(number)) for number in (1, 2, 3)]

    assert answers == [CLOSE, b"NOT_ENOUGH_REPLICAS", b"3"]


def test_a_connection_may_break_after_the_request_was_done(bench: Bench) -> None:
    bench.faults.drop("Produce", after_handling=True)

    assert bench.handle(bench.client.request(1)) is CLOSE
    assert bench.apis.handled == [1]


def test_a_late_answer_is_lost_too_when_the_connection_breaks(bench: Bench) -> None:
    bench.faults.drop("Produce", after_handling=True)
    bench.apis.answer = PENDING
    request = bench.client.request(1)

    assert bench.handle(request) is PENDING
    request.complete(b"done")

    assert bench.client.answers == [(1, CLOSE)]


def test_a_delayed_request_is_handled_later(bench: Bench) -> None:
    bench.faults.delay("Produce", 250, times=1)
    request = bench.client.request(1)

    assert bench.handle(request) is PENDING
    assert request.is_retained
    assert bench.apis.handled == []
    assert bench.loop.fire() == 0.25

    assert bench.client.answers == [(1, b"1")]


def test_requests_of_a_connection_stay_in_order_behind_a_delayed_one(bench: Bench) -> None:
    bench.faults.delay("Produce", 250, times=1)
    requests = [bench.client.request(1), bench.client.request(2), bench.client.request(3)]

    assert [bench.handle(request) for request in requests] == [PENDING] * 3
    other = Client()
    assert bench.handle(other.request(9)) == b"9"
    bench.loop.fire()

    assert bench.apis.handled == [9, 1, 2, 3]
    assert bench.client.answers == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert bench.handle(bench.client.request(4)) == b"4"


def test_a_delay_without_number_lasts_until_it_is_cleared(bench: Bench) -> None:
    bench.faults.delay("Produce", 10)
    bench.handle(bench.client.request(1))
    bench.handle(bench.client.request(2))
    bench.loop.fire()
    bench.faults.clear()
    bench.loop.fire()

    assert bench.client.answers == [(1, b"1"), (2, b"2")]
    assert bench.handle(bench.client.request(3)) == b"3"


def test_delay_and_error_go_together(bench: Bench) -> None:
    bench.faults.delay("Produce", 10, times=1)
    bench.faults.fail("Produce", "NOT_ENOUGH_REPLICAS")
    bench.handle(bench.client.request(1))
    bench.loop.fire()

    assert bench.client.answers == [(1, b"NOT_ENOUGH_REPLICAS")]


def test_a_delayed_request_of_a_connection_that_is_gone_is_forgotten(bench: Bench) -> None:
    bench.faults.delay("Produce", 10, times=1)
    bench.handle(bench.client.request(1))
    bench.client.state.is_open = False
    bench.loop.fire()

    assert bench.apis.handled == []


def test_a_delayed_request_that_expects_no_answer_gets_none(bench: Bench) -> None:
    bench.faults.delay("Produce", 10, times=1)
    bench.apis.answer = NO_RESPONSE
    bench.handle(bench.client.request(1))
    bench.loop.fire()

    assert bench.client.answers == [(1, NO_RESPONSE)]


def test_while_unavailable_every_request_breaks_its_connection() -> None:
    disconnected = []
    faults = Faults(lambda: disconnected.append(True))
    apis = cast("Any", Apis())
    loop = cast("Any", Loop())
    handle, client = FaultyHandler(apis, faults, loop), Client()

    with faults.unavailable():
        assert disconnected == [True]
        assert handle(client.request(1)) is CLOSE
        assert handle(client.request(2, ApiKey.METADATA)) is CLOSE

    assert handle(client.request(3)) == b"3"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda faults: faults.drop("Prodce"), "'Prodce' is no API of Kafka: did you mean 'Produc"),
        (lambda faults: faults.fail("find_cordinator", 15), "did you mean 'FindCoordinator'"),
        (lambda faults: faults.delay("xyz", 5), "'xyz' is no API of Kafka: give a name such as"),
        (lambda faults: faults.fail("Produce", "NOT_LEADER"), "did you mean 'NOT_LEADER_OR_FOLL"),
        (lambda faults: faults.fail("Produce", "OOPS"), "'OOPS' is no error of Kafka: give a na"),
        (lambda faults: faults.fail("Produce", 12345), "12345 is no error of Kafka"),
        (lambda faults: faults.drop("Produce", times=0), "happens 0 times"),
        (lambda faults: faults.delay("Produce", -1), "-1 ms"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(
    ask: Callable[[Faults], None], message: str, bench: Bench
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ask(bench.faults)
    assert bench.faults.is_quiet
