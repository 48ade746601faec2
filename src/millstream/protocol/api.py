"""The APIs, their versions, and agreeing on one of them with the other side.

`ApiKey` comes from the schema. Brokers ask here what to advertise, clients what to send, both how
to survive a peer that is older or younger. Nothing here sends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from millstream.errors import UnsupportedVersion
from millstream.protocol.messages.api_keys import ApiKey
from millstream.protocol.notation import NO_VERSIONS, VersionRange

if TYPE_CHECKING:
    from millstream.protocol.messages import ApiVersionsResponse
    from millstream.types import ReadableBuffer

Listener: TypeAlias = Literal["broker", "controller"]

API_BY_KEY: dict[int, ApiKey] = {int(api): api for api in ApiKey}
"""Looks an API up without raising: a key off the wire may be anything."""


def advertised(listener: Listener) -> dict[ApiKey, VersionRange]:
    """What an ApiVersions response lists on a listener of this kind.

    Produce is advertised from version 0 on broker listeners although 0 to 2 are refused: librdkafka
    takes a higher minimum for a broker that cannot decompress and silently stops compressing.
    """
    found = {
        api: api.released
        for api in ApiKey
        if listener in api.listeners and api.released != NO_VERSIONS
    }
    if ApiKey.PRODUCE in found:
        found[ApiKey.PRODUCE] = VersionRange(0, ApiKey.PRODUCE.released.highest)
    return found


def negotiate(ours: VersionRange, theirs: VersionRange) -> int | None:
    """The highest version that both sides know; None if there is none."""
    highest = min(ours.highest, theirs.highest)
    return highest if highest >= max(ours.lowest, theirs.lowest) else None


def negotiate_api(api: ApiKey, theirs: VersionRange | None) -> int:
    """The version to use for an API with a broker that advertises `theirs`."""
    version = None if theirs is None else negotiate(api.released, theirs)
    if version is None:
        offer = "does not offer it" if theirs is None else f"offers versions {theirs}"
        raise UnsupportedVersion(
            f"{api.api_name}: this side speaks versions {api.released}, the other {offer}"
        )
    return version


def unsupported_api_versions() -> ApiVersionsResponse:
    """The answer to an ApiVersions request of a version we do not know; encode it as version 0.

    Its body was not parsed. The answer names our own range, so that the asker can ask again.
    """
    from millstream.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

    ours = ApiKey.API_VERSIONS.released
    return ApiVersionsResponse(
        error_code=UnsupportedVersion.code,
        api_keys=[
            ApiVersion(
                api_key=ApiKey.API_VERSIONS,
                min_version=ours.lowest,
                max_version=ours.highest,
            )
        ],
    )


def decode_api_versions(
    buffer: ReadableBuffer, version: int, position: int = 0
) -> tuple[ApiVersionsResponse, int]:
    """Read the answer to an ApiVersions request of `version`; also say which version it has.

    A broker that does not know the version answers in version 0 with error UNSUPPORTED_VERSION:
    the error code comes first in every version, so it tells the two apart.
    """
    from millstream.protocol.messages.api_versions import ApiVersionsResponse

    error_code = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    if error_code == UnsupportedVersion.code:
        version = 0
    return ApiVersionsResponse.decode(buffer, version, position), version


__all__ = [
    "API_BY_KEY",
    "ApiKey",
    "Listener",
    "advertised",
    "decode_api_versions",
    "negotiate",
    "negotiate_api",
    "unsupported_api_versions",
]
