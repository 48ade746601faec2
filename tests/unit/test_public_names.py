"""What `millstream` itself has to import."""

from __future__ import annotations

import subprocess
import sys

import millstream
from millstream import errors


def test_every_name_can_be_imported_from_the_top() -> None:
    assert all(getattr(millstream, name) is not None for name in millstream.__all__)
    assert {"Attempt", "EmbeddedBroker", "NewTopic"} <= set(millstream.__all__)


def test_every_exception_can_be_imported_from_the_top() -> None:
    for name in errors.__all__:
        assert getattr(millstream, name) is getattr(errors, name)
        assert name in dir(millstream)


def test_types_of_keys_and_values_can_be_written_where_code_runs() -> None:
    generic = ("Attempt", "Consumer", "ConsumerRecord", "Producer", "ShareConsumer", "ShareRecord")
    for name in (*generic, "AsyncConsumer", "AsyncProducer", "AsyncShareConsumer"):
        assert "[str, int]" in repr(getattr(millstream, name)[str, int])


def test_no_exception_hides_another_public_name() -> None:
    assert not set(errors.__all__) & set(millstream.__all__)


def test_a_part_of_the_package_can_be_imported_first() -> None:
    asked = "from millstream import errors, client; print(errors.__name__, client.__name__)"

    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )

    assert ran.stdout.strip() == "millstream.errors millstream.client"


def test_importing_the_package_imports_none_of_its_parts() -> None:
    asked = "import sys, millstream; print([each for each in sys.modules if 'millstream.' in each])"

    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )

    assert ran.stdout.strip() == "[]"
