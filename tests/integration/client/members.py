"""Members of groups with a real broker, without a consumer around them.

A `Member` is what a consumer's core does about membership and no more: it acknowledges what it is
told while its user polls, and remembers what it owns.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.membership import Membership
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.futures import Waiter
from millstream.client.io_thread import start_client
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.groups import OffsetAndMetadata
    from millstream.types import TopicPartition

T = TypeVar("T")

PATIENCE_S = 30.0


class Member:
    """One member on an I/O thread of its own; `polls` says whether its user is there."""

    def __init__(self, bootstrap: str, group_id: str, **changes: Any) -> None:
        config = ConsumerConfig(
            bootstrap_servers=(bootstrap,), client_id="member", group_id=group_id, **changes
        )
        self._thread = start_client(config, "member")
        self._runtime = self._thread.runtime
        self._changed = threading.Condition()
        self._pending: list[RebalanceEvent] = []
        self._is_closed = False
        self.polls = True
        self.owned: frozenset[TopicPartition] = frozenset()
        self.events: list[RebalanceEvent] = []
        self.errors: list[MillstreamError] = []
        self.membership = Membership(config, self._runtime, self, Random())
        self._runtime.post(lambda now_ms: self._runtime.add(self.membership))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # An `AssignmentOwner`.

    def on_rebalance(self, event: RebalanceEvent) -> None:
        self._pending.append(event)
        if self.polls:
            self._runtime.post(self._take)

    def on_group_error(self, error: MillstreamError) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def _take(self, now_ms: int) -> None:
        pending, self._pending = self._pending, []
        for event in pending:
            with self._changed:
                if isinstance(event, Assigned):
                    self.owned |= event.partitions
                else:
                    assert isinstance(event, Revoked | Lost)
                    self.owned -= event.partitions
                self.events.append(event)
                self._changed.notify_all()
            self.noted(event)
            self.membership.acknowledge(event, now_ms)

    def noted(self, event: RebalanceEvent) -> None:
        """For tests that want to know at once; the group waits for it."""

    # The user.

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        subscription = Subscription(topics=frozenset(topics), regex=regex)

        def act(now_ms: int) -> None:
            self.membership.enter_poll(now_ms)
            self.membership.subscribe(subscription, now_ms)

        self._runtime.post(act)

    def stop_polling(self) -> None:
        self.polls = False
        self._runtime.post(self.membership.leave_poll)

    def poll(self, consumed: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """The user polls, and stays in the poll."""
        self.polls = True

        def act(now_ms: int) -> None:
            self._take(now_ms)
            if self.membership.enter_poll(now_ms):
                self.membership.on_poll(consumed or {}, now_ms)

        self._runtime.post(act)

    def wait_until(self, holds: Callable[[Member], bool]) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: holds(self) or bool(self.errors), PATIENCE_S)
        if self.errors:
            raise self.errors[0]
        assert found, f"still owns {sorted(map(str, self.owned))} after {self.events}"

    def wait_for(self, count: int) -> None:
        """Wait until it owns so many partitions."""
        self.wait_until(lambda member: len(member.owned) == count)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        def ask(now_ms: int, waiter: Waiter[None]) -> None:
            self.membership.commit(
                offsets, now_ms, lambda error: _settle(waiter, error), deadline_ms=now_ms + 20_000
            )

        self._ask(ask)

    def committed(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        def ask(
            now_ms: int, waiter: Waiter[dict[TopicPartition, OffsetAndMetadata | None]]
        ) -> None:
            self.membership.committed(
                partitions,
                now_ms,
                lambda found: _settle(waiter, found),
                deadline_ms=now_ms + 20_000,
            )

        return self._ask(ask)

    def refresh_metadata(self) -> None:
        def act(now_ms: int) -> None:
            self._runtime.metadata.request_update()

        self._runtime.post(act)

    def leave(self) -> None:
        def ask(now_ms: int, waiter: Waiter[None]) -> None:
            self.membership.unsubscribe(now_ms, lambda: waiter.set_result(None))

        self._ask(ask)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True

        def ask(now_ms: int, waiter: Waiter[None]) -> None:
            self.membership.close(now_ms, lambda: waiter.set_result(None))

        self.polls = True
        self._runtime.post(self._take)
        self._ask(ask)
        self._thread.stop(PATIENCE_S)

    def _ask(self, start: Callable[[int, Waiter[T]], None]) -> T:
        waiter: Waiter[T] = Waiter()
        self._runtime.post(lambda now_ms: start(now_ms, waiter))
        return waiter.result(PATIENCE_S)


def _settle(waiter: Waiter[T], outcome: T | MillstreamError) -> None:
    if isinstance(outcome, MillstreamError):
        waiter.set_error(outcome)
    else:
        waiter.set_result(outcome)
