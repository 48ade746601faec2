"""`millstream quorum`: the controllers that keep the metadata log, and how far each has it.

How voters are added and removed is in `quorum_voters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    new_family,
)
from millstream.cli.output import show_facts, show_json, show_rows
from millstream.cli.quorum_voters import add, remove
from millstream.cli.session import open_session
from millstream.cli.times import show_time
from millstream.network.endpoint import host_and_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.admin.cluster import QuorumDescription, QuorumReplica

family = new_family("The quorum of controllers.")

_HEADINGS: Final = {
    "node": "NODE",
    "role": "ROLE",
    "log_end_offset": "LOG END",
    "lag": "LAG",
    "last_caught_up": "LAST CAUGHT UP",
    "directory_id": "DIRECTORY",
    "endpoints": "ENDPOINTS",
}


@family.callback()
def quorum() -> None:
    """The quorum of controllers."""


@family.command("describe")
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show who leads the metadata log, who votes, and who lags behind.

    Example: `millstream quorum describe`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_quorum()
    facts = {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
    }
    rows = list(_replicas(found))
    if as_json:
        show_json(facts | {"replicas": rows})
        return
    show_facts(facts, as_json=False)
    typer.echo()
    show_rows(rows, _HEADINGS, as_json=False)


family.command("add")(add)
family.command("remove")(remove)


def _replicas(found: QuorumDescription) -> Iterator[dict[str, Any]]:
    leader_end = max(
        (each.log_end_offset for each in found.voters if each.node_id == found.leader_id),
        default=-1,
    )
    for role, replicas in (("voter", found.voters), ("observer", found.observers)):
        for each in sorted(replicas, key=lambda each: each.node_id):
            is_leader = each.node_id == found.leader_id
            yield _replica(each, "leader" if is_leader else role, leader_end) | {
                "endpoints": [
                    f"{at.listener}://{host_and_port(at.host, at.port)}"
                    for at in found.endpoints.get(each.node_id, ())
                ]
            }


def _replica(state: QuorumReplica, role: str, leader_end: int) -> dict[str, Any]:
    is_known = state.log_end_offset >= 0
    caught_up_ms = state.last_caught_up_timestamp
    return {
        "node": state.node_id,
        "role": role,
        "log_end_offset": state.log_end_offset if is_known else None,
        "lag": max(leader_end - state.log_end_offset, 0) if is_known else None,
        "last_caught_up": show_time(-1 if caught_up_ms is None else caught_up_ms),
        "directory_id": None if state.directory_id is None else str(state.directory_id),
    }
