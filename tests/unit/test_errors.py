"""The exception tree: every wire code has one class, and each says what it means."""

from __future__ import annotations

import pickle

import pytest

from millstream import errors


def test_every_code_of_the_protocol_has_a_class() -> None:
    assert set(errors.ERRORS_BY_CODE) == set(range(-1, 137)) - {errors.NO_ERROR}


@pytest.mark.parametrize("code", sorted(errors.ERRORS_BY_CODE))
def test_class_and_code_lead_to_each_other(code: int) -> None:
    cls = errors.class_for_code(code)

    assert cls.code == code
    assert getattr(errors, cls.__name__) is cls
    assert cls.sentence().endswith(".")


def test_class_names_follow_the_wire_names() -> None:
    renamed = {
        cls.wire_name: cls.__name__
        for cls in errors.ERRORS_BY_CODE.values()
        if cls.__name__.lower() != cls.wire_name.replace("_", "").lower()
    }

    assert renamed == {"INVALID_TOPIC_EXCEPTION": "InvalidTopic"}


def test_what_the_caller_may_do_follows_from_the_class() -> None:
    assert not errors.MessageTooLarge.retriable
    assert errors.CorruptMessage.retriable
    assert not errors.CorruptMessage.refreshes_metadata
    assert errors.NotLeaderOrFollower.retriable
    assert errors.NotLeaderOrFollower.refreshes_metadata


RETRIABLE = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80}
RETRIABLE |= {83, 84, 88, 89, 100, 103, 106, 122, 123, 133}


def test_the_retriable_codes_are_those_of_the_protocol() -> None:
    assert {code for code, cls in errors.ERRORS_BY_CODE.items() if cls.retriable} == RETRIABLE


def test_a_code_from_the_future_is_an_unknown_server_error_that_names_it() -> None:
    error = errors.error_for_code(9_999)

    assert isinstance(error, errors.UnknownServerError)
    assert "9999" in str(error)
    assert str(errors.error_for_code(9_999, "overheated")) == "overheated"


def test_the_other_sides_words_win_over_our_sentence() -> None:
    assert str(errors.error_for_code(10)) == errors.MessageTooLarge.sentence()
    assert str(errors.error_for_code(10, "2 MB, limit 1 MB")) == "2 MB, limit 1 MB"


def test_a_sharper_class_does_not_take_its_parents_code() -> None:
    assert errors.DecompressedTooLarge.code == errors.CorruptMessage.code
    assert errors.class_for_code(errors.CorruptMessage.code) is errors.CorruptMessage


def test_a_decode_error_says_where_the_fault_is() -> None:
    error = errors.DecodeError(
        "4 bytes missing", message="FetchRequest", version=12, field="topics.topic_id", position=71
    )

    assert str(error) == "FetchRequest v12 field topics.topic_id at byte 71: 4 bytes missing"
    assert str(errors.DecodeError("4 bytes missing")) == "4 bytes missing"


def test_errors_survive_pickling() -> None:
    decode = errors.DecodeError("short", message="X", version=1, field="f", position=2)
    api = errors.CorruptMessage("bad checksum")

    assert str(pickle.loads(pickle.dumps(decode))) == str(decode)
    assert str(pickle.loads(pickle.dumps(api))) == "bad checksum"


def test_an_invalid_argument_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="level"):
        raise errors.InvalidArgument("level 99")
