"""DescribeUserScramCredentials 0: which users have SCRAM credentials, and of which kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.metadata.scram import describe_scram_credentials
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
    )
    from millstream.server.exchange import Exchange


def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, exchange: Exchange, metadata: KRaftMetadataCache
) -> DescribeUserScramCredentialsResponse:
    """The users asked for; without names, all of them."""
    return describe_scram_credentials(metadata.image.scram, request)


def fail_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, error: ApiError, version: int
) -> DescribeUserScramCredentialsResponse:
    """The answer without a list."""
    return DescribeUserScramCredentialsResponse(error_code=error.code, error_message=str(error))
