"""Records into text: lines, JSON that can be read back, templates, what a terminal may see."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.faults import UsageFault
from millstream.cli.record_format import (
    Encoding,
    bytes_as_json,
    compile_format,
    json_lines,
    terminal_text,
    value_lines,
    value_show,
)
from millstream.cli.record_text import parse_json_line
from millstream.records import Record

RECORD = Record(7, 1234, b"key", b"a\xff", (("name", b"v"), ("none", None)))
EMPTY = Record(8, -1, None, None)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [(Encoding.TEXT, b"a\xff"), (Encoding.HEX, b"61ff"), (Encoding.BASE64, b"Yf8=")],
)
def test_values_are_written_as_they_are_or_encoded(encoding: Encoding, expected: bytes) -> None:
    render = value_lines(value_show(encoding), None)

    assert render("t", 0, RECORD) == expected + b"\n"
    assert render("t", 0, EMPTY) == b"null\n"


def test_keys_come_before_their_separator() -> None:
    render = value_lines(value_show(Encoding.TEXT, null="-"), r"\t")

    assert render("t", 0, RECORD) == b"key\ta\xff\n"
    assert render("t", 0, EMPTY) == b"-\t-\n"


def test_a_terminal_gets_nothing_that_moves_its_cursor() -> None:
    show = value_show(Encoding.TEXT, is_for_terminal=True)

    assert show(b"a\x1b[2J\xff\tb\n") == b"a\\x1b[2J\\xff\tb\n"
    assert terminal_text("größe".encode()) == "größe"


def test_json_lines_say_everything() -> None:
    line = json_lines(Encoding.TEXT)("t", 3, RECORD)

    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1234,
        "key": "key",
        "value": {"base64": "Yf8="},
        "headers": [["name", "v"], ["none", None]],
    }


def test_json_can_be_asked_to_encode_everything() -> None:
    assert bytes_as_json(b"a", Encoding.HEX) == {"hex": "61"}
    assert bytes_as_json(b"a", Encoding.BASE64) == {"base64": "YQ=="}
    assert bytes_as_json(None, Encoding.HEX) is None


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary())),
    encoding=st.sampled_from(Encoding),
)
def test_what_consume_prints_as_json_produce_reads(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    encoding: Encoding,
) -> None:
    record = Record(0, 5, key, value, tuple(headers))

    read = parse_json_line(json_lines(encoding)("t", 2, record))

    assert (read.key, read.value, read.headers) == (key, value, tuple(headers))
    assert (read.partition, read.timestamp) == (2, 5)


def test_a_format_has_every_token() -> None:
    show = value_show(Encoding.TEXT, null="NULL")
    render = compile_format(r"%t %p %o %T %k=%s %K %S [%h] 100%%\n", show)

    assert render("t", 1, RECORD) == b"t 1 7 1234 key=a\xff 3 2 [name=v,none=NULL] 100%\n"
    assert render("t", 1, EMPTY) == b"t 1 8 -1 NULL=NULL -1 -1 [] 100%\n"


@pytest.mark.parametrize("template", ["%q", "100%"])
def test_an_unknown_token_is_answered_with_those_that_are(template: str) -> None:
    with pytest.raises(UsageFault, match="there are %t, %p"):
        compile_format(template, value_show(Encoding.TEXT))
