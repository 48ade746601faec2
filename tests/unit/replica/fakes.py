"""Who a replica manager talks to, as a test wants them: they keep questions until it answers."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.errors import ApiError
    from millstream.replica.isr import IsrProposal
    from millstream.replica.ports import IsrAnswered
    from millstream.types import TopicPartition


class InlineExecutor(Executor):
    """Does everything at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass(frozen=True)
class Agreement:
    """The controller's word on an ISR."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class FakeController:
    """Keeps proposals until the test answers them."""

    def __init__(self) -> None:
        self.proposals: list[tuple[IsrProposal, IsrAnswered]] = []

    def submit(self, proposal: IsrProposal, done: IsrAnswered) -> None:
        """As `IsrAlterer`."""
        self.proposals.append((proposal, done))

    def agree(self) -> IsrProposal:
        """Say yes to the oldest proposal."""
        proposal, done = self.proposals.pop(0)
        isr = tuple(sorted(proposal.members))
        done(Agreement(proposal.leader_epoch, proposal.partition_epoch + 1, isr))
        return proposal

    def refuse(self, error: ApiError) -> IsrProposal:
        """Say no to it."""
        proposal, done = self.proposals.pop(0)
        done(error)
        return proposal


@dataclass
class FakeVerifier:
    """Keeps questions to the transaction coordinator until the test answers them."""

    questions: list[tuple[str, int, int, list[TopicPartition], bool]]
    answers: list[Callable[[Mapping[TopicPartition, ApiError]], None]]

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[Mapping[TopicPartition, ApiError]], None],
        *,
        adds_partitions: bool,
    ) -> None:
        """As `TransactionVerifier`."""
        names = list(partitions)
        self.questions.append(
            (transactional_id, producer_id, producer_epoch, names, adds_partitions)
        )
        self.answers.append(done)
