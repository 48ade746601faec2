"""Settings of topics, brokers, groups and metrics subscriptions: read and change.

Values are text, as brokers have them. A setting's source says whether it was set here, elsewhere,
or is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.client.admin.operations import Operations, error_or
from millstream.client.admin.topics import setting_text
from millstream.client.router import ANY, CONTROLLER, Node
from millstream.errors import InvalidArgument, MillstreamError
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.router import Target
    from millstream.protocol.messages.describe_configs import DescribeConfigsResourceResult

ResourceType: TypeAlias = Literal[
    "topic", "broker", "broker_logger", "client_metrics", "group", "unknown"
]
_TYPES: Final[Mapping[ResourceType, int]] = {
    "topic": 2,
    "broker": 4,
    "broker_logger": 8,
    "client_metrics": 16,
    "group": 32,
}
_TYPE_NAMES: Final[Mapping[int, ResourceType]] = {code: name for name, code in _TYPES.items()}
_SOURCES: Final = (
    "unknown",
    "topic",
    "broker",
    "cluster",
    "static",
    "default",
    "broker_logger",
    "client_metrics",
    "group",
)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Something that has settings. A broker's name is its id; empty means all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting."""

    name: str
    value: str | None
    """None if it is secret."""
    source: str
    """Where the value comes from: topic, broker, cluster, static, default and so on."""
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, str], ...] = ()
    """All values that could apply, the one that does first: name, value, source."""
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source == "default"


class AlterOperation(Enum):
    """What a change does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Append:
    """Add items to a setting that is a list."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subtract:
    """Take items out of a setting that is a list."""

    values: tuple[str, ...]


ConfigChange: TypeAlias = Append | Subtract | str | int | float | bool | None
"""A new value; None takes the setting back to what it would be by default."""


class ConfigOperations(Operations):
    """Operations on settings."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[ConfigResource, Mapping[str, ConfigEntry]]:
        """The settings of resources, all or those named."""
        keys = None if names is None else list(names)

        def request(items: Sequence[ConfigResource]) -> DescribeConfigsRequest:
            listed = [
                DescribeConfigsResource(
                    resource_type=_type_code(each),
                    resource_name=self._wire_resource(each),
                    configuration_keys=keys,
                )
                for each in items
            ]
            return DescribeConfigsRequest(
                resources=listed,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        def read(
            answer: DescribeConfigsResponse, _items: Sequence[ConfigResource]
        ) -> dict[ConfigResource, Mapping[str, ConfigEntry] | MillstreamError]:
            return {
                self._resource(each.resource_type, each.resource_name): error_or(
                    {entry.name: _entry(entry) for entry in each.configs},
                    each.error_code,
                    each.error_message,
                )
                for each in answer.results
            }

        return await self._each(resources, _config_target, request, read, timeout)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change some settings of resources and leave the others as they are."""

        def request(items: Sequence[ConfigResource]) -> IncrementalAlterConfigsRequest:
            listed = [
                AlterConfigsResource(
                    resource_type=_type_code(each),
                    resource_name=self._wire_resource(each),
                    configs=[_alterable(name, change) for name, change in changes[each].items()],
                )
                for each in items
            ]
            return IncrementalAlterConfigsRequest(resources=listed, validate_only=validate_only)

        def read(
            answer: IncrementalAlterConfigsResponse, _items: Sequence[ConfigResource]
        ) -> dict[ConfigResource, MillstreamError | None]:
            return {
                self._resource(each.resource_type, each.resource_name): error_or(
                    None, each.error_code, each.error_message
                )
                for each in answer.responses
            }

        return await self._each(changes, _alter_target, request, read, timeout)

    async def list_config_resources(
        self,
        types: Iterable[ResourceType] = (),
        *,
        timeout: float | None = None,
    ) -> list[ConfigResource]:
        """The resources that have settings: of these types, or of all."""
        wanted = [_TYPES[each] for each in types]

        def build(version: int) -> ListConfigResourcesRequest:
            # The first version lists client metrics and nothing else.
            return ListConfigResourcesRequest(resource_types=wanted if version else [])

        answer = await self._call(
            VersionedRequest(ApiKey.LIST_CONFIG_RESOURCES, build),
            ANY,
            ListConfigResourcesResponse,
            timeout,
        )
        found = [
            self._visible(each.resource_type, each.resource_name)
            for each in answer.config_resources
        ]
        visible = [each for each in found if each is not None]
        return sorted(visible, key=lambda each: (each.type, each.name))

    async def list_client_metrics_resources(self, *, timeout: float | None = None) -> list[str]:
        """The names of the subscriptions to clients' metrics."""
        found = await self.list_config_resources(["client_metrics"], timeout=timeout)
        return [each.name for each in found if each.type == "client_metrics"]

    def _wire_resource(self, resource: ConfigResource) -> str:
        is_ours = resource.type in ("topic", "group")
        return self._names.to_wire(resource.name) if is_ours else resource.name

    def _resource(self, code: int, wire_name: str) -> ConfigResource:
        found = self._visible(code, wire_name)
        return (
            ConfigResource(_TYPE_NAMES.get(code, "unknown"), wire_name) if found is None else found
        )

    def _visible(self, code: int, wire_name: str) -> ConfigResource | None:
        kind = _TYPE_NAMES.get(code, "unknown")
        if kind not in ("topic", "group"):
            return ConfigResource(kind, wire_name)
        name = self._names.from_wire(wire_name)
        return None if name is None else ConfigResource(kind, name)


def _type_code(resource: ConfigResource) -> int:
    if resource.type not in _TYPES:
        raise InvalidArgument(f"{resource.type!r} is no resource; use one of {', '.join(_TYPES)}")
    return _TYPES[resource.type]


def _broker_target(resource: ConfigResource) -> Target | None:
    if resource.type not in ("broker", "broker_logger") or not resource.name:
        return None
    if not resource.name.isdecimal():
        raise InvalidArgument(f"broker {resource.name!r}: a broker's name is its id, a number")
    return Node(int(resource.name))


def _config_target(resource: ConfigResource) -> Target:
    return _broker_target(resource) or ANY


def _alter_target(resource: ConfigResource) -> Target:
    return _broker_target(resource) or CONTROLLER


def _alterable(name: str, change: ConfigChange) -> AlterableConfig:
    operation, value = AlterOperation.SET, change
    if change is None:
        operation = AlterOperation.DELETE
    elif isinstance(change, Append):
        operation, value = AlterOperation.APPEND, ",".join(change.values)
    elif isinstance(change, Subtract):
        operation, value = AlterOperation.SUBTRACT, ",".join(change.values)
    return AlterableConfig(name=name, config_operation=operation.value, value=setting_text(value))


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        _source(told.config_source),
        told.read_only,
        told.is_sensitive,
        tuple((each.name, each.value, _source(each.source)) for each in told.synonyms),
        told.documentation,
    )


def _source(code: int) -> str:
    return _SOURCES[code] if 0 <= code < len(_SOURCES) else "unknown"
