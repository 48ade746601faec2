"""A consumer without threads: its session over fake brokers, its steps done in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from millstream.client.config import settings_from_kwargs
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.session import ConsumerSession
from millstream.client.consumer.steps import AwaitChange, AwaitResult, RunApart
from millstream.protocol.api import ApiKey
from millstream.types import TopicPartition
from tests.unit.client.consumer.fake_brokers import FakeBrokers
from tests.unit.client.scripted_cluster import ScriptedCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.consumer.steps import Steps
    from millstream.protocol.notation import VersionRange

T = TypeVar("T")

P0 = TopicPartition("orders", 0)


class ConsumerWorld:
    """Brokers, a session, and the time."""

    def __init__(
        self,
        *,
        broker_count: int = 1,
        versions: Mapping[ApiKey, VersionRange] | None = None,
        **settings: Any,
    ) -> None:
        if versions is not None:
            released = {api: api.released for api in ApiKey if api.released.highest >= 0}
            versions = {**released, **versions}
        self.cluster = ScriptedCluster(broker_count=broker_count, versions=versions)
        self.brokers = FakeBrokers(self.cluster)
        given = {
            "bootstrap_servers": "broker1:9092",
            "auto_offset_reset": "earliest",
            "fetch_max_wait": 0.5,
            **settings,
        }
        config = settings_from_kwargs(ConsumerConfig, given)
        self.session = ConsumerSession(config, clock=self.cluster.clock, selector=self.cluster)

    def perform(self, steps: Steps[T]) -> T:
        """Perform a call; while it waits, the runtime turns and time passes."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer, error = None, None
            try:
                if isinstance(step, AwaitChange):
                    self._wait(step)
                elif isinstance(step, AwaitResult):
                    self.cluster.run_until(self.session.runtime, step.waiter.done)
                    answer = step.waiter.result(0)
                elif isinstance(step, RunApart):
                    answer = step.function()
                else:
                    answer = step.function(*step.arguments)
            except BaseException as raised:
                error = raised

    def _wait(self, step: AwaitChange) -> None:
        end_ms = self.cluster.clock.monotonic_ms() + round((step.timeout_s or 60) * 1000)
        while not step.is_reached() and self.cluster.clock.monotonic_ms() < end_ms:
            self.session.runtime.run_once(max(1, end_ms - self.cluster.clock.monotonic_ms()))

    def run_for(self, ms: int) -> None:
        """Let the I/O side work without the application."""
        self.cluster.run_for(self.session.runtime, ms)

    def poll(self, timeout: float = 5.0, count: int = 500) -> list[Any]:
        """The values of the next records."""
        return [each.value for each in self.perform(self.session.poll(timeout, count))]

    def poll_until(self, wanted: int, timeout: float = 30.0) -> list[Any]:
        """Values until there are so many."""
        values: list[Any] = []
        end_ms = self.cluster.clock.monotonic_ms() + round(timeout * 1000)
        while len(values) < wanted and self.cluster.clock.monotonic_ms() < end_ms:
            values += self.poll(1.0)
        return values

    def position(self, partition: TopicPartition) -> int:
        return self.perform(self.session.position(partition, 30.0))

    def seek(self, partition: TopicPartition, start: StartingPoint) -> None:
        self.session.seek(partition, start)


def world_with(*values: bytes, **settings: object) -> ConsumerWorld:
    """One partition with one batch for each value, assigned."""
    world = ConsumerWorld(**settings)  # type: ignore[arg-type]  # by each test
    world.brokers.add_topic("orders")
    for value in values:
        world.brokers.logs[P0].append(value)
    world.session.assign([P0])
    return world
