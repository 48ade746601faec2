"""The core of clients on a real thread with real sockets: start, stop, fork, exit, Ctrl-C."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from millstream.client.config import ClientConfig
from millstream.client.futures import Waiter
from millstream.client.io_thread import IoThread, start_client
from millstream.client.router import ANY, CONTROLLER, Coordinator, Leader
from millstream.client.runtime import ClientRuntime
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, ForkedClient, MillstreamError
from millstream.network.client.selector import SocketSelector
from millstream.protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millstream.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.router import Target
    from millstream.protocol.message import Message
    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

R = TypeVar("R", bound="Message")


def ask(client: IoThread, request: Message, target: Target, response: type[R]) -> R:
    waiter: Waiter[R] = Waiter(type(request).__name__)

    def on_done(outcome: Message | MillstreamError, _now_ms: int) -> None:
        if isinstance(outcome, response):
            waiter.set_result(outcome)
        elif isinstance(outcome, MillstreamError):
            waiter.set_error(outcome)

    def begin(now_ms: int) -> None:
        client.runtime.router.call(
            request, target, on_done, deadline_ms=now_ms + 20_000, now_ms=now_ms
        )

    client.runtime.post(begin)
    return waiter.result(30)


def names_of_threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("client-")}


def open_sockets() -> set[str]:
    """By inode: a number may be used again, by files of the broker that runs in this process."""
    found = set()
    for each in Path("/proc/self/fd").glob("*"):
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            found.add(str(each.readlink()))
    return {each for each in found if each.startswith("socket:")}


@pytest.fixture
def client(millstream_broker: EmbeddedBroker) -> Iterator[IoThread]:
    config = ClientConfig(bootstrap_servers=(millstream_broker.bootstrap_servers,))
    thread = start_client(config, "client-under-test")
    yield thread
    assert thread.stop(10)


def test_controller_leaders_and_coordinators_answer(
    client: IoThread, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic(partitions=2)

    cluster = ask(client, DescribeClusterRequest(), CONTROLLER, DescribeClusterResponse)
    partition = ListOffsetsPartition(partition_index=1, timestamp=-1)
    offsets = ask(
        client,
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        ),
        Leader(topic, 1),
        ListOffsetsResponse,
    )
    groups = ask(
        client,
        DescribeGroupsRequest(groups=["nobody"]),
        Coordinator("group", "nobody"),
        DescribeGroupsResponse,
    )

    assert len(cluster.brokers) == 1
    assert offsets.topics[0].partitions[0].offset == 0
    assert groups.groups[0].group_id == "nobody"


def test_names_are_resolved_and_every_address_is_tried(millstream_broker: EmbeddedBroker) -> None:
    port = millstream_broker.bootstrap_servers.rpartition(":")[2]
    config = ClientConfig(bootstrap_servers=(f"localhost:{port}",))
    client = start_client(config, "client-by-name")
    try:
        answer = ask(client, DescribeClusterRequest(), ANY, DescribeClusterResponse)
    finally:
        client.stop(10)

    assert answer.cluster_id


def test_a_broker_that_restarts_is_found_again(
    client: IoThread, millstream_broker: EmbeddedBroker
) -> None:
    ask(client, DescribeClusterRequest(), ANY, DescribeClusterResponse)

    millstream_broker.stop()
    millstream_broker.start()

    assert ask(client, DescribeClusterRequest(), ANY, DescribeClusterResponse).brokers


def test_stopping_leaves_neither_thread_nor_socket(millstream_broker: EmbeddedBroker) -> None:
    config = ClientConfig(bootstrap_servers=(millstream_broker.bootstrap_servers,))
    gc.collect()
    before = open_sockets()
    client = start_client(config, "client-to-stop")
    ask(client, DescribeClusterRequest(), ANY, DescribeClusterResponse)

    assert client.stop(10)
    assert client.stop(10), "again is fine"

    assert not names_of_threads()
    with pytest.raises(ClientClosed, match="client-to-stop was closed"):
        client.check_usable()
    with pytest.raises(ClientClosed):
        client.runtime.post(lambda _now_ms: None)
    client.runtime.wake()
    del client
    gc.collect()
    # The broker's own ends of the connections close a moment later.
    until(lambda: not open_sockets() - before)


def test_what_is_under_way_when_the_client_stops_ends(millstream_broker: EmbeddedBroker) -> None:
    config = ClientConfig(bootstrap_servers=("127.0.0.1:1",))
    client = start_client(config, "client-without-broker")
    waiter: Waiter[None] = Waiter()
    client.runtime.post(
        lambda now_ms: client.runtime.network.send(
            -1,
            DescribeClusterRequest(),
            now_ms,
            lambda outcome, _: (
                waiter.set_error(outcome) if isinstance(outcome, MillstreamError) else None
            ),
        )
    )

    client.stop(10)

    with pytest.raises(MillstreamError):
        waiter.result(10)


def test_a_client_that_fails_inside_says_so(
    millstream_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    config = ClientConfig(bootstrap_servers=(millstream_broker.bootstrap_servers,))
    runtime = ClientRuntime(SocketSelector(), SystemClock(), config, Random())
    client = IoThread(runtime, "client-with-a-fault")
    client.start()

    def fault(_now_ms: int) -> None:
        raise ZeroDivisionError("division by zero")

    client.runtime.post(fault)
    client._thread.join(10)

    with pytest.raises(ClientClosed, match="division by zero"):
        client.check_usable()
    assert "client-with-a-fault has failed" in caplog.text


def test_a_client_that_is_thrown_away_ends_its_thread(millstream_broker: EmbeddedBroker) -> None:
    class Client:
        """Stands for a Producer."""

    config = ClientConfig(bootstrap_servers=(millstream_broker.bootstrap_servers,))
    client = start_client(config, "client-forgotten")
    owner = Client()
    client.stop_when_collected(owner)

    del owner
    gc.collect()
    client._thread.join(10)

    assert not client._thread.is_alive()


def test_a_forked_child_is_told_to_make_its_own(client: IoThread) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  (the child)
        try:
            client.check_usable()
            os.write(writing, b"usable")
        except ForkedClient as error:
            os.write(writing, str(error).encode())
        finally:
            client.stop()
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as told:
        said = told.read()

    assert b"make a client in the child" in said
    assert ask(client, DescribeClusterRequest(), ANY, DescribeClusterResponse).brokers


SCRIPT = """
    import os, signal, sys
    from millstream.client.config import ClientConfig
    from millstream.client.futures import Waiter
    from millstream.client.io_thread import start_client
    from tests.waiting import once_blocked

    client = start_client(ClientConfig(bootstrap_servers=(sys.argv[1],)), "client-in-a-script")
"""


def run_script(broker: EmbeddedBroker, script: str) -> subprocess.CompletedProcess[str]:
    source = textwrap.dedent(SCRIPT) + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", source, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_the_interpreter_ends_although_a_client_was_not_closed(
    millstream_broker: EmbeddedBroker,
) -> None:
    ended = run_script(millstream_broker, "print('end')")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_ctrl_c_reaches_a_program_that_waits(millstream_broker: EmbeddedBroker) -> None:
    ended = run_script(
        millstream_broker,
        """
        with once_blocked(lambda: os.kill(os.getpid(), signal.SIGINT)):
            try:
                Waiter("for good").result()
            except KeyboardInterrupt:
                print("interrupted")
        """,
    )

    assert ended.stdout == "interrupted\n"
