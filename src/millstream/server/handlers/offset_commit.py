"""OffsetCommit 2-10: how far a group has read; by topic id from version 10 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.offsets.commit import (
    OffsetCommit,
    commit_response,
    partition_count,
)
from millstream.errors import ApiError, UnknownServerError
from millstream.network.request import PENDING
from millstream.protocol.frame import encode_response
from millstream.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.server.api_server import note_failure
from millstream.server.commit_frames import read_commit
from millstream.server.coordinator_calls import answering, caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.coordinator.group.offsets.commit import ErrorCodes
    from millstream.network.log_limiter import LogLimiter
    from millstream.network.request import Outcome, Request
    from millstream.protocol.messages.offset_commit import OffsetCommitRequest
    from millstream.server.exchange import Exchange


def commit_by_frame(
    request: Request, groups: GroupCoordinator, log: LogLimiter
) -> bytes | Outcome | None:
    """The short way: without messages, for all that has no tagged fields."""
    read = read_commit(
        request.buffer,
        request.body,
        request.end,
        request.api_version,
        request.correlation_id,
    )
    if read is None:
        return None
    commit = tuple.__new__(OffsetCommit, read[0])
    call = _CommitCall(request, commit, read[1])
    try:
        groups.commit(commit, request.api_version, call.done)
    except Exception as error:
        note_failure(log, request, error)
        call.done(UnknownServerError(f"the node failed to answer: {error!r}"))
    call.is_returned = True
    return call.answer or PENDING


class _CommitCall:
    """A commit on its way, and the answer that will be right if nothing of it is refused."""

    __slots__ = ("_commit", "_ready", "_request", "answer", "is_returned")

    def __init__(self, request: Request, commit: OffsetCommit, ready: bytes) -> None:
        self._request = request
        self._commit = commit
        self._ready = ready
        self.is_returned = False
        """Whether the handler has returned: from then on the request must be completed."""
        self.answer: bytes | None = None
        """The answer that came before."""

    def done(self, outcome: ErrorCodes | ApiError) -> None:
        """Answer."""
        frame = self._ready if outcome == () else self._refusal(outcome)
        if self.is_returned:
            self._request.complete(frame)
        else:
            self.answer = frame

    def _refusal(self, outcome: ErrorCodes | ApiError) -> bytes:
        if isinstance(outcome, ApiError):
            outcome = [outcome.code] * partition_count(self._commit)
        response = commit_response(self._commit, outcome)
        request = self._request
        return encode_response(response, request.api_version, request.correlation_id)


def handle_offset_commit(
    request: OffsetCommitRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Store it."""
    done = answering(exchange, request, fail_offset_commit)
    groups.commit_offsets(request, caller_of(exchange), done)


def fail_offset_commit(
    request: OffsetCommitRequest, error: ApiError, version: int
) -> OffsetCommitResponse:
    """Every partition gets the error."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error.code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
