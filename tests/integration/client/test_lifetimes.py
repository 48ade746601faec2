"""The life of every class of client: nothing stays behind, whatever ends it."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import (
    Admin,
    AsyncProducer,
    Consumer,
    Producer,
    RetryingConsumer,
    ShareConsumer,
    TopicPartition,
)
from millstream.client.consumer.read_topic import read_topic
from millstream.client.futures import Waiter
from millstream.errors import (
    BootstrapFailed,
    MillstreamError,
    OperationTimeout,
    UnknownTopicOrPartition,
)
from tests.integration.client.client_kinds import KINDS
from tests.waiting import once_blocked, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory
    from tests.integration.client.client_kinds import Kind

pytestmark = pytest.mark.integration

NOWHERE = TopicPartition("nowhere", 0)
LIVES = 4


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def client_threads() -> set[threading.Thread]:
    """Those that are not of the broker's pools, which start threads when they have work."""
    return {each for each in threading.enumerate() if not re.search(r"_\d+$", each.name)}


def open_sockets() -> int:
    """With the pollers and events of whoever waits for them; the broker's files are its own."""
    listed = Path("/proc/self/fd")
    return sum(_is_of_sockets(each) for each in listed.iterdir()) if listed.is_dir() else 0


def _is_of_sockets(descriptor: Path) -> bool:
    with suppress(FileNotFoundError):  # Another thread has closed it since.
        return str(descriptor.readlink()).startswith(("socket:", "anon_inode:", "pipe:"))
    return False


def test_closing_leaves_neither_thread_nor_socket(
    kind: Kind, millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()

    def live() -> None:
        client = kind.make(millstream_broker.bootstrap_servers, topic)
        kind.use_once(client, topic)
        kind.close(client)
        kind.close(client)

    live()  # What is made once and kept is there now.
    gc.collect()
    threads, sockets = client_threads(), open_sockets()

    for _ in range(LIVES):
        live()
    gc.collect()

    until(lambda: not client_threads() - threads)
    # What a client leaves is there as often as one has lived; broker and tests open something too.
    until(lambda: open_sockets() < sockets + LIVES)


@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")
def test_a_client_that_is_forgotten_ends_its_threads(
    kind: Kind, millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    threads = client_threads()
    client = kind.make(millstream_broker.bootstrap_servers, topic)
    kind.use_once(client, topic)

    del client
    gc.collect()

    until(lambda: not client_threads() - threads)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told_and_does_no_harm(
    kind: Kind, millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    client = kind.make(millstream_broker.bootstrap_servers, topic)
    kind.use_once(client, topic)
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:  # pragma: no cover  (the child)
        try:
            kind.use_once(client, topic)
        except BaseException as error:  # The parent judges.
            os.write(writing, type(error).__name__.encode())
        try:
            kind.close(client)
        except BaseException as error:  # The parent judges.
            os.write(writing, b", " + repr(error).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as told:
        said = told.read()

    assert (said, status) == (b"ForkedClient", 0)
    kind.use_once(client, topic)
    kind.close(client)


SCRIPT = """
import sys
from tests.integration.client.client_kinds import KINDS

name, address, topic, is_forgotten = sys.argv[1:]
kind = KINDS[name]
client = kind.make(address, topic)
kind.use_once(client, topic)
if is_forgotten == "forgotten":
    del client
print("end")
"""


@pytest.mark.parametrize("how", ["kept", "forgotten"])
@pytest.mark.parametrize("name", KINDS)
def test_the_interpreter_ends_although_a_client_was_not_closed(
    name: str, how: str, millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *(name, millstream_broker.bootstrap_servers, topic, how)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


@pytest.fixture
def silence() -> Iterator[str]:
    """An address where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def _consumer_call(call: Callable[[Any], object]) -> Callable[[str], object]:
    def run(address: str) -> object:
        consumer = Consumer(address, group_id="g")
        try:
            consumer.assign([NOWHERE])
            return call(consumer)
        finally:
            consumer.close(0.1)

    return run


def _producer_call(call: Callable[[Any], object], **settings: Any) -> Callable[[str], object]:
    def run(address: str) -> object:
        producer = Producer(address, **settings)
        try:
            return call(producer)
        finally:
            producer.close(0.1)

    return run


def _share_poll(address: str) -> object:
    consumer = ShareConsumer(address, "nowhere", group_id="s")
    try:
        return consumer.poll(None)
    finally:
        consumer.close(0.1)


def _admin_call(address: str) -> object:
    with Admin(address) as admin:
        return admin.list_topics()


BLOCKING_CALLS: dict[str, Callable[[str], object]] = {
    "Producer.send": _producer_call(lambda producer: producer.send("t", b"v")),
    "Producer.partitions_for": _producer_call(lambda producer: producer.partitions_for("t")),
    "Producer.init_transactions": _producer_call(
        lambda producer: producer.init_transactions(), transactional_id="x"
    ),
    "Consumer.poll": _consumer_call(lambda consumer: consumer.poll(None)),
    "Consumer.poll_arrow": _consumer_call(lambda consumer: consumer.poll_arrow(None)),
    "Consumer.batches": _consumer_call(lambda consumer: next(consumer.batches())),
    "for record in Consumer": _consumer_call(lambda consumer: next(iter(consumer))),
    "Consumer.position": _consumer_call(lambda consumer: consumer.position(NOWHERE)),
    "Consumer.end_offsets": _consumer_call(lambda consumer: consumer.end_offsets([NOWHERE])),
    "Consumer.commit": _consumer_call(lambda consumer: consumer.commit({NOWHERE: 1})),
    "Consumer.committed": _consumer_call(lambda consumer: consumer.committed([NOWHERE])),
    "ShareConsumer.poll": _share_poll,
    "Admin.list_topics": _admin_call,
    "read_topic": lambda address: read_topic(address, "nowhere"),
    "RetryingConsumer.run": lambda address: RetryingConsumer(
        address, "nowhere", print, group_id="g"
    ).run(),
}


def interrupted(run: Callable[[], object]) -> None:
    """Press Ctrl-C while something waits, which must end it at once and leave no thread."""
    threads = client_threads()
    # Whatever this process has done with the signal before: here it is as a user's program has it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            once_blocked(lambda: os.kill(os.getpid(), signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            run()
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()
    until(lambda: not client_threads() - threads)


@pytest.mark.timeout(25)
@pytest.mark.parametrize("call", BLOCKING_CALLS)
def test_ctrl_c_ends_a_call_that_waits_for_a_broker(call: str, silence: str) -> None:
    interrupted(lambda: BLOCKING_CALLS[call](silence))


@pytest.mark.timeout(25)
@pytest.mark.parametrize("call", ["result", "flush", "close", "commit_transaction"])
def test_ctrl_c_ends_a_wait_for_an_acknowledgement(
    call: str, millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    settings: Any = {"transactional_id": topic} if call == "commit_transaction" else {}
    producer = Producer(millstream_broker.bootstrap_servers, **settings)
    if settings:
        producer.begin_transaction()
    producer.send(topic, b"v").result(20)
    waits: dict[str, Callable[[], object]] = {
        "result": lambda: producer.send(topic, b"v").result(),
        "flush": producer.flush,
        "close": producer.close,
        "commit_transaction": producer.commit_transaction,
    }

    with millstream_broker.faults.unavailable():
        producer.send(topic, b"lost")

        def run() -> None:
            try:
                waits[call]()
            finally:
                with suppress(MillstreamError):  # What was lost is not the question here.
                    producer.close(0.1)

        interrupted(run)


def waiters_for(topic: str) -> int:
    """How many results about a topic somebody would still have."""
    return sum(isinstance(each, Waiter) and topic in each.what for each in gc.get_objects())


def test_sends_that_were_given_up_leave_nothing_in_a_producer(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic(partitions=1)
    settings: Any = {"max_block": 0.005, "retry_backoff": 0.01}

    with Producer(millstream_broker.bootstrap_servers, **settings) as producer:
        for _ in range(50):
            with pytest.raises((UnknownTopicOrPartition, OperationTimeout)):
                producer.send(topic, "v", partition=7)
        until(lambda: waiters_for(topic) < 10)

    async def give_up() -> None:
        async with AsyncProducer(millstream_broker.bootstrap_servers, **settings) as producer:
            for _ in range(50):
                with pytest.raises((UnknownTopicOrPartition, OperationTimeout)):
                    await producer.send(topic, "v", partition=7)
            until(lambda: waiters_for(topic) < 10)

    asyncio.run(give_up())


def test_sends_that_were_given_up_leave_nothing_while_no_broker_answers() -> None:
    with Producer("127.0.0.1:1", max_block=0.005) as producer:
        for _ in range(50):
            with pytest.raises((BootstrapFailed, OperationTimeout)):
                producer.send("far-away", "v")

        until(lambda: waiters_for("far-away") < 10)
