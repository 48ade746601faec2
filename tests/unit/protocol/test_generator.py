"""The generator: what it refuses, and that its output is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools import fresh
from tools.generate_messages.schema import SchemaError, read_schema
from tools.generate_messages.target import expected_files, stale_files, write_files

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """
[Thing]
kind = "data"
versions = "0-2"
released = "0-1"
flexible = "1+"
"""


def schema(tmp_path: Path, text: str) -> Path:
    (tmp_path / "thing.toml").write_text(text)
    return tmp_path


def test_committed_messages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert stale_files() == []
    assert fresh.main() == 0
    assert capsys.readouterr().out == ""


def test_all_287_messages_are_described() -> None:
    files = read_schema()

    assert sum(len(file.messages) for file in files) == 287
    live = sum(
        message.versions.highest - message.versions.lowest + 1
        for file in files
        for message in file.messages
    )
    assert live == 755


def test_missing_changed_and_left_over_files_are_stale_until_written(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "fetch.py").write_text("changed")
    (tmp_path / "produce.py").unlink()
    (tmp_path / "left_over.py").write_text("")

    assert stale_files(tmp_path) == ["fetch.py", "left_over.py", "produce.py"]
    assert write_files(tmp_path) == ["fetch.py", "left_over.py", "produce.py"]
    assert stale_files(tmp_path) == []
    assert (tmp_path / "fetch.py").read_text() == expected_files()["fetch.py"]


def test_a_small_schema_is_read(tmp_path: Path) -> None:
    text = HEAD + '[Thing.fields]\nparts = "[]Part"\n[Thing.Part]\nsize = "int32 1+, tag 0"\n'

    (file,) = read_schema(schema(tmp_path, text))

    (message,) = file.messages
    assert (file.module, message.name, message.key) == ("thing", "Thing", None)
    assert [field.name for field in message.structs[0].fields] == ["size"]
    assert not message.carries_records


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('[Thing.fields]\nparts = "[]Part"', "there is no struct Part"),
        ('[Thing.fields]\n[Thing.Part]\nsize = "int32"', "nothing refers to"),
        (
            '[Thing.fields]\npart = "Part"\n[Thing.Part]\npart = "Part"',
            "Part contains itself",
        ),
        ('[Thing.fields]\nsize = "int32, tag 0"', "a tag needs flexible versions"),
        ('[Thing.fields]\nblob = "records 1+, tag 0"', "records do not travel in tags"),
        ('[Thing.fields]\na = "int8 1+, tag 0"\nb = "int8 1+, tag 0"', "tag occurs twice: 0"),
        ('[Thing.fields]\nTheSize = "int32"', "not a name for a field"),
        ('[Thing.fields]\nunknown_tags = "int32"', "not a name for a field"),
        ('[Thing.fields]\nsize = "int33"', "unknown type"),
        (
            '[Thing.fields]\npart = "Part? 1+, tag 0"\n[Thing.Part]\nsize = "int32"',
            "must be null unless set",
        ),
        ("", "fields"),
    ],
)
def test_what_the_codec_could_not_keep_is_refused(tmp_path: Path, body: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem) as caught:
        read_schema(schema(tmp_path, HEAD + body))

    assert "schema/thing.toml" in str(caught.value)


def test_a_message_must_have_one_place(tmp_path: Path) -> None:
    schema(tmp_path, HEAD + "[Thing.fields]")
    (tmp_path / "again.toml").write_text(HEAD + "[Thing.fields]")

    with pytest.raises(SchemaError, match="message occurs twice: Thing"):
        read_schema(tmp_path)
