"""A broker with share groups, and two members of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.server.share_members import ShareMember, share_broker

if TYPE_CHECKING:
    from tests.unit.server.harness import Broker


@pytest.fixture
def broker() -> Broker:
    return share_broker()


@pytest.fixture
def ann(broker: Broker) -> ShareMember:
    member = ShareMember(broker)
    member.join()
    return member


@pytest.fixture
def bob(broker: Broker) -> ShareMember:
    member = ShareMember(broker, "bob")
    member.join()
    return member
