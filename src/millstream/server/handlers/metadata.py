"""Metadata 0-13: brokers, topics, partitions and their leaders.

Version 0 asks for all topics with an empty list, later ones with null. 4 can forbid auto-creation,
8 asks what is allowed, 10 gives topic ids, 12 asks by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidRequest, InvalidTopic
from millstream.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from millstream.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from millstream.server.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from millstream.errors import ApiError
    from millstream.metadata.answers import MetadataAnswers
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.message import Message
    from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from millstream.server.auto_topic_creation import AutoTopicCreationManager
    from millstream.server.exchange import Exchange

_BY_ID_SINCE: Final = 12


def handle_metadata(
    request: MetadataRequest,
    exchange: Exchange,
    metadata: KRaftMetadataCache,
    auto_creation: AutoTopicCreationManager,
    answers: MetadataAnswers,
    cluster_id: str,
    random: Random,
) -> Message:
    """Describe what is asked for; topics that do not exist may come into being by it."""
    asked = exchange.request
    key = (exchange.listener, exchange.version, bytes(asked.buffer[asked.body : asked.end]))
    kept = answers.find(key)
    if kept is not None:
        return kept
    version = exchange.version
    topics, missing = request.topics, False
    if topics is None or (version == 0 and not topics):
        described = metadata.metadata_topics(metadata.topic_names(), exchange.listener, version)
    else:
        _check_ids(topics, version)
        described, missing = _describe(request, topics, exchange, metadata, auto_creation)
    response = MetadataResponse(
        brokers=metadata.metadata_brokers(exchange.listener),
        cluster_id=cluster_id,
        controller_id=metadata.random_alive_broker_id(random),
        topics=described,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in described:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    # A request for a topic that does not exist is handled each time: it may create the topic.
    return response if missing else answers.keep(key, response)


def fail_metadata(request: MetadataRequest, error: ApiError, version: int) -> MetadataResponse:
    """Every topic gets the error, and version 13 says it of the whole."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics or ()
        ],
    )


def _check_ids(topics: Sequence[MetadataRequestTopic], version: int) -> None:
    for topic in topics:
        if version < _BY_ID_SINCE and (topic.name is None or topic.topic_id != Uuid.ZERO):
            raise InvalidRequest(f"Metadata {version} asks for topics by name, not by id")
        if topic.name is None and topic.topic_id == Uuid.ZERO:
            raise InvalidRequest("a topic is asked for by its name or by its id; neither is given")


def _describe(
    request: MetadataRequest,
    topics: Sequence[MetadataRequestTopic],
    exchange: Exchange,
    metadata: KRaftMetadataCache,
    auto_creation: AutoTopicCreationManager,
) -> tuple[list[MetadataResponseTopic], bool]:
    """The topics, and whether some that were asked for by name do not exist."""
    version, listener = exchange.version, exchange.listener
    ids = [topic.topic_id for topic in topics if topic.topic_id != Uuid.ZERO]
    names = dict.fromkeys(
        topic.name for topic in topics if topic.name is not None and topic.topic_id == Uuid.ZERO
    )
    described = metadata.metadata_topics(names, listener, version)
    missing = [name for name in names if metadata.topic(name) is None]
    described += [_missing(name, metadata) for name in missing]
    described += metadata.metadata_topics_by_id(dict.fromkeys(ids), listener, version)
    may_create = request.allow_auto_topic_creation and auto_creation.is_enabled
    if missing and may_create:
        creatable = [name for name in missing if _is_creatable(name)]
        auto_creation.create(creatable, exchange)
    return described, bool(missing)


def _missing(name: str, metadata: KRaftMetadataCache) -> MetadataResponseTopic:
    described = metadata.unknown_topic(name)
    if not _is_legal(name):
        described.error_code = InvalidTopic.code
    return described


def _is_creatable(name: str) -> bool:
    """Internal topics come into being with the coordinators that write them."""
    return _is_legal(name) and name not in INTERNAL_TOPICS


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True
