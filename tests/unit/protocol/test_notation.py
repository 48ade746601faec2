"""The notation of fields and version ranges."""

from __future__ import annotations

import pytest

from millstream.protocol.notation import NO_VERSIONS, NotationError, VersionRange, parse_field


@pytest.mark.parametrize("text", ["3-7", "3", "3+", "none", "0"])
def test_ranges_read_as_they_are_written(text: str) -> None:
    assert str(VersionRange.parse(text)) == text


def test_ranges_cover_both_ends() -> None:
    span = VersionRange.parse("3-7")

    assert [version for version in range(10) if span.covers(version)] == [3, 4, 5, 6, 7]
    assert not any(NO_VERSIONS.covers(version) for version in range(-1, 3))
    assert VersionRange.parse("3+").covers(32767)


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "3..7", "+"])
def test_nonsense_is_not_a_range(text: str) -> None:
    with pytest.raises(NotationError, match="not a version range"):
        VersionRange.parse(text)


def test_a_field_with_everything() -> None:
    field = parse_field(
        "cluster_id", "string?13+ 12+ = null, tag 0, ignorable, map_key, topic_name"
    )

    assert field.type == "string"
    assert str(field.versions) == "12+"
    assert str(field.nullable) == "13+"
    assert field.default is None
    assert field.has_null_default
    assert field.tag == 0
    assert field.is_ignorable
    assert field.is_map_key
    assert field.entity == "topic_name"
    assert not field.is_array
    assert not field.is_struct
    assert not field.is_never_compact


def test_a_bare_type_is_in_all_versions_and_never_null() -> None:
    field = parse_field("ids", "[]int32")

    assert field.is_array
    assert str(field.versions) == "0+"
    assert field.nullable == NO_VERSIONS
    assert field.tag is None


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("int32", 0),
        ("int32 = -1", -1),
        ("bool", False),
        ("bool = true", True),
        ("float64", 0.0),
        ("float64 = 1.5", 1.5),
        ("string", ""),
        ("records?", None),
        ("[]string?", None),
        ("Endpoint", None),
    ],
)
def test_defaults(text: str, default: object) -> None:
    assert parse_field("field", text).default == default


def test_structs_are_written_with_a_capital() -> None:
    assert parse_field("leader", "LeaderIdAndEpoch").is_nested_struct
    assert parse_field("leaders", "[]LeaderIdAndEpoch").is_struct
    assert not parse_field("leaders", "[]LeaderIdAndEpoch").is_nested_struct


@pytest.mark.parametrize(
    "text",
    [
        "int33",
        "",
        "int32, sometimes",
        "string = x",
        "[]int32 = 3",
        "Endpoint = 0",
    ],
)
def test_what_is_not_notation_is_refused(text: str) -> None:
    with pytest.raises(NotationError, match="field"):
        parse_field("field", text)
