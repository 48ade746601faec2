"""`millstream configs`: settings of topics, brokers, groups, and whatever else has some."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from millstream.cli.faults import UsageFault
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    complete_groups,
    complete_topics,
    new_family,
)
from millstream.cli.output import complain, note, show_json, show_rows
from millstream.cli.session import open_session
from millstream.cli.settings import (
    DEFAULT_SOURCE,
    SOURCES,
    STATIC_SOURCE,
    Change,
    Operation,
    Resource,
    ResourceType,
    alter,
    describe,
    parse_change,
    unknown_key,
)

family = new_family("Settings of topics, brokers, groups and the cluster.")

OnTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", "-t", metavar="NAME", help="Of a topic.", autocompletion=complete_topics
    ),
]
OnBroker = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Of one broker.")]
OnCluster = Annotated[bool, typer.Option("--cluster", help="Of all brokers, as their default.")]
OnGroup = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="ID", help="Of a group.", autocompletion=complete_groups),
]
OnMetrics = Annotated[
    str | None,
    typer.Option(
        "--client-metrics", metavar="NAME", help="Of a subscription to metrics of clients."
    ),
]
OnLoggers = Annotated[
    int | None,
    typer.Option("--broker-logger", metavar="ID", help="Of one broker's loggers: their levels."),
]


@family.command("describe")
def describe_configs(
    topic: OnTopic = None,
    broker: OnBroker = None,
    cluster: OnCluster = False,
    group: OnGroup = None,
    client_metrics: OnMetrics = None,
    broker_logger: OnLoggers = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Defaults and static settings as well.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show settings and where they come from.

    Examples: `millstream configs describe --topic orders`,
    `millstream configs describe --broker 1 --all`,
    `millstream configs describe --group readers --all`
    """
    resource = _resource(topic, broker, cluster, group, client_metrics, broker_logger)
    with open_session(bootstrap_server, timeout) as session:
        if resource.kind is ResourceType.TOPIC:
            session.topic(resource.name)
        found = describe(session, resource)
    rows: list[dict[str, Any]] = [
        {
            "key": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": SOURCES.get(each.source, each.source),
            "read_only": each.is_read_only,
            "sensitive": each.is_sensitive,
        }
        for each in found
        if everything or each.source not in (DEFAULT_SOURCE, STATIC_SOURCE)
    ]
    if not rows and not as_json:
        note(f"{resource}: nothing is set; --all shows the defaults", as_json=as_json)
        return
    show_rows(rows, {"key": "KEY", "value": "VALUE", "source": "SOURCE"}, as_json=as_json)


@family.command("alter")
def alter_configs(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="`key=value` sets, `key+=value` adds to a list, `key-=value` takes from it.",
        ),
    ] = None,
    topic: OnTopic = None,
    broker: OnBroker = None,
    cluster: OnCluster = False,
    group: OnGroup = None,
    client_metrics: OnMetrics = None,
    broker_logger: OnLoggers = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Change settings: all that are named, or none.

    Examples: `millstream configs alter --topic orders retention.ms=86400000`,
    `millstream configs alter --cluster --delete log.retention.ms`,
    `millstream configs alter --group readers consumer.session.timeout.ms=60000`
    """
    resource = _resource(topic, broker, cluster, group, client_metrics, broker_logger)
    wanted = [parse_change(text) for text in changes or ()]
    wanted += [Change(key, Operation.DELETE, None) for key in delete or ()]
    if not wanted:
        raise UsageFault("say what to change: KEY=VALUE, or --delete KEY")
    with open_session(bootstrap_server, timeout) as session:
        if resource.kind is ResourceType.TOPIC:
            session.topic(resource.name)
        alter(session, resource, wanted)
    for each in wanted:
        # Brokers take settings that they do not know, for plugins that may.
        if each.operation is not Operation.DELETE and (hint := unknown_key(each.key, resource)):
            complain(hint)
    if as_json:
        show_json({"resource": str(resource), "changed": [each.key for each in wanted]})
    note(f"{resource}: changed {', '.join(each.key for each in wanted)}", as_json=as_json)


def _resource(
    topic: str | None,
    broker: int | None,
    cluster: bool,
    group: str | None,
    client_metrics: str | None,
    broker_logger: int | None,
) -> Resource:
    given = {
        ResourceType.TOPIC: topic,
        ResourceType.BROKER: "" if cluster else broker,
        ResourceType.GROUP: group,
        ResourceType.CLIENT_METRICS: client_metrics,
        ResourceType.BROKER_LOGGER: broker_logger,
    }
    resources = [Resource(kind, str(name)) for kind, name in given.items() if name is not None]
    if len(resources) != 1 or (cluster and broker is not None):
        raise UsageFault(
            "say whose settings: one of --topic NAME, --broker ID, --cluster, --group ID, "
            "--client-metrics NAME, --broker-logger ID"
        )
    (resource,) = resources
    if not resource.name and not cluster:
        raise UsageFault("a name is empty; say which one is meant")
    return resource
