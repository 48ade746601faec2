"""The cluster that a command works on: an `Admin`, and how other clients of it are made.

Commands open one with `open_session`. It finds a broker first, so that a wrong address is told at
once and not after a timeout; everything else is done by the client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.client.admin.admin import Admin
from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, UnknownTopicOrPartition
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from millstream.client.admin.cluster import BrokerDescription
    from millstream.client.admin.topics import CreatedTopic, PartitionDescription, TopicDescription
    from millstream.client.consumer.consumer import Consumer
    from millstream.client.producer.producer import Producer

CLIENT_ID: Final = "millstream-cli"
_REQUEST_TIMEOUT_S_MAX: Final = 30.0
_LINGER_S: Final = 0.005


class _Settings(TypedDict):
    """What all clients of a command have in common."""

    client_id: str
    namespace: str | None
    request_timeout: float
    default_api_timeout: float


class Session:
    """Clients of one cluster, and what a command has asked it already."""

    def __init__(
        self, bootstrap_server: str, timeout_s: float = 30.0, namespace: str | None = None
    ) -> None:
        self.bootstrap_server = bootstrap_server
        self.timeout_s = timeout_s
        self.clock = SystemClock()
        self._settings: _Settings = {
            "client_id": CLIENT_ID,
            "namespace": namespace,
            "request_timeout": min(timeout_s, _REQUEST_TIMEOUT_S_MAX),
            "default_api_timeout": timeout_s,
        }
        self._topics: dict[str, TopicDescription] = {}
        self.admin = Admin(bootstrap_server, **self._settings)
        try:
            self.admin.connect()
        except BaseException:
            self.admin.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; again is fine."""
        self.admin.close()

    # Other clients.

    def producer(self, **settings: Any) -> Producer:
        """A producer that gives a record up when the command's time is over."""
        from millstream.client.producer.producer import Producer

        linger_s = settings.setdefault("linger", _LINGER_S)
        return Producer(
            self.bootstrap_server,
            **self._settings,
            max_block=self.timeout_s,
            delivery_timeout=self.timeout_s + linger_s,
            **settings,
        )

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer, without a group unless the settings name one."""
        from millstream.client.consumer.consumer import Consumer

        return Consumer(self.bootstrap_server, **self._settings, **settings)

    # What is there.

    def topic(self, name: str) -> TopicDescription:
        """A topic, or an error that names the one that may have been meant."""
        if name not in self._topics:
            found = self.admin.describe_topics([name])
            if isinstance(found.errors.get(name), UnknownTopicOrPartition):
                hint = (
                    nearest(name, self.topics()) or f"; create it: millstream topics create {name}"
                )
                raise CommandFailed(f"there is no topic {name!r}{hint}")
            self._topics[name] = found[name]
        return self._topics[name]

    def partition(self, topic: str, index: int) -> PartitionDescription:
        """One of a topic's partitions, or an error that says how many there are."""
        partitions = self.topic(topic).partitions
        if not 0 <= index < len(partitions):
            raise CommandFailed(
                f"{topic} has no partition {index}; it has {len(partitions)}, from 0 on"
            )
        return partitions[index]

    def topics(self) -> dict[str, TopicDescription]:
        """All topics as they are now, by name."""
        return dict(self.admin.describe_topics().results)

    def wait_for_leaders(self, created: Iterable[CreatedTopic]) -> None:
        """Wait until topics that were just created can be used: brokers hear of them later."""
        places = [
            TopicPartition(each.name, index)
            for each in created
            for index in range(each.partitions or 1)
        ]
        self.admin.list_offsets(dict.fromkeys(places, "latest")).raise_first()

    def brokers(self) -> dict[int, BrokerDescription]:
        """The brokers that are there now, by id."""
        return {each.node_id: each for each in self.admin.describe_cluster().brokers}


def open_session(bootstrap_server: str, timeout_s: float, namespace: str | None = None) -> Session:
    """A session for the options of a command."""
    if timeout_s <= 0:
        raise UsageFault("--timeout is a number of seconds above 0")
    try:
        return Session(bootstrap_server, timeout_s, namespace)
    except InvalidArgument as error:
        option = "--namespace" if "namespace" in str(error) else "--bootstrap-server"
        raise UsageFault(f"{option}: {error}") from error
