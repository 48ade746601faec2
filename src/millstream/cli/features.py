"""`millstream features`: what the whole cluster may do, and at which level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Yes,
    new_family,
)
from millstream.cli.output import note, require_consent, show_rows
from millstream.cli.session import open_session
from millstream.client.admin.cluster import FeatureUpdate
from millstream.errors import InvalidArgument
from millstream.metadata.features import (
    METADATA_VERSION,
    default_levels,
    metadata_version_name,
    parse_metadata_version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.cli.session import Session
    from millstream.client.admin.cluster import UpgradeType
    from millstream.network.client.broker_link import Feature

family = new_family("The features of the cluster, and their levels.")

_HEADINGS: Final = {
    "feature": "FEATURE",
    "level": "LEVEL",
    "release": "RELEASE",
    "min_supported": "MIN",
    "max_supported": "MAX",
}
_CHANGES: Final = {"feature": "FEATURE", "before": "BEFORE", "level": "LEVEL"}

Levels = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=LEVEL",
        help="Such as share.version=1; metadata.version may be a release, such as 4.2-IV1.",
    ),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release-version", metavar="VERSION", help="Every feature as in this release, e.g. 4.2."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Have it checked, and change nothing.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Even if metadata is lost that the lower level lacks.")
]


@family.command("describe")
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the level of each feature, and what the brokers support.

    Example: `millstream features describe`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_features()
    show_rows(feature_rows(found), _HEADINGS, as_json=as_json)


@family.command("upgrade")
def upgrade(
    levels: Levels = None,
    release_version: Release = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Raise features; every broker and controller must support the new levels.

    Example: `millstream features upgrade --release-version 4.3`
    """
    wanted = _wanted(levels, release_version)
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_features()
        if release_version is not None:
            # What is above the release already stays there.
            wanted = {name: max(level, _level(found, name)) for name, level in wanted.items()}
        _update(session, found, wanted, "upgrade", dry_run=dry_run, as_json=as_json)


@family.command("downgrade")
def downgrade(
    levels: Levels = None,
    release_version: Release = None,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Lower features.

    Example: `millstream features downgrade metadata.version=4.2-IV1`
    """
    wanted = _wanted(levels, release_version)
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_features()
        if release_version is not None:
            names = {*wanted, *(name for name, each in found.items() if each.min_supported == 0)}
            wanted = {name: min(wanted.get(name, 0), _level(found, name)) for name in names}
        if not dry_run:
            question = f"Lower {', '.join(sorted(wanted))} of the whole cluster?"
            require_consent(question, is_given=yes)
        _update(session, found, wanted, _lowering(unsafe), dry_run=dry_run, as_json=as_json)


@family.command("disable")
def disable(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of features.")],
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Take features out of use, which is level 0.

    Example: `millstream features disable share.version`
    """
    wanted = dict.fromkeys(names, 0)
    with open_session(bootstrap_server, timeout) as session:
        found = session.admin.describe_features()
        if not dry_run:
            question = f"Take {', '.join(names)} out of use in the whole cluster?"
            require_consent(question, is_given=yes)
        _update(session, found, wanted, _lowering(unsafe), dry_run=dry_run, as_json=as_json)


def feature_rows(found: Mapping[str, Feature]) -> list[dict[str, Any]]:
    """The features of a cluster for a table."""
    return [
        {
            "feature": each.name,
            "level": each.level,
            "release": metadata_version_name(each.level) if name == METADATA_VERSION else None,
            "min_supported": each.min_supported,
            "max_supported": each.max_supported,
        }
        for name, each in sorted(found.items())
    ]


def _wanted(levels: list[str] | None, release_version: str | None) -> dict[str, int]:
    if bool(levels) == (release_version is not None):
        raise UsageFault("name features as NAME=LEVEL, or a release with --release-version")
    if release_version is not None:
        return default_levels(_metadata_version(release_version))
    wanted = {}
    for text in levels or ():
        name, equals, level = text.partition("=")
        if name == METADATA_VERSION and not level.isdecimal():
            wanted[name] = _metadata_version(level)
        elif not equals or not level.isdecimal():
            raise UsageFault(f"{text}: write it as NAME=LEVEL, such as share.version=1")
        elif name in wanted:
            raise UsageFault(f"{name} is given twice")
        else:
            wanted[name] = int(level)
    return wanted


def _metadata_version(text: str) -> int:
    try:
        return parse_metadata_version(text)
    except InvalidArgument as error:
        raise UsageFault(str(error)) from error


def _lowering(is_unsafe: bool) -> UpgradeType:
    return "unsafe_downgrade" if is_unsafe else "safe_downgrade"


def _level(found: Mapping[str, Feature], name: str) -> int:
    return found[name].level if name in found else 0


def _update(
    session: Session,
    found: Mapping[str, Feature],
    wanted: Mapping[str, int],
    upgrade_type: UpgradeType,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    for name in wanted:
        if name not in found:
            known = f"; there are {', '.join(sorted(found))}"
            raise CommandFailed(f"there is no feature {name!r}{nearest(name, found) or known}")
    updates = {
        name: FeatureUpdate(level, upgrade_type)
        for name, level in wanted.items()
        if level != found[name].level
    }
    if updates:
        session.admin.update_features(updates, validate_only=dry_run).raise_first()
    rows = [
        {"feature": name, "before": found[name].level, "level": level, "dry_run": dry_run}
        for name, level in sorted(wanted.items())
    ]
    show_rows(rows, _CHANGES, as_json=as_json)
    if dry_run:
        note("this would be done; nothing was changed", as_json=as_json)
