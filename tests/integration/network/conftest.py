"""Every scenario runs on both loops, and with both ways to read plain sockets."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.network.server import acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["selector", "transports"])
def reads_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads plain sockets: the compiled selector, or the transports of the loop."""
    if request.param == "transports":
        monkeypatch.setattr(acceptor, "find_selector", lambda processor: None)
    elif _accel.find("broker.selector") is None:
        pytest.skip("the compiled selector is not built")
    return str(request.param)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, reads_with: str) -> Run:
    """Runs a coroutine to its end on the loop under test."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if request.param == "uvloop":
        if importlib.util.find_spec("uvloop") is None:
            pytest.skip("uvloop is not installed")
        factory = importlib.import_module("uvloop").new_event_loop

    def run_to_end(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario, 60))

    return run_to_end
