"""Admin operations over a scripted cluster, run to their end in virtual time."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.client.admin.all_operations import AdminOperations
from millstream.client.admin.config import AdminConfig
from millstream.client.admin.tasks import start
from millstream.client.futures import Waiter
from millstream.client.runtime import ClientRuntime
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.protocol.messages.find_coordinator import Coordinator
from tests.unit.client.scripted_cluster import ScriptedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange

T = TypeVar("T")


class Office:
    """A cluster of three brokers and an admin."""

    def __init__(
        self, *, namespace: str | None = None, versions: dict[ApiKey, VersionRange] | None = None
    ) -> None:
        self.cluster = ScriptedCluster(broker_count=3, versions=versions)
        config = AdminConfig(bootstrap_servers=("broker1:9092",), namespace=namespace)
        self.runtime = ClientRuntime(
            self.cluster, self.cluster.clock, config, Random(1), separate_coordinators=False
        )
        self.operations = AdminOperations(self.runtime)
        self.done_ms = -1
        """When the last operation ended."""
        self.cluster.on(ApiKey.FIND_COORDINATOR, self._find_coordinator)

    def answers(self, api: ApiKey, *answers: Message | Callable[[Any], Message | None]) -> None:
        """Answer the requests of an API with these, in turn; the last one for good."""
        left = list(answers)

        def handler(_node_id: int, request: Message) -> Message | None:
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer(request) if callable(answer) else answer

        self.cluster.on(api, handler)

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """The result of an operation."""
        waiter: Waiter[T] = Waiter()
        waiter.add_done_callback(self._note_time)
        start(self.runtime, operation, waiter)
        self.cluster.run_until(self.runtime, waiter.done)
        return waiter.result(0)

    def _note_time(self, _waiter: object) -> None:
        self.done_ms = self.cluster.clock.monotonic_ms()

    def requests(self, api: ApiKey) -> list[Any]:
        """What was asked."""
        return [each.message for each in self.cluster.asked if each.api is api]

    def nodes(self, api: ApiKey) -> list[int]:
        """Who was asked."""
        return [each.node_id for each in self.cluster.asked if each.api is api]

    def _find_coordinator(self, _node_id: int, request: Message) -> FindCoordinatorResponse:
        """The coordinator of "x2" is broker 2, and so on; else broker 1."""
        assert isinstance(request, FindCoordinatorRequest)
        if not request.coordinator_keys:
            node_id = _home(request.key)
            return FindCoordinatorResponse(node_id=node_id, host=f"broker{node_id}", port=9092)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=_home(key), host=f"broker{_home(key)}", port=9092)
                for key in request.coordinator_keys
            ]
        )


def _home(key: str) -> int:
    return int(key[-1]) if key[-1] in "123" else 1
