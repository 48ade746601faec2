"""ListConfigResources 0-1: what has settings. Version 0 lists metric subscriptions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import UnsupportedVersion
from millstream.metadata.configs import ResourceType
from millstream.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.list_config_resources import ListConfigResourcesRequest
    from millstream.server.exchange import Exchange

_LISTED: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle_list_config_resources(
    request: ListConfigResourcesRequest, exchange: Exchange, metadata: KRaftMetadataCache
) -> ListConfigResourcesResponse:
    """The resources of the types asked for; without types, of all."""
    types: list[int] = [ResourceType.CLIENT_METRICS]
    if exchange.version > 0:
        types = request.resource_types or [*_LISTED]
    unknown = [each for each in types if each not in _LISTED]
    if unknown:
        raise UnsupportedVersion(f"resource types {unknown} are not known")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in dict.fromkeys(types)
            for name in _names(resource_type, metadata)
        ]
    )


def fail_list_config_resources(
    request: ListConfigResourcesRequest, error: ApiError, version: int
) -> ListConfigResourcesResponse:
    """The answer without a list."""
    return ListConfigResourcesResponse(error_code=error.code)


def _names(resource_type: int, metadata: KRaftMetadataCache) -> list[str]:
    if resource_type == ResourceType.TOPIC:
        return metadata.topic_names()
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in metadata.alive_broker_ids()]
    by_resource = metadata.image.configs.by_resource
    return sorted(each.name for each in by_resource if each.type == resource_type)
