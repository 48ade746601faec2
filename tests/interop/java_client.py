"""Apache Kafka's Java client for tests: its jars, and programs that run on them.

The jars come from Maven by their coordinates and stay in a cache outside the tree:
`$MILLSTREAM_JARS`, or `millstream/jars` in the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KAFKA_CLIENTS = "4.3.1"
SLF4J = "1.7.36"
DOWNLOAD_SECONDS_MAX = 280
RUN_SECONDS_MAX = 120

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId>
  <artifactId>interop</artifactId>
  <version>0</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-clients</artifactId>
      <version>{KAFKA_CLIENTS}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-nop</artifactId>
      <version>{SLF4J}</version>
    </dependency>
  </dependencies>
</project>
"""


def jar_directory() -> Path:
    """Where the jars are, or will be."""
    if given := os.environ.get("MILLSTREAM_JARS"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "millstream" / "jars"


def require_jars(scratch: Path) -> Path:
    """The directory with the client and what it needs; the test is skipped if that cannot be."""
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH: the Java client cannot run")
    jars = jar_directory()
    if not (jars / f"kafka-clients-{KAFKA_CLIENTS}.jar").exists():
        _download(jars, scratch)
    return jars


def _download(jars: Path, scratch: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"no mvn on the PATH, and no kafka-clients {KAFKA_CLIENTS} in {jars}")
    (scratch / "pom.xml").write_text(POM)
    copied = subprocess.run(
        [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if copied.returncode:
        pytest.skip(f"Maven cannot fetch kafka-clients {KAFKA_CLIENTS}: {copied.stdout[-500:]}")


def run_java(jars: Path, source: Path, *arguments: object) -> None:
    """Compile and run a program of one source file."""
    ran = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(source), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
