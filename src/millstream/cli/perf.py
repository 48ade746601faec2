"""`millstream perf`: how fast a cluster takes records, and how fast it gives them back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream.cli.cluster_view import TopicView
from millstream.cli.connection import Address
from millstream.cli.faults import CommandFailed, ExitCode, UsageFault
from millstream.cli.offsets import Partitions, choose_partitions
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Topic,
    new_family,
)
from millstream.cli.output import show_facts, show_json
from millstream.cli.perf_consume import ConsumeLoad, FetchPlan, Position
from millstream.cli.perf_payload import Payload, random_values, values_of_file
from millstream.cli.perf_pipe import Pipe
from millstream.cli.perf_produce import ProduceLoad, Timetable
from millstream.cli.perf_run import Outcome, latency_line, run_load
from millstream.cli.produce import (
    AcksChoice,
    AcksOption,
    CompressionChoice,
    CompressionOption,
    parse_acks,
)
from millstream.cli.session import Session, open_session
from millstream.cli.topic_io import EARLIEST, LATEST, list_offsets
from millstream.errors import LeaderNotAvailable, TopicAlreadyExists, error_for_code
from millstream.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from millstream.protocol.messages.create_topics import CreatableTopic
from millstream.records import Compression

family = new_family("Measure how fast records are written and read.")

_DURATION_S: Final = 10.0
_BROKER_DEFAULT: Final = -1
_INT32_MAX: Final = (1 << 31) - 1
_ticks: Callable[[], int] = time.perf_counter_ns

Records = Annotated[
    int | None, typer.Option("--records", "-n", min=1, help="Stop after so many records.")
]
Duration = Annotated[
    float | None,
    typer.Option("--duration", "-d", min=0.001, metavar="SECONDS", help="Stop after so long."),
]
Connections = Annotated[
    int, typer.Option("--connections", min=1, max=256, help="To each broker, at the same time.")
]
Size = Annotated[
    int, typer.Option("--size", "-s", min=1, max=1 << 26, metavar="BYTES", help="Of a value.")
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload", metavar="FILE", help="Take the lines of a file as values."),
]
Throughput = Annotated[
    float | None,
    typer.Option("--throughput", "-r", min=0.001, help="Records a second; else all it takes."),
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, max=1 << 26, metavar="BYTES", help="Of a request.")
]
Linger = Annotated[
    float,
    typer.Option("--linger", min=0, metavar="MS", help="How long --throughput lets a batch fill."),
]
InFlight = Annotated[
    int, typer.Option("--in-flight", min=1, max=10_000, help="Requests on each connection.")
]
NewPartitions = Annotated[
    int | None,
    typer.Option("--partitions", min=1, help="Create the topic with so many, if it is not there."),
]
FetchBytes = Annotated[
    int, typer.Option("--fetch-bytes", min=1, max=_INT32_MAX, help="Of one answer, at most.")
]
PartitionBytes = Annotated[
    int,
    typer.Option("--partition-bytes", min=1, max=_INT32_MAX, help="Of a partition in it, at most."),
]
MinBytes = Annotated[
    int, typer.Option("--min-bytes", min=0, max=_INT32_MAX, help="That the broker waits for.")
]
MaxWait = Annotated[
    int, typer.Option("--max-wait", min=0, metavar="MS", help="How long it waits for them.")
]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="A live line on stderr; by default on a terminal."
    ),
]


@family.command("produce")
def perf_produce(
    topic: Topic,
    records: Records = None,
    duration: Duration = None,
    size: Size = 100,
    payload: PayloadFile = None,
    throughput: Throughput = None,
    batch_size: BatchSize = 16_384,
    linger: Linger = 5.0,
    in_flight: InFlight = 5,
    connections: Connections = 1,
    acks: AcksOption = AcksChoice.ALL,
    compression: CompressionOption = CompressionChoice.NONE,
    partition: Partitions = None,
    partitions: NewPartitions = None,
    progress: ShowProgress = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Write records as fast as they are taken, or at a rate, for 10 seconds or as said.

    The latency is from when a batch was due until it was acknowledged, once for each record.
    Ctrl-C ends it with the summary.

    Examples: `millstream perf produce load --partitions 4 --duration 30`,
    `millstream perf produce load -n 1000000 -s 1000 --throughput 50000 --json`
    """
    if records is None and duration is None:
        duration = _DURATION_S
    codec = Compression.parse(compression.value)
    values = random_values(size) if payload is None else values_of_file(payload)
    source = Payload(values, batch_size, codec)
    count = source.records_per_batch
    timetable = Timetable(count, records, _ns(duration), throughput, int(linger * 1e6))
    with open_session(bootstrap_server, timeout) as session:
        if partitions is not None:
            create_topic(session, topic, partitions)
        chosen = choose_partitions(session, topic, partition)
        with leader_pipes(session, topic, chosen, connections) as pipes:
            load = ProduceLoad(
                session.topic(topic),
                pipes,
                source,
                timetable,
                acks=parse_acks(acks),
                in_flight_max=in_flight,
                timeout_ms=session.timeout_ms,
                ticks=_ticks,
                wall_ms=session.clock.wall_ms,
            )
            outcome = run_load(load, _ticks, is_shown=progress)
    how = {
        "acks": acks.value,
        "compression": codec.config_name,
        "partitions": len(chosen),
        "connections": connections,
        "in_flight": in_flight,
    }
    _report(topic, outcome, how, as_json=as_json)


@family.command("consume")
def perf_consume(
    topic: Topic,
    records: Records = None,
    duration: Duration = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Read what is still to come, from now on.")
    ] = False,
    partition: Partitions = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Count batches by their headers, decode no records.")
    ] = False,
    fetch_bytes: FetchBytes = 50 << 20,
    partition_bytes: PartitionBytes = 1 << 20,
    min_bytes: MinBytes = 1,
    max_wait: MaxWait = 500,
    connections: Connections = 1,
    progress: ShowProgress = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Read everything that a topic has, or follow it, without a consumer group.

    The latency is from a request to its answer, of those that brought records.
    Ctrl-C ends it with the summary.

    Examples: `millstream perf consume load`, `millstream perf consume load --follow --duration 30`
    """
    plan = FetchPlan(
        fetch_bytes, partition_bytes, min_bytes, max_wait, records, _ns(duration), not raw
    )
    with open_session(bootstrap_server, timeout) as session:
        if max_wait >= session.timeout_ms:
            raise UsageFault("--max-wait must be below --timeout, or no answer comes in time")
        chosen = choose_partitions(session, topic, partition)
        positions = _positions(session, topic, chosen, follow=follow)
        with leader_pipes(session, topic, chosen, connections) as pipes:
            load = ConsumeLoad(session.topic(topic), _assign(pipes, positions), plan, ticks=_ticks)
            outcome = run_load(load, _ticks, is_shown=progress)
    how = {"partitions": len(chosen), "connections": connections, "decoded": not raw}
    _report(topic, outcome, how, as_json=as_json)


@contextmanager
def leader_pipes(
    session: Session, topic: str, partitions: list[int], connections: int
) -> Iterator[dict[int, list[Pipe[Any]]]]:
    """New connections to each partition's leader, which partitions of one leader share."""
    addresses = {each: _leader_address(session, topic, each) for each in partitions}
    with ExitStack() as opened:
        pipes: dict[Address, list[Pipe[Any]]] = {
            address: [
                opened.enter_context(Pipe(address, session.timeout_ms)) for _ in range(connections)
            ]
            for address in dict.fromkeys(addresses.values())
        }
        yield {each: pipes[address] for each, address in addresses.items()}


def _leader_address(session: Session, topic: str, partition: int) -> Address:
    return session.retrying(lambda: session.leader(topic, partition).address)


def create_topic(session: Session, name: str, partitions: int) -> None:
    """Create a topic unless it is there, and wait until all its partitions have leaders."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=_BROKER_DEFAULT)
        ],
        timeout_ms=session.timeout_ms,
    )
    result = session.call(request, CreateTopicsResponse).topics[0]
    if result.error_code not in (0, TopicAlreadyExists.code):
        raise error_for_code(result.error_code, result.error_message)
    session.retrying(lambda: _require_leaders(session, name))


def _require_leaders(session: Session, name: str) -> None:
    found: TopicView | None = session.refresh().topics.get(name)
    if found is None or any(each.leader_id < 0 for each in found.partitions):
        raise LeaderNotAvailable(f"{name} was created but has no leaders yet")


def _positions(
    session: Session, topic: str, partitions: list[int], *, follow: bool
) -> dict[int, Position]:
    ends = list_offsets(session, topic, partitions, LATEST)
    if follow:
        return {each: Position(ends[each].offset) for each in partitions}
    starts = list_offsets(session, topic, partitions, EARLIEST)
    return {each: Position(starts[each].offset, ends[each].offset) for each in partitions}


def _assign(
    pipes: dict[int, list[Pipe[Any]]], positions: dict[int, Position]
) -> dict[Pipe[Any], dict[int, Position]]:
    """Deal the partitions of each leader to the connections that go there."""
    assigned: dict[Pipe[Any], dict[int, Position]] = {}
    for partition, lane in pipes.items():
        pipe = min(lane, key=lambda each: len(assigned.get(each, ())))
        assigned.setdefault(pipe, {})[partition] = positions[partition]
    return assigned


def _report(topic: str, outcome: Outcome, how: dict[str, Any], *, as_json: bool) -> None:
    meter, facts = outcome.meter, outcome.facts()
    if as_json:
        show_json({"topic": topic, **how, **facts})
    else:
        rate = f"{facts['records_per_second']:,.0f} records/s, {facts['mb_per_second']:,.1f} MB/s"
        sent = f"{meter.requests:,}, {meter.wire_bytes / 1e6:,.1f} MB in batches"
        show_facts(
            {
                "topic": topic,
                "records": f"{meter.records:,} in {outcome.seconds:.2f} s",
                "rate": rate,
                "latency": latency_line(meter.latencies),
                "requests": sent,
                "with": ", ".join(
                    f"{name.replace('_', ' ')} {value}" for name, value in how.items()
                ),
            },
            as_json=False,
        )
    if outcome.error is not None:
        raise CommandFailed(f"{outcome.error} (after {meter.records:,} records)") from outcome.error
    if outcome.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)
