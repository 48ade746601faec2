"""The application's side of commits: what has been read, committing it, asking what was committed.

`ConsumerSession` has one where the consumer has a group. Names of topics are the user's outside and
the wire's inside.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from millstream.client.arguments import as_offsets
from millstream.client.consumer.steps import AwaitResult
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import InvalidGroupId, MillstreamError
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.interceptors import ConsumerInterceptors
    from millstream.client.consumer.link import CoreLink
    from millstream.client.consumer.membership.membership import Membership
    from millstream.client.consumer.names import Names
    from millstream.client.consumer.steps import Steps
    from millstream.client.futures import Waiter
    from millstream.records.kernel import ConsumerRecord

    Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
    OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], Any]

_logger: Final = logging.getLogger(__name__)


class SessionCommits:
    """Commits of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: CoreLink,
        buffer: FetchBuffer,
        names: Names,
        interceptors: ConsumerInterceptors,
    ) -> None:
        self._config = config
        self._link = link
        self._buffer = buffer
        self._names = names
        self._interceptors = interceptors
        self._finished: deque[Callable[[], Any]] = deque()
        self.unread: Callable[[], Iterable[ConsumerRecord]] = tuple
        """Records that were taken for a loop which has not got to them."""
        if interceptors and link.core.membership is not None:
            link.core.membership.on_auto_committed = self._on_auto_committed

    @property
    def is_automatic(self) -> bool:
        """Whether what was read is committed without being asked to."""
        return self._config.enable_auto_commit and self._link.core.membership is not None

    def consumed(self, *, processed: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the application has got, or what it had got when it last came back for more."""
        offsets = {
            partition: OffsetAndMetadata(position, "", epoch if epoch >= 0 else None)
            for partition, (position, epoch) in self._buffer.positions(processed=processed).items()
        }
        for record in self.unread():
            partition = self._names.to_wire(TopicPartition(record.topic, record.partition))
            known = offsets.get(partition)
            if known is not None and record.offset < known.offset:
                offsets[partition] = OffsetAndMetadata(record.offset, "", known.leader_epoch)
        return offsets

    def commit(self, offsets: Offsets | None, timeout_s: float) -> Steps[None]:
        """Commit and wait for it."""
        self.run_finished()
        wanted = self._checked(offsets)
        yield from self._commit(wanted, timeout_s)
        self.run_finished()

    def _commit(
        self, wanted: dict[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> Steps[None]:
        if not wanted:
            return
        timeout_ms = round(timeout_s * 1000)
        waiter = self._ask(wanted, lambda now_ms: now_ms + timeout_ms)
        yield AwaitResult(waiter, None)
        self._interceptors.on_commit(self._names.keys_from_wire(wanted))

    def commit_quietly(
        self, partitions: Collection[TopicPartition] | None, timeout_s: float, *, processed: bool
    ) -> Steps[None]:
        """Commit what was read, of these partitions or of all; a failure is only logged."""
        consumed = self.consumed(processed=processed)
        wanted = {
            each: offset
            for each, offset in consumed.items()
            if partitions is None or each in partitions
        }
        try:
            yield from self._commit(wanted, timeout_s)
        except MillstreamError as error:
            _logger.warning("what was read could not be committed: %s", error)

    def commit_async(self, offsets: Offsets | None, on_done: OnCommit | None) -> Waiter[None]:
        """Commit and go on; `on_done` runs in a later call of the application's."""
        wanted = self._checked(offsets)
        waiter = self._ask(wanted, lambda _now_ms: None)
        told = self._names.keys_from_wire(wanted)

        def finished(done: Waiter[None]) -> None:
            error = done.exception()
            self._finished.append(lambda: self._tell(told, error, on_done))

        waiter.add_done_callback(finished)
        return waiter

    def _tell(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        error: BaseException | None,
        on_done: OnCommit | None,
    ) -> None:
        if error is None:
            self._interceptors.on_commit(offsets)
        elif on_done is None:
            _logger.warning("an asynchronous commit has failed: %s", error)
        if on_done is not None:
            on_done(offsets, error if isinstance(error, Exception) else None)

    def _on_auto_committed(self, committed: dict[TopicPartition, OffsetAndMetadata]) -> None:
        told = self._names.keys_from_wire(committed)
        self._finished.append(lambda: self._interceptors.on_commit(told))

    def run_finished(self) -> None:
        """Tell who asked of asynchronous commits that are done."""
        while self._finished:
            self._finished.popleft()()

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """What the group has committed; None where it has nothing."""
        wanted = self._names.all_to_wire(partitions)
        self.membership()
        timeout_ms = round(timeout_s * 1000)
        waiter = self._link.ask(
            "the committed offsets",
            lambda core, now_ms, answer: _of(core).committed(
                wanted, now_ms, answer, deadline_ms=now_ms + timeout_ms
            ),
        )
        found = yield AwaitResult(waiter, None)
        return self._names.keys_from_wire({each: found.get(each) for each in wanted})

    def membership(self) -> Membership:
        """The place in the group; an error that tells what to do if there is none."""
        return _of(self._link.core)

    def _ask(
        self,
        wanted: dict[TopicPartition, OffsetAndMetadata],
        deadline: Callable[[int], int | None],
    ) -> Waiter[None]:
        return self._link.ask(
            "the commit",
            lambda core, now_ms, answer: _of(core).commit(
                wanted, now_ms, answer, deadline_ms=deadline(now_ms)
            ),
        )

    def _checked(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self.membership()
        if offsets is None:
            return self.consumed()
        return self._names.keys_to_wire(as_offsets(offsets))


def _of(core: Any) -> Membership:
    membership: Membership | None = core.membership
    if membership is None:
        raise InvalidGroupId(
            "this consumer has no group: give it a group_id to subscribe or to commit offsets, "
            "or assign() it partitions and keep the offsets yourself"
        )
    return membership
