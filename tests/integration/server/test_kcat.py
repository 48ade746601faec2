"""kcat, which is librdkafka on the command line."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from millstream.records import Compression, split_batches
from tests.integration.node.harness import Client

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
LINES = [f"line {number}" for number in range(2000)]


@pytest.fixture(autouse=True)
def kcat() -> str:
    if KCAT is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    return KCAT


def run(kcat: str, *arguments: str, given: str = "") -> list[str]:
    """What it prints."""
    done = subprocess.run(
        [kcat, *arguments], input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(kcat: str, broker: str, topic: str, codec: str) -> None:
    run(kcat, "-b", broker, "-P", "-t", topic, "-z", codec, given="\n".join(LINES))

    assert run(kcat, "-b", broker, "-C", "-t", topic, "-e", "-q") == LINES


def test_the_codec_is_really_used(kcat: str, broker: str, topic: str) -> None:
    """With other advertised versions librdkafka would silently not compress."""
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        name = f"{topic}-{codec.config_name}"
        run(kcat, "-b", broker, "-P", "-t", name, "-z", codec.config_name, given="\n".join(LINES))
        with Client(broker) as client:
            _, records, _ = client.fetch(name, 0)
        # A batch of one line is not compressed, for it would only grow.
        used = {batch.compression for batch in split_batches(records)}
        assert codec in used


def test_an_idempotent_producer(kcat: str, broker: str, topic: str) -> None:
    arguments = ("-P", "-t", topic, "-X", "enable.idempotence=true")

    run(kcat, "-b", broker, *arguments, given="\n".join(LINES))

    assert run(kcat, "-b", broker, "-C", "-t", topic, "-e", "-q") == LINES


def test_offsets_by_time_and_metadata(kcat: str, broker: str, topic: str) -> None:
    run(kcat, "-b", broker, "-P", "-t", topic, given="a\nb\nc")

    assert run(kcat, "-b", broker, "-Q", "-t", f"{topic}:0:1")[0].endswith("offset 0")
    listed = run(kcat, "-b", broker, "-L", "-t", topic)
    assert any("partition 0, leader 1" in line for line in listed)
    assert run(kcat, "-b", broker, "-C", "-t", topic, "-o", "-1", "-e", "-q") == ["c"]
