"""Calls through a router to a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    MillstreamError,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
)
from millstream.protocol.messages.find_coordinator import Coordinator as Found
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.router import Call, Target
    from millstream.client.runtime import ClientRuntime
    from millstream.protocol.message import Message
    from tests.unit.client.scripted_cluster import ScriptedCluster

BEFORE_BATCHES = {
    ApiKey.METADATA: VersionRange(0, 7),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 3),
    ApiKey.END_TXN: VersionRange(0, 1),
}


class Asking:
    """One call and its outcomes."""

    def __init__(
        self,
        runtime: ClientRuntime,
        target: Target,
        request: Message | None = None,
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        self.outcomes: list[Message | MillstreamError] = []
        now_ms = runtime.now_ms()
        self.call: Call = runtime.router.call(
            request or ListGroupsRequest(),
            target,
            lambda outcome, _: self.outcomes.append(outcome),
            deadline_ms=now_ms + timeout_ms,
            now_ms=now_ms,
        )

    @property
    def is_done(self) -> bool:
        return bool(self.outcomes)

    @property
    def error(self) -> MillstreamError:
        (outcome,) = self.outcomes
        assert isinstance(outcome, MillstreamError)
        return outcome


def find_coordinator(
    place: Callable[[str], tuple[int, int]],
) -> Callable[[int, Message], FindCoordinatorResponse]:
    """A broker that knows who coordinates: node id and error code by key."""

    def answer(_node: int, request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        found = [
            Found(
                key=key,
                node_id=place(key)[0],
                host=f"broker{place(key)[0]}",
                port=9092,
                error_code=place(key)[1],
                error_message=None,
            )
            for key in request.coordinator_keys or [request.key]
        ]
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=found)
        (only,) = found
        return FindCoordinatorResponse(
            error_code=only.error_code, node_id=only.node_id, host=only.host, port=only.port
        )

    return answer


def finish(cluster: ScriptedCluster, runtime: ClientRuntime, *askings: Asking) -> None:
    cluster.run_until(runtime, lambda: all(each.is_done for each in askings), 20_000)


def nodes_asked(cluster: ScriptedCluster, api: ApiKey = ApiKey.LIST_GROUPS) -> list[int]:
    return [each.node_id for each in cluster.asked if each.api is api]
