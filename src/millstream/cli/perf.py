"""`millstream perf`: how fast a cluster takes records, and how fast it gives them back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, ExitCode, UsageFault
from millstream.cli.offsets import Partitions, choose_partitions, find_ends
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Namespace,
    Timeout,
    Topic,
    new_family,
)
from millstream.cli.output import show_facts, show_json
from millstream.cli.perf_consume import ConsumeLoad, Position, ReadPlan
from millstream.cli.perf_payload import Payload, random_values, values_of_file
from millstream.cli.perf_produce import ProduceLoad, Timetable
from millstream.cli.perf_run import Outcome, latency_line, run_load
from millstream.cli.produce import (
    RECORD_BYTES_MAX,
    AcksChoice,
    AcksOption,
    CompressionChoice,
    CompressionOption,
)
from millstream.cli.session import open_session
from millstream.errors import MillstreamError, TopicAlreadyExists
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.cli.session import Session
    from millstream.client.producer.producer import Producer

family = new_family("Measure how fast records are written and read.")

_DURATION_S: Final = 10.0
_CHUNK_BYTES: Final = 32 << 10
"""Between two looks at the clock."""
_BUFFER_BYTES: Final = 32 << 20
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
    int,
    typer.Option(
        "--connections", min=1, max=256, help="Clients at the same time, each with its own."
    ),
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
    batch_size: BatchSize = 262_144,
    linger: Linger = 5.0,
    in_flight: InFlight = 5,
    connections: Connections = 1,
    acks: AcksOption = AcksChoice.ALL,
    compression: CompressionOption = CompressionChoice.NONE,
    partition: Partitions = None,
    partitions: NewPartitions = None,
    progress: ShowProgress = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Write records as fast as they are taken, or at a rate, for 10 seconds or as said.

    They go through `Producer`, one by one. The latency is from when a record was due until it was
    acknowledged, as measured every few hundred records. Ctrl-C ends it with the summary.

    Examples: `millstream perf produce load --partitions 4 --duration 30`,
    `millstream perf produce load -n 1000000 -s 1000 --throughput 50000 --json`
    """
    if records is None and duration is None:
        duration = _DURATION_S
    values = random_values(size) if payload is None else values_of_file(payload)
    source = Payload(values, min(batch_size, _CHUNK_BYTES))
    count = source.records_per_chunk
    timetable = Timetable(count, records, _ns(duration), throughput, int(linger * 1e6))
    settings: dict[str, Any] = {
        "acks": acks.value,
        "compression_type": compression.value,
        "batch_size": batch_size,
        "linger": linger / 1000,
        "max_in_flight_requests_per_connection": in_flight,
        "max_request_size": RECORD_BYTES_MAX,
        "buffer_memory": max(_BUFFER_BYTES, 2 * size),
    }
    with open_session(bootstrap_server, timeout, namespace) as session, ExitStack() as opened:
        if partitions is not None:
            create_topic(session, topic, partitions)
        chosen = choose_partitions(session, topic, partition)
        producers = [session.producer(**settings) for _ in range(connections)]
        for each in producers:
            opened.callback(_give_up, each)
        load = ProduceLoad(
            topic,
            producers,
            source,
            timetable,
            partitions=chosen if partition else None,
            is_acknowledged=acks is not AcksChoice.NONE,
            ticks=_ticks,
        )
        outcome = run_load(load, _ticks, is_shown=progress)
    how = {
        "acks": acks.value,
        "compression": compression.value,
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
    columns: Annotated[
        bool, typer.Option("--columns", help="Take Arrow columns, make no record objects.")
    ] = False,
    fetch_bytes: FetchBytes = 50 << 20,
    partition_bytes: PartitionBytes = 1 << 20,
    min_bytes: MinBytes = 1,
    max_wait: MaxWait = 500,
    connections: Connections = 1,
    progress: ShowProgress = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Read everything that a topic has, or follow it, without a consumer group.

    Records go through `Consumer`. With `--follow` the latency is how old they are when they are
    read. Ctrl-C ends it with the summary.

    Examples: `millstream perf consume load`, `millstream perf consume load --follow --duration 30`
    """
    if max_wait >= timeout * 1000:
        raise UsageFault("--max-wait must be below --timeout, or no answer comes in time")
    plan = ReadPlan(records, _ns(duration), columns, is_timed=follow)
    settings: dict[str, Any] = {
        "auto_offset_reset": "none",
        "fetch_max_bytes": fetch_bytes,
        "max_partition_fetch_bytes": partition_bytes,
        "fetch_min_bytes": min_bytes,
        "fetch_max_wait": max_wait / 1000,
    }
    with open_session(bootstrap_server, timeout, namespace) as session, ExitStack() as opened:
        chosen = choose_partitions(session, topic, partition)
        positions = _positions(session, topic, chosen, follow=follow)
        consumers = [
            opened.enter_context(session.consumer(**settings))
            for _ in range(min(connections, len(chosen)))
        ]
        assigned = {
            consumer: {
                TopicPartition(topic, each): positions[each]
                for each in chosen[number :: len(consumers)]
            }
            for number, consumer in enumerate(consumers)
        }
        load = ConsumeLoad(assigned, plan, ticks=_ticks, wall_ms=session.clock.wall_ms)
        outcome = run_load(load, _ticks, is_shown=progress)
    how = {"partitions": len(chosen), "connections": len(consumers), "columns": columns}
    _report(topic, outcome, how, as_json=as_json)


def _give_up(producer: Producer) -> None:
    """Close a producer; what was lost is told by the load already."""
    with suppress(MillstreamError):
        producer.close(0)


def create_topic(session: Session, name: str, partitions: int) -> None:
    """Create a topic unless it is there, and wait until all its partitions have leaders."""
    try:
        created = session.admin.create_topic(name, partitions=partitions)
    except TopicAlreadyExists:
        return
    session.wait_for_leaders([created])


def _positions(
    session: Session, topic: str, partitions: list[int], *, follow: bool
) -> dict[int, Position]:
    ends = find_ends(session, topic, partitions, "latest")
    if follow:
        return {each: Position(ends[each]) for each in partitions}
    starts = find_ends(session, topic, partitions, "earliest")
    return {each: Position(starts[each], ends[each]) for each in partitions}


def _report(topic: str, outcome: Outcome, how: dict[str, Any], *, as_json: bool) -> None:
    meter, facts = outcome.meter, outcome.facts()
    if as_json:
        show_json({"topic": topic, **how, **facts})
    else:
        rate = f"{facts['records_per_second']:,.0f} records/s"
        if facts["mb_per_second"] is not None:
            rate += f", {facts['mb_per_second']:,.1f} MB/s"
        show_facts(
            {
                "topic": topic,
                "records": f"{meter.records:,} in {outcome.seconds:.2f} s",
                "rate": rate,
                "latency": latency_line(meter.latencies),
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
