"""The jars of Spark's own Kafka connector, for jobs that run on both connectors.

They come from Maven one by one and stay in the cache of jars. Spark's own project files name a
mirror before the central repository, so whatever resolves what they need depends on that mirror;
fetching the four jars by name does not.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.java_client import DOWNLOAD_SECONDS_MAX, jar_directory

if TYPE_CHECKING:
    from pathlib import Path

CONNECTOR: Final = "4.2.0"
"""The newest on Maven. Spark 4.3 runs it as it is."""

_ARTIFACTS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    # Later ones are missing on Maven. It holds delegation tokens, which no test here uses.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


def connector_jars() -> list[Path]:
    """The connector and what it needs beyond Spark; the test is skipped if that cannot be."""
    directory = jar_directory() / f"spark-kafka-{CONNECTOR}"
    found = [directory / _file_name(each) for each in _ARTIFACTS]
    for artifact, path in zip(_ARTIFACTS, found, strict=True):
        if not path.exists():
            _fetch(artifact, directory)
    return found


def _file_name(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def _fetch(artifact: str, directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"no mvn on the PATH, and {artifact} is not in {directory}")
    where = f"-DoutputDirectory={directory}"
    copied = subprocess.run(
        [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", where],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if copied.returncode:
        pytest.skip(f"Maven cannot fetch {artifact}: {copied.stdout[-500:]}")
