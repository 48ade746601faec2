"""What is known of an API besides its number: the base of the generated `ApiKey`.

Import `ApiKey` from `millstream.protocol.api`. Nothing here imports a message until one of the
two classes of an API is asked for.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.protocol.notation import NO_VERSIONS, VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.message import Message


class ApiTraits(IntEnum):
    """An API key with its facts, as `schema/messages` has them."""

    api_name: str
    """As Kafka spells it: `ListOffsets`."""
    versions: VersionRange
    """What this code can encode and decode, unreleased versions included."""
    released: VersionRange
    """The stable versions of Kafka 4.3; empty if the API is younger or was removed."""
    flexible: VersionRange
    """The versions with tagged fields, in the header too."""
    listeners: frozenset[str]
    """Where it may be asked: `broker`, `controller`, both, or nowhere."""
    needs_cluster_action: bool
    """Whether only members of the cluster may ask."""
    is_forwardable: bool
    """Whether a broker passes it on to the active controller in an Envelope."""

    @property
    def is_removed(self) -> bool:
        """Whether the key is only reserved."""
        return self.versions == NO_VERSIONS

    @property
    def request(self) -> type[Message]:
        """The class of its request."""
        return self._message("Request")

    @property
    def response(self) -> type[Message]:
        """The class of its response."""
        return self._message("Response")

    def _message(self, suffix: str) -> type[Message]:
        from millstream.protocol import messages

        found: type[Message] = getattr(messages, self.api_name + suffix)
        return found

    def request_header_version(self, version: int) -> int:
        """The version of the header in front of a request."""
        return 2 if self.flexible.covers(version) else 1

    def response_header_version(self, version: int) -> int:
        """The version of the header in front of a response.

        An ApiVersions response always has the oldest header: its reader cannot know yet whether
        the broker speaks flexible versions at all.
        """
        return 1 if self.flexible.covers(version) and self.api_name != "ApiVersions" else 0


def describe(
    apis: type[ApiTraits], facts: Mapping[int, tuple[str, str, str, str, str, str]]
) -> None:
    """Give each member its facts: name, versions (known, released, flexible), listeners, flags."""
    for api in apis:
        api.api_name, versions, released, flexible, listeners, flags = facts[api]
        api.versions = VersionRange.parse(versions)
        api.released = VersionRange.parse(released)
        api.flexible = VersionRange.parse(flexible)
        api.listeners = frozenset(listeners.split())
        api.needs_cluster_action = "cluster_action" in flags
        api.is_forwardable = "forwardable" in flags
