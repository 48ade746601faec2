"""What the commands of the stories of transactions mean.

| command | meaning |
|---|---|
| `init A` | process A becomes the producer of the transactional id |
| `bump A` | A asks for its next epoch, saying who it is |
| `add A t/0 ...`, `add old A t/0` | partitions join A's transaction; of a client before KIP-890 |
| `commit A`, `abort A`, `commit old A`, `abort old A` | EndTxn |
| `lost A` | the last answer never reached A: it believes what it did before |
| `slow`, `quick` | markers do not reach their partitions; they do |
| `hold`, `release`, `fail`, `recover` | writes are held back; committed; time out; work again |
| `refuse`, `accept` | nothing can be written; it can |
| `run 60s` | let time pass |
| `takeover` | another broker coordinates, from what is in the log |
| `state` | output: the transaction |

What a process is answered is output, and every marker that is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.decision import ProducerStamp
from millstream.coordinator.transaction.ending import EndRequest
from millstream.errors import ApiError, NotEnoughReplicas, RequestTimedOut
from millstream.types import TopicPartition
from tests.scenarios.classic_group.interpreter import to_ms
from tests.unit.coordinator.transaction.world import NEW, OLD, TXN, World

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = ProducerStamp(-1, -1)


class TransactionInterpreter:
    """One transactional id, the processes that claim it, and the commands that act on them."""

    def __init__(self) -> None:
        self.world = World()
        self._known: dict[str, ProducerStamp] = {}
        self._before: dict[str, ProducerStamp] = {}
        self._news: list[str] = []
        self._sent = 0

    def __call__(self, command: str) -> list[str]:
        name, *arguments = command.split()
        act: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        output = act(*arguments) or []
        news, self._news = self._news, []
        return output + news + self._markers()

    # Processes.

    def do_init(self, name: str) -> None:
        """A process takes the id over."""
        self.world.coordinator.init_producer_id(TXN, 60_000, None, self._taker(name))

    def do_bump(self, name: str) -> None:
        """A producer wants another epoch."""
        stamp = self._known[name]
        self.world.coordinator.init_producer_id(TXN, 60_000, stamp, self._taker(name))

    def do_add(self, *arguments: str) -> None:
        """Partitions will be written to."""
        (name, *places), version = _version(arguments)
        partitions = [TopicPartition(*_place(each)) for each in places]
        self.world.coordinator.add_partitions(
            TXN, self._known[name], partitions, version, lambda error: self._tell(name, error)
        )

    def do_commit(self, *arguments: str) -> None:
        """The records are to be seen."""
        self._end(arguments, is_commit=True)

    def do_abort(self, *arguments: str) -> None:
        """They are not."""
        self._end(arguments, is_commit=False)

    def _end(self, arguments: tuple[str, ...], *, is_commit: bool) -> None:
        (name,), version = _version(arguments)
        request = EndRequest(self._known[name], is_commit, version)
        self.world.coordinator.end(TXN, request, self._taker(name))

    def do_lost(self, name: str) -> None:
        """Its last answer is lost."""
        self._known[name] = self._before[name]

    def _taker(self, name: str) -> Callable[[ProducerStamp | ApiError], None]:
        self._before[name] = self._known.get(name, NOBODY)

        def take(answer: ProducerStamp | ApiError) -> None:
            if isinstance(answer, ApiError):
                self._tell(name, answer)
                return
            self._known[name] = answer
            self._news.append(f"{name}: {_short(answer)}")

        return take

    def _tell(self, name: str, error: ApiError | None) -> None:
        self._news.append(f"{name}: {'ok' if error is None else error.wire_name}")

    # The world.

    def do_slow(self) -> None:
        """Markers stay on their way."""
        self.world.holds_markers = True

    def do_quick(self) -> None:
        """They arrive, those from before too."""
        self.world.holds_markers = False
        self.world.coordinator.markers_written(self.world.sent[-1])

    def do_hold(self) -> None:
        """Writes are not committed."""
        self.world.store.holds_commits = True

    def do_release(self) -> None:
        """They are."""
        self.world.store.holds_commits = False
        self.world.store.commit()

    def do_fail(self) -> None:
        """They are not committed in time."""
        self.world.store.commit(RequestTimedOut())

    def do_recover(self) -> None:
        """They are safe after all."""
        self.world.store.holds_commits = False
        self.world.store.committed[0] = self.world.store.bounds(0, 0).end_offset

    def do_refuse(self) -> None:
        """Nothing can be written."""
        self.world.store.failure = NotEnoughReplicas()

    def do_accept(self) -> None:
        """It can."""
        self.world.store.failure = None

    def do_run(self, duration: str) -> None:
        """Let time pass, and what is due happen in time."""
        end_ms = self.world.clock.monotonic_ms() + to_ms(duration)
        while (due_ms := self.world.runtime.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.world.advance(max(0, due_ms - self.world.clock.monotonic_ms()))
        self.world.advance(end_ms - self.world.clock.monotonic_ms())

    def do_takeover(self) -> None:
        """Another broker loads the log."""
        self.world.restart()

    def do_state(self) -> list[str]:
        """The transaction."""
        known = self.world.state
        places = " ".join(f"{each.topic}/{each.partition}" for each in sorted(known.partitions))
        stamp = ProducerStamp(known.producer_id, known.producer_epoch)
        return [f"{known.state.title} {_short(stamp)}" + (f" with {places}" if places else "")]

    def _markers(self) -> list[str]:
        """The ends that were sent to partitions since."""
        sent = self.world.sent[self._sent :]
        self._sent = len(self.world.sent)
        return [
            f"  {'commit' if each.is_commit else 'abort'} {_short(each.producer)} to "
            + (" ".join(f"{at.topic}/{at.partition}" for at in sorted(each.partitions)) or "nobody")
            for each in sent
        ]


def _version(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    if arguments[0] == "old":
        return arguments[1:], OLD
    return arguments, NEW


def _place(text: str) -> tuple[str, int]:
    topic, index = text.split("/")
    return topic, int(index)


def _short(stamp: ProducerStamp) -> str:
    """Producers are numbered from 1."""
    return f"producer {stamp.producer_id - 1000} epoch {stamp.producer_epoch}"
