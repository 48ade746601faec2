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

CLIENT = ("org.apache.kafka:kafka-clients", "org.slf4j:slf4j-nop")
# What the tools need beyond the broker's own jars is of no use here: a user's dump tool needs none.
BROKER = (
    "org.apache.kafka:kafka_2.13",
    "org.apache.kafka:kafka-tools!",
    "org.apache.kafka:kafka-shell!",
    "org.slf4j:slf4j-simple",
)

_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{exclusions}
    </dependency>
"""
_ALONE = """
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>"""
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId>
  <artifactId>interop</artifactId>
  <version>0</version>
  <dependencies>
{dependencies}  </dependencies>
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
    jars = jar_directory()
    _require(jars, f"kafka-clients-{KAFKA_CLIENTS}.jar", CLIENT, scratch)
    return jars


def require_broker_jars(scratch: Path) -> Path:
    """The directory with a whole broker and its tools; the test is skipped if that cannot be."""
    jars = jar_directory() / f"kafka-{KAFKA_CLIENTS}"
    _require(jars, f"kafka-shell-{KAFKA_CLIENTS}.jar", BROKER, scratch)
    return jars


def _require(jars: Path, name: str, wanted: tuple[str, ...], scratch: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH: Apache Kafka cannot run")
    if not (jars / name).exists():
        _download(jars, wanted, scratch)


def _download(jars: Path, wanted: tuple[str, ...], scratch: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"no mvn on the PATH, and not everything of {', '.join(wanted)} in {jars}")
    (scratch / "pom.xml").write_text(_pom(wanted))
    copied = subprocess.run(
        [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS_MAX,
        check=False,
    )
    if copied.returncode:
        pytest.skip(f"Maven cannot fetch {', '.join(wanted)}: {copied.stdout[-500:]}")


def _pom(wanted: tuple[str, ...]) -> str:
    """A project that depends on these; one that ends in `!` comes without what it needs."""
    dependencies = []
    for each in wanted:
        group, artifact = each.rstrip("!").split(":")
        version = KAFKA_CLIENTS if "kafka" in group else SLF4J
        exclusions = _ALONE if each.endswith("!") else ""
        dependencies.append(
            _DEPENDENCY.format(
                group=group, artifact=artifact, version=version, exclusions=exclusions
            )
        )
    return _POM.format(dependencies="".join(dependencies))


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
