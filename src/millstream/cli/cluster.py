"""`millstream cluster`: who is in it, who decides, and which features it has."""

from __future__ import annotations

from typing import Any

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
from millstream.cli.session import open_session
from millstream.metadata.features import METADATA_VERSION, metadata_version_name

family = new_family("The cluster as a whole.")


@family.callback()
def cluster() -> None:
    """The cluster as a whole."""


@family.command("describe")
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's id, controller, brokers and features.

    Example: `millstream cluster describe`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_cluster(include_fenced_brokers=True)
        levels = session.admin.describe_features()
    brokers: list[dict[str, Any]] = [
        {
            "broker": each.node_id,
            "host": each.host,
            "port": each.port,
            "rack": each.rack,
            "fenced": each.is_fenced,
        }
        for each in found.brokers
    ]
    features: list[dict[str, Any]] = [
        {
            "feature": each.name,
            "level": each.level,
            "release": _release(each.name, each.level),
            "supported": f"{each.min_supported}-{each.max_supported}",
        }
        for _, each in sorted(levels.items())
    ]
    facts = {"cluster_id": found.cluster_id, "controller": found.controller_id}
    if as_json:
        show_json(facts | {"brokers": brokers, "features": features})
        return
    show_facts(facts, as_json=False)
    typer.echo()
    headings = {"broker": "BROKER", "host": "HOST", "port": "PORT", "rack": "RACK"}
    show_rows(brokers, headings | {"fenced": "FENCED"}, as_json=False)
    typer.echo()
    headings = {"feature": "FEATURE", "level": "LEVEL", "supported": "SUPPORTED"}
    show_rows(features, headings | {"release": "RELEASE"}, as_json=False)


def _release(name: str, level: int) -> str | None:
    return metadata_version_name(level) if name == METADATA_VERSION else None
