"""What must hold after every turn of every node, against the one true history of the metadata.

The history is kept on the side: who led which epoch, what was committed, which image stands at
which offset. A violation is an AssertionError that names the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.metadata.image import EMPTY_IMAGE
from millstream.raft.batches import walk_batches
from millstream.raft.leader_state import Leader

if TYPE_CHECKING:
    from millstream.metadata.image import MetadataImage
    from millstream.node.node import Node
    from millstream.node.shared_server import SharedServer
    from millstream.testing.simulation import World

_READ_BYTES: Final = 1 << 20
_IMAGES_KEPT: Final = 500


@dataclass
class _Seen:
    """What was seen of one process of a node last."""

    node: Node
    state: object = None
    epoch: int = -1
    high_watermark: int = 0
    image: MetadataImage = EMPTY_IMAGE
    leader_id: int | None = None


class History:
    """The one true history, as far as it was seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[int, _Seen] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._images: dict[int, MetadataImage] = {}
        self._committed_by: dict[int, int] = {}
        """Epoch to how far its leader has committed."""
        self._batches: dict[int, bytes] = {}
        """Offset to the committed batch that begins there."""
        self._fallen: dict[int, int] = {}
        """Broker to its epoch when its process was killed."""
        self.leaders: dict[int, int] = {}
        self.departures = 0
        """How often a broker was fenced or registered anew."""
        self.newest: MetadataImage = EMPTY_IMAGE
        """The committed metadata, as far as any node knows."""

    def check(self, node_id: int, node: Node | None) -> None:
        """After a turn of a node."""
        if node is None or node.shared is None:
            return
        seen = self._seen.get(node_id)
        if seen is None or seen.node is not node:
            seen = self._seen[node_id] = _Seen(node)
        shared = node.shared
        core = shared.driver.core
        state = core.state
        if state is not seen.state:
            self._check_state(node_id, seen, shared)
        high_watermark = core.outline.high_watermark
        if high_watermark != seen.high_watermark and shared.driver.obstacle is None:
            self._check_committed(node_id, seen, shared, high_watermark)
        if isinstance(state, Leader) and state.high_watermark is not None:
            self._committed_by[state.epoch] = state.high_watermark
        image = shared.loader.image
        if image is not seen.image:
            self._check_image(node_id, seen, image)

    def process_killed(self, node_id: int, node: Node | None) -> None:
        """A broker is about to lose its process without a farewell."""
        if node is not None and node.broker is not None and node.broker.broker_epoch >= 0:
            self._fallen[node_id] = node.broker.broker_epoch

    # Raft.

    def _check_state(self, node_id: int, seen: _Seen, shared: SharedServer) -> None:
        core = shared.driver.core
        state = seen.state = core.state
        assert core.epoch >= seen.epoch, f"node {node_id}: the epoch went back"
        if (core.epoch, core.leader_id) != (seen.epoch, seen.leader_id):
            self._world.note(f"node{node_id}: {state.ROLE.value} in epoch {core.epoch}")
        seen.epoch, seen.leader_id = core.epoch, core.leader_id
        if state.voted_key is not None:
            vote = self._votes.setdefault((node_id, core.epoch), state.voted_key.id)
            assert vote == state.voted_key.id, f"node {node_id} voted twice in epoch {core.epoch}"
            if shared.driver.obstacle is None:
                stored = shared.driver._store.read()
                is_stored = stored is not None and stored.voted_key is not None
                assert is_stored, f"node {node_id} has voted and would forget it"
        if isinstance(state, Leader):
            elected = self.leaders.setdefault(core.epoch, node_id)
            assert elected == node_id, f"{elected} and {node_id} both lead epoch {core.epoch}"
            older = max((end for e, end in self._committed_by.items() if e < core.epoch), default=0)
            end = core.outline.end_offset
            assert older <= end, f"leader {node_id} lacks committed records: {end} < {older}"

    def _check_committed(
        self, node_id: int, seen: _Seen, shared: SharedServer, high_watermark: int
    ) -> None:
        before = seen.high_watermark
        assert high_watermark > before, f"node {node_id}: the high watermark went back"
        offset = max(before, shared.log.start_offset)
        # While a disk is full, the log lacks what the core has decided.
        while offset < high_watermark and (data := shared.log.read(offset, _READ_BYTES)):
            for batch in walk_batches(data):
                if batch.base_offset >= high_watermark:
                    break
                content = bytes(batch.view)
                known = self._batches.setdefault(batch.base_offset, content)
                assert known == content, f"node {node_id} committed another batch at {offset}"
                offset = batch.next_offset
        seen.high_watermark = offset

    # Images.

    def _check_image(self, node_id: int, seen: _Seen, image: MetadataImage) -> None:
        offset, before = image.provenance.last_offset, seen.image.provenance.last_offset
        seen.image = image
        assert offset >= before, f"node {node_id}: the metadata went back"
        known = self._images.setdefault(offset, image)
        assert known == image, f"node {node_id} has another image at {offset}"
        if len(self._images) > _IMAGES_KEPT:
            del self._images[next(iter(self._images))]
        if offset > self.newest.provenance.last_offset:
            older, self.newest = self.newest, image
            if older.cluster is not image.cluster:
                self._check_brokers(older, image)
            if older.topics is not image.topics or older.cluster is not image.cluster:
                _check_partitions(image)

    def _check_brokers(self, older: MetadataImage, image: MetadataImage) -> None:
        for broker_id, broker in image.cluster.brokers.items():
            before = older.cluster.brokers.get(broker_id)
            if before is None:
                continue
            if before.epoch == broker.epoch:
                self.departures += broker.is_fenced and not before.is_fenced
                continue
            self.departures += 1
            self._world.note(f"broker {broker_id} has epoch {broker.epoch} now")
            assert broker.epoch > before.epoch, f"the epoch of broker {broker_id} went back"
            # Once unfenced it may have been elected again, cleanly or not.
            if self._fallen.pop(broker_id, -1) == before.epoch and broker.is_fenced:
                for topic in image.topics.by_id.values():
                    for partition in topic.partitions.values():
                        in_sync = (*partition.isr, *partition.elr)
                        problem = f"broker {broker_id} may have lost records of {topic.name}"
                        assert broker_id not in in_sync, problem


def _check_partitions(image: MetadataImage) -> None:
    """I10: nobody who is fenced or gone is in sync or leads."""
    brokers = image.cluster.brokers
    alive = {broker_id for broker_id, each in brokers.items() if not each.is_fenced}
    for topic in image.topics.by_id.values():
        for number, each in topic.partitions.items():
            where = f"{topic.name}-{number} at {image.provenance.last_offset}"
            assert alive.issuperset(each.isr), f"{where}: {each.isr} in sync, {alive} alive"
            assert each.leader == -1 or each.leader in each.isr, f"{where}: led by {each.leader}"
            assert not set(each.isr) & set(each.elr), f"{where}: {each.isr} and {each.elr}"
            others = {*each.isr, *each.elr, *each.adding_replicas, *each.removing_replicas}
            assert others <= set(each.replicas), f"{where}: {others} of {each.replicas}"
