"""Consumers through random trouble: every record once, in order, whatever brokers do."""

from __future__ import annotations

from random import Random

import pytest

from millstream.client.consumer.starting_point import AtOffset
from tests.unit.client.consumer.consumer_world import ConsumerWorld


class RandomRun:
    """One seed: writers, leaders that move, brokers that stop, an application that dawdles."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ConsumerWorld(
            broker_count=3,
            prefetch_bytes=self.random.choice([200, 2_000, 1 << 20]),
            request_timeout=2.0,
        )
        leaders = [self.random.randint(1, 3) for _ in range(4)]
        self.partitions = self.world.brokers.add_topic("orders", leaders)
        self.written: dict[int, list[bytes]] = {each: [] for each in range(4)}
        self.seen: dict[int, list[bytes | None]] = {each: [] for each in range(4)}
        self.world.session.assign(self.partitions)

    def run(self, steps: int) -> None:
        trouble = [self.move, self.stop, self.start, self.fail, self.pause, self.seek_back]
        ordinary = [self.write, self.poll] * 2
        for _ in range(steps):
            self.random.choice([*ordinary, *trouble, self.lose_session])()
        self.settle()

    def write(self) -> None:
        partition = self.random.choice(self.partitions)
        log = self.world.brokers.logs[partition]
        topic = self.world.cluster.topics["orders"]
        values = [
            b"%d-%d" % (partition.partition, len(self.written[partition.partition]) + each)
            for each in range(self.random.randint(1, 4))
        ]
        log.append(*values, epoch=topic.epochs[partition.partition])
        self.written[partition.partition] += values

    def poll(self) -> None:
        count = self.random.choice([1, 3, 100])
        records = self.world.perform(self.world.session.poll(self.random.random(), count))
        for each in records:
            self.seen[each.partition].append(each.value)

    def move(self) -> None:
        topic = self.world.cluster.topics["orders"]
        index = self.random.randrange(4)
        topic.leaders[index] = self.random.randint(1, 3)
        topic.epochs[index] += 1

    def stop(self) -> None:
        if not self.world.cluster.down:
            self.world.cluster.stop(f"broker{self.random.randint(1, 3)}")

    def start(self) -> None:
        self.world.cluster.down.clear()

    def fail(self) -> None:
        log = self.world.brokers.logs[self.random.choice(self.partitions)]
        log.error_code = 0 if log.error_code else self.random.choice([3, 5, 6, 74, 75, 78])

    def pause(self) -> None:
        partition = self.random.choice(self.partitions)
        self.world.session.set_paused([partition], self.random.random() < 0.4)

    def seek_back(self) -> None:
        partition = self.random.choice(self.partitions)
        position = self.random.randint(0, len(self.seen[partition.partition]))
        self.world.session.seek(partition, AtOffset(position))
        del self.seen[partition.partition][position:]

    def lose_session(self) -> None:
        self.world.brokers.session_error = self.random.choice([70, 71])

    def settle(self) -> None:
        """End the trouble, and read to the end."""
        self.start()
        self.world.session.set_paused(self.partitions, False)
        for log in self.world.brokers.logs.values():
            log.error_code = 0
        for _ in range(200):
            if self.seen == self.written:
                break
            self.poll()


@pytest.mark.parametrize("seed", range(25))
def test_every_record_comes_once_and_in_order(seed: int) -> None:
    run = RandomRun(seed)

    run.run(120)

    assert run.seen == run.written
    assert run.world.session.buffer.byte_count == 0
