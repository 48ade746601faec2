"""Settings that change while the node runs: what the metadata says, on top of what was given.

`BrokerServer` has one. It gives each topic its settings, and tells the parts of the broker when the
broker's own have changed. A broker's setting is looked for in its own dynamic ones, then in the
cluster's, then in what the node was started with. `server start --override-dynamic` goes before all
of them: a dynamic setting that keeps everybody out cannot be taken back by a client.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.config import from_synonyms, parse
from millstream.errors import InvalidConfig
from millstream.metadata.configs import CLUSTER_DEFAULT, ConfigResource, ResourceType
from millstream.network.server.config import SocketServerConfig
from millstream.network.server.listener_limits import listener_limits
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import CleanerConfig, LogManagerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.metadata.configs import ConfigurationsImage
    from millstream.node.config import NodeConfig

_logger = logging.getLogger(__name__)


class DynamicConfig:
    """The settings that hold right now."""

    def __init__(self, config: NodeConfig) -> None:
        self._static = config
        self._node_name = str(config.process.node_id)
        self._broker: Mapping[str, str] = {}
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._by_topic: dict[str, LogConfig] = {}
        self.topics = config.topics
        """What a topic has that does not say otherwise."""
        self.logs = config.logs
        self.cleaner = config.cleaner
        self.network = config.network
        if config.dynamic_overrides:
            listed = ", ".join(f"{key}={value}" for key, value in config.dynamic_overrides.items())
            _logger.warning("dynamic settings overridden while this process runs: %s", listed)
            self._broker = config.dynamic_overrides
            self._take(self._broker)

    def for_topic(self, topic: str) -> LogConfig:
        """A topic's settings. May be called on any thread while logs are loaded."""
        overrides = self._overrides.get(topic)
        if not overrides:
            return self.topics
        known = self._by_topic.get(topic)
        if known is None:
            known = self._by_topic[topic] = self._parsed(topic, overrides)
        return known

    def load(self, image: ConfigurationsImage) -> None:
        """Take everything from an image."""
        self._overrides = {
            resource.name: settings
            for resource, settings in image.by_resource.items()
            if resource.type == ResourceType.TOPIC
        }
        self._by_topic.clear()
        self.update_broker(image)

    def update_topic(self, topic: str, image: ConfigurationsImage) -> LogConfig:
        """A topic's settings have changed; what they are now."""
        self._overrides[topic] = image.of(ResourceType.TOPIC, topic)
        self._by_topic.pop(topic, None)
        if not self._overrides[topic]:
            del self._overrides[topic]
        return self.for_topic(topic)

    def update_broker(self, image: ConfigurationsImage) -> bool:
        """Take the broker's settings; whether they are others than before."""
        own = ConfigResource(ResourceType.BROKER, self._node_name)
        dynamic = {
            **image.of(*CLUSTER_DEFAULT),
            **image.of(*own),
            **self._static.dynamic_overrides,
        }
        if dynamic == self._broker:
            return False
        try:
            self._take(dynamic)
        except InvalidConfig as error:
            # The controller checks one setting at a time; together they may be wrong.
            _logger.warning("the broker's dynamic settings are not used: %s", error)
            return False
        self._broker = dynamic
        self._by_topic.clear()
        return True

    def _take(self, dynamic: Mapping[str, str]) -> None:
        static = self._static
        texts = {**static.given, **dynamic}
        topics = from_synonyms(LogConfig, texts)
        logs = _changed(static.logs, LogManagerConfig, dynamic)
        cleaner = _changed(static.cleaner, CleanerConfig, dynamic)
        network = _changed(static.network, SocketServerConfig, dynamic)
        limits = listener_limits(texts)
        self.topics = topics
        self.logs = replace(logs, log_dirs=static.logs.log_dirs)
        self.cleaner = cleaner
        self.network = replace(
            network,
            listeners=static.network.listeners,
            advertised_listeners=static.network.advertised_listeners,
            listener_limits=limits,
        )

    def _parsed(self, topic: str, overrides: Mapping[str, str]) -> LogConfig:
        try:
            return parse(LogConfig, overrides, defaults=self.topics, ignore_unknown=True)
        except InvalidConfig as error:
            _logger.warning("the settings of topic %s are not used: %s", topic, error)
            return self.topics


def _changed(static: Any, settings: type[Any], dynamic: Mapping[str, str]) -> Any:
    return parse(settings, dynamic, defaults=static, ignore_unknown=True)
