"""`millstream brokers`: who serves, what each holds, and forgetting one that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Yes,
    new_family,
)
from millstream.cli.output import note, require_consent, show_json, show_rows
from millstream.cli.session import open_session

if TYPE_CHECKING:
    from millstream.cli.session import Session
    from millstream.client.admin.cluster import ClusterDescription

family = new_family("Look at brokers, and forget those that are gone for good.")

_HEADINGS: Final = {
    "broker": "BROKER",
    "host": "HOST",
    "port": "PORT",
    "rack": "RACK",
    "fenced": "FENCED",
}
_CONTENT: Final = {"leaders": "LEADERS", "replicas": "REPLICAS", "bytes": "BYTES", "dirs": "DIRS"}


@family.command("list")
def list_brokers(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the brokers of the cluster; a fenced one is registered and does not serve.

    Example: `millstream brokers list`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_cluster(include_fenced_brokers=True)
    show_rows(broker_rows(found), _HEADINGS, as_json=as_json)


@family.command("describe")
def describe(
    ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Ids of brokers; else all.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show how many partitions brokers lead and hold, and in which directories.

    Example: `millstream brokers describe 1`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_cluster(include_fenced_brokers=True)
        rows = [each for each in broker_rows(found) if each["broker"] in (ids or [each["broker"]])]
        _require_known(ids or [], found)
        _add_content(session, rows)
    show_rows(rows, _HEADINGS | _CONTENT, as_json=as_json)


@family.command("unregister")
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The broker's id.")],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Have the cluster forget a broker that will not come back; stop it first.

    Replicas that it had stay assigned to it: move them elsewhere before.

    Example: `millstream brokers unregister 3`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_cluster(include_fenced_brokers=True)
        _require_known([broker], found)
        if not next(each.is_fenced for each in found.brokers if each.node_id == broker):
            question = f"Broker {broker} is running. Forget it all the same?"
        else:
            question = f"Have the cluster forget broker {broker}?"
        require_consent(question, is_given=yes)
        session.admin.unregister_broker(broker)
    if as_json:
        show_json({"broker": broker, "unregistered": True})
    note(f"broker {broker}: unregistered", as_json=as_json)


def broker_rows(found: ClusterDescription) -> list[dict[str, Any]]:
    """The brokers of a cluster for a table."""
    return [
        {
            "broker": each.node_id,
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "fenced": each.is_fenced,
        }
        for each in found.brokers
    ]


def _require_known(ids: list[int], found: ClusterDescription) -> None:
    known = [each.node_id for each in found.brokers]
    for each in ids:
        if each not in known:
            raise CommandFailed(
                f"there is no broker {each}; there are {', '.join(map(str, known))}"
            )


def _add_content(session: Session, rows: list[dict[str, Any]]) -> None:
    partitions = [each for topic in session.topics().values() for each in topic.partitions]
    # Of a fenced broker nobody can ask what is on its disks.
    serving = [row["broker"] for row in rows if not row["fenced"]]
    dirs = session.admin.describe_log_dirs(serving).results if serving else {}
    for row in rows:
        broker = row["broker"]
        row["leaders"] = sum(each.leader == broker for each in partitions)
        row["replicas"] = sum(broker in each.replicas for each in partitions)
        own = dirs.get(broker)
        row["bytes"] = row["dirs"] = None
        if own is not None:
            row["dirs"] = sorted(own)
            row["bytes"] = sum(
                replica.size_bytes for each in own.values() for replica in each.replicas.values()
            )
