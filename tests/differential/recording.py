"""Asks everything of a broker, and keeps what Apache Kafka answered.

`python -m tests.differential.recording` starts Apache Kafka and writes `recorded.json` anew.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.differential.answers import differing, plain
from tests.differential.cluster import SETTINGS, Connection, prepare, served
from tests.differential.lives import all_lives
from tests.differential.requests import all_cases
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.differential.answers import Answer

_HERE: Final = Path(__file__).parent
RECORDED: Final = _HERE / "recorded.json"
DIFFERENCES: Final = _HERE / "differences.toml"


class Difference(NamedTuple):
    """Where we mean to answer otherwise."""

    request: str
    """How the names of the requests begin."""
    field: str
    reason: str
    kinds: tuple[str, ...] = ()
    """Of which kinds they are; without any, of all."""

    def explains(self, name: str, field: str) -> bool:
        """Whether an answer may differ in a field."""
        is_of_kind = not self.kinds or name.rpartition(" ")[2] in self.kinds
        return name.startswith(self.request) and is_of_kind and field == self.field


def ask_everything(address: str) -> dict[str, Answer]:
    """The answers of a new broker, by the names of the requests."""
    prepare(address)
    connection = Connection(address)
    answers = {
        case.name: plain(connection.ask(case.api, case.request, case.version))
        for case in all_cases(served(address))
    }
    answers.update(all_lives(connection))
    connection.close()
    return answers


def compare(
    theirs: Mapping[str, Answer], ours: Mapping[str, Answer]
) -> tuple[list[str], list[Difference]]:
    """What differs and should not, and the differences that were not met."""
    differences = known_differences()
    faults, met = [], set()
    for name, answer in ours.items():
        for field in differing(theirs.get(name), answer):
            why = [each for each in differences if each.explains(name, field)]
            met.update(why)
            if not why:
                faults.append(f"{name}: {field or 'all of it'}: {theirs.get(name)} / {answer}")
    return faults, [each for each in differences if each not in met]


def known_differences() -> list[Difference]:
    """The written list."""
    listed = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))["difference"]
    return [Difference(**{**each, "kinds": tuple(each.get("kinds", ()))}) for each in listed]


def recorded() -> dict[str, Answer]:
    """What Apache Kafka 4.3.1 answered."""
    answers: dict[str, Answer] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return answers


@contextmanager
def apache_kafka(scratch: Path) -> Iterator[str]:
    """A new Apache Kafka with the settings of both sides; its address."""
    data = scratch / "data"
    data.mkdir()
    broker = KafkaBroker(require_broker_jars(scratch), data, scratch)
    lines = broker.settings_path.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in SETTINGS]
    kept += [f"{key}={value}" for key, value in SETTINGS.items()]
    broker.settings_path.write_text("\n".join(kept) + "\n")
    broker.format()
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def main() -> None:
    """Write down what Apache Kafka answers."""
    with tempfile.TemporaryDirectory() as scratch, apache_kafka(Path(scratch)) as address:
        answers = ask_everything(address)
    lines = [f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in answers]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
