"""The reference pages of the settings of brokers, topics and groups, from their declarations.

`python -m tools.settings_pages` writes docs/reference/broker-settings.md and topic-settings.md;
tests/docs/test_settings_pages.py fails when they are stale. No broker uses this.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.config import key, keys_of, render_reference
from millstream.controller.config import ControllerConfig
from millstream.controller.config_schema import ClientMetricsConfig
from millstream.controller.config_schema import GroupConfig as GroupOverrides
from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.metadata.metadata_log_config import MetadataLogConfig
from millstream.metadata.snapshots import SnapshotConfig
from millstream.network.server.config import SocketServerConfig
from millstream.network.server.listener_limits import ListenerLimits
from millstream.node.config import NodeConfig, ProcessConfig, node_config
from millstream.node.config_warnings import WITHOUT_EFFECT
from millstream.raft.config import QuorumConfig
from millstream.replica.config import ReplicaConfig
from millstream.server.config import ServerConfig
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import CleanerConfig, LogManagerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.config import Key, Synonym

REFERENCE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"

_TITLES: Final[Mapping[type, str]] = {
    ProcessConfig: "The process",
    SocketServerConfig: "Network",
    LogManagerConfig: "Logs",
    CleanerConfig: "Compaction",
    QuorumConfig: "Metadata quorum",
    ControllerConfig: "Controller",
    MetadataLogConfig: "Metadata log",
    SnapshotConfig: "Snapshots of the metadata",
    ReplicaConfig: "Replicas and fetches",
    ServerConfig: "Requests",
    GroupConfig: "Groups and their offsets",
    ConsumerGroupConfig: "Consumer groups",
    TransactionConfig: "Transactions",
    ShareGroupConfig: "Share groups",
    ShareCoordinatorConfig: "State of share groups",
}

_BROKER_HEAD: Final = """\
# Settings of a broker

The keys are those of Apache Kafka's `server.properties`; what begins with `millstream.` is ours.
They are given, and later ones win, in a file (`millstream server start --config FILE`), in the
environment (`MILLSTREAM_LOG_RETENTION_MS` is `log.retention.ms`), by `--data` and `--listen`, and
by `--set KEY=VALUE`; to an `EmbeddedBroker` as a dictionary. A value that cannot be is an error
that lists every fault at once; a key that does not exist is a warning that names the nearest one.

*Changes* says how a setting is changed while brokers run:

- `read-only`: not at all, it needs a restart.
- `cluster-wide`: by `millstream configs alter --cluster KEY=VALUE` for all brokers, or by
  `--broker ID` for one.
- `per-broker`: by `--broker ID` only.

Defaults are those of a node that is broker and controller in one. `millstream server start` without
`--data` and `log.dirs` works in `millstream-data`. `millstream configs describe --broker 1 --all`
shows what holds on a running broker, and why. Settings of topics have
[a page of their own](topic-settings.md).
"""

_LISTENER_HEAD: Final = """\
## Limits of one listener

A listener may have limits of its own besides those of the whole broker, such as
`listener.name.outside.max.connections=100`, the name in small letters or in any other case. They
change per broker:
"""

_TOPIC_DEFAULTS_HEAD: Final = """\
## Defaults of topics

What a topic has that does not say otherwise. Keys in hours and minutes need a restart, the others
change cluster-wide. Where a topic's setting has several keys, the first that is given counts.

| Key | The topic's setting | Default |
|---|---|---|"""

_WITHOUT_EFFECT_HEAD: Final = """\
## Without effect

These keys of Apache Kafka are accepted with a warning. What they are about, such as pools of
threads, does not exist here:
"""

_TOPIC_HEAD: Final = """\
# Settings of topics and groups

A topic gets its own values when it is created (`millstream topics create orders --config
retention.ms=86400000`) or later (`millstream configs alter --topic orders retention.ms=86400000`),
groups and metrics subscriptions through `Admin.incremental_alter_configs`; all of them count at
once. What is not set is the broker's default: *Broker default from* names its
[key](broker-settings.md#defaults-of-topics).

## Topics
"""

_GROUP_HEAD: Final = """\
## Groups

A group that does not say otherwise has the broker's settings that begin with `group.consumer.` and
`group.share.`; those with `min` and `max` bound what a group may say. Streams groups do not exist
here: their settings are checked, kept and not used.
"""

_METRICS_HEAD: Final = """\
## Metrics subscriptions

Resources of the type `client_metrics`: which metrics clients push (KIP-714). They have an effect
while `millstream.client.telemetry` is `log`.
"""


def broker_page() -> str:
    """docs/reference/broker-settings.md."""
    parts = [_BROKER_HEAD]
    for settings, shown in _as_they_hold().items():
        parts += [f"## {_TITLES[settings]}\n", render_reference(shown, with_update_mode=True)]
    limits = "\n".join(
        f"- `listener.name.NAME.{declared.name}`: {declared.doc}"
        for declared in keys_of(ListenerLimits).values()
    )
    parts.append(f"{_LISTENER_HEAD}\n{limits}\n")
    rows = "\n".join(_topic_default_rows())
    parts.append(f"{_TOPIC_DEFAULTS_HEAD}\n{rows}\n")
    names = "\n".join(f"- `{name}`" for name in sorted(WITHOUT_EFFECT))
    parts.append(f"{_WITHOUT_EFFECT_HEAD}\n{names}\n")
    return "\n".join(parts)


def topic_page() -> str:
    """docs/reference/topic-settings.md."""
    parts = [_TOPIC_HEAD, render_reference(LogConfig)]
    parts += [_GROUP_HEAD, render_reference(GroupOverrides)]
    parts += [_METRICS_HEAD, render_reference(ClientMetricsConfig)]
    return "\n".join(parts)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "broker-settings.md": broker_page,
    "topic-settings.md": topic_page,
}


def _as_they_hold() -> dict[type, type]:
    """Each class of settings, and the same with the defaults of a node that is told nothing.

    A key that two classes declare is the later one's, as in what a broker describes.
    """
    node = node_config({})
    parts = {type(part): part for part in map(node.__getattribute__, _field_names(node))}
    told: set[str] = set()
    found = {}
    for settings in reversed(NodeConfig.CLASSES):
        keys = {name: each for name, each in keys_of(settings).items() if each.name not in told}
        told |= {each.name for each in keys.values()}
        fields = [
            (name, Any, _with_default(each, getattr(parts[settings], name)))
            for name, each in keys.items()
        ]
        found[settings] = dataclasses.make_dataclass(settings.__name__, fields, kw_only=True)
    return {settings: found[settings] for settings in NodeConfig.CLASSES}


def _field_names(node: NodeConfig) -> list[str]:
    return [field.name for field in dataclasses.fields(node)]


def _with_default(declared: Key, default: object) -> Any:
    aliases = "".join(f" `{each.name}` is another name for it." for each in declared.synonyms)
    return key(
        declared.name,
        default,
        declared.validator,
        declared.doc + aliases,
        kind=declared.type,
        unit=declared.unit,
        update_mode=declared.update_mode,
        is_internal=declared.is_internal,
    )


def _topic_default_rows() -> Iterator[str]:
    for declared in sorted(keys_of(LogConfig).values(), key=lambda each: each.name):
        for synonym in declared.synonyms:
            topic_key = f"[`{declared.name}`](topic-settings.md#{declared.name.replace('.', '')})"
            yield f"| `{synonym.name}` | {topic_key} | {_synonym_default(declared, synonym)} |"


def _synonym_default(declared: Key, synonym: Synonym) -> str:
    default = declared.default
    if synonym.scale > 1:
        default //= synonym.scale
    return f"`{declared.format(default)}`"


def main() -> None:
    """Write both pages."""
    for name, render in PAGES.items():
        (REFERENCE / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
