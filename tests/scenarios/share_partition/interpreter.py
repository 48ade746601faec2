"""What the commands of the stories of share partitions mean.

| command | meaning |
|---|---|
| `limits [lock=30s] [deliveries=5] [locks=2000]` | the settings of the group, from now on |
| `produce 5 3` | batches of so many records are written |
| `trim 4` | the log begins later |
| `take A [max=10] [strict]` | A fetches; output: what it gets, with the delivery count |
| `accept A 0-4`, `release A 3`, `reject A 2`, `gap A 1`, `renew A 0-4` | A says what became of it |
| `lost A` | A is gone |
| `run 10s`, `run 300ms` | let time pass |
| `hold`, `keep`, `refuse` | the coordinator does not answer; agrees to all; refuses all |
| `takeover` | another broker leads, with what the coordinator has |
| `show` | output: start offset and the records in flight |
| `kept` | output: what the coordinator has |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.share.delivery import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    ReadBatches,
    ShareLimits,
)
from millstream.coordinator.share.partition import SharePartition
from millstream.coordinator.share.state import DeliveryState, merged
from millstream.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.runs import StateUpdate
    from millstream.coordinator.share.state import StateBatch

_UNITS_MS = {"ms": 1, "s": 1_000}


class ShareInterpreter:
    """A share partition, its log and its coordinator."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.limits = ShareLimits(30_000, 5, 2_000)
        self.batches: list[tuple[int, int]] = []
        self.end = 0
        self.start = 0
        self.kept_start = 0
        self.kept: tuple[StateBatch, ...] = ()
        self.holds = False
        self._held: list[tuple[StateUpdate, bool]] = []
        self.partition = SharePartition(0, (), self.limits)

    def __call__(self, command: str) -> list[str]:
        name, *arguments = command.split()
        act: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        try:
            return act(*arguments) or []
        except ApiError as error:
            return [error.wire_name]

    # The surroundings.

    def do_limits(self, *given: str) -> None:
        """Settings of the group."""
        named = dict(each.split("=") for each in given)
        self.limits = ShareLimits(
            _ms(named.get("lock", "30s")),
            int(named.get("deliveries", 5)),
            int(named.get("locks", 2000)),
        )
        self.partition.limits = self.limits

    def do_produce(self, *sizes: str) -> None:
        """Batches are written."""
        for size in map(int, sizes):
            self.batches.append((self.end, self.end + size - 1))
            self.end += size

    def do_trim(self, offset: str) -> None:
        """Records are deleted from the log."""
        self.start = int(offset)
        self.partition.move_start(self.start)

    def do_run(self, duration: str) -> None:
        """Time passes, and locks end when it is time."""
        end_ms = self.now_ms + _ms(duration)
        while (due_ms := self.partition.next_deadline_ms) is not None and due_ms <= end_ms:
            self.now_ms = due_ms
            self._keep(self.partition.expire(due_ms), must_happen=True)
        self.now_ms = end_ms

    # Members.

    def do_take(self, member: str, *given: str) -> list[str]:
        """A member fetches."""
        offset = self.partition.fetch_offset
        if offset is None:
            return [f"{member}: nothing, too many are in flight"]
        named = dict(each.split("=") for each in given if "=" in each)
        request = AcquireRequest(member, int(named.get("max", 500)), 500, "strict" in given)
        batches = [each for each in self.batches if each[1] >= max(offset, self.start)]
        acquired = self.partition.acquire(request, ReadBatches(offset, batches), self.now_ms)
        if not acquired:
            return [f"{member}: nothing"]
        return [
            f"{member}: {_range(each.first_offset, each.last_offset)}, delivery "
            f"{each.delivery_count}"
            for each in acquired
        ]

    def do_accept(self, member: str, *ranges: str) -> None:
        """All is done with records."""
        self._say(member, ranges, AcknowledgeType.ACCEPT)

    def do_release(self, member: str, *ranges: str) -> None:
        """Others may try."""
        self._say(member, ranges, AcknowledgeType.RELEASE)

    def do_reject(self, member: str, *ranges: str) -> None:
        """Nobody is to try again."""
        self._say(member, ranges, AcknowledgeType.REJECT)

    def do_gap(self, member: str, *ranges: str) -> None:
        """There were no such records."""
        self._say(member, ranges, AcknowledgeType.GAP)

    def do_renew(self, member: str, *ranges: str) -> None:
        """It takes longer."""
        self._say(member, ranges, AcknowledgeType.RENEW)

    def do_lost(self, member: str) -> None:
        """A member's session ends."""
        self._keep(self.partition.release_member(member), must_happen=True)

    def _say(self, member: str, ranges: tuple[str, ...], kind: AcknowledgeType) -> None:
        said = [Acknowledgement(*_bounds(each), [kind]) for each in ranges]
        self._keep(self.partition.acknowledge(member, said, self.now_ms), must_happen=False)

    # The coordinator.

    def _keep(self, update: StateUpdate | None, *, must_happen: bool) -> None:
        if update is not None:
            self._held.append((update, must_happen))
        if not self.holds:
            self.do_keep()

    def do_hold(self) -> None:
        """The coordinator does not answer."""
        self.holds = True

    def do_keep(self) -> None:
        """The coordinator answers, and agrees."""
        self.holds = False
        held, self._held = self._held, []
        for update, _ in held:
            self.kept_start = max(self.kept_start, update.start_offset)
            self.kept = merged(self.kept, update.batches, self.kept_start)
            self.partition.commit(update)

    def do_refuse(self) -> None:
        """The coordinator answers, and does not agree."""
        self.holds = False
        held, self._held = self._held, []
        for update, must_happen in held:
            if must_happen:
                self.partition.commit(update)
            else:
                self.partition.rollback(update)

    def do_takeover(self) -> None:
        """Another leader goes on with what was kept."""
        self._held.clear()
        self.holds = False
        self.partition = SharePartition(self.kept_start, self.kept, self.limits)
        self.partition.move_start(self.start)

    # What there is.

    def do_show(self) -> list[str]:
        """The records in flight."""
        lines = [f"start={self.partition.start_offset} end={self.partition.end_offset}"]
        for run in self.partition.runs:
            member = "" if run.lock is None else f" by {run.lock.member_id}"
            pending = "" if run.update is None else f", to be {run.target.name.lower()}"
            lines.append(
                f"  {_range(run.first, run.last)} {run.state.name.lower()}{member} "
                f"x{run.count}{pending}"
            )
        return lines

    def do_kept(self) -> list[str]:
        """What a new leader would read."""
        return [f"start={self.kept_start}"] + [
            f"  {_range(each.first_offset, each.last_offset)} "
            f"{DeliveryState(each.state).name.lower()} x{each.delivery_count}"
            for each in self.kept
        ]


def _ms(text: str) -> int:
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * _UNITS_MS[unit]


def _bounds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"
