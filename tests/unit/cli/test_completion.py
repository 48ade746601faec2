"""What the shell is offered: names that the cluster has, of the kind that is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli import options
from millstream.errors import BootstrapFailed
from tests.unit.cli.fake_cluster import TOPIC
from tests.unit.cli.fake_groups import FakeGroup, FakeGroups
from tests.unit.cli.fake_transactions import FakeTransaction, FakeTransactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.fake_cluster import FakeCluster

CONTEXT: Any = SimpleNamespace(params={})


def new_groups() -> FakeGroups:
    cluster = FakeGroups()
    cluster.groups = {
        "orders-old": FakeGroup(),
        "orders-new": FakeGroup("consumer"),
        "orders-shared": FakeGroup("share"),
        "bills": FakeGroup(),
    }
    return cluster


def new_transactions() -> FakeTransactions:
    cluster = FakeTransactions()
    cluster.transactions = {"orders-1": FakeTransaction(1), "bills-1": FakeTransaction(2)}
    return cluster


@pytest.mark.parametrize(
    ("complete", "cluster", "expected"),
    [
        (options.complete_topics, new_groups, [TOPIC]),
        (options.complete_groups, new_groups, ["orders-new", "orders-old"]),
        (options.complete_share_groups, new_groups, ["orders-shared"]),
        (options.complete_transactional_ids, new_transactions, ["orders-1"]),
    ],
)
def test_names_of_the_right_kind_are_offered(
    complete: Callable[[Any, str], Any],
    cluster: Callable[[], FakeCluster],
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.cli.session.open_session", lambda *_: cluster().session())

    assert list(complete(CONTEXT, "ord")) == expected


def test_a_shell_that_completes_never_shows_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise BootstrapFailed("nobody is there")

    monkeypatch.setattr("millstream.cli.session.open_session", fail)

    assert list(options.complete_groups(CONTEXT, "")) == []
