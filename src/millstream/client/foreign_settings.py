"""Settings as users bring them to `from_config`: from Java's clients, librdkafka, or a shared file.

`translated` gives them in the names and values that our own clients declare. A librdkafka name
becomes Kafka's; a setting that means nothing here, or is for another kind of client, is left out,
and one line of the log names all of those. A name whose absence would change what the application
does is refused with advice. Any other name stays as it is, for `settings_from_dotted` to judge.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from millstream.config import keys_of
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_log: Final = logging.getLogger(__name__)

_KAFKA_NAMES: Final[Mapping[str, str]] = {
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "partitioner": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "queued.max.messages.kbytes": "millstream.prefetch.bytes",
    "request.required.acks": "acks",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""librdkafka's names of settings that Kafka names otherwise; of two for one, Kafka's counts."""

_KIBIBYTES: Final = frozenset({"queue.buffering.max.kbytes", "queued.max.messages.kbytes"})

_VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "auto.offset.reset": {
        "beginning": "earliest",
        "smallest": "earliest",
        "end": "latest",
        "largest": "latest",
        "error": "none",
    },
    "partitioner.class": {
        "murmur2_random": "sticky",
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "sticky",
        "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    },
}
"""Values that others spell otherwise, by Kafka's name of the setting."""

_WITHOUT_MEANING: Final = frozenset(
    {
        # Java's clients.
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "security.providers",
        "send.buffer.bytes",
        # librdkafka.
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "batch.num.messages",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "debug",
        "delivery.report.only.error",
        "enable.partition.eof",
        "enable.random.seed",
        "enable.sparse.connections",
        "error_cb",
        "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms",
        "internal.termination.signal",
        "log.connection.close",
        "log.queue",
        "log.thread.name",
        "log_cb",
        "log_level",
        "logger",
        "message.copy.max.bytes",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.messages",
        "queued.min.messages",
        "receive.message.max.bytes",
        "socket.blocking.max.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "statistics.interval.ms",
        "stats_cb",
        "sticky.partitioning.linger.ms",
        "throttle_cb",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
"""Settings about things that work otherwise here."""

_REFUSED: Final[Mapping[str, str]] = {
    "dr_cb": "give on_delivery= to send",
    "dr_msg_cb": "give on_delivery= to send",
    "enable.auto.offset.store": "set enable.auto.commit to false and call commit(offsets)",
    "enable.gapless.guarantee": "enable.idempotence keeps the order of what is sent",
    "offset.store.method": "offsets are kept by brokers",
    "offset_commit_cb": "give on_done= to commit_async",
    "on_delivery": "give on_delivery= to send",
    "rebalance_cb": "give listener= to subscribe",
}
"""Settings of librdkafka that an application relies on, with what to do instead."""

_HARMLESS: Final = {"enable.auto.offset.store": "true", "offset.store.method": "broker"}
"""The values of refused settings that say what happens anyway."""


def translated(properties: Mapping[str, Any], known: Collection[str], what: str) -> dict[str, Any]:
    """Settings in our own names and values; `known` are those of this client, `what` its name."""
    given: dict[str, Any] = {}
    left_out: list[str] = []
    faults: list[str] = []
    for name, value in properties.items():
        ours = name if name in known else _KAFKA_NAMES.get(name, name)
        if ours in known and (ours == name or ours not in properties):
            given[ours] = _spelled(ours, _in_bytes(name, value))
        elif name in _REFUSED and str(value).lower() != _HARMLESS.get(name):
            faults.append(f"{name}: there is no such setting; {_REFUSED[name]}")
        elif _means_nothing(name, ours):
            left_out.append(name)
        else:
            given[name] = value
    if faults:
        raise InvalidArgument("settings of another client: " + "; ".join(faults))
    _take_level(given, left_out, known)
    if left_out:
        _log.warning("settings without effect in a %s: %s", what, ", ".join(sorted(left_out)))
    return given


def _means_nothing(name: str, ours: str) -> bool:
    return (
        name in _WITHOUT_MEANING
        or name in _REFUSED
        or ours != name
        or name in _names_of_all_clients()
    )


def _in_bytes(name: str, value: Any) -> Any:
    if name not in _KIBIBYTES:
        return value
    try:
        return int(value) * 1024
    except (TypeError, ValueError):
        return value


def _spelled(name: str, value: Any) -> Any:
    """The value as our client spells it; others are for the client's own check."""
    if name == "security.protocol" and isinstance(value, str):
        return value.upper()
    if name == "acks":
        return as_text_acks(value)
    if name == "linger.ms":
        return _in_whole_ms(value)
    return _VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def as_text_acks(value: Any) -> Any:
    """`1` as `"1"`: the setting is text, for it may be "all"."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _in_whole_ms(value: Any) -> Any:
    """librdkafka takes fractions of milliseconds; a time above 0 does not become 0."""
    try:
        milliseconds = float(value)
    except (TypeError, ValueError):
        return value
    return 1 if 0 < milliseconds < 1 else round(milliseconds)


def _take_level(given: dict[str, Any], left_out: list[str], known: Collection[str]) -> None:
    """librdkafka has one level for all codecs, Kafka one for each; -1 is the codec's own."""
    level = given.get("compression.level")
    if level is None or "compression.type" not in known:
        return
    del given["compression.level"]
    name = f"compression.{given.get('compression.type', 'none')}.level"
    if name in known and str(level) != "-1":
        given.setdefault(name, level)
    else:
        left_out.append("compression.level")


@cache
def _names_of_all_clients() -> frozenset[str]:
    """What is declared by some client; one file often serves several."""
    # They import the module that imports this one.
    from millstream.client.admin.config import AdminConfig
    from millstream.client.config import object_settings
    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.producer.config import ProducerConfig
    from millstream.client.share_consumer.config import ShareConsumerConfig

    clients = (AdminConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig)
    keys = {each.name for client in clients for each in keys_of(client).values()}
    objects = {name for client in clients for name, _ in object_settings(client).values()}
    return frozenset(keys | objects)
