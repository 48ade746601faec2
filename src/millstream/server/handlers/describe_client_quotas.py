"""DescribeClientQuotas 0-1: the quotas that the metadata have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.metadata.client_quotas import describe_client_quotas
from millstream.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
    from millstream.server.exchange import Exchange


def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, exchange: Exchange, metadata: KRaftMetadataCache
) -> DescribeClientQuotasResponse:
    """The quotas of the entities asked for."""
    return describe_client_quotas(metadata.image.client_quotas, request)


def fail_describe_client_quotas(
    request: DescribeClientQuotasRequest, error: ApiError, version: int
) -> DescribeClientQuotasResponse:
    """The answer without a list."""
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=str(error), entries=None
    )
