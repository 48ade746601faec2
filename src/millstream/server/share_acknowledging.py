"""What ShareFetch and ShareAcknowledge have in common: sessions and acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.gathering import gather
from millstream.coordinator.share.delivery import Acknowledgement, AcknowledgeType
from millstream.coordinator.share.sessions import SessionKey
from millstream.coordinator.share.state import ShareKey
from millstream.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from millstream.coordinator.group.share.config import ShareGroupSettings
    from millstream.coordinator.share.sessions import Place, ShareSessionCache
    from millstream.errors import ApiError
    from millstream.server.share_partitions import SharePartitionManager

    Said: TypeAlias = Mapping[Place, list[Acknowledgement]]
    """What a member says about records, by partition."""


class ShareAcknowledging:
    """Takes acknowledgements for the handlers."""

    def __init__(self, shares: SharePartitionManager) -> None:
        self._shares = shares

    @property
    def sessions(self) -> ShareSessionCache:
        """The share sessions of this broker."""
        return self._shares.sessions

    def settings(self, group_id: str) -> ShareGroupSettings:
        """What holds for a group."""
        return self._shares.settings(group_id)

    def acknowledge(
        self,
        key: SessionKey,
        said: Said,
        done: Callable[[Mapping[Place, ApiError | None]], None],
    ) -> None:
        """Take what a member says; `done` gets the error of each partition."""
        places = list(said)

        def ask(place: Place, answered: Callable[[ApiError | None], None]) -> None:
            share = ShareKey(key.group_id, *place)
            self._shares.acknowledge(share, key.member_id, said[place], answered)

        def asked(errors: list[ApiError | None]) -> None:
            done(dict(zip(places, errors, strict=True)))

        gather(places, ask, asked)

    def close(self, key: SessionKey, done: Callable[[], None]) -> None:
        """End a session: what is left with the member goes back."""
        self._shares.close_session(key, done)


def session_of(group_id: str | None, member_id: str | None) -> SessionKey:
    """Whose session a request belongs to."""
    if not group_id:
        raise InvalidRequest("the group id is empty")
    if not member_id:
        raise InvalidRequest("the member id is empty")
    return SessionKey(group_id, member_id)


def acknowledgements_of(request: Any) -> Said:
    """The acknowledgements of a ShareFetch or ShareAcknowledge request."""
    return {
        (topic.topic_id, asked.partition_index): [
            Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types)
            for each in asked.acknowledgement_batches
        ]
        for topic in request.topics
        for asked in topic.partitions
        if asked.acknowledgement_batches
    }


def check_renewal(said: Said, settings: ShareGroupSettings, *, is_renewal: bool) -> None:
    """Raise if locks are to be renewed by a request that may not."""
    renews = any(
        AcknowledgeType.RENEW in each.types for batches in said.values() for each in batches
    )
    if renews and not is_renewal:
        raise InvalidRequest("a request that renews locks must say so")
    if renews and not settings.allows_renewal:
        raise InvalidRequest("the group does not allow to renew locks")
