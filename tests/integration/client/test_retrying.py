"""The retrying consumers with a real broker: retries in time, dead letters, restarts."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.client.retrying.async_consumer import AsyncRetryingConsumer
from millstream.client.retrying.consumer import RetryingConsumer
from millstream.client.retrying.seen import MemorySeen
from millstream.clock import ManualClock
from millstream.errors import (
    IllegalGeneration,
    InvalidArgument,
    PollIntervalExceeded,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from millstream.testing import EmbeddedBroker
from tests.waiting import let_time_pass, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.client.retrying.attempt import Attempt

pytestmark = pytest.mark.integration

DELAYS = (0.1, 0.2)
IDLE_SECONDS = 0.6


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(name, f"{number}", key=f"k{number}")
        producer.flush()
    return name


def read_all(broker: EmbeddedBroker, topic: str, count: int) -> list[Any]:
    """The first records of a topic with one partition."""
    with Consumer(broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[Any] = []
        while len(found) < count:
            polled = consumer.poll(5.0)
            assert polled, f"{len(found)} of {count} records came"
            found += polled
        return found


class Handler:
    """Fails for odd numbers as often as it is told to."""

    def __init__(self, failures: int) -> None:
        self.attempts: dict[str, int] = {}
        self.done: list[str] = []
        self._failures = failures

    def __call__(self, attempt: Attempt) -> None:
        self.attempts[attempt.value] = attempt.number
        if int(attempt.value) % 2 and attempt.number <= self._failures:
            raise ValueError(f"{attempt.value} is odd")
        self.done.append(attempt.value)


def run(
    broker: EmbeddedBroker,
    topic: str,
    handler: Callable[[Attempt], None],
    style: str,
    **settings: Any,
) -> Any:
    """Run until nothing is left to do, in either style."""
    options: Any = {
        "group_id": "g",
        "retry_delays": DELAYS,
        "value_deserializer": "str",
    } | settings
    if style == "blocking":
        return RetryingConsumer(broker.bootstrap_servers, topic, handler, **options).run(
            idle_timeout=IDLE_SECONDS
        )

    async def handle(attempt: Attempt) -> None:
        handler(attempt)

    consumer = AsyncRetryingConsumer(broker.bootstrap_servers, topic, handle, **options)
    return asyncio.run(consumer.run(idle_timeout=IDLE_SECONDS))


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_failure_is_tried_again_until_it_succeeds(
    broker: EmbeddedBroker, topic: str, style: str, *, is_transactional: bool
) -> None:
    handler = Handler(failures=2)
    settings = {"transactional_id": f"x{topic}"} if is_transactional else {}

    counts = run(broker, topic, handler, style, **settings)

    assert sorted(handler.done) == [str(number) for number in range(10)]
    assert handler.attempts == {str(n): 3 if n % 2 else 1 for n in range(10)}
    assert (counts.handled, counts.retried, counts.dead) == (10, 10, 0)


def test_one_whose_group_takes_long_to_take_it_in_is_not_idle(
    broker: EmbeddedBroker, topic: str
) -> None:
    settings: Any = {"group_id": "slow", "consumer": {"group_protocol": "classic"}}
    consumer = RetryingConsumer(broker.bootstrap_servers, topic, print, **settings)
    broker.faults.delay("JoinGroup", 2000, times=1)

    counts = consumer.run(idle_timeout=1.5)

    assert counts.handled == 10


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
def test_what_fails_for_good_is_found_among_the_dead(
    broker: EmbeddedBroker, topic: str, style: str
) -> None:
    counts = run(broker, topic, Handler(failures=99), style)

    assert (counts.handled, counts.retried, counts.dead) == (5, 10, 5)
    dead = read_all(broker, f"{topic}.g.dead", 5)
    assert sorted(record.value for record in dead) == [b"1", b"3", b"5", b"7", b"9"]
    told = dict(dead[0].headers)
    assert told["millstream.retry.topic"] == topic.encode()
    assert told["millstream.retry.failures"] == b"3"
    assert told["millstream.retry.error.type"] == b"builtins.ValueError"
    assert b"is odd" in told["millstream.retry.error.message"]


def test_a_restart_goes_on_where_it_was(broker: EmbeddedBroker, topic: str) -> None:
    handler = Handler(failures=0)
    run(broker, topic, handler, "blocking")

    run(broker, topic, handler, "blocking")

    assert len(handler.done) == 10


def test_it_can_be_stopped_from_another_thread_and_loses_nothing(
    broker: EmbeddedBroker, topic: str
) -> None:
    done: list[str] = []
    reached = threading.Event()

    def handle(attempt: Attempt) -> None:
        done.append(attempt.value)
        if len(done) == 4:
            reached.set()
            consumer.stop()

    consumer = RetryingConsumer(
        broker.bootstrap_servers, topic, handle, group_id="g", value_deserializer="str"
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    assert reached.wait(20)
    thread.join(20)

    assert len(done) == 4
    rest = Handler(failures=0)
    run(broker, topic, rest, "blocking")
    assert sorted(done + rest.done) == [str(number) for number in range(10)]


def test_records_that_mean_the_same_are_handled_once(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, "3", key="k3")
    handler = Handler(failures=0)

    counts = run(
        broker,
        topic,
        handler,
        "blocking",
        seen=MemorySeen(),
        identify=lambda attempt: attempt.key,
    )

    assert handler.done.count("3") == 1
    assert counts.duplicates == 1


def test_namespaces_do_not_mix(broker: EmbeddedBroker) -> None:
    for namespace in ("staging", "production"):
        with Producer(broker.bootstrap_servers, namespace=namespace) as producer:
            producer.send("shared", "1" if namespace == "staging" else "2")
    handler = Handler(failures=99)

    run(broker, "shared", handler, "blocking", common={"namespace": "staging"})

    assert handler.attempts == {"1": 3}
    assert len(read_all(broker, "staging.shared.g.dead", 1)) == 1


ALL = [str(number) for number in range(10)]


def test_what_was_handled_is_committed_long_before_the_poll_interval_ends(
    broker: EmbeddedBroker, topic: str
) -> None:
    clock = ManualClock()
    done: list[str] = []
    committed: list[int] = []
    partition = TopicPartition(topic, 0)

    def handle(attempt: Attempt) -> None:
        found = consumer._consumer.committed([partition])
        assert isinstance(found, dict)
        at = found[partition]
        committed.append(0 if at is None else at.offset)
        done.append(attempt.value)
        clock.advance(100_000)
        if len(done) == len(ALL):
            consumer.stop()

    consumer = RetryingConsumer(
        broker.bootstrap_servers, topic, handle, group_id="g", value_deserializer="str"
    )
    consumer._clock = clock  # type: ignore[assignment]  # Minutes pass in a moment.
    consumer.run()

    # The interval is 300 s, and half of it is kept free.
    assert done == ALL
    assert committed == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
def test_records_of_one_poll_may_outlast_the_poll_interval(
    broker: EmbeddedBroker, topic: str, style: str
) -> None:
    handler = Handler(failures=0)

    def work_slowly(attempt: Attempt) -> None:
        handler(attempt)
        let_time_pass(0.45)

    settings = {"consumer": {"max_poll_interval": 4.0}, "retry_delays": ()}
    counts = run(broker, topic, work_slowly, style, **settings)

    assert handler.done == ALL
    assert counts.handled == len(ALL)


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
def test_a_handler_that_outlasts_the_poll_interval_alone_is_told_what_to_do(
    broker: EmbeddedBroker, topic: str, style: str
) -> None:
    def work_for_too_long(attempt: Attempt) -> None:
        let_time_pass(0.5)

    settings = {"consumer": {"max_poll_interval": 0.2}, "max_poll_records": 1}
    with pytest.raises(PollIntervalExceeded, match=rf"{topic}-0 at offset 0, .* Raise the int"):
        run(broker, topic, work_for_too_long, style, **settings)


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
def test_being_put_out_of_the_group_is_not_the_end(
    broker: EmbeddedBroker, topic: str, style: str
) -> None:
    handler = Handler(failures=1)
    broker.faults.fail("OFFSET_COMMIT", UnknownMemberId)

    run(broker, topic, handler, style, seen=MemorySeen(), max_poll_records=4)

    assert sorted(handler.done) == ALL


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
@pytest.mark.parametrize("error", [IllegalGeneration, StaleMemberEpoch, UnknownMemberId])
def test_a_transaction_that_a_rebalance_came_before_is_done_again(
    broker: EmbeddedBroker, topic: str, style: str, error: type
) -> None:
    handler = Handler(failures=1)
    broker.faults.fail("TXN_OFFSET_COMMIT", error)

    counts = run(broker, topic, handler, style, transactional_id=f"x{topic}", max_poll_records=4)

    # The group had not gone on in truth: so nothing comes twice either.
    assert sorted(handler.done) == ALL
    assert (counts.handled, counts.retried, counts.dead) == (10, 5, 0)
    assert len(read_all(broker, f"{topic}.g.retry.1", 5)) == 5


@pytest.mark.parametrize("style", ["blocking", "asyncio"])
def test_records_of_open_and_aborted_transactions_are_not_handled(
    broker: EmbeddedBroker, topic: str, style: str
) -> None:
    handler = Handler(failures=0)
    with Producer(broker.bootstrap_servers, transactional_id=f"x{topic}") as producer:
        producer.begin_transaction()
        producer.send(topic, "100").result(20)

        run(broker, topic, handler, style)
        assert handler.done == ALL

        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "102")
    run(broker, topic, handler, style)

    assert handler.done == [*ALL, "102"]


@pytest.fixture
def strict_broker() -> Iterator[EmbeddedBroker]:
    """One that creates no topic by itself, and that may be taken away."""
    settings = {"auto.create.topics.enable": "false"}
    with EmbeddedBroker(settings, in_memory=True) as running:
        yield running


class Running:
    """A retrying consumer on a thread of its own, and the lines it logs."""

    def __init__(self, address: str, topic: str, **settings: Any) -> None:
        self.done: list[str] = []
        self.consumer = RetryingConsumer(
            address,
            topic,
            self._handle,
            group_id="g",
            retry_delays=DELAYS,
            value_deserializer="str",
            **settings,
        )
        self.may_finish = threading.Event()
        """Until then, a record that is done is not finished: nothing is committed."""
        self.may_finish.set()
        self._has_done = threading.Condition()
        self._pool = ThreadPoolExecutor(1)
        self.future = self._pool.submit(self.consumer.run)

    def _handle(self, attempt: Attempt[bytes, str]) -> None:
        with self._has_done:
            self.done.append(attempt.value)
            self._has_done.notify_all()
        assert self.may_finish.wait(30)

    def wait_for(self, *values: str) -> None:
        with self._has_done:
            assert self._has_done.wait_for(lambda: self.done == list(values), 30), self.done

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()
        self.future.result(30)
        self._pool.shutdown()


class Lines(logging.Handler):
    """Lets a test wait for a line of the log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(record.getMessage())

    def wait_for(self, *parts: str) -> None:
        while True:
            line = self._lines.get(timeout=30)
            if all(part in line for part in parts):
                return


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("millstream.client.retrying.loop")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_it_waits_for_a_topic_that_is_not_there_and_names_it(
    strict_broker: EmbeddedBroker, lines: Lines
) -> None:
    with Running(strict_broker.bootstrap_servers, "late") as running:
        lines.wait_for("late", "waiting")
        strict_broker.create_topic("late", partitions=1)
        with Producer(strict_broker.bootstrap_servers) as producer:
            producer.send("late", "1")
        running.wait_for("1")


def test_a_topic_that_is_not_there_is_created_where_brokers_do_that(broker: EmbeddedBroker) -> None:
    with Running(broker.bootstrap_servers, "made") as running:
        with Producer(broker.bootstrap_servers) as producer:
            while not producer.partitions_for("made"):
                pass
            producer.send("made", "1")
        running.wait_for("1")


def test_a_broker_that_is_away_for_longer_than_calls_take_is_waited_for(
    strict_broker: EmbeddedBroker, lines: Lines
) -> None:
    strict_broker.create_topic("away", partitions=1)
    times = {"default_api_timeout": 0.3, "request_timeout": 0.2}
    with (
        Producer(strict_broker.bootstrap_servers) as producer,
        Running(strict_broker.bootstrap_servers, "away", common=times) as running,
    ):
        running.may_finish.clear()
        producer.send("away", "1").result(30)
        running.wait_for("1")
        with strict_broker.faults.unavailable():
            running.may_finish.set()  # Its offset cannot be committed now.
            lines.wait_for("away", "waiting")
        producer.send("away", "2").result(30)
        running.wait_for("1", "2")
        # A commit that takes longer than a call may while the consumer stops would be told.
        with Consumer(strict_broker.bootstrap_servers, group_id="g") as onlooker:
            until(lambda: _committed_offset(onlooker, "away") == 2)


def _committed_offset(consumer: Consumer[bytes, bytes], topic: str) -> int | None:
    partition = TopicPartition(topic, 0)
    committed = consumer.committed([partition])[partition]
    return None if committed is None else committed.offset


def test_a_topic_that_does_not_come_in_time_is_told(strict_broker: EmbeddedBroker) -> None:
    consumer = RetryingConsumer(strict_broker.bootstrap_servers, "absent", print, group_id="g")

    with pytest.raises(UnknownTopicOrPartition, match="absent"):
        consumer.run(idle_timeout=0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"group_id": ""},
        {"group_id": "g", "retry_delays": (-1.0,)},
        {"group_id": "g", "identify": lambda attempt: attempt.key},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any) -> None:
    with pytest.raises(InvalidArgument):
        RetryingConsumer("localhost:1", "t", print, **settings)
