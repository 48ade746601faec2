"""Makes the operations of an admin client blocking or awaitable, with their signatures kept.

    class Admin(BlockingApi):
        create_topics = blocking(AdminOperations.create_topics)

Type checkers see the parameters and the result of the operation itself. Both styles add how a
client is made, closed and waited for, and nothing else.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from millstream.client.admin.all_operations import AdminOperations
from millstream.client.admin.config import AdminConfig
from millstream.client.admin.tasks import start
from millstream.client.config import settings_from_dotted, settings_from_kwargs, shown
from millstream.client.io_thread import start_client
from millstream.client.metrics import ClientMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from millstream.client.admin.config import AdminSettings
    from millstream.client.futures import Waiter

P = ParamSpec("P")
T = TypeVar("T")

_numbers = itertools.count(1)


class _Api:
    """What both admin clients have: operations, and the thread that performs them."""

    def __init__(self, bootstrap: str | Iterable[str], **settings: Unpack[AdminSettings]) -> None:
        """Connects to nobody yet; the first call does. `bootstrap` is "host:port,…" or a list."""
        self._open(settings_from_kwargs(AdminConfig, {"bootstrap_servers": bootstrap, **settings}))

    @classmethod
    def from_config(cls, properties: Mapping[str, object]) -> Self:
        """Make one from Kafka's names: `{"bootstrap.servers": …, "request.timeout.ms": …}`."""
        made = cls.__new__(cls)
        made._open(settings_from_dotted(AdminConfig, properties))
        return made

    def _open(self, config: AdminConfig) -> None:
        name = config.client_id or f"millstream-admin-{next(_numbers)}"
        self._thread = start_client(config, name, separate_coordinators=False)
        self._thread.stop_when_collected(self)
        self._operations = AdminOperations(self._thread.runtime)
        self._bootstrap_servers = config.bootstrap_servers

    def __repr__(self) -> str:
        return shown(self, self._bootstrap_servers)

    def metrics(self) -> ClientMetrics:
        """What was asked so far, and how long it took; from any thread, at any time."""
        runtime = self._thread.runtime
        return ClientMetrics(**runtime.meters.figures(runtime.now_ms()))

    def _begin(self, coroutine: Coroutine[Any, Any, T], what: str) -> Waiter[T]:
        try:
            self._thread.check_usable()
            return start(self._thread.runtime, coroutine, self._thread.runtime.waiter(what))
        except BaseException:
            coroutine.close()
            raise


class BlockingApi(_Api):
    """How a blocking client is closed."""

    def close(self, timeout: float | None = None) -> None:
        """End calls under way and close the connections; again is fine."""
        self._thread.stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AwaitingApi(_Api):
    """How a client of an event loop is closed."""

    async def close(self) -> None:
        """End calls under way and close the connections; again is fine."""
        await asyncio.to_thread(self._thread.stop, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def blocking(
    operation: Callable[Concatenate[AdminOperations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The operation as a method that waits for its end."""

    @functools.wraps(operation)
    def method(self: _Api, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coroutine = operation(self._operations, *args, **kwargs)
        return self._begin(coroutine, operation.__name__).result()

    return method


def awaiting(
    operation: Callable[Concatenate[AdminOperations, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The operation as a coroutine method of an event loop."""

    @functools.wraps(operation)
    async def method(self: _Api, /, *args: P.args, **kwargs: P.kwargs) -> T:
        coroutine = operation(self._operations, *args, **kwargs)
        return await self._begin(coroutine, operation.__name__)

    return method
