"""IncrementalAlterConfigs 0-1: set, unset, append to and subtract from single settings.

The controller decides, except about the levels of loggers, which are this broker's own business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError, InvalidRequest
from millstream.metadata.configs import ResourceType
from millstream.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.server.broker_loggers import alter_loggers

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.protocol.messages.incremental_alter_configs import AlterConfigsResource
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel


def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest,
    exchange: Exchange,
    node_id: int,
    controller: ControllerChannel,
    clock: Clock,
) -> IncrementalAlterConfigsResponse | None:
    """Change loggers here, and let the controller change the rest."""
    changed = [
        _alter_loggers(each, node_id, validate_only=request.validate_only)
        for each in request.resources
        if each.resource_type == ResourceType.BROKER_LOGGER
    ]
    others = [
        each for each in request.resources if each.resource_type != ResourceType.BROKER_LOGGER
    ]
    if not others:
        return IncrementalAlterConfigsResponse(responses=changed)

    def answered(response: Message) -> None:
        assert isinstance(response, IncrementalAlterConfigsResponse)
        response.responses = [*changed, *response.responses]
        exchange.answer(response)

    forwarded = IncrementalAlterConfigsRequest(
        resources=others, validate_only=request.validate_only
    )
    controller.submit(forwarded, exchange.context(clock), answered)
    return None


def _alter_loggers(
    resource: AlterConfigsResource, node_id: int, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        if resource.resource_name != str(node_id):
            raise InvalidRequest(
                f"loggers of broker {resource.resource_name!r} are changed there, not at {node_id}"
            )
        alter_loggers(resource.configs, validate_only=validate_only)
    except ApiError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
