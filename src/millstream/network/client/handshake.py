"""The first exchange on a client's connection: which versions does the broker speak?

`NetworkClient` sends `versions_request` and reads the answer here. A broker that is too old for
the version asked answers in version 0, with UNSUPPORTED_VERSION and what it does know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream import __version__
from millstream.errors import UnsupportedVersion, error_for_code
from millstream.network.client.broker_link import Feature
from millstream.protocol.api import ApiKey, decode_api_versions
from millstream.protocol.frame import decode_response_header
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from millstream.protocol.messages.api_versions import ApiVersionsResponse
    from millstream.types import ReadableBuffer

FIRST_VERSION: Final = ApiKey.API_VERSIONS.released.highest
"""What is asked first: the newest."""


class Spoken(NamedTuple):
    """What the broker speaks."""

    versions: dict[int, VersionRange]
    features: tuple[Feature, ...]
    throttle_time_ms: int


class AskAgain(NamedTuple):
    """The broker is older: ask in this version."""

    version: int


def versions_request() -> ApiVersionsRequest:
    """The request, which fits every version."""
    return ApiVersionsRequest(
        client_software_name="millstream", client_software_version=__version__
    )


def read_versions(frame: ReadableBuffer, asked: int) -> Spoken | AskAgain:
    """Read the answer to a request of version `asked`; raises if there is no way on."""
    _, position = decode_response_header(frame, ApiKey.API_VERSIONS, asked)
    answer, _ = decode_api_versions(frame, asked, position)
    if answer.error_code == UnsupportedVersion.code and asked > 0:
        theirs = {each.api_key: each for each in answer.api_keys}.get(int(ApiKey.API_VERSIONS))
        # 0 is understood by all brokers that know the API.
        return AskAgain(0 if theirs is None else max(0, min(asked - 1, theirs.max_version)))
    if answer.error_code:
        raise error_for_code(answer.error_code)
    versions = {
        each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys
    }
    return Spoken(versions, _features(answer), answer.throttle_time_ms)


def _features(answer: ApiVersionsResponse) -> tuple[Feature, ...]:
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return tuple(
        Feature(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in sorted(answer.supported_features, key=lambda each: each.name)
    )
