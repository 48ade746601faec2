"""Lines into records: separators, nulls, JSON, escapes, and what is said to wrong ones."""

from __future__ import annotations

import pytest

from millstream.cli.faults import UsageFault
from millstream.cli.record_text import (
    LineParser,
    NewRecord,
    parse_header,
    parse_json_line,
    unescape,
)


def test_a_line_is_a_value() -> None:
    assert LineParser().parse(b"a:b") == NewRecord(None, b"a:b", ())


def test_a_line_is_split_at_the_first_separator() -> None:
    parser = LineParser(key_separator=b"::", headers=(("from", b"test"),))

    assert parser.parse(b"k::v::w") == NewRecord(b"k", b"v::w", (("from", b"test"),))
    assert parser.parse(b"::v") == NewRecord(b"", b"v", (("from", b"test"),))


def test_a_fixed_key_is_for_every_line() -> None:
    assert LineParser(key=b"k").parse(b"v") == NewRecord(b"k", b"v", ())


def test_a_marker_stands_for_null_only_as_a_whole() -> None:
    parser = LineParser(key_separator=b":", null_marker=b"NULL")

    assert parser.parse(b"NULL:NULL") == NewRecord(None, None, ())
    assert parser.parse(b"k:NULLs") == NewRecord(b"k", b"NULLs", ())


def test_a_line_without_the_separator_is_shown() -> None:
    with pytest.raises(UsageFault, match=r"separator ':': 'x{60}…'"):
        LineParser(key_separator=b":").parse(b"x" * 100)


def test_a_json_line_may_say_everything() -> None:
    line = (
        '{"key": "ключ", "value": {"base64": "AP8="}, "partition": 2, "timestamp": 5,'
        ' "headers": [["a", "b"], ["a", null], ["h", {"hex": "00ff"}]], "offset": 9}'
    ).encode()

    assert parse_json_line(line) == NewRecord(
        "ключ".encode(), b"\x00\xff", (("a", b"b"), ("a", None), ("h", b"\x00\xff")), 2, 5
    )


def test_a_json_value_that_is_no_text_is_written_as_json() -> None:
    assert parse_json_line(b'{"value": {"a": [1, true]}}').value == b'{"a":[1,true]}'
    assert parse_json_line(b'{"value": {"hex": "00", "b": 1}}').value == b'{"hex":"00","b":1}'
    assert parse_json_line(b"{}") == NewRecord(None, None, ())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"value": {"base64": "?"}}', "base64|padding|character|Only"),
        (b'{"value": {"hex": "0"}}', "fromhex|hex"),
        (b'{"partition": "1"}', "'1' is not a whole number"),
        (b'{"timestamp": true}', "True is not a whole number"),
        (b'{"headers": 5}', "headers are an object, or a list of .name, value. pairs"),
        (b'{"headers": [1]}', "headers are an object"),
        (b'{"headers": ["ab"]}', "headers are an object"),
        (b'{"headers": [["a", "b", "c"]]}', "headers are an object"),
    ],
)
def test_a_wrong_json_line_is_refused(line: bytes, says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        parse_json_line(line)


def test_a_header_is_a_name_and_a_value() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a=") == ("a", b"")


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_a_header_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="name=value"):
        parse_header(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(r"\t", "\t"), (r"\n\r\0", "\n\r\0"), (r"\\t", r"\t"), (r"\x41\xzz", "Axzz"), ("\\", "\\")],
)
def test_escapes_are_read(text: str, expected: str) -> None:
    assert unescape(text) == expected


def test_headers_of_a_json_line_are_an_object_or_pairs() -> None:
    as_object = parse_json_line(b'{"headers": {"id": "7", "none": null}}')
    as_pairs = parse_json_line(b'{"headers": [["id", "7"], ["none", null]]}')

    assert as_object.headers == as_pairs.headers == (("id", b"7"), ("none", None))
