"""ApiVersions 0-4: which APIs, versions and features there are.

Answered before anything else, also before authentication. A version nobody knows is answered by
`ApiServer`, in version 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidRequest
from millstream.metadata.features import UNSERVED_FEATURES
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.api import ApiKey
    from millstream.protocol.messages.api_versions import ApiVersionsRequest
    from millstream.protocol.notation import VersionRange
    from millstream.server.exchange import Exchange

_SOFTWARE_SINCE: Final = 3
_ZERO_MINIMUM_SINCE: Final = 4
"""Clients before version 4 take a feature whose lowest level is 0 for a mistake."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def handle_api_versions(
    request: ApiVersionsRequest,
    exchange: Exchange,
    apis: Callable[[], Mapping[ApiKey, VersionRange]],
    features: Mapping[str, VersionRange],
    metadata: KRaftMetadataCache,
) -> ApiVersionsResponse:
    """List what this listener answers, and note which software asks."""
    version = exchange.version
    if version >= _SOFTWARE_SINCE:
        _note_software(request, exchange)
    levels, features_epoch = metadata.features()
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api, min_version=versions.lowest, max_version=versions.highest)
            for api, versions in apis().items()
        ],
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=supported.lowest, max_version=supported.highest
            )
            for name, supported in features.items()
            if supported.lowest > 0 or version >= _ZERO_MINIMUM_SINCE
        ],
        finalized_features_epoch=features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(levels.items())
            if level > 0 and name not in UNSERVED_FEATURES
        ],
    )


def fail_api_versions(
    request: ApiVersionsRequest, error: ApiError, version: int
) -> ApiVersionsResponse:
    """The answer without the list."""
    return ApiVersionsResponse(error_code=error.code)


def _note_software(request: ApiVersionsRequest, exchange: Exchange) -> None:
    name, version = request.client_software_name, request.client_software_version
    for text in (name, version):
        if not _SOFTWARE.fullmatch(text):
            raise InvalidRequest(
                f"{text!r} is no name or version of client software: letters, digits, '-' and '.'"
            )
    exchange.connection.client_software_name = name
    exchange.connection.client_software_version = version
