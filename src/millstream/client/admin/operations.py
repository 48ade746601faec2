"""What all subjects of administration share: calls, batches, time limits, names.

The modules beside this one derive from `Operations`, one class per subject. Their methods are
coroutines of the I/O thread (`tasks`); `call_styles` makes them blocking or awaitable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.client.admin.item_calls import ITEMS_PER_REQUEST_MAX, ItemCalls, ItemPlan
from millstream.client.admin.tasks import Step
from millstream.client.arguments import as_partition, as_seconds
from millstream.client.router import Leader
from millstream.errors import InvalidArgument, MillstreamError, error_for_code
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.router import Target
    from millstream.client.runtime import ClientRuntime
    from millstream.network.client.network_client import RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")
R = TypeVar("R", bound="Message")


class Operations:
    """The base of all subjects."""

    def __init__(self, runtime: ClientRuntime) -> None:
        self._runtime = runtime
        self._names = runtime.config.names

    def _until(self, timeout: float | None) -> int:
        """The deadline of a call that may take so many seconds."""
        return self._runtime.now_ms() + self._timeout_ms(timeout)

    def _timeout_ms(self, timeout: float | None) -> int:
        if timeout is None:
            return self._runtime.config.default_api_timeout_ms
        return round(as_seconds(timeout) * 1000)

    def _brokers_limit_ms(self, timeout: float | None) -> int:
        """How long a broker may take for a change before it answers."""
        return min(self._timeout_ms(timeout), self._runtime.config.request_timeout_ms)

    async def _call(
        self,
        request: RequestSource,
        target: Target,
        response: type[R],
        timeout: float | None,
    ) -> R:
        """One request, tried again until the deadline; its top-level error is raised."""
        step: Step[Message] = Step()

        def on_done(outcome: Message | MillstreamError, _now_ms: int) -> None:
            if isinstance(outcome, MillstreamError):
                step.set_error(outcome)
            else:
                step.set_result(outcome)

        self._runtime.router.call(
            request,
            target,
            on_done,
            deadline_ms=self._until(timeout),
            now_ms=self._runtime.now_ms(),
        )
        answer = await step
        assert isinstance(answer, response)
        raise_for(answer)
        return answer

    async def _each(
        self,
        items: Iterable[K],
        target: Callable[[K], Target],
        request: Callable[[Sequence[K]], RequestSource],
        read: Callable[[Any, Sequence[K]], Mapping[K, V | MillstreamError]],
        timeout: float | None,
        *,
        per_request: int = ITEMS_PER_REQUEST_MAX,
        batched_from: tuple[ApiKey, int] | None = None,
    ) -> Outcomes[K, V]:
        """Ask about many items; each ends with a result or an error of its own."""
        if isinstance(items, str) or not isinstance(items, Iterable):
            raise InvalidArgument(f"{items!r} is no list: give several, or a list of one")
        step: Step[Outcomes[K, V]] = Step()
        distinct = list(dict.fromkeys(items))
        plan = ItemPlan(distinct, target, request, read, per_request, batched_from)
        ItemCalls(
            self._runtime,
            plan,
            until_ms=self._until(timeout),
            on_done=step.set_result,
        ).start()
        return await step

    def _by_wire_topic(self, items: Iterable[TopicPartition]) -> dict[str, list[int]]:
        """Partitions by the wire's names of their topics."""
        grouped: dict[str, list[int]] = {}
        for each in map(as_partition, items):
            grouped.setdefault(self._names.to_wire(each.topic), []).append(each.partition)
        return grouped

    def _leader(self, item: TopicPartition) -> Target:
        partition = as_partition(item)
        return Leader(self._names.to_wire(partition.topic), partition.partition)

    def _partition(self, wire_topic: str, partition: int) -> TopicPartition:
        """The user's name of a partition in an answer to a question about it."""
        return TopicPartition(self._names.from_wire(wire_topic) or wire_topic, partition)

    async def _brokers(self, timeout: float | None) -> list[int]:
        """The ids of all brokers, once they are known."""
        await self._wait_for_brokers(timeout, is_patient=True)
        return sorted(self._runtime.metadata.snapshot.brokers)

    async def _wait_for_brokers(self, timeout: float | None, *, is_patient: bool) -> None:
        """Wait until a broker has told of the others; without patience no second one is asked."""
        if not self._runtime.metadata.snapshot.brokers:
            step: Step[None] = Step()
            _WaitForBrokers(self._runtime, step, self._until(timeout), is_patient).start()
            await step


class _WaitForBrokers:
    """An actor that waits for the first metadata."""

    def __init__(
        self, runtime: ClientRuntime, step: Step[None], until_ms: int, is_patient: bool
    ) -> None:
        self._runtime = runtime
        self._step = step
        self._until_ms = until_ms
        self._is_patient = is_patient
        self._failures_before = runtime.network.failure_counts()

    def start(self) -> None:
        self._runtime.add(self)

    def poll(self, now_ms: int) -> int | None:
        if self._runtime.metadata.snapshot.brokers:
            self._runtime.remove(self)
            self._step.set_result(None)
            return None
        if now_ms >= self._until_ms or not (self._is_patient or self._has_hope()):
            self._runtime.remove(self)
            failure = self._runtime.metadata.failure()
            assert failure is not None
            self._step.set_error(failure)
            return None
        return self._until_ms

    def _has_hope(self) -> bool:
        """Whether there is an address that has not failed since."""
        before = self._failures_before
        counts = self._runtime.network.failure_counts()
        return any(count <= before.get(node_id, 0) for node_id, count in counts.items())


def raise_for(answer: Message) -> None:
    """Raise the error that a response has at its top, if any."""
    code = getattr(answer, "error_code", 0)
    if code:
        raise error_for_code(code, getattr(answer, "error_message", None))


def error_or(value: V, code: int, message: str | None = None) -> V | MillstreamError:
    """The value, or the error that a code in a response stands for."""
    return error_for_code(code, message) if code else value
