"""What a broker finds in its directory: other owners, damage, missing pieces.

Whatever can be repaired is repaired with a warning; whatever cannot is named in one error, without
a traceback, and nothing is lost by the attempt.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.faults.harness import Broker, broker_on, require_calm
from tests.integration.node.harness import Client, running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

KAFKA_STORAGE_ERROR = 56

BIG = b"x" * 100_000
RECORDS = 45
"""Of 100 kB each: four closed segments and a part of one."""


Fill = Callable[[signal.Signals], Path]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[signal.Signals, Path]:
    """Directories with a topic of several segments, by how their process ended."""
    made = {}
    for how in (signal.SIGTERM, signal.SIGKILL):
        made[how] = tmp_path_factory.mktemp("original")
        with broker_on(made[how]) as broker:
            with broker.client() as client:
                assert client.create_topic("orders", segment_bytes=str(1 << 20)) == 0
                assert client.create_topic("other") == 0
                assert client.produce("other", b"fine") == (0, 0)
                for number in range(RECORDS):
                    assert client.produce("orders", b"%03d" % number + BIG) == (0, number)
            broker.node.finish(how)
    return made


@pytest.fixture
def fill(tmp_path: Path, originals: dict[signal.Signals, Path]) -> Fill:
    """Puts a copy of such a directory into the test's own."""
    return lambda how: shutil.copytree(originals[how], tmp_path, dirs_exist_ok=True)


def segments(data: Path) -> list[Path]:
    return sorted((data / "orders-0").glob("*.log"))


def flip(file: Path, position: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        (byte,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 0x10]))


def found(client: Client) -> list[int]:
    return [int(value[:3]) for value in client.values("orders")]


def still_good(broker: Broker) -> None:
    """The other topic has its record, and the damaged one takes new ones."""
    with broker.client() as client:
        assert client.values("other") == [b"fine"]
        code, offset = client.produce("orders", b"999")
        assert code == 0
        assert client.values("orders", offset) == [b"999"]


def refused(data: Path, *arguments: str) -> str:
    """A start that must fail, with one error and without a traceback; what it said."""
    with running(data, *arguments) as node:
        code, log = node.finish()
    assert code == 1, log
    assert "Traceback" not in log
    assert sum(line.startswith("millstream: ") for line in log.splitlines()) == 1, log
    return log


# Damage of records.


def test_a_bit_flip_after_the_recovery_point_costs_only_what_is_behind_it(
    tmp_path: Path, fill: Fill
) -> None:
    fill(signal.SIGKILL)
    last = segments(tmp_path)[-1]
    flip(last, last.stat().st_size - 50_000)

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS - 1))
        assert broker.said("orders-0", level="WARNING")
        still_good(broker)
        require_calm(broker.stop())


def test_a_segment_that_is_damaged_in_the_middle_of_the_log_is_noticed_by_its_readers_only(
    tmp_path: Path,
    fill: Fill,
) -> None:
    fill(signal.SIGTERM)
    damaged = segments(tmp_path)[1]
    flip(damaged, 150_000)

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            code, records, end = client.fetch("orders", 0)
            assert (code, end) == (0, RECORDS)
            assert len(records) > 900_000
            first = int(damaged.stem)
            # As in Kafka the broker does not look into what it sends; the consumer does.
            code, records, _ = client.fetch("orders", first)
            assert code == 0
            assert client.values("orders", first + 11)[0][:3] == b"%03d" % (first + 11)
        still_good(broker)
        require_calm(broker.stop())


def test_a_header_that_is_damaged_in_the_middle_of_the_log_is_an_error_for_its_readers(
    tmp_path: Path,
    fill: Fill,
) -> None:
    fill(signal.SIGTERM)
    damaged = segments(tmp_path)[1]
    first = int(damaged.stem)
    batch = damaged.stat().st_size // 10
    flip(damaged, batch * 3 + 8)  # The length of the fourth batch.

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            for offset in range(first, first + 10):
                code, _, end = client.fetch("orders", offset)
                assert code in (0, 2, 56), code
                assert end in (RECORDS, -1)
            assert client.values("orders", int(segments(tmp_path)[2].stem))
        still_good(broker)
        for line in broker.stop():
            assert "traceback" not in line, line


def test_a_log_that_lost_its_indexes_and_snapshots_has_all_its_records(
    tmp_path: Path, fill: Fill
) -> None:
    fill(signal.SIGTERM)
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for file in (tmp_path / "orders-0").glob(pattern):
            file.unlink()

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS))
        still_good(broker)
        require_calm(broker.stop())


def test_a_log_with_garbage_for_indexes_has_all_its_records(tmp_path: Path, fill: Fill) -> None:
    fill(signal.SIGTERM)
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for file in (tmp_path / "orders-0").glob(pattern):
            file.write_bytes(b"\xa5" * max(file.stat().st_size, 24))

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS))
        still_good(broker)
        require_calm(broker.stop())


# Damage of small files.

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2],
    "garbage": lambda data: b"\xff\x00garbage",
}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints_cost_no_record(
    tmp_path: Path, fill: Fill, damage: str, is_clean: bool
) -> None:
    fill(signal.SIGTERM)
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    for name in CHECKPOINTS:
        file = tmp_path / name
        file.write_bytes(DAMAGES[damage](file.read_bytes()))

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS))
        still_good(broker)
        lines = broker.stop()
    require_calm(lines)
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert damage == "empty" or any("checkpoint" in warning for warning in warnings)


def test_a_damaged_table_of_epochs_takes_its_partition_alone_and_is_named(
    tmp_path: Path, fill: Fill
) -> None:
    fill(signal.SIGTERM)
    file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    file.write_bytes(b"\xff\x00garbage")

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert client.fetch("orders", 0)[0] == KAFKA_STORAGE_ERROR
            assert client.produce("orders", b"x")[0] == KAFKA_STORAGE_ERROR
            assert client.values("other") == [b"fine"]
        assert broker.said("leader-epoch-checkpoint is corrupt", level="ERROR")
        broker.stop()

    # It can be done without.
    file.unlink()
    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS))
        still_good(broker)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_meta_properties_is_named_and_nothing_is_touched(
    tmp_path: Path, fill: Fill, damage: str
) -> None:
    fill(signal.SIGTERM)
    file = tmp_path / "meta.properties"
    good = file.read_bytes()
    file.write_bytes(DAMAGES[damage](good))

    assert "meta.properties" in refused(tmp_path)

    file.write_bytes(good)
    with broker_on(tmp_path) as broker, broker.client() as client:
        assert found(client) == list(range(RECORDS))
        assert broker.said("was left clean") or not broker.said("recovering")


def test_the_directory_of_another_cluster_or_node_is_refused_and_still_clean(
    tmp_path: Path,
    fill: Fill,
) -> None:
    fill(signal.SIGTERM)

    assert "belongs to node 1, this is node 7" in refused(tmp_path, "--set", "node.id=7")

    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with broker_on(tmp_path) as broker, broker.client() as client:
        assert found(client) == list(range(RECORDS))


# Damage of the metadata.


def metadata_directory(data: Path) -> Path:
    return data / "__cluster_metadata-0"


def make_snapshots(data: Path) -> list[Path]:
    """A node that has taken snapshots of its metadata, and forgotten what came before them."""
    small = (
        "--set",
        "metadata.log.max.record.bytes.between.snapshots=500",
        "--set",
        "metadata.max.retention.bytes=1",
    )
    with broker_on(data, *small) as broker:
        with broker.client() as client:
            for number in range(40):
                assert client.create_topic(f"topic-{number}") == 0
        broker.stop()
    return sorted(metadata_directory(data).glob("*-*.checkpoint"))


def test_a_corrupt_metadata_snapshot_is_named_and_an_older_one_serves(tmp_path: Path) -> None:
    snapshots = make_snapshots(tmp_path)
    newest = snapshots[-1]
    flip(newest, newest.stat().st_size // 2)

    log = refused(tmp_path)
    assert f"{newest} is damaged" in log

    if "move it away" in log:
        newest.unlink()
        with broker_on(tmp_path) as broker, broker.client() as client:
            assert set(client.topics()) == {f"topic-{number}" for number in range(40)}


def test_a_metadata_log_without_its_snapshot_is_refused(tmp_path: Path) -> None:
    for snapshot in make_snapshots(tmp_path):
        snapshot.unlink()

    log = refused(tmp_path)

    assert "__cluster_metadata-0" in log
    assert "snapshot" in log


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_quorum_state_is_named_or_rebuilt(
    tmp_path: Path, fill: Fill, damage: str
) -> None:
    fill(signal.SIGTERM)
    file = metadata_directory(tmp_path) / "quorum-state"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))

    with running(tmp_path) as node:
        ready = node.starts()
        code, log = node.finish(signal.SIGTERM)
    assert "Traceback" not in log
    assert (code == 0) if ready else (code == 1 and "quorum-state" in log)


def test_a_metadata_log_with_a_torn_end_loses_only_what_was_never_promised(
    tmp_path: Path, fill: Fill
) -> None:
    fill(signal.SIGKILL)
    log = max(metadata_directory(tmp_path).glob("*.log"))
    with log.open("ab") as opened:
        opened.write(b"\0\0\0\0\0\0\x01\0\0\0\x01\0torn")

    with broker_on(tmp_path) as broker:
        with broker.client() as client:
            assert found(client) == list(range(RECORDS))
        still_good(broker)
        require_calm(broker.stop())


def test_a_rotten_metadata_log_stops_the_start_and_loses_nothing(
    tmp_path: Path, fill: Fill
) -> None:
    fill(signal.SIGTERM)
    log = max(metadata_directory(tmp_path).glob("*.log"))
    place = log.read_bytes().index(b"orders")
    flip(log, place)

    said = refused(tmp_path)

    assert f"the metadata log is damaged in {log} at byte" in said
    assert "intact batch" in said
    assert "--set millstream.metadata.recovery=truncate" in said
    flip(log, place)
    with broker_on(tmp_path) as broker, broker.client() as client:
        assert found(client) == list(range(RECORDS))


def test_a_rotten_metadata_log_is_cut_for_somebody_who_says_so(tmp_path: Path, fill: Fill) -> None:
    fill(signal.SIGTERM)
    log = max(metadata_directory(tmp_path).glob("*.log"))
    flip(log, log.read_bytes().index(b"other"))

    with broker_on(tmp_path, "--set", "millstream.metadata.recovery=truncate") as broker:
        with broker.client() as client:
            assert set(client.topics()) == {"orders"}
        assert broker.said("metadata log is damaged", "is lost", level="WARNING")
        broker.stop()
    with broker_on(tmp_path) as broker, broker.client() as client:
        assert set(client.topics()) == {"orders"}
