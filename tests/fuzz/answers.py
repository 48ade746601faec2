"""Clients of a broker whose answers are damaged: `python -m tests.fuzz.answers --seconds 60`.

A proxy stands between a broker and each kind of client and damages some of the answers: bits,
lengths, missing and surplus bytes, large answers too. A client may fail with an error of Millstream
or do its work; it may not crash, hang or raise anything else. `--seed` repeats the choice of
damage; how threads interleave is chance.
"""

from __future__ import annotations

import argparse
import logging
import socket
import sys
import threading
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from millstream import Admin, Consumer, Producer, TopicReader
from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.testing import EmbeddedBroker
from tests.fuzz.frames import mutate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "answers"
PARTITIONS = 2
DAMAGE_PROBABILITY = 0.15
VALUES = (b"x", b"y" * 5000, b"z" * 900_000)
SHORT: dict[str, Any] = {
    "request_timeout": 0.5,
    "default_api_timeout": 1.0,
    "reconnect_backoff_max": 0.1,
    "retry_backoff_max": 0.1,
}
_SIZE_BYTES = 4
_ID_BYTES = 4


class DamagingProxy:
    """Passes requests on, and answers with damage. A context manager."""

    def __init__(self, broker: EmbeddedBroker, random: Random) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._upstream = (host, int(port))
        self._random = random
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._told = host.encode() + int(port).to_bytes(4, "big")
        self._told_instead = host.encode() + self.port.to_bytes(4, "big")
        self.damaged = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those there are end with their clients."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(self._upstream)
                for pump in (self._pass_on, self._pass_back):
                    threading.Thread(target=pump, args=(client, broker), daemon=True).start()

    def _pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                broker.sendall(data)
        _hang_up(broker)

    def _pass_back(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), broker.makefile("rb") as answers:
            for whole in _frames(answers):
                # Clients are to come back here, where the broker would name itself.
                answer = whole.replace(self._told, self._told_instead)
                client.sendall(self._perhaps_damaged(answer))
        _hang_up(client)

    def _perhaps_damaged(self, answer: bytes) -> bytes:
        size, body = len(answer), answer
        if self._random.random() < DAMAGE_PROBABILITY:
            self.damaged += 1
            # An answer to another request ends the connection at once: seldom worth trying.
            kept = 0 if self._random.random() < 0.1 else _ID_BYTES
            body = answer[:kept] + mutate(answer[kept:], self._random)
            size = len(body)
            if self._random.random() < 0.1:
                size = self._random.choice([0, 3, size - 1, size + 1, 1 << 30, (1 << 32) - 1])
        return (max(size, 0)).to_bytes(_SIZE_BYTES, "big") + body


def _frames(answers: Any) -> Iterator[bytes]:
    while size := answers.read(_SIZE_BYTES):
        yield answers.read(int.from_bytes(size, "big"))


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _send(address: str, random: Random) -> None:
    with Producer(address, delivery_timeout=1.5, linger=0, max_block=1.0, **SHORT) as client:
        for _ in range(random.randint(1, 5)):
            client.send(TOPIC, random.choice(VALUES)).result(10)


def _consume(address: str, random: Random) -> None:
    group = random.choice([None, "group"])
    settings: Any = {**SHORT, "group_id": group, "auto_offset_reset": "earliest"}
    with Consumer(address, **settings) as client:
        if group:
            client.subscribe(TOPIC)
        else:
            client.assign(client.partitions_for(TOPIC))
        for _ in range(5):
            client.poll(0.05)


def _administer(address: str, random: Random) -> None:
    with Admin(address, request_timeout=0.5, default_api_timeout=1.0) as client:
        client.list_topics()
        client.describe_topics([TOPIC])
        client.list_groups()


def _read(address: str, random: Random) -> None:
    with TopicReader(address, **SHORT) as client:
        client.read(TOPIC, timeout=1.0).to_arrow()


KINDS: tuple[Callable[[str, Random], None], ...] = (_send, _consume, _administer, _read)


def run_for(seconds: float, seed: int, clients_min: int = 1) -> tuple[int, Counter[str]]:
    """How many answers were damaged, and how the clients fared: so many at least."""
    random, fates = Random(seed), Counter[str]()
    clock = SystemClock()
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        with Producer(broker.bootstrap_servers) as producer:
            for value in VALUES:
                producer.send(TOPIC, value)
        proxy = DamagingProxy(broker, Random(seed + 1))
        address = f"{broker.bootstrap_servers.rpartition(':')[0]}:{proxy.port}"
        end_ms = clock.monotonic_ms() + round(seconds * 1000)
        while clock.monotonic_ms() < end_ms or fates.total() < clients_min:
            kind = random.choice(KINDS)
            try:
                kind(address, random)
                fates["done"] += 1
            except (MillstreamError, TimeoutError) as error:
                fates[type(error).__name__] += 1
        proxy.close()
    return proxy.damaged, fates


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    damaged, fates = run_for(given.seconds, given.seed)
    sys.stdout.write(f"{damaged} answers damaged, clients: {dict(fates.most_common())}\n")


if __name__ == "__main__":
    main()
