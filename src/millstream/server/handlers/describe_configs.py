"""DescribeConfigs 1-4: settings, where each comes from, and what it means.

Topics, brokers, the default of all brokers, loggers, metric subscriptions and groups. Version 3 has
types and documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.config_schema import ClientMetricsConfig
from millstream.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from millstream.metadata.configs import ResourceType
from millstream.metadata.topic_names import check_topic_name
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from millstream.server.broker_loggers import describe_loggers
from millstream.server.config_descriptions import ConfigSource, describe_declared

if TYPE_CHECKING:
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
    )
    from millstream.server.config_descriptions import ConfigDescriptions
    from millstream.server.exchange import Exchange


def handle_describe_configs(
    request: DescribeConfigsRequest,
    exchange: Exchange,
    node_id: int,
    metadata: KRaftMetadataCache,
    descriptions: ConfigDescriptions,
) -> DescribeConfigsResponse:
    """Describe each resource; each succeeds or fails for itself."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            found = _settings_of(resource, node_id, metadata, descriptions)
            result.configs = _reduced(found, resource, request)
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def fail_describe_configs(
    request: DescribeConfigsRequest, error: ApiError, version: int
) -> DescribeConfigsResponse:
    """Every resource gets the error."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _settings_of(
    resource: DescribeConfigsResource,
    node_id: int,
    metadata: KRaftMetadataCache,
    descriptions: ConfigDescriptions,
) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if metadata.topic(name) is None:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            return descriptions.topic(name)
        case ResourceType.BROKER:
            if not name:
                return descriptions.cluster_default()
            _require_this_broker(name, node_id)
            return descriptions.broker()
        case ResourceType.BROKER_LOGGER:
            _require_this_broker(name, node_id)
            return describe_loggers(with_synonyms=True)
        case ResourceType.CLIENT_METRICS:
            given = metadata.config(ResourceType.CLIENT_METRICS, _named(name))
            return describe_declared(ClientMetricsConfig, given, ConfigSource.CLIENT_METRICS)
        case ResourceType.GROUP:
            return descriptions.group(_named(name))
    raise InvalidRequest(f"resources of type {resource.resource_type} have no settings")


def _require_this_broker(name: str, node_id: int) -> None:
    if name != str(node_id):
        raise InvalidRequest(
            f"the settings of broker {name or '(none)'} were asked for at broker {node_id}: "
            "each broker describes its own"
        )


def _named(name: str) -> str:
    if not name:
        raise InvalidRequest("a resource of this type needs a name")
    return name


def _reduced(
    found: list[DescribeConfigsResourceResult],
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> list[DescribeConfigsResourceResult]:
    """Only the keys, and only the details, that were asked for; no key means all of them."""
    keys = resource.configuration_keys
    if keys:
        found = [each for each in found if each.name in keys]
    for each in found:
        if not request.include_synonyms:
            each.synonyms = []
        if not request.include_documentation:
            each.documentation = None
    return found
