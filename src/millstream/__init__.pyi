from millstream.client.producer.async_producer import AsyncProducer as AsyncProducer
from millstream.client.producer.delivery import Delivery as Delivery
from millstream.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
from millstream.client.producer.producer import Producer as Producer
from millstream.client.producer.record import ProducerRecord as ProducerRecord
from millstream.client.producer.record import RecordMetadata as RecordMetadata
from millstream.types import TopicPartition as TopicPartition

__version__: str
