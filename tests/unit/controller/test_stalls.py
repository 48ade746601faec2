"""A controller whose log cannot be written for a while."""

from __future__ import annotations

from millstream.errors import KafkaStorageError
from tests.unit.controller.rig import WALL_MS, Rig
from tests.unit.controller.test_quorum_controller import creation


def test_a_log_without_room_refuses_and_decides_nothing() -> None:
    rig = Rig([0])
    before = rig.log.end_offset
    rig.log.obstacle = OSError("no room")

    answers = rig.submit(creation())

    assert answers[0].topics[0].error_code == KafkaStorageError.code
    assert "t" not in rig.controller.uncommitted_image.topics.by_name
    assert rig.log.end_offset == before
    rig.log.obstacle = None
    rig.submit(creation())
    rig.commit()
    assert "t" in rig.controller.image.topics.by_name


def test_who_waits_is_told_when_the_log_has_no_room_and_it_may_be_done_later() -> None:
    rig = Rig([0])
    early = rig.submit(creation("early"))
    rig.log.obstacle = OSError("no room")

    rig.controller.on_stalled()
    assert early[0].topics[0].error_code == KafkaStorageError.code

    rig.log.obstacle = None
    rig.log.on_append = lambda _: setattr(rig.log, "obstacle", OSError("no room"))
    late = rig.submit(creation("late"))
    assert late[0].topics[0].error_code == KafkaStorageError.code
    rig.commit()
    assert {"early", "late"} <= set(rig.controller.image.topics.by_name)


def test_what_is_due_waits_a_while_for_room() -> None:
    rig = Rig([0])
    before = rig.log.end_offset
    due_ms = rig.controller.next_deadline_ms
    assert due_ms is not None
    rig.log.obstacle = OSError("no room")

    rig.controller.tick(due_ms, WALL_MS)

    later_ms = rig.controller.next_deadline_ms
    assert later_ms is not None
    assert later_ms > due_ms, "it does not spin"
    rig.log.obstacle = None
    rig.controller.tick(later_ms, WALL_MS)
    assert rig.log.end_offset > before


def test_a_controller_that_cannot_write_its_first_records_does_not_decide() -> None:
    rig = Rig(is_active=False)
    rig.log.obstacle = OSError("no room")

    rig.controller.on_leader(1, 0, 0)

    assert rig.log.resigned == [1]
