"""The name by which other machines reach this one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from millstream.node.host_name import is_loopback_name, own_host_name

if TYPE_CHECKING:
    import pytest


def machine(
    monkeypatch: pytest.MonkeyPatch, full: str, short: str, *, resolves: bool = True
) -> None:
    def getaddrinfo(*_: object) -> list[object]:
        if not resolves:
            raise OSError("no such name")
        return []

    monkeypatch.setattr(socket, "getfqdn", lambda: full)
    monkeypatch.setattr(socket, "gethostname", lambda: short)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_the_full_name_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "mill.example.org", "mill")

    assert own_host_name() == "mill.example.org"


def test_a_machine_whose_full_name_is_localhost_has_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, "localhost", "mill")

    assert own_host_name() == "mill"


def test_a_name_that_nobody_knows_is_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "localhost.localdomain", "mill", resolves=False)

    assert own_host_name() == "localhost.localdomain"


def test_loopback_names() -> None:
    assert is_loopback_name("LocalHost")
    assert is_loopback_name("localhost.localdomain")
    assert not is_loopback_name("localhost.example.org")
