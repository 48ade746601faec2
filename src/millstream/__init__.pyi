from millstream.client.admin.admin import Admin as Admin
from millstream.client.admin.async_admin import AsyncAdmin as AsyncAdmin
from millstream.client.admin.topics import NewTopic as NewTopic
from millstream.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
from millstream.client.consumer.consumer import Consumer as Consumer
from millstream.client.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
from millstream.client.consumer.listeners import RebalanceListener as RebalanceListener
from millstream.client.consumer.read_topic import AsyncTopicReader as AsyncTopicReader
from millstream.client.consumer.read_topic import TopicReader as TopicReader
from millstream.client.consumer.read_topic import async_read_topic as async_read_topic
from millstream.client.consumer.read_topic import read_topic as read_topic
from millstream.client.groups import ConsumerGroupMetadata as ConsumerGroupMetadata
from millstream.client.groups import OffsetAndMetadata as OffsetAndMetadata
from millstream.client.metrics import ClientMetrics as ClientMetrics
from millstream.client.metrics import ConsumerMetrics as ConsumerMetrics
from millstream.client.metrics import ProducerMetrics as ProducerMetrics
from millstream.client.metrics import ShareConsumerMetrics as ShareConsumerMetrics
from millstream.client.producer.async_producer import AsyncProducer as AsyncProducer
from millstream.client.producer.delivery import Delivery as Delivery
from millstream.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
from millstream.client.producer.producer import Producer as Producer
from millstream.client.producer.record import ProducerRecord as ProducerRecord
from millstream.client.producer.record import RecordMetadata as RecordMetadata
from millstream.client.retrying.async_consumer import AsyncRetryingConsumer as AsyncRetryingConsumer
from millstream.client.retrying.attempt import Attempt as Attempt
from millstream.client.retrying.consumer import RetryingConsumer as RetryingConsumer
from millstream.client.share_consumer.acknowledgements import AcknowledgeType as AcknowledgeType
from millstream.client.share_consumer.async_share_consumer import (
    AsyncShareConsumer as AsyncShareConsumer,
)
from millstream.client.share_consumer.share_consumer import ShareConsumer as ShareConsumer
from millstream.client.share_consumer.share_record import ShareRecord as ShareRecord

# Each lists its names in __all__, which not every type checker follows through `millstream.errors`.
from millstream.errors import *
from millstream.errors.client import *
from millstream.errors.cluster import *
from millstream.errors.groups import *
from millstream.errors.partitions import *
from millstream.errors.pipelines import *
from millstream.errors.security import *
from millstream.errors.sinks import *
from millstream.errors.transactions import *
from millstream.records.kernel import ConsumerRecord as ConsumerRecord
from millstream.testing.cluster import EmbeddedCluster as EmbeddedCluster
from millstream.testing.embedded import EmbeddedBroker as EmbeddedBroker
from millstream.types import TopicPartition as TopicPartition

__all__: list[str]
__version__: str
