"""Nodes as processes, and a client that speaks the protocol and nothing else."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from millstream.clock import SystemClock
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request
from millstream.protocol.messages import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    ProduceRequest,
    create_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    metadata,
    produce,
)
from millstream.records.batch import RecordBatch, split_batches
from millstream.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.protocol.message import Message

M = TypeVar("M", bound="Message")

READY = "millstream is ready: "
START_SECONDS_MAX = 60
"""For a machine that does much else at the same time."""

_APIS = {api.request: api for api in ApiKey}


class Client:
    """One connection; each request waits for its answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self._correlation_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Message, version: int) -> None:
        """Send a request; whatever comes back is the caller's business."""
        self._correlation_id += 1
        self.socket.sendall(encode_request(request, version, self._correlation_id, "test"))

    def ask(self, request: Message, version: int, expected: type[M]) -> M:
        """The answer to a request."""
        self.send(request, version)
        return self.read_answer(type(request), version, expected)

    def read_answer(self, request: type[Message], version: int, expected: type[M]) -> M:
        """The answer to a request that was sent before."""
        (size,) = struct.unpack(">i", self._read(4))
        _, response = decode_response(self._read(size), _APIS[request], version)
        assert isinstance(response, expected)
        return response

    def _read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data

    # What the tests ask.

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> int:
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response = self.ask(request, 7, create_topics.CreateTopicsResponse)
        return response.topics[0].error_code

    def topics(self) -> dict[str, tuple[bytes, int]]:
        """Name to (id, number of partitions that have a leader)."""
        response = self.ask(MetadataRequest(topics=None), 12, metadata.MetadataResponse)
        return {
            topic.name or "": (
                bytes(topic.topic_id),
                sum(partition.leader_id >= 0 for partition in topic.partitions),
            )
            for topic in response.topics
        }

    def cluster_id(self) -> str | None:
        return self.ask(MetadataRequest(topics=[]), 12, metadata.MetadataResponse).cluster_id

    def produce(self, topic: str, *values: bytes) -> tuple[int, int]:
        """Error code and first offset."""
        builder, now_ms = RecordBatchBuilder(), SystemClock().wall_ms()
        builder.extend((now_ms, None, value) for value in values)
        return self.produce_bytes(topic, builder.build())

    def produce_bytes(self, topic: str, records: bytes) -> tuple[int, int]:
        """The same for what may or may not be a batch."""
        partition = produce.PartitionProduceData(index=0, records=records)
        data = produce.TopicProduceData(name=topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        response = self.ask(request, 9, produce.ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def values(self, topic: str, offset: int = 0) -> list[bytes]:
        """All records from an offset on."""
        found: list[bytes] = []
        while True:
            error_code, records, high_watermark = self.fetch(topic, offset)
            assert error_code == 0
            for batch in split_batches(records):
                assert isinstance(batch, RecordBatch)
                found += [record.value or b"" for record in batch.records()]
                offset = batch.next_offset
            if offset >= high_watermark:
                return found

    def fetch(self, topic: str, offset: int) -> tuple[int, bytes, int]:
        """Error code, records and high watermark."""
        partition = fetch.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic=topic, partitions=[partition])],
        )
        response = self.ask(request, 12, fetch.FetchResponse)
        data = response.responses[0].partitions[0]
        return data.error_code, bytes(data.records or b""), data.high_watermark

    def set_config(self, resource_type: int, name: str, key: str, value: str) -> int:
        config = incremental_alter_configs.AlterableConfig(
            name=key, config_operation=0, value=value
        )
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = self.ask(request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse)
        return response.responses[0].error_code

    def config(self, resource_type: int, name: str, key: str) -> str | None:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=[key]
        )
        request = DescribeConfigsRequest(resources=[resource])
        response = self.ask(request, 4, describe_configs.DescribeConfigsResponse)
        return response.results[0].configs[0].value


class NodeProcess:
    """`millstream server start` and its end."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        limit: str | None = None,
    ) -> None:
        """`limit`: arguments of the shell's `ulimit`, such as `-n 100`."""
        self.data = data
        command = [sys.executable, "-m", "millstream", "server", "start", "--data", str(data)]
        if "--listen" not in arguments and "--config" not in arguments:
            command += ["--listen", "localhost:0"]
        if limit is not None:
            command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]
        # A file, not a pipe: a node that says much must not wait for somebody to read it.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open until close()
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        """What the node has written so far."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode()

    def until_ready(self) -> str:
        """Wait for the line that says where clients connect."""
        line = self.first_line()
        assert line.startswith(READY), self.finish(signal.SIGKILL)
        return line.removeprefix(READY).strip()

    def starts(self) -> bool:
        """Wait for the start or for its failure; whether it is ready."""
        return self.first_line().startswith(READY)

    def first_line(self) -> str:
        """What it prints when it is ready; nothing if it ends instead."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS_MAX)
        return self._process.stdout.readline().decode() if ready else ""

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def finish(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, wait for the end; the exit code and the log."""
        if number is not None and self._process.poll() is None:
            self._process.send_signal(number)
        self._process.communicate(timeout=START_SECONDS_MAX)
        return self._process.returncode, self.log()

    def close(self) -> None:
        """Kill it, if it still runs, and forget its log."""
        if self.is_running():
            self.finish(signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def is_running(self) -> bool:
        return self._process.poll() is None


@contextmanager
def running(
    data: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    limit: str | None = None,
) -> Iterator[NodeProcess]:
    """A node that is killed at the end, if it still runs."""
    node = NodeProcess(data, *arguments, environment=environment, limit=limit)
    try:
        yield node
    finally:
        node.close()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
