"""The thread that turns a client's runtime: started with it, ended with it, never leaked.

Each client owns one. It is a daemon: a process that forgets to close its clients ends all the
same, and they are stopped in order before the interpreter goes. A forked child has no such thread,
which `check_usable` tells it.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import weakref
from random import Random
from typing import TYPE_CHECKING, Final

from millstream.client.runtime import ClientRuntime
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, ForkedClient
from millstream.network.client.selector_factory import open_client_selector

if TYPE_CHECKING:
    from millstream.client.config import ClientConfig
    from millstream.client.metadata import MetadataConfig

_logger = logging.getLogger(__name__)
_EXIT_TIMEOUT_S: Final = 2.0
_running: Final[weakref.WeakSet[IoThread]] = weakref.WeakSet()


class IoThread:
    """Drives a `ClientRuntime` until it is stopped."""

    def __init__(self, runtime: ClientRuntime, name: str) -> None:
        self.runtime = runtime
        self._name = name
        self._pid = os.getpid()
        self._is_stopping = False
        self._failure: ClientClosed | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to turn."""
        _stop_all_at_exit()
        _running.add(self)
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the thread and close the connections; again is fine. False if it took too long."""
        if os.getpid() != self._pid:
            return True  # The thread lives in the parent; its sockets are the parent's to close.
        self._is_stopping = True
        self.runtime.wake()
        if self._thread is threading.current_thread() or self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop_when_collected(self, owner: object) -> None:
        """End the thread if the client that owns it is thrown away without being closed."""
        weakref.finalize(owner, self.stop, 0)

    def is_of_this_process(self) -> bool:
        """False in a forked child: the thread and its connections are the parent's."""
        return os.getpid() == self._pid

    def is_current(self) -> bool:
        """Whether the caller runs on this thread, and so must not wait for it."""
        return self._thread is threading.current_thread()

    def check_usable(self) -> None:
        """Raise unless calls can succeed: not stopped, not failed, not in a forked child."""
        if os.getpid() != self._pid:
            raise ForkedClient(
                f"{self._name} was made by process {self._pid} and cannot be used after a fork; "
                "make a client in the child"
            )
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._is_stopping:
            raise ClientClosed(f"{self._name} was closed; make a new one")

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self.runtime.run_once()
        except BaseException as error:
            self._failure = ClientClosed(
                f"{self._name} has failed: {error!r}; close it and make a new one"
            )
            self._failure.__cause__ = error
            _logger.exception("%s has failed; close it and make a new one", self._name)
        finally:
            self._is_stopping = True
            self.runtime.close(self._failure)
            _running.discard(self)


def start_client(
    config: ClientConfig,
    name: str,
    *,
    metadata_config: MetadataConfig | None = None,
    max_in_flight: int = 5,
    separate_coordinators: bool = True,
) -> IoThread:
    """A runtime with real sockets and the machine's clock, on a thread that runs already."""
    runtime = ClientRuntime(
        open_client_selector(),
        SystemClock(),
        config,
        Random(),
        metadata_config=metadata_config,
        max_in_flight=max_in_flight,
        separate_coordinators=separate_coordinators,
    )
    thread = IoThread(runtime, name)
    thread.start()
    return thread


@functools.cache
def _stop_all_at_exit() -> None:
    # Registered with the first thread and not with the import: what runs at exit runs backwards,
    # and clients must stop before the selectors under them do.
    atexit.register(_stop_all)


def _stop_all() -> None:
    for thread in list(_running):
        thread.stop(_EXIT_TIMEOUT_S)
