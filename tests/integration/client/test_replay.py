"""Records sent once more: dead letters home, windows elsewhere, and how the command tells of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.cli.main import main
from millstream.client.retrying.replay import REPLAYED_FROM, ReplayPlan, ReplayReport, replay
from millstream.errors import InvalidArgument, OffsetOutOfRange
from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.records.kernel import ConsumerRecord

pytestmark = pytest.mark.integration

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def name(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic with ten records, a second apart."""
    topic = f"t{abs(hash(request.node.name))}"
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            headers = [("n", str(number).encode())]
            if number % 2:
                headers += [
                    ("millstream.retry.topic", f"{topic}.home".encode()),
                    ("millstream.retry.error.type", b"builtins.ValueError"),
                    ("millstream.retry.error.message", b"is %d" % number),
                ]
            producer.send(
                topic,
                f"v{number}",
                key=f"k{number}",
                timestamp=START_MS + 1000 * number,
                headers=headers,
            )
    return topic


def values(broker: EmbeddedBroker, topic: str, count: int) -> list[ConsumerRecord]:
    """Exactly so many records of a topic."""
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[ConsumerRecord] = []
        while len(found) < count:
            polled = consumer.poll(5.0)
            assert polled
            found += polled
        assert consumer.lag(TopicPartition(topic, 0)) == 0
    return found


def test_dead_letters_go_home_without_their_history(broker: EmbeddedBroker, name: str) -> None:
    report = replay(broker.bootstrap_servers, ReplayPlan(source=name))

    assert (report.read, report.homeless) == (10, 5)
    assert dict(report.sent) == {f"{name}.home": 5}
    first = values(broker, f"{name}.home", 5)[0]
    assert (first.key, first.value, first.timestamp) == (b"k1", b"v1", START_MS + 1000)
    assert first.headers == (("n", b"1"), (REPLAYED_FROM, f"{name}-0@1".encode()))


def test_a_window_of_time_goes_to_another_topic(broker: EmbeddedBroker, name: str) -> None:
    plan = ReplayPlan(
        source=name,
        to=f"{name}.again",
        start=datetime.fromtimestamp(START_MS / 1000 + 2.5, UTC),
        end=datetime.fromtimestamp(START_MS / 1000 + 6, UTC),
    )

    replay(broker.bootstrap_servers, plan)

    found = values(broker, f"{name}.again", 3)
    assert [each.value for each in found] == [b"v3", b"v4", b"v5"]


def test_a_topic_replayed_into_itself_comes_to_an_end(broker: EmbeddedBroker, name: str) -> None:
    report = replay(broker.bootstrap_servers, ReplayPlan(source=name, to=name))

    assert report.sent.total() == 10
    assert len(values(broker, name, 20)) == 20


def test_a_dry_run_sends_nothing(broker: EmbeddedBroker, name: str) -> None:
    seen: list[int] = []
    plan = ReplayPlan(source=name, to=f"{name}.again", dry_run=True)

    report = replay(broker.bootstrap_servers, plan, on_progress=lambda now: seen.append(now.passed))

    assert report.sent.total() == 10
    assert (report.passed, report.total, seen[-1]) == (10, 10, 10)
    with Producer(broker.bootstrap_servers, max_block=20) as producer:
        assert len(producer.partitions_for(name)) == 1
    replay(broker.bootstrap_servers, ReplayPlan(source=name, to=f"{name}.again", limit=1))
    assert len(values(broker, f"{name}.again", 1)) == 1, "nothing but the one of the second run"


def test_filter_limit_and_rate(broker: EmbeddedBroker, name: str) -> None:
    plan = ReplayPlan(
        source=name,
        to=f"{name}.again",
        start={0: 1},
        end=9,
        where=lambda record: record.key != b"k2",
        limit=3,
        rate=1000.0,
    )

    report = replay(broker.bootstrap_servers, plan)

    assert report.filtered == 1
    assert [each.value for each in values(broker, f"{name}.again", 3)] == [b"v1", b"v3", b"v4"]


@pytest.mark.parametrize("settings", [{"rate": 0.0}, {"limit": 0}])
def test_a_plan_that_makes_no_sense_is_refused(settings: Any) -> None:
    with pytest.raises(InvalidArgument):
        ReplayPlan(source="t", **settings)


def test_places_that_are_not_there_are_told(broker: EmbeddedBroker, name: str) -> None:
    with pytest.raises(OffsetOutOfRange, match="outside the log"):
        replay(broker.bootstrap_servers, ReplayPlan(source=name, start=99))
    with pytest.raises(InvalidArgument, match="1 partitions"):
        replay(broker.bootstrap_servers, ReplayPlan(source=name, partitions=[3]))


def test_an_interrupted_replay_tells_how_far_it_came(broker: EmbeddedBroker, name: str) -> None:
    report = ReplayReport()

    def interrupt(record: ConsumerRecord) -> bool:
        if record.offset == 4:
            raise KeyboardInterrupt
        return True

    plan = ReplayPlan(source=name, to=f"{name}.again", where=interrupt)
    with pytest.raises(KeyboardInterrupt):
        replay(broker.bootstrap_servers, plan, report=report)

    assert report.sent.total() == 4
    assert len(values(broker, f"{name}.again", 4)) == 4


# The command.


@pytest.fixture
def run(
    broker: EmbeddedBroker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVER", broker.bootstrap_servers)

    def run_line(*arguments: str) -> tuple[int, str, str]:
        code = main(["replay", *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run_line


def test_the_command_tells_what_would_go_where(name: str, run: Any) -> None:
    code, out, err = run(name, "--dry-run", "--error", "ValueError: is [135]")

    assert code == 0
    assert f"3 records would be sent to {name}.home" in out
    assert "7 records left out by the filter" in out
    assert err == ""


def test_the_command_names_what_has_no_home(name: str, run: Any) -> None:
    _, out, err = run(name)

    assert f"5 records sent to {name}.home" in out
    assert "5 records without a header" in err
    assert "--to TOPIC" in err


def test_the_command_has_filters_and_json(broker: EmbeddedBroker, name: str, run: Any) -> None:
    import json

    code, out, _ = run(
        name, "--to", f"{name}.x", "--key", "k[0-4]", "--value", "v", "--header", "n=[34]", "--json"
    )

    assert code == 0
    assert json.loads(out) == {
        "source": name,
        "dry_run": False,
        "read": 10,
        "sent": {f"{name}.x": 2},
        "filtered": 8,
        "without_origin": 0,
        "next_offsets": {"0": 10},
    }
    assert [each.value for each in values(broker, f"{name}.x", 2)] == [b"v3", b"v4"]


def test_the_command_takes_windows(name: str, run: Any) -> None:
    _, by_offset, _ = run(name, "--to", "x", "--dry-run", "--offset", "3", "--to-offset", "5")
    _, by_time, _ = run(
        name, "--to", "x", "--dry-run", "--from-time", str(START_MS + 8000), "--until", "now"
    )

    assert by_offset == "2 records would be sent to x\n"
    assert by_time == "2 records would be sent to x\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--key", "("), "--key '(' is no regular expression"),
        (("--offset", "1", "--from-time", "1h"), "one of --offset and --from-time"),
        (("--to-offset", "1", "--until", "1h"), "one of --to-offset and --until"),
        (("--rate", "0"), "rate=0"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    name: str, run: Any, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = run(name, *arguments)

    assert code != 0
    assert told in err
    assert out == ""
