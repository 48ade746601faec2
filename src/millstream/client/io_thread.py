"""The thread that turns a client's runtime: started with it, ended with it, never leaked.

A client's face owns one. It is a daemon: a process that forgets to close its clients ends all the
same, and they are stopped in order before the interpreter goes. A forked child has no such thread,
which `check_usable` tells it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from millstream.errors import ClientClosed, ForkedClient

if TYPE_CHECKING:
    from millstream.client.runtime import ClientRuntime

_logger = logging.getLogger(__name__)
_EXIT_TIMEOUT_S: Final = 2.0
_running: Final[weakref.WeakSet[IoThread]] = weakref.WeakSet()


class IoThread:
    """Drives a `ClientRuntime` until it is stopped."""

    def __init__(self, runtime: ClientRuntime, name: str) -> None:
        self._runtime = runtime
        self._name = name
        self._pid = os.getpid()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to turn."""
        _running.add(self)
        self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the thread and close the connections; again is fine. False if it took too long."""
        if os.getpid() != self._pid:
            return True  # The thread lives in the parent; its sockets are the parent's to close.
        self._is_stopping = True
        self._runtime.wake()
        if self._thread is threading.current_thread() or self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

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
            raise ClientClosed(f"{self._name} has failed: {self._failure!r}") from self._failure
        if self._is_stopping:
            raise ClientClosed(f"{self._name} was closed; make a new one")

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._runtime.run_once()
        except BaseException as error:
            self._failure = error
            _logger.exception("%s has failed; close it and make a new one", self._name)
        finally:
            self._is_stopping = True
            self._runtime.close()
            _running.discard(self)


def _stop_all() -> None:
    for thread in list(_running):
        thread.stop(_EXIT_TIMEOUT_S)


atexit.register(_stop_all)
