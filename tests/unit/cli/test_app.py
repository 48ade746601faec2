"""The tree of commands: all are listed, known to the shell, and wrong ones get a line."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import typer.main

import millstream
from millstream.cli import server
from millstream.cli.app import COMMANDS, run
from millstream.cli.faults import CommandFailed, ExitCode
from millstream.cli.main import main
from millstream.errors import InvalidTopic
from millstream.node.main import parser


def test_every_command_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == ExitCode.OK

    printed = capsys.readouterr().out
    assert [name for name in COMMANDS if f" {name} " not in printed] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == ExitCode.OK

    assert f"Usage: millstream {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("millstream s", {"server", "share-groups", "storage"}),
        ("millstream server st", {"start", "stop", "status"}),
        ("millstream server stop --t", {"--timeout"}),
        ("millstream consume --fr", {"--from-beginning", "--from-end", "--from-time"}),
    ],
)
def test_the_shell_completes_commands_and_options(
    words: str,
    expected: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_MILLSTREAM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))

    with pytest.raises(SystemExit):
        run([])

    assert set(capsys.readouterr().out.split()) == expected


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"millstream {millstream.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topcs"], "did you mean 'topics'?"),
        (["xyzzy"], "millstream --help"),
        (["topics", "lst"], "list"),
        (["consume"], "TOPIC"),
    ],
)
def test_a_wrong_command_gets_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE

    printed = capsys.readouterr().err
    assert says in printed
    assert printed.count("\n") == 1


def test_the_help_of_server_has_what_its_parser_takes() -> None:
    shown = typer.main.get_command(server.family)
    taken: Any = next(
        action.choices["server"]
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    commands = next(
        action.choices
        for action in taken._actions
        if isinstance(action, argparse._SubParsersAction)
    )

    assert {
        name: {each for param in command.params for each in param.opts if each != "--help"}
        for name, command in shown.commands.items()  # type: ignore[attr-defined]  # A group's.
    } == {
        name: {
            each
            for action in command._actions
            for each in action.option_strings
            if each not in ("--help", "-h")
        }
        for name, command in commands.items()
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "start",
            "--data",
            "d",
            "--config",
            "f",
            "--set",
            "a=b",
            "--set",
            "c=d",
            "--listen",
            "h:1",
            "--advertise",
            "outside:2",
            "--override-dynamic",
            "e=f",
            "--json",
        ],
        ["stop", "--data", "d", "--timeout", "3.0", "--force", "--json"],
        ["status", "--json"],
    ],
)
def test_a_server_that_comes_through_the_tree_gets_the_same_arguments(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    def run_node(arguments: list[str]) -> int:
        given.append(arguments)
        return 3

    monkeypatch.setattr(server, "run_node", run_node)

    assert run(["server", *arguments]) == 3
    assert parser().parse_args(given[0]) == parser().parse_args(["server", *arguments])


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (CommandFailed("first\nsecond"), ExitCode.FAILED, "first second"),
        (InvalidTopic("no."), ExitCode.FAILED, "no (INVALID_TOPIC_EXCEPTION)"),
        (OSError("disk"), ExitCode.FAILED, "disk"),
        (typer.Abort(), ExitCode.INTERRUPTED, ""),
        (BrokenPipeError(), ExitCode.BROKEN_PIPE, ""),
    ],
)
def test_what_commands_raise_becomes_a_line_and_a_code(
    error: Exception,
    code: ExitCode,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("millstream.cli.storage.random_uuid", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)

    assert run(["storage", "random-uuid"]) == code
    assert says in capfd.readouterr().err


@pytest.mark.parametrize("command", [("topics", "list"), ("server", "start"), ("produce",), ()])
def test_the_short_option_helps_too_and_flags_have_no_value(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "-h"]) == ExitCode.OK

    printed = capsys.readouterr().out
    assert "--help" in printed
    assert "<bool>" not in printed


def test_a_command_line_comes_from_the_process_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["millstream", "--version"])

    assert main() == ExitCode.OK
    assert millstream.__version__ in capsys.readouterr().out
