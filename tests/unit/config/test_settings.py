"""Declaring, checking, parsing and documenting settings, on a small class of its own."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar

import pytest

from millstream.config import (
    REQUIRED,
    ConfigType,
    Rule,
    Synonym,
    any_value,
    at_least,
    between,
    each,
    from_synonyms,
    key,
    keys_of,
    nearest_key,
    non_empty,
    one_of,
    parse,
    parse_faults,
    render_reference,
    replace,
    subset_of,
    to_properties,
    unknown_keys,
    validate,
)
from millstream.errors import InvalidConfig
from millstream.types import INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class KettleConfig:
    """Settings of nothing real: one of each type."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ("stop_ms", "start_ms"),
            lambda stop_ms, start_ms: stop_ms >= start_ms,
            "at least kettle.start.ms ({start_ms})",
        ),
    )

    litres: int = key("kettle.litres", 2, between(1, 10).or_exactly(-1), "How much it holds.")
    start_ms: int = key(
        "kettle.start.ms",
        1000,
        at_least(0),
        "When to start.",
        kind=ConfigType.LONG,
        unit="ms",
        synonyms=("kitchen.start.ms", Synonym("kitchen.start.seconds", 1000)),
    )
    stop_ms: int = key(
        "kettle.stop.ms", INT64_MAX, at_least(1), "When to stop.", kind=ConfigType.LONG, unit="ms"
    )
    ratio: float = key("kettle.ratio", 0.5, between(0, 1), "How full.")
    whistle: bool = key("kettle.whistle", False, any_value(), "Whether it whistles.")
    teas: tuple[str, ...] = key("kettle.teas", ("green",), subset_of("green", "black"), "Teas.")
    colour: str = key("kettle.colour", "red", one_of("red", "blue"), "Its colour.")
    note: str | None = key("kettle.note", None, non_empty(), "A note.", kind=ConfigType.STRING)
    secret: str = key("kettle.secret", "x", any_value(), "A secret.", kind=ConfigType.PASSWORD)
    tuning: int = key("kettle.tuning", 7, at_least(0), "For tests.", is_internal=True)

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLikeConfig:
    """A setting without default."""

    node_id: int = key("node.id", REQUIRED, at_least(0), "The id.", kind=ConfigType.INT)

    def __post_init__(self) -> None:
        validate(self)


def test_the_declared_defaults_are_valid_and_frozen() -> None:
    config = KettleConfig()

    assert config.litres == 2
    with pytest.raises(FrozenInstanceError):
        config.litres = 3  # type: ignore[misc]  # That is what is tested.


def test_one_error_lists_every_fault_with_key_value_and_range() -> None:
    with pytest.raises(InvalidConfig) as caught:
        KettleConfig(litres=99, ratio=2.0, colour="green")

    text = str(caught.value)
    assert "3 invalid settings" in text
    assert "kettle.litres=99: must be from 1 to 10, or -1" in text
    assert "kettle.ratio=2.0: must be from 0 to 1" in text
    assert "kettle.colour=green: must be one of red, blue" in text


def test_a_single_fault_is_one_line() -> None:
    with pytest.raises(
        InvalidConfig, match=r"^invalid setting kettle.litres=0: must be from 1 to 10, or -1$"
    ):
        KettleConfig(litres=0)


def test_a_rule_between_settings_names_the_other_value() -> None:
    with pytest.raises(InvalidConfig, match=r"kettle.stop.ms=5: must be at least .*\(10\)"):
        KettleConfig(start_ms=10, stop_ms=5)


def test_a_rule_is_not_asked_about_values_that_are_wrong_by_themselves() -> None:
    faults = parse_faults(KettleConfig, {"kettle.start.ms": "soon", "kettle.stop.ms": "1"})

    assert [fault.key for fault in faults] == ["kettle.start.ms"]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("litres", "2"),
        ("litres", True),
        ("litres", 1 << 31),
        ("start_ms", 1 << 63),
        ("whistle", 1),
        ("ratio", "0.5"),
        ("ratio", float("nan")),
        ("teas", ["green"]),
        ("teas", (1,)),
        ("colour", 5),
        ("note", ""),
    ],
)
def test_values_of_the_wrong_type_or_width_are_refused(field: str, wrong: Any) -> None:
    with pytest.raises(InvalidConfig, match=f"kettle.{field.replace('_', '.')}="):
        KettleConfig(**{field: wrong})


def test_parse_reads_every_type_as_kafka_spells_it() -> None:
    config = parse(
        KettleConfig,
        {
            "kettle.litres": " +3 ",
            "kettle.start.ms": "12",
            "kettle.ratio": "2.5e-1",
            "kettle.whistle": "TRUE",
            "kettle.teas": "black, green,black,",
            "kettle.note": " hello ",
        },
    )

    assert (config.litres, config.start_ms, config.ratio) == (3, 12, 0.25)
    assert config.whistle is True
    assert config.teas == ("black", "green")
    assert config.note == "hello"


@pytest.mark.parametrize("text", ["1_0", "0x3", "", "3.0", "three", "٣"])
def test_parse_refuses_what_kafka_would_not_take_for_an_integer(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"kettle\.litres=.*from 1 to 10"):
        parse(KettleConfig, {"kettle.litres": text})


@pytest.mark.parametrize(
    ("name", "text"), [("whistle", "yes"), ("ratio", "nan"), ("ratio", "1_0.5"), ("ratio", "")]
)
def test_parse_refuses_other_unreadable_text(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"kettle.{name}="):
        parse(KettleConfig, {f"kettle.{name}": text})


def test_parse_reports_unreadable_unknown_and_out_of_range_together() -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(
            KettleConfig,
            {"kettle.litres": "many", "kettle.ratio": "7", "kettle.color": "red", "zebra": "1"},
        )

    text = str(caught.value)
    assert "4 invalid settings" in text
    assert "kettle.litres=many" in text
    assert "kettle.ratio=7.0" in text
    assert "kettle.color=...: must be a known setting (did you mean kettle.colour?)" in text
    assert "zebra=...: must be a known setting\n" in text + "\n"


def test_unknown_keys_can_be_left_to_the_caller() -> None:
    assert parse(KettleConfig, {"other.key": "1"}, ignore_unknown=True) == KettleConfig()
    assert parse_faults(KettleConfig, {"other.key": "1"}, ignore_unknown=True) == []
    assert [fault.key for fault in unknown_keys([KettleConfig], ["other.key"])] == ["other.key"]


def test_a_required_setting_must_be_given() -> None:
    with pytest.raises(InvalidConfig, match=r"node\.id=\(missing\): must be given: at least 0"):
        parse(NodeLikeConfig, {})

    assert parse(NodeLikeConfig, {"node.id": "4"}).node_id == 4


def test_parse_takes_what_is_not_named_from_the_given_defaults() -> None:
    config = parse(KettleConfig, {"kettle.ratio": "1"}, defaults=KettleConfig(litres=5))

    assert (config.litres, config.ratio) == (5, 1.0)


def test_the_finest_synonym_wins_and_coarser_units_are_scaled() -> None:
    both = {"kitchen.start.seconds": "9", "kitchen.start.ms": "1500"}

    assert from_synonyms(KettleConfig, both).start_ms == 1500
    assert from_synonyms(KettleConfig, {"kitchen.start.seconds": "9"}).start_ms == 9000
    with pytest.raises(InvalidConfig, match=r"kettle\.start\.ms=soon"):
        from_synonyms(KettleConfig, {"kitchen.start.seconds": "soon"})


def test_replace_changes_some_keys_and_checks_the_whole() -> None:
    config = KettleConfig(litres=5, start_ms=20)

    changed = replace(config, {"kettle.litres": None, "kettle.stop.ms": "30"})

    assert (changed.litres, changed.start_ms, changed.stop_ms) == (2, 20, 30)
    with pytest.raises(InvalidConfig, match=r"kettle\.stop\.ms=10"):
        replace(config, {"kettle.stop.ms": "10"})
    with pytest.raises(InvalidConfig, match=r"did you mean kettle\.litres"):
        replace(config, {"kettle.liters": "10"})


def test_properties_read_back_equal_and_hide_secrets() -> None:
    config = KettleConfig(teas=(), whistle=True, secret="hunter2", note=None)

    properties = to_properties(config)

    assert properties["kettle.secret"] == "[hidden]"
    assert properties["kettle.teas"] == ""
    del properties["kettle.secret"], properties["kettle.note"]
    assert parse(KettleConfig, properties, defaults=config) == config


def test_a_fault_of_a_secret_does_not_show_it() -> None:
    class Weird:
        def __str__(self) -> str:
            return "hunter2"

    with pytest.raises(InvalidConfig) as caught:
        KettleConfig(secret=Weird())  # type: ignore[arg-type]  # That is what is tested.

    assert "hunter2" not in str(caught.value)


def test_a_long_or_unprintable_value_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(KettleConfig, {"kettle.colour": "r\n" * 500})

    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_nearest_key_is_silent_when_nothing_is_near() -> None:
    assert nearest_key("kettle.litre", ["kettle.litres"]) == "kettle.litres"
    assert nearest_key("zebra", ["kettle.litres"]) is None


def test_each_item_of_a_list_is_checked() -> None:
    digits = each(str.isdigit, "a list of numbers")

    assert digits.accepts(("1", "22"))
    assert not digits.accepts(("1", "x"))


def test_the_type_must_be_told_when_the_default_does_not_tell_it() -> None:
    with pytest.raises(TypeError, match="kind="):
        key("kettle.lid", None, any_value(), "A lid.")


def test_the_reference_page_has_each_public_setting_in_order() -> None:
    page = render_reference(KettleConfig, with_update_mode=True)

    headings = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert headings == sorted(
        declared.name for declared in keys_of(KettleConfig).values() if not declared.is_internal
    )
    assert "- Default: `1000` (1 second)" in page
    assert "- Default: `9223372036854775807` (no limit)" in page
    assert "- Default: none" in page
    assert "- Allowed: from 1 to 10, or -1" in page
    assert "- Allowed: true or false" in page
    assert "- Broker default from: `kitchen.start.ms`, `kitchen.start.seconds`" in page
    assert "- Changes: read-only" in page


def test_the_reference_page_says_which_settings_must_be_given() -> None:
    assert "- Default: none, it must be given" in render_reference(NodeLikeConfig)
