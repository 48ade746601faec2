"""`KafkaApis`: what a broker answers on its listeners.

`node` makes one and gives `handle` to the network. The table below says which handler serves which
API; what is not in it is not listed by ApiVersions. Produce and Fetch have a way of their own,
which copies no records and makes as few objects as it can.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from millstream.errors import DecodeError, UnknownServerError
from millstream.metadata.answers import MetadataAnswers
from millstream.protocol.api import ApiKey
from millstream.protocol.notation import VersionRange
from millstream.server.absent_features import absent_feature_handlers
from millstream.server.api_server import ApiServer, Handler
from millstream.server.auto_topic_creation import AutoTopicCreationManager
from millstream.server.config_descriptions import ConfigDescriptions
from millstream.server.forwarding import (
    FORWARDED_BY_BROKERS,
    fail_forwarded,
    forward,
    limited_by_controller,
)
from millstream.server.group_apis import group_handlers
from millstream.server.handlers.alter_replica_log_dirs import (
    fail_alter_replica_log_dirs,
    handle_alter_replica_log_dirs,
)
from millstream.server.handlers.api_versions import fail_api_versions, handle_api_versions
from millstream.server.handlers.delete_records import fail_delete_records, handle_delete_records
from millstream.server.handlers.describe_client_quotas import (
    fail_describe_client_quotas,
    handle_describe_client_quotas,
)
from millstream.server.handlers.describe_cluster import (
    fail_describe_cluster,
    handle_describe_cluster,
)
from millstream.server.handlers.describe_configs import (
    fail_describe_configs,
    handle_describe_configs,
)
from millstream.server.handlers.describe_log_dirs import (
    fail_describe_log_dirs,
    handle_describe_log_dirs,
)
from millstream.server.handlers.describe_producers import (
    fail_describe_producers,
    handle_describe_producers,
)
from millstream.server.handlers.describe_topic_partitions import (
    fail_describe_topic_partitions,
    handle_describe_topic_partitions,
)
from millstream.server.handlers.describe_user_scram_credentials import (
    fail_describe_user_scram_credentials,
    handle_describe_user_scram_credentials,
)
from millstream.server.handlers.fetch import FetchHandler
from millstream.server.handlers.find_coordinator import (
    fail_find_coordinator,
    handle_find_coordinator,
)
from millstream.server.handlers.get_telemetry_subscriptions import (
    fail_get_telemetry_subscriptions,
    handle_get_telemetry_subscriptions,
)
from millstream.server.handlers.incremental_alter_configs import handle_incremental_alter_configs
from millstream.server.handlers.list_config_resources import (
    fail_list_config_resources,
    handle_list_config_resources,
)
from millstream.server.handlers.list_offsets import fail_list_offsets, handle_list_offsets
from millstream.server.handlers.metadata import fail_metadata, handle_metadata
from millstream.server.handlers.offset_for_leader_epoch import (
    fail_offset_for_leader_epoch,
    handle_offset_for_leader_epoch,
)
from millstream.server.handlers.produce import ProduceHandler
from millstream.server.handlers.push_telemetry import fail_push_telemetry, handle_push_telemetry
from millstream.server.replica_moves import ReplicaMoves
from millstream.server.share_apis import share_handlers
from millstream.server.telemetry import ClientMetricsManager
from millstream.server.transaction_apis import transaction_handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.network.server.request import Outcome, Request, Response
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.config import ServerConfig
    from millstream.server.coordinators import Coordinators
    from millstream.server.ports import BrokerSettings, ClientTelemetrySink, ControllerChannel
    from millstream.storage.log.config import LogConfig
    from millstream.storage.manager.log_manager import LogManager


_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)


class KafkaApis(ApiServer):
    """The APIs of a broker."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        config: ServerConfig,
        settings: BrokerSettings,
        topic_defaults: Callable[[], LogConfig],
        metadata: KRaftMetadataCache,
        replicas: ReplicaManager,
        logs: LogManager,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        features: Mapping[str, VersionRange],
        clock: Clock,
        random: Random,
        defer: Callable[[Callable[[], None]], object],
        coordinators: Coordinators,
        telemetry: ClientTelemetrySink | None = None,
        controller_versions: Callable[[], Mapping[int, VersionRange]] = dict,
    ) -> None:
        """Touches nothing, starts nothing. `defer` is the loop's `call_soon`.

        Without a receiver of `telemetry` clients are not told that they could push metrics.
        `controller_versions` are what another node takes that decides; empty while unknown.
        """
        self.fast_path = replicas.fast_path
        """Answers ordinary requests before `handle` is asked; None where it was not built."""
        self._produce = ProduceHandler(replicas, metadata, clock)
        self._fetch = FetchHandler(replicas, metadata, clock)
        auto_creation = AutoTopicCreationManager(controller, config, clock)
        descriptions = ConfigDescriptions(node_id, settings, metadata, topic_defaults)
        self.moves = ReplicaMoves(node_id, replicas, logs, controller, broker_epoch, clock, defer)
        """Moves between log directories; the owner resumes those of the last process."""
        handlers = {
            **_data_handlers(replicas, self.moves),
            **_metadata_handlers(metadata, auto_creation, config, cluster_id, random),
            **_config_handlers(node_id, metadata, descriptions, controller, clock),
            **_coordinator_handlers(coordinators, metadata, clock),
            **_client_handlers(metadata),
            **absent_feature_handlers(),
        }
        forwarded = Handler(partial(forward, controller=controller, clock=clock), fail_forwarded)
        handlers |= dict.fromkeys((*FORWARDED_BY_BROKERS, ApiKey.ALTER_CONFIGS), forwarded)
        if telemetry is not None:
            clients = ClientMetricsManager(metadata)
            handlers |= _telemetry_handlers(clients, telemetry, config, clock, random)
        self.apis: Mapping[ApiKey, VersionRange] = MappingProxyType(_advertised(handlers))
        """What ApiVersions lists, exactly."""
        handlers[ApiKey.API_VERSIONS] = Handler(
            partial(
                handle_api_versions,
                apis=lambda: limited_by_controller(self.apis, controller_versions()),
                features=features,
                metadata=metadata,
            ),
            fail_api_versions,
        )
        super().__init__(handlers, clock)

    def handle(self, request: Request) -> Response | Outcome:
        """Answer a request, now or later. Never blocks."""
        api_key = request.api_key
        if api_key == _PRODUCE:
            hot: ProduceHandler | FetchHandler = self._produce
        elif api_key == _FETCH:
            hot = self._fetch
        else:
            return super().handle(request)
        try:
            return hot.handle(request)
        except DecodeError:
            raise
        except Exception as error:
            self._note_failure(request, error)
            return hot.fail(request, UnknownServerError(f"the broker failed to answer: {error!r}"))

    def refuse(self, request: Request, error: ApiError) -> Response | Outcome:
        """Answer that all of a request failed, without doing anything of it."""
        if request.api_key == _PRODUCE:
            return self._produce.fail(request, error)
        if request.api_key == _FETCH:
            return self._fetch.fail(request, error)
        return super().refuse(request, error)


def _advertised(handlers: Mapping[ApiKey, Handler]) -> dict[ApiKey, VersionRange]:
    """The APIs that are built, in order of key.

    Produce is listed from version 0 although 0 to 2 are refused: librdkafka takes a higher minimum
    for a broker that cannot decompress.
    """
    served = sorted({*handlers, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS})
    versions = {api: api.released for api in served}
    versions[ApiKey.PRODUCE] = VersionRange(0, ApiKey.PRODUCE.released.highest)
    return versions


def _data_handlers(replicas: ReplicaManager, moves: ReplicaMoves) -> dict[ApiKey, Handler]:
    """Records and where they are."""
    return {
        ApiKey.LIST_OFFSETS: Handler(
            partial(handle_list_offsets, replicas=replicas), fail_list_offsets
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(
            partial(handle_offset_for_leader_epoch, replicas=replicas),
            fail_offset_for_leader_epoch,
        ),
        ApiKey.DELETE_RECORDS: Handler(
            partial(handle_delete_records, replicas=replicas), fail_delete_records
        ),
        ApiKey.DESCRIBE_PRODUCERS: Handler(
            partial(handle_describe_producers, replicas=replicas), fail_describe_producers
        ),
        ApiKey.DESCRIBE_LOG_DIRS: Handler(
            partial(handle_describe_log_dirs, replicas=replicas), fail_describe_log_dirs
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(
            partial(handle_alter_replica_log_dirs, moves=moves), fail_alter_replica_log_dirs
        ),
    }


def _coordinator_handlers(
    coordinators: Coordinators, metadata: KRaftMetadataCache, clock: Clock
) -> dict[ApiKey, Handler]:
    """Groups and transactions."""
    return {
        ApiKey.FIND_COORDINATOR: Handler(
            partial(handle_find_coordinator, topics=coordinators.topics, metadata=metadata),
            fail_find_coordinator,
        ),
        **group_handlers(coordinators.groups),
        **share_handlers(coordinators.shares, metadata),
        **transaction_handlers(
            coordinators.transactions,
            coordinators.producer_ids,
            coordinators.markers,
            coordinators.topics,
            metadata,
        ),
    }


def _metadata_handlers(
    metadata: KRaftMetadataCache,
    auto_creation: AutoTopicCreationManager,
    config: ServerConfig,
    cluster_id: str,
    random: Random,
) -> dict[ApiKey, Handler]:
    """Brokers, topics and partitions."""
    return {
        ApiKey.METADATA: Handler(
            partial(
                handle_metadata,
                metadata=metadata,
                auto_creation=auto_creation,
                answers=MetadataAnswers(metadata),
                cluster_id=cluster_id,
                random=random,
            ),
            fail_metadata,
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(
            partial(
                handle_describe_topic_partitions,
                metadata=metadata,
                partition_limit=config.request_partition_size_limit,
            ),
            fail_describe_topic_partitions,
        ),
        ApiKey.DESCRIBE_CLUSTER: Handler(
            partial(
                handle_describe_cluster, metadata=metadata, cluster_id=cluster_id, random=random
            ),
            fail_describe_cluster,
        ),
    }


def _config_handlers(
    node_id: int,
    metadata: KRaftMetadataCache,
    descriptions: ConfigDescriptions,
    controller: ControllerChannel,
    clock: Clock,
) -> dict[ApiKey, Handler]:
    """Settings."""
    return {
        ApiKey.DESCRIBE_CONFIGS: Handler(
            partial(
                handle_describe_configs,
                node_id=node_id,
                metadata=metadata,
                descriptions=descriptions,
            ),
            fail_describe_configs,
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(
            partial(
                handle_incremental_alter_configs,
                node_id=node_id,
                controller=controller,
                clock=clock,
            ),
            fail_forwarded,
        ),
        ApiKey.LIST_CONFIG_RESOURCES: Handler(
            partial(handle_list_config_resources, metadata=metadata), fail_list_config_resources
        ),
    }


def _client_handlers(metadata: KRaftMetadataCache) -> dict[ApiKey, Handler]:
    """What the metadata have about clients: nothing, until somebody may change it."""
    return {
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(
            partial(handle_describe_client_quotas, metadata=metadata), fail_describe_client_quotas
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(
            partial(handle_describe_user_scram_credentials, metadata=metadata),
            fail_describe_user_scram_credentials,
        ),
    }


def _telemetry_handlers(
    clients: ClientMetricsManager,
    telemetry: ClientTelemetrySink,
    config: ServerConfig,
    clock: Clock,
    random: Random,
) -> dict[ApiKey, Handler]:
    """Metrics that clients push."""
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Handler(
            partial(
                handle_get_telemetry_subscriptions,
                clients=clients,
                telemetry_max_bytes=config.telemetry_max_bytes,
                clock=clock,
                random=random,
            ),
            fail_get_telemetry_subscriptions,
        ),
        ApiKey.PUSH_TELEMETRY: Handler(
            partial(
                handle_push_telemetry,
                clients=clients,
                sink=telemetry,
                telemetry_max_bytes=config.telemetry_max_bytes,
                clock=clock,
            ),
            fail_push_telemetry,
        ),
    }
