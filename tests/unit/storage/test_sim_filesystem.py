"""The faults of the simulated disk: what a crash may take, and what it may not."""

from __future__ import annotations

import errno
from random import Random

import pytest

from millstream.clock import ManualClock
from millstream.storage.filesystem import write_atomically
from millstream.testing.sim_filesystem import SimFileSystem

SEEDS = range(200)


def disk(seed: int = 1, capacity_bytes: int | None = None) -> SimFileSystem:
    filesystem = SimFileSystem(Random(seed), capacity_bytes=capacity_bytes)
    filesystem.make_directory("/d")
    filesystem.sync_directory("/")
    return filesystem


def test_synced_content_under_a_synced_name_survives_every_power_loss() -> None:
    for seed in SEEDS:
        filesystem = disk(seed)
        file = filesystem.open("/d/f", create=True)
        file.pwrite(b"a" * 3000, 0)
        file.sync()
        filesystem.sync_directory("/d")
        file.pwrite(b"b" * 3000, 3000)

        content = filesystem.after_power_loss().read_bytes("/d/f")

        assert content[:3000] == b"a" * 3000


def test_unsynced_bytes_may_be_kept_lost_mixed_and_torn() -> None:
    outcomes = set()
    for seed in SEEDS:
        filesystem = disk(seed)
        file = filesystem.open("/d/f", create=True)
        filesystem.sync_directory("/d")
        file.pwrite(b"x" * 2048, 0)

        content = filesystem.after_power_loss().read_bytes("/d/f")

        assert set(content) <= {0, ord("x")}
        outcomes.add(content)
    assert b"" in outcomes
    assert b"x" * 2048 in outcomes
    holes = [content for content in outcomes if b"\0x" in content]
    torn = [content for content in outcomes if content.count(b"x") % 512]
    assert holes
    assert torn


def test_a_name_is_certain_only_after_its_directory_was_synced() -> None:
    found = set()
    for seed in SEEDS:
        filesystem = disk(seed)
        filesystem.open("/d/f", create=True).sync()

        found.add(filesystem.after_power_loss().exists("/d/f"))

    assert found == {True, False}


def test_a_rename_happens_whole_or_not_at_all() -> None:
    found = set()
    for seed in SEEDS:
        filesystem = disk(seed)
        filesystem.open("/d/old", create=True).sync()
        filesystem.sync_directory("/d")
        filesystem.rename("/d/old", "/d/new")

        after = filesystem.after_power_loss()

        found.add((after.exists("/d/old"), after.exists("/d/new")))
    assert found == {(True, False), (False, True)}


def test_a_removed_file_may_come_back() -> None:
    found = set()
    for seed in SEEDS:
        filesystem = disk(seed)
        filesystem.open("/d/f", create=True).sync()
        filesystem.sync_directory("/d")
        filesystem.remove("/d/f")

        found.add(filesystem.after_power_loss().exists("/d/f"))
    assert found == {True, False}


def test_an_atomic_write_is_the_old_or_the_new_content() -> None:
    for seed in SEEDS:
        filesystem = disk(seed)
        write_atomically(filesystem, "/d/c", b"old" * 1000)
        steps = Random(seed).randint(1, 8)

        def stop(*_: object) -> None:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise OSError(errno.EIO, "stopped")

        filesystem.before_operation = stop
        try:
            write_atomically(filesystem, "/d/c", b"new" * 2000)
            expected = {b"new" * 2000}
        except OSError:
            expected = {b"old" * 1000, b"new" * 2000}
        filesystem.before_operation = None

        assert filesystem.after_power_loss().read_bytes("/d/c") in expected


def test_a_kill_keeps_everything_written_and_frees_the_lock() -> None:
    filesystem = disk()
    filesystem.lock_directory("/d")
    file = filesystem.open("/d/f", create=True)
    file.pwrite(b"unsynced", 0)

    after = filesystem.after_kill()

    assert after.read_bytes("/d/f") == b"unsynced"
    after.lock_directory("/d")
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(1, 0)
    with pytest.raises(OSError, match="Input/output error"):
        filesystem.exists("/d/f")


def test_the_same_seed_gives_the_same_crash() -> None:
    def run() -> bytes:
        filesystem = disk(7)
        file = filesystem.open("/d/f", create=True)
        filesystem.sync_directory("/d")
        file.pwrite(bytes(range(256)) * 40, 0)
        return filesystem.after_power_loss().read_bytes("/d/f")

    assert run() == run()


def test_a_power_loss_may_undo_a_truncation() -> None:
    sizes = set()
    for seed in SEEDS:
        filesystem = disk(seed)
        file = filesystem.open("/d/f", create=True)
        file.pwrite(b"x" * 100, 0)
        file.sync()
        filesystem.sync_directory("/d")
        file.truncate(10)

        content = filesystem.after_power_loss().read_bytes("/d/f")

        assert content == b"x" * len(content)
        sizes.add(len(content))
    assert {10, 100} <= sizes


def test_a_full_disk_takes_what_fits_and_then_says_so() -> None:
    filesystem = disk(capacity_bytes=10)
    file = filesystem.open("/d/f", create=True)
    file.pwrite(b"123456", 0)

    with pytest.raises(OSError, match="No space left") as caught:
        file.pwrite(b"abcdefgh", 6)

    assert caught.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"123456abcd"
    file.pwrite(b"over", 0)
    with pytest.raises(OSError, match="No space left"):
        filesystem.open("/d/g", create=True).allocate(1)
    filesystem.capacity_bytes = 100
    file.pwrite(b"efgh", 10)
    assert filesystem.usage("/d") == (100, 86)


def test_a_hole_takes_no_room() -> None:
    filesystem = disk(capacity_bytes=10)

    filesystem.open("/d/f", create=True).truncate(1 << 20)

    assert filesystem.free_bytes == 10


def test_removing_a_file_frees_its_room() -> None:
    filesystem = disk(capacity_bytes=10)
    filesystem.open("/d/f", create=True).pwrite(b"1234567890", 0)

    filesystem.remove("/d/f")

    assert filesystem.free_bytes == 10


def test_a_failed_directory_fails_alone() -> None:
    filesystem = disk()
    filesystem.make_directory("/other")
    file = filesystem.open("/d/f", create=True)

    filesystem.fail_directory("/d")

    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"x", 0)
    with pytest.raises(OSError, match="Input/output error"):
        filesystem.scan("/d")
    filesystem.open("/other/f", create=True).pwrite(b"fine", 0)
    filesystem.repair_directory("/d")
    file.pwrite(b"x", 0)


def test_a_flipped_bit_is_there_for_readers_and_after_a_crash() -> None:
    filesystem = disk()
    file = filesystem.open("/d/f", create=True)
    file.pwrite(bytes(100), 0)
    file.sync()
    filesystem.sync_directory("/d")

    position = filesystem.flip_bit("/d/f")

    flipped = file.pread(100, 0)
    assert [i for i, byte in enumerate(flipped) if byte] == [position]
    assert flipped[position].bit_count() == 1
    assert filesystem.after_power_loss().read_bytes("/d/f") == flipped


def test_a_slow_disk_moves_the_clock() -> None:
    clock = ManualClock()
    filesystem = SimFileSystem(
        Random(1),
        clock=clock,
        before_operation=lambda operation, _path, size: clock.advance(
            10 if operation == "sync" else size
        ),
    )
    started_ms = clock.monotonic_ms()

    file = filesystem.open("/f", create=True)
    file.pwrite(b"12345", 0)
    file.sync()

    assert clock.monotonic_ms() - started_ms == 15
    assert filesystem.scan("/")[0].modified_ms == clock.wall_ms() - 10


def test_a_mapped_file_refuses_to_change_its_size() -> None:
    file = disk().open("/d/f", create=True)
    file.truncate(8)
    file_map = file.map(8)

    with pytest.raises(BufferError):
        file.truncate(4)

    file_map.close()
    file.truncate(4)
