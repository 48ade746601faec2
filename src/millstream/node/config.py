"""`NodeConfig`: the settings of a whole node, gathered from the packages that declare them.

`main` and `testing` make one from texts by Kafka's keys. Every fault of every package is in one
error; keys that nobody knows are warnings. Without any text it is a broker and controller of its
own, on localhost:9092.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.config import (
    ConfigType,
    Fault,
    any_value,
    at_least,
    from_synonyms,
    key,
    keys_of,
    nearest_key,
    one_of,
    parse,
    parse_faults,
    subset_of,
    validate,
)
from millstream.config.validation import raise_for
from millstream.controller.config import ControllerConfig
from millstream.controller.config_schema import ConfigSchema
from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.share.config import ShareCoordinatorConfig
from millstream.coordinator.transaction.config import TransactionConfig
from millstream.errors import InvalidConfig, InvalidRequest
from millstream.metadata.configs import ConfigResource, ResourceType
from millstream.metadata.metadata_log_config import MetadataLogConfig
from millstream.metadata.snapshots import SnapshotConfig
from millstream.network.endpoint import SecurityProtocol, parse_listener
from millstream.network.server.config import SocketServerConfig
from millstream.network.server.listener_limits import (
    limit_key,
    limited_listener,
    listener_limit_faults,
    listener_limits,
)
from millstream.node.client_telemetry import LOG, NONE
from millstream.node.config_warnings import warnings_of
from millstream.node.protection import protection_faults
from millstream.raft.config import QuorumConfig, parse_voters
from millstream.replica.config import ReplicaConfig
from millstream.server.config import ServerConfig
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import CleanerConfig, LogManagerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
CONTROLLER_LISTENER: Final = "CONTROLLER"

STANDALONE: Final[Mapping[str, str]] = {
    # Appends that come while one is being synced are synced together anyway.
    "controller.quorum.append.linger.ms": "0",
    # Nobody follows whose lag an idle log could hide.
    "metadata.max.idle.interval.ms": "0",
}
"""Defaults of a node that is a quorum by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """What this node is, and how it comes and goes."""

    process_roles: tuple[str, ...] = key(
        "process.roles",
        (BROKER, CONTROLLER),
        subset_of(BROKER, CONTROLLER),
        "Whether this node is a broker, a controller or both.",
    )
    node_id: int = key("node.id", 1, at_least(0), "The id of this node, unique in the cluster.")
    broker_rack: str | None = key(
        "broker.rack",
        None,
        any_value(),
        "Where the broker stands; replicas of a partition are spread over racks.",
        kind=ConfigType.STRING,
    )
    heartbeat_interval_ms: int = key(
        "broker.heartbeat.interval.ms",
        2000,
        at_least(1),
        "How often the broker tells the controller that it is alive.",
        unit="ms",
    )
    registration_timeout_ms: int = key(
        "initial.broker.registration.timeout.ms",
        60_000,
        at_least(1),
        "How long a broker that starts waits to be registered before it gives up.",
        unit="ms",
    )
    controlled_shutdown_enable: bool = key(
        "controlled.shutdown.enable",
        True,
        any_value(),
        "Whether a broker that stops hands its leaderships over first.",
    )
    drain_timeout_ms: int = key(
        "millstream.shutdown.drain.timeout.ms",
        5000,
        at_least(0),
        "How long a stop waits for the answers to requests that were received.",
        unit="ms",
    )
    client_telemetry: str = key(
        "millstream.client.telemetry",
        NONE,
        one_of(NONE, LOG),
        "Where the metrics go that clients push: nowhere, and clients are not told that they "
        "could; or to the log.",
    )
    event_loop: str = key(
        "millstream.event.loop",
        "auto",
        one_of("auto", "asyncio", "uvloop"),
        "The event loop of `server start`: auto takes uvloop if it is installed "
        "(pip install 'millstream[fast]'), which answers in less time.",
    )
    log_format: str = key(
        "millstream.log.format",
        "human",
        one_of("human", "json"),
        "How the process writes its log: for people, or one JSON object per line.",
    )
    log_level: str = key(
        "millstream.log.level",
        "INFO",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "The least important lines that are written.",
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of one node; each part takes its own."""

    CLASSES: ClassVar[tuple[type, ...]] = (
        ProcessConfig,
        SocketServerConfig,
        LogManagerConfig,
        CleanerConfig,
        QuorumConfig,
        ControllerConfig,
        MetadataLogConfig,
        SnapshotConfig,
        ReplicaConfig,
        ServerConfig,
        GroupConfig,
        ConsumerGroupConfig,
        TransactionConfig,
        ShareGroupConfig,
        ShareCoordinatorConfig,
    )

    process: ProcessConfig
    network: SocketServerConfig
    logs: LogManagerConfig
    cleaner: CleanerConfig
    topics: LogConfig
    """What a topic has that does not say otherwise."""
    quorum: QuorumConfig
    controller: ControllerConfig
    metadata_log: MetadataLogConfig
    snapshots: SnapshotConfig
    replicas: ReplicaConfig
    server: ServerConfig
    groups: GroupConfig
    consumer_groups: ConsumerGroupConfig
    transactions: TransactionConfig
    share_groups: ShareGroupConfig
    share_states: ShareCoordinatorConfig
    given: Mapping[str, str]
    """What the user said, by Kafka's key."""
    dynamic_overrides: Mapping[str, str] = field(default_factory=dict)
    """Dynamic settings of the broker that hold while it runs, whatever the metadata say."""
    warnings: tuple[str, ...] = ()
    """What the user should know about it."""

    @property
    def classes(self) -> tuple[type, ...]:
        """All settings classes of the node."""
        return self.CLASSES

    @property
    def is_broker(self) -> bool:
        """Whether clients are served."""
        return BROKER in self.process.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node may decide about metadata."""
        return CONTROLLER in self.process.process_roles

    @property
    def metadata_dir(self) -> str:
        """The directory that has the metadata log."""
        return self.metadata_log.directory or self.logs.log_dirs[0]

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory of the node, the one of the metadata log first."""
        logs = self.logs.log_dirs if self.is_broker else ()
        return tuple(dict.fromkeys((self.metadata_dir, *logs)))


def known_keys() -> set[str]:
    """Every key that a properties file may have."""
    names = set()
    for settings in (*NodeConfig.CLASSES, LogConfig):
        for declared in keys_of(settings).values():
            if settings is not LogConfig:
                names.add(declared.name)
            names.update(synonym.name for synonym in declared.synonyms)
    return names


def node_config(
    given: Mapping[str, str],
    unknown_variables: Iterable[str] = (),
    dynamic_overrides: Mapping[str, str] | None = None,
) -> NodeConfig:
    """Make the settings of a node, or raise one InvalidConfig that lists every fault."""
    texts, unknown_variables = _with_defaults(given), tuple(unknown_variables)
    faults = [
        fault
        for settings in NodeConfig.CLASSES
        for fault in parse_faults(settings, texts, ignore_unknown=True)
    ]
    faults += _topic_faults(texts)
    faults += listener_limit_faults(texts)
    faults += protection_faults(texts, unknown_variables)
    if not faults:
        faults = _faults_between(texts)
    raise_for(faults)

    def read(settings: type[Any]) -> Any:
        return parse(settings, texts, ignore_unknown=True)

    return NodeConfig(
        process=read(ProcessConfig),
        network=replace(read(SocketServerConfig), listener_limits=listener_limits(texts)),
        logs=read(LogManagerConfig),
        cleaner=read(CleanerConfig),
        topics=from_synonyms(LogConfig, texts),
        quorum=read(QuorumConfig),
        controller=read(ControllerConfig),
        metadata_log=read(MetadataLogConfig),
        snapshots=read(SnapshotConfig),
        replicas=read(ReplicaConfig),
        server=read(ServerConfig),
        groups=read(GroupConfig),
        consumer_groups=read(ConsumerGroupConfig),
        transactions=read(TransactionConfig),
        share_groups=read(ShareGroupConfig),
        share_states=read(ShareCoordinatorConfig),
        given=dict(given),
        dynamic_overrides=_checked_overrides(dynamic_overrides or {}),
        warnings=tuple(warnings_of(given, unknown_variables, known_keys(), _listeners(texts))),
    )


# Defaults that depend on what was given.


def _with_defaults(given: Mapping[str, str]) -> dict[str, str]:
    texts = dict(given)
    if "log.dirs" not in texts and "log.dir" in texts:
        texts["log.dirs"] = texts["log.dir"]
    for name in ("log.dirs", "metadata.log.dir"):
        if name in texts:
            # Names in a directory are synced through its parent, so it must have one.
            texts[name] = ",".join(str(Path(each).absolute()) for each in _items(texts[name]))
    roles = _items(texts.get("process.roles", f"{BROKER},{CONTROLLER}"))
    if CONTROLLER in roles:
        _add_controller_listener(texts, is_alone=BROKER not in roles)
    else:
        texts.setdefault("controller.listener.names", CONTROLLER_LISTENER)
    _map_controller_listeners(texts)
    if not texts.get("controller.quorum.voters") and not texts.get(
        "controller.quorum.bootstrap.servers"
    ):
        texts = {**STANDALONE, **texts}
    return texts


def _add_controller_listener(texts: dict[str, str], *, is_alone: bool) -> None:
    """A node that says nothing about its controller's listener gets one on any free port."""
    listeners = texts.get("listeners", "" if is_alone else "PLAINTEXT://localhost:9092")
    if "controller.listener.names" not in texts:
        texts["controller.listener.names"] = CONTROLLER_LISTENER
        parsed = [parse_listener(each) for each in _items(listeners)]
        if None not in parsed and CONTROLLER_LISTENER not in [each[0] for each in parsed if each]:
            listeners = ",".join([*_items(listeners), f"{CONTROLLER_LISTENER}://localhost:0"])
    texts["listeners"] = listeners


def _map_controller_listeners(texts: dict[str, str]) -> None:
    """As in Apache Kafka: a controller's listener that no map mentions is plain text."""
    protocols = [protocol.value for protocol in SecurityProtocol]
    names = [name.upper() for name in _items(texts.get("controller.listener.names", ""))]
    if "listener.security.protocol.map" not in texts:
        entries = [f"{name}:{name}" for name in protocols]
        entries += [f"{name}:PLAINTEXT" for name in names if name not in protocols]
        texts["listener.security.protocol.map"] = ",".join(entries)


def _listeners(texts: Mapping[str, str]) -> set[str]:
    parsed = map(parse_listener, _items(texts.get("listeners", "")))
    return {each[0] for each in parsed if each}


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# What can be wrong.


def _checked_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """What a broker could be told while it runs, by the rules by which a controller lets it."""
    for name in overrides:
        if name not in known_keys() and limited_listener(name) is None:
            nearest = nearest_key(name, known_keys())
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise InvalidConfig(f"--override-dynamic {name}: there is no such setting{hint}")
    schema = ConfigSchema(broker_settings=NodeConfig.CLASSES, listener_key=limit_key)
    try:
        schema.check(ConfigResource(ResourceType.BROKER, "0"), overrides)
    except (InvalidConfig, InvalidRequest) as error:
        raise InvalidConfig(f"--override-dynamic: {error}") from error
    return dict(overrides)


def _topic_faults(texts: Mapping[str, str]) -> list[Fault]:
    """Faults of the topics' defaults, under the keys by which they were given."""
    translated, origin = {}, {}
    for declared in keys_of(LogConfig).values():
        for synonym in declared.synonyms:
            text = texts.get(synonym.name)
            if text is not None:
                is_scaled = synonym.scale > 1 and text.strip().isdecimal()
                translated[declared.name] = str(int(text) * synonym.scale) if is_scaled else text
                origin[declared.name] = synonym.name
                break
    return [
        Fault(origin.get(fault.key, fault.key), fault.value, fault.must_be)
        for fault in parse_faults(LogConfig, translated)
    ]


def _faults_between(texts: Mapping[str, str]) -> list[Fault]:
    """What only shows when settings of several packages are seen together."""
    process = parse(ProcessConfig, texts, ignore_unknown=True)
    network = parse(SocketServerConfig, texts, ignore_unknown=True)
    faults = []
    if not process.process_roles:
        faults.append(Fault("process.roles", "", "broker, controller or both"))
    controllers = network.controller_names
    names = {endpoint.listener_name for endpoint in network.endpoints}
    listed = ",".join(network.listeners)
    if CONTROLLER in process.process_roles and not names & controllers:
        must_be = "with a listener of controller.listener.names"
        faults.append(Fault("listeners", listed, must_be))
    if BROKER in process.process_roles and not names - controllers:
        faults.append(Fault("listeners", listed, "with a listener that is not the controller's"))
    if BROKER not in process.process_roles and names - controllers:
        must_be = "only listeners of controller.listener.names on a node that is no broker"
        faults.append(Fault("listeners", listed, must_be))
    return faults + _quorum_faults(process, parse(QuorumConfig, texts, ignore_unknown=True))


def _quorum_faults(process: ProcessConfig, quorum: QuorumConfig) -> list[Fault]:
    """Whether this node can find the quorum, and has the place in it that its roles say."""
    faults = []
    voters = parse_voters(quorum.voters, CONTROLLER_LISTENER).ids
    listed, node_id = ",".join(quorum.voters), process.node_id
    if process.process_roles == (BROKER,):
        if not quorum.voters and not quorum.bootstrap_servers:
            must_be = "given, or controller.quorum.voters: a broker alone needs controllers"
            faults.append(Fault("controller.quorum.bootstrap.servers", "", must_be))
        if node_id in voters:
            must_be = f"without node {node_id}, which is no controller by process.roles"
            faults.append(Fault("controller.quorum.voters", listed, must_be))
    elif voters and node_id not in voters:
        must_be = f"with node {node_id}, which is a controller by process.roles"
        faults.append(Fault("controller.quorum.voters", listed, must_be))
    return faults
