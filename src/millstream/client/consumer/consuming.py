"""What consumers and share consumers have in common, apart from what they read.

`Consuming` opens a session and names it; `BlockingUse` and `AsyncUse` see to it that one thread, or
one task, uses it at a time, and perform its steps in their own way. A second user gets
ConcurrentUse instead of records in a strange order; only `wakeup` is for others.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from millstream.client.config import settings_from_dotted, settings_from_kwargs, shown
from millstream.client.consumer.steps import perform, perform_async
from millstream.errors import ConcurrentUse, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from millstream.client.config import ClientConfig
    from millstream.client.consumer.steps import Steps

T = TypeVar("T")


class Consuming(ABC):
    """How a session begins."""

    _config_class: ClassVar[type[ClientConfig]]
    _session: Any
    """A `ConsumerSession` or a `ShareSession`."""

    def _open(
        self, bootstrap: str | Sequence[str], topics: Sequence[str], settings: Mapping[str, Any]
    ) -> None:
        self._prepare()
        if "bootstrap_servers" in settings:
            raise InvalidArgument("give the bootstrap addresses once, as the first argument")
        given = {"bootstrap_servers": bootstrap, **settings}
        self._start(settings_from_kwargs(self._config_class, given), topics)

    @classmethod
    def from_config(cls, properties: Mapping[str, Any], topics: Sequence[str] = ()) -> Self:
        """One from the names of Kafka's clients: `{"bootstrap.servers": ..., "group.id": ...}`."""
        made = cls.__new__(cls)
        made._prepare()
        made._start(settings_from_dotted(cls._config_class, properties), topics)
        return made

    def _start(self, config: Any, topics: Sequence[str]) -> None:
        # The addresses and the namespace are checked here, before a thread is started.
        _ = config.bootstrap, config.names
        self._session = self._make_session(config)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self._session.thread.stop()
                raise

    @abstractmethod
    def _make_session(self, config: Any) -> Any:
        """What does the work; it starts a thread."""

    @abstractmethod
    def _prepare(self) -> None:
        """What a new object needs before its session."""

    @abstractmethod
    def _use(self) -> AbstractContextManager[None]:
        """Held while a call runs; raises ConcurrentUse, ClientClosed or ForkedClient."""

    @abstractmethod
    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read topics as a member of the group, instead of those before."""

    def wakeup(self) -> None:
        """Have a `poll` that waits, or the next one, raise Wakeup. From any thread."""
        self._session.wakeup()

    def __repr__(self) -> str:
        config = self._session.config
        return shown(self, config.bootstrap_servers, group_id=config.group_id)


class BlockingUse(Consuming):
    """One thread at a time, which waits."""

    def _prepare(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def _use(self) -> Iterator[None]:
        with self._taken():
            self._session.thread.check_usable()
            yield

    @contextmanager
    def _taken(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse(
                "another thread is using this consumer; only wakeup() may be called meanwhile"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _perform(self, steps: Steps[T]) -> T:
        with self._use():
            return perform(steps, self._session.buffer)

    def _perform_last(self, steps: Steps[None]) -> None:
        """Steps that are taken also of a session that has ended."""
        with self._taken():
            perform(steps, self._session.buffer)

    def __enter__(self) -> Self:
        return self


class AsyncUse(Consuming):
    """One task at a time; what waits is a coroutine."""

    def _prepare(self) -> None:
        self._user: asyncio.Task[Any] | None = None
        self._depth = 0

    @contextmanager
    def _use(self) -> Iterator[None]:
        self._session.thread.check_usable()
        with self._taken():
            yield

    @contextmanager
    def _taken(self) -> Iterator[None]:
        task = _current_task()
        if self._depth and self._user is not task:
            raise ConcurrentUse(
                "another task is using this consumer; only wakeup() may be called meanwhile"
            )
        self._user = task
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    async def _perform(self, steps: Steps[T]) -> T:
        with self._use():
            return await perform_async(steps, self._session.buffer)

    async def _perform_last(self, steps: Steps[None]) -> None:
        """Steps that are taken also of a session that has ended."""
        with self._taken():
            await perform_async(steps, self._session.buffer)

    async def __aenter__(self) -> Self:
        return self


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
