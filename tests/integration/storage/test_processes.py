"""Real processes on a real disk: killed, kept out, and refused by the operating system."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import KafkaStorageError
from tests.integration.storage.kill import kill_rounds
from tests.integration.storage.process import Process

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_ROOT = Path(__file__).parents[3]


def test_no_acknowledged_record_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    report = kill_rounds(5, tmp_path, seed=1)

    assert report.rounds == 5
    assert report.verified_records >= sum(report.last_acknowledged.values()) > 0


def test_a_second_process_is_kept_out_and_told_by_whom(tmp_path: Path) -> None:
    path = f"{tmp_path}/one"
    command = [sys.executable, "-m", "tests.integration.storage.process", path]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT)
    assert first.stdout is not None
    with first.stdout:
        first.stdout.readline()

        with pytest.raises(KafkaStorageError) as caught:
            Process((path,)).manager.start()

        assert f"{path} is in use by another process (pid {first.pid} holds" in str(caught.value)
        assert first.poll() is None
        first.kill()
    first.wait()
    again = Process((path,))
    again.manager.start()
    assert again.manager.stop() == {}


_FAILING_WRITE = """
import resource, signal, sys
from random import Random
from millstream.errors import KafkaStorageError
from millstream.types import TopicPartition
from tests.integration.storage.process import Process, append_one

process = Process((sys.argv[1], sys.argv[2]))
manager = process.manager
manager.start()
logs = [manager.get_or_create(TopicPartition("t", n), is_new=True) for n in range(2)]
append_one(process, logs[1], 1, Random(1))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    while True:
        append_one(process, logs[0], 0, Random(1))
except KafkaStorageError as error:
    assert manager.note_error(logs[0], error)
assert [failure.path for failure in process.failures] == [sys.argv[1]]
assert not process.failures[0].is_last
try:
    manager.get(TopicPartition("t", 0))
except KafkaStorageError as error:
    assert "out of service" in str(error)
append_one(process, logs[1], 1, Random(1))
assert manager.stop() == {}
print(logs[0].log_end_offset, logs[1].log_end_offset)
"""


def test_a_write_that_the_system_refuses_fails_one_directory_and_spoils_nothing(
    tmp_path: Path,
) -> None:
    paths = (f"{tmp_path}/one", f"{tmp_path}/two")

    done = subprocess.run(
        [sys.executable, "-c", _FAILING_WRITE, *paths],
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
    )

    assert done.returncode == 0, done.stderr
    ends = [int(word) for word in done.stdout.split()]
    again = Process(paths)
    again.manager.start()
    assert [each.was_clean for each in again.manager.directories] == [False, True]
    found = {each: again.manager.get(each) for each in again.manager.partitions}
    assert [log.log_end_offset for _, log in sorted(found.items()) if log is not None] == ends
    assert again.manager.stop() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_left_out(tmp_path: Path) -> None:
    paths = (f"{tmp_path}/one", f"{tmp_path}/two")
    Process(paths)
    Path(paths[0]).chmod(0o500)

    process = Process(paths)
    process.manager.start()

    assert [failure.path for failure in process.failures] == [paths[0]]
    Path(paths[0]).chmod(0o700)
    assert process.manager.stop() == {}


def test_a_process_that_is_asked_to_end_leaves_clean_directories(tmp_path: Path) -> None:
    path = f"{tmp_path}/one"
    code = (
        "import signal, sys\n"
        "from random import Random\n"
        "from millstream.types import TopicPartition\n"
        "from tests.integration.storage.process import Process, append_one\n"
        "process = Process((sys.argv[1],))\n"
        "process.manager.start()\n"
        "log = process.manager.get_or_create(TopicPartition('t', 0), is_new=True)\n"
        "append_one(process, log, 0, Random(1))\n"
        "print('ready', flush=True)\n"
        "signal.sigwait({signal.SIGTERM})\n"
        "assert process.manager.stop(broker_epoch=17) == {}\n"
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # inherited: none is missed
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", code, path], stdout=subprocess.PIPE, cwd=_ROOT
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        child.terminate()
    assert child.wait() == 0

    again = Process((path,))
    again.manager.start()

    assert again.manager.previous_broker_epoch == 17
    assert again.manager.stop() == {}
