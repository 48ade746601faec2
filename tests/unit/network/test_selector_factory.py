"""Which sockets a client gets."""

from __future__ import annotations

import sys

import pytest

from millstream import _accel
from millstream.network.client.selector import SocketSelector
from millstream.network.client.selector_factory import open_client_selector


def test_the_compiled_selector_runs_where_it_was_built() -> None:
    selector = open_client_selector()
    selector.shutdown()

    is_native = _accel.COMPILED and sys.platform == "linux"
    assert isinstance(selector, SocketSelector) is not is_native


@pytest.mark.parametrize("missing", ["the kernel", "epoll"])
def test_without_it_the_plain_one_does_the_work(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "the kernel":
        monkeypatch.setattr(_accel, "COMPILED", False)
    else:
        monkeypatch.setattr(sys, "platform", "darwin")

    selector = open_client_selector()
    selector.shutdown()

    assert isinstance(selector, SocketSelector)
