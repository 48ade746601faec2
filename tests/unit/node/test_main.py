"""The arguments of `server start`, and what is wrong with them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidConfig
from millstream.node.config import node_config
from millstream.node.main import EXIT_USAGE, loop_factory, main, parser, read_config

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.node.config import NodeConfig


def config_of(*arguments: str, **environment: str) -> NodeConfig:
    parsed = parser().parse_args(["server", "start", *arguments])
    return read_config(
        environment,
        file=parsed.config,
        data=parsed.data,
        listen=parsed.listen,
        advertise=parsed.advertise,
        settings=parsed.settings,
        override_dynamic=parsed.override_dynamic,
    )


def test_without_arguments_there_is_a_directory_to_work_in() -> None:
    config = config_of()

    assert config.logs.log_dirs[0].endswith("/millstream-data")
    assert str(config.network.endpoints[0]) == "PLAINTEXT://localhost:9092"


def test_data_and_listen_stand_for_their_settings() -> None:
    config = config_of("--data", "/here", "--listen", "0.0.0.0:19092")

    assert config.logs.log_dirs == ("/here",)
    assert str(config.network.endpoints[0]) == "PLAINTEXT://0.0.0.0:19092"


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nnode.id=2\nbroker.rack=a\nlog.dirs=/file\n")

    config = config_of(
        *("--config", str(file), "--set", "num.partitions=4", "--data", "/argument"),
        MILLSTREAM_NUM_PARTITIONS="3",
        MILLSTREAM_NODE_ID="3",
    )

    assert config.controller.num_partitions == 4
    assert config.process.node_id == 3
    assert config.process.broker_rack == "a"
    assert config.logs.log_dirs == ("/argument",)


STOCK = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
"""


def test_listen_moves_only_the_listener_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK)

    config = config_of("--config", str(file), "--listen", "127.0.0.1:19092")

    endpoints = config.network.endpoints
    assert [str(each) for each in endpoints] == [
        "PLAINTEXT://127.0.0.1:19092",
        "CONTROLLER://:9093",
    ]
    advertised = config.network.advertised(endpoints, "host.example.org")
    assert [str(each) for each in advertised] == ["PLAINTEXT://127.0.0.1:19092"]


def test_a_listener_keeps_its_name_and_protocol(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        STOCK.replace("PLAINTEXT://", "INSIDE://")
        .replace("SSL:SSL", "INSIDE:PLAINTEXT")
        .replace("listener.name=PLAINTEXT", "listener.name=INSIDE")
    )

    config = config_of("--config", str(file), "--listen", "[::1]:19092")

    assert str(config.network.endpoints[0]) == "INSIDE://[::1]:19092"


@pytest.mark.parametrize(
    ("advertise", "told"),
    [
        ("broker.example.org", "PLAINTEXT://broker.example.org:19092"),
        ("broker.example.org:29092", "PLAINTEXT://broker.example.org:29092"),
        ("[2001:db8::1]", "PLAINTEXT://[2001:db8::1]:19092"),
        ("[2001:db8::1]:7", "PLAINTEXT://[2001:db8::1]:7"),
    ],
)
def test_advertise_says_what_clients_are_told(advertise: str, told: str) -> None:
    config = config_of("--listen", "0.0.0.0:19092", "--advertise", advertise)

    advertised = config.network.advertised(config.network.endpoints[:1], "localhost")
    assert [str(each) for each in advertised] == [told]


@pytest.mark.parametrize("advertise", ["", "0.0.0.0", "[::]:9092", "a b", "host:port", ":9092"])
def test_what_nobody_can_connect_to_is_not_advertised(advertise: str) -> None:
    with pytest.raises(InvalidConfig, match=r"--advertise .*: write it as HOST or HOST:PORT"):
        config_of("--listen", "0.0.0.0:19092", "--advertise", advertise)


def test_a_dynamic_setting_can_be_overridden_for_a_process() -> None:
    config = config_of("--override-dynamic", "max.connections=100")

    assert config.dynamic_overrides == {"max.connections": "100"}


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("max.connection=1", "no such setting; did you mean max.connections?"),
        ("max.connections=0", "max.connections=0: must be at least 1"),
        ("node.id=7", "node.id cannot be changed while brokers run"),
    ],
)
def test_an_override_must_be_something_a_broker_can_be_told(override: str, problem: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config_of("--override-dynamic", override)

    assert problem in str(caught.value)


def test_set_wins_over_listen() -> None:
    config = config_of("--listen", "localhost:1", "--set", "listeners=PLAINTEXT://localhost:2")

    assert str(config.network.endpoints[0]) == "PLAINTEXT://localhost:2"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--listen", "9092"), "--listen 9092: did you mean localhost:9092? write it as HOST:PORT"),
        (("--listen", "localhost"), "--listen localhost: write it as HOST:PORT"),
        (("--listen", "h:99999"), "--listen h:99999: write it as HOST:PORT"),
        (("--listen", "PLAINTEXT://h:1"), "--listen PLAINTEXT://h:1: write it as HOST:PORT"),
        (
            ("--listen", "h:1", "--set", "process.roles=controller"),
            "--listen h:1: a node that is no broker has no clients",
        ),
    ],
)
def test_what_is_wrong_with_listen_is_said_of_listen(
    arguments: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        config_of(*arguments)

    assert str(caught.value).startswith(problem)


def test_listen_does_not_choose_among_several_listeners() -> None:
    variables = {"MILLSTREAM_LISTENERS": "INSIDE://:1,OUTSIDE://:2,CONTROLLER://:3"}

    with pytest.raises(InvalidConfig, match=r"several listeners \(INSIDE, OUTSIDE\)"):
        config_of("--listen", "localhost:1", **variables)


def test_wrong_settings_are_told_in_one_line_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["server", "start", "--data", str(tmp_path), "--set", "num.partitions=x"])

    assert code == EXIT_USAGE
    error = capsys.readouterr().err
    wanted = "must be a whole number of 32 bits, at least 1"
    assert error == f"millstream: invalid setting num.partitions=x: {wanted}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("server",), "start|stop|status"),
        (("server", "strt"), "invalid choice: 'strt'"),
        (("server", "start", "--nonsense"), "--nonsense"),
        (("server", "stop", "--timeout", "soon"), "--timeout: soon: must be a number of seconds"),
        (("server", "stop", "--timeout", "-1"), "--timeout: -1: must be a number of seconds"),
        (("server", "stop", "--timeout", "inf"), "--timeout: inf: must be a number of seconds"),
    ],
)
def test_a_wrong_command_line_gets_one_line(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == EXIT_USAGE
    error = capsys.readouterr().err
    assert error.startswith("millstream: ")
    assert says in error
    assert error.endswith("(see --help)\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize("wanted", ["auto", "uvloop"])
def test_uvloop_is_taken_if_it_is_installed(wanted: str) -> None:
    factory = loop_factory(node_config({"millstream.event.loop": wanted}))

    assert factory is not None
    assert factory.__module__.startswith("uvloop")


def test_asyncio_is_taken_if_it_is_wanted_or_all_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert loop_factory(node_config({"millstream.event.loop": "asyncio"})) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert loop_factory(node_config({})) is None


def test_uvloop_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    with pytest.raises(InvalidConfig, match="pip install"):
        loop_factory(node_config({"millstream.event.loop": "uvloop"}))
