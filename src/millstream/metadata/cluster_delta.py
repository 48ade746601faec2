"""Changes of the registered nodes, from records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.metadata.cluster import (
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
)
from millstream.metadata.records import UnreplayableRecord

if TYPE_CHECKING:
    from millstream.protocol.messages.broker_records import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
        UnregisterControllerRecord,
    )

FENCE = 1
UNFENCE = -1
"""What `fenced` says in a BrokerRegistrationChangeRecord; 0 is no change."""


class ClusterDelta:
    """Changes of brokers and controllers; None is gone."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changed_brokers: dict[int, BrokerRegistration | None] = {}
        self.changed_controllers: dict[int, ControllerRegistration | None] = {}

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """A broker as it is after the records so far."""
        if broker_id in self.changed_brokers:
            return self.changed_brokers[broker_id]
        return self.image.brokers.get(broker_id)

    def replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        """A broker comes, or comes back."""
        self.changed_brokers[record.broker_id] = BrokerRegistration.from_record(record)

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """A broker is gone for good."""
        self._registered(record.broker_id, record.broker_epoch)
        self.changed_brokers[record.broker_id] = None

    def replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        """How a broker was fenced before 3.3."""
        found = self._registered(record.id, record.epoch)
        self.changed_brokers[record.id] = replace(found, is_fenced=True)

    def replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        """How a broker was unfenced before 3.3."""
        found = self._registered(record.id, record.epoch)
        self.changed_brokers[record.id] = replace(found, is_fenced=False)

    def replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """A broker's state changes; what the record leaves out stays."""
        found = self._registered(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self.changed_brokers[record.broker_id] = replace(
            found,
            is_fenced=found.is_fenced if record.fenced == 0 else record.fenced == FENCE,
            in_controlled_shutdown=found.in_controlled_shutdown
            or record.in_controlled_shutdown == 1,
            directories=tuple(sorted(record.log_dirs)) if record.log_dirs else found.directories,
            cordoned_directories=(
                found.cordoned_directories if cordoned is None else tuple(sorted(cordoned))
            ),
        )

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """A controller tells where it is and what it can do."""
        self.changed_controllers[record.controller_id] = ControllerRegistration.from_record(record)

    def replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        """A controller is gone for good."""
        known = self.changed_controllers.get(
            record.controller_id, self.image.controllers.get(record.controller_id)
        )
        if known is None:
            raise UnreplayableRecord(f"controller {record.controller_id} is not registered")
        self.changed_controllers[record.controller_id] = None

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        for broker_id in self.image.brokers.keys() - self.changed_brokers.keys():
            self.changed_brokers[broker_id] = None
        for controller_id in self.image.controllers.keys() - self.changed_controllers.keys():
            self.changed_controllers[controller_id] = None

    def apply(self) -> ClusterImage:
        """The nodes after the changes."""
        brokers = {**self.image.brokers, **self.changed_brokers}
        controllers = {**self.image.controllers, **self.changed_controllers}
        return ClusterImage(
            {broker_id: each for broker_id, each in brokers.items() if each is not None},
            {node_id: each for node_id, each in controllers.items() if each is not None},
        )

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        found = self.broker(broker_id)
        if found is None:
            raise UnreplayableRecord(
                f"a record changes broker {broker_id}, which is not registered"
            )
        if found.epoch != epoch:
            raise UnreplayableRecord(
                f"a record changes broker {broker_id} of epoch {epoch}, registered is "
                f"epoch {found.epoch}"
            )
        return found
