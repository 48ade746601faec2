"""How options of the format are read: names without case, all faults in one error.

`SourceOptions` and `SinkOptions` declare their options as `key(...)` fields, as settings are
declared everywhere; this turns what Spark hands over into values, and whatever is wrong with it
into one error. It knows no option by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.config import keys_of, nearest_key
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from millstream.config import Key

CLIENT_PREFIX: Final = "kafka."

_DURATION: Final = re.compile(r"([0-9]+)\s*([a-z]*)", re.ASCII)
_UNITS_MS: Final = {
    **dict.fromkeys(("", "ms"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


@dataclass(slots=True)
class ReadOptions:
    """What was given, sorted by whom it concerns, and what is wrong with it so far."""

    values: dict[str, Any] = field(default_factory=dict)
    """Values of the declared options, by the names of their fields."""
    client: dict[str, str] = field(default_factory=dict)
    """The client's settings by Kafka's names, without the prefix."""
    others: dict[str, str] = field(default_factory=dict)
    """Options of somebody else, as they were given, by their proper names."""
    faults: list[str] = field(default_factory=list)

    def check(self, name: str, is_fine: bool, must: str) -> None:
        """Note a fault of an option unless it is fine."""
        if not is_fine:
            self.faults.append(f"{name}: {must}")

    def raise_faults(self) -> None:
        """Raise one InvalidArgument with everything that is wrong, if anything is."""
        if len(self.faults) == 1:
            raise InvalidArgument(f"invalid option {self.faults[0]}")
        if self.faults:
            lines = "".join(f"\n  {each}" for each in self.faults)
            raise InvalidArgument(f"{len(self.faults)} invalid options:{lines}")


def read_options(
    options: Mapping[str, Any],
    options_class: type,
    client_class: type,
    *,
    refused_client_settings: Mapping[str, str],
    others: Collection[str] = (),
) -> ReadOptions:
    """Sort and parse options; names are compared without regard to case.

    `client_class` declares the client's settings; those refused have a reason each. `others` are
    names that are passed on as they are.
    """
    read = ReadOptions()
    declared = {each.name.lower(): (name, each) for name, each in keys_of(options_class).items()}
    client = {each.name: each for each in keys_of(client_class).values()}
    proper = {each.lower(): each for each in others}
    known = [key.name for _, key in declared.values()]
    known += [*others, *(CLIENT_PREFIX + each for each in client)]
    for name, given in options.items():
        lower = name.lower()
        if given is None:
            continue
        if lower.startswith(CLIENT_PREFIX) and lower not in declared:
            setting = lower.removeprefix(CLIENT_PREFIX)
            _read_client_setting(read, setting, given, client, refused_client_settings, known)
        elif lower in declared:
            field_name, key = declared[lower]
            read.values[field_name] = _parsed(read, key, key.name, given)
        elif lower in proper:
            read.others[proper[lower]] = _text(given)
        else:
            read.faults.append(_unknown(name, known))
    if "bootstrap.servers" not in read.client:
        read.faults.append("kafka.bootstrap.servers: missing; host:port of one broker or more")
    return read


def is_true(options: Mapping[str, Any], name: str) -> bool:
    """Whether an option that is true or false is true, in whichever case its name is written."""
    return any(
        key.lower() == name.lower() and _text(value).strip().lower() == "true"
        for key, value in options.items()
    )


def parse_duration_ms(text: str) -> int:
    """A duration as Spark writes it: 500ms, 30s, 15m, 1h, 2d; milliseconds without a unit."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise InvalidArgument(f"{text!r} is no duration such as 500ms, 30s, 15m, 1h or 2d")
    return int(match[1]) * _UNITS_MS[match[2]]


def _read_client_setting(
    read: ReadOptions,
    setting: str,
    given: object,
    client: Mapping[str, Key],
    refused: Mapping[str, str],
    known: Collection[str],
) -> None:
    name = CLIENT_PREFIX + setting
    if setting in refused:
        read.faults.append(f"{name}: {refused[setting]}")
    elif setting not in client:
        read.faults.append(_unknown(name, known))
    else:
        _parsed(read, client[setting], name, given)
        read.client[setting] = _text(given)


def _parsed(read: ReadOptions, key: Key, name: str, given: object) -> object:
    text = _text(given)
    try:
        value = key.parse(text)
    except ValueError:
        value = None
        must_be: str | None = key.allowed_texts
    else:
        must_be = key.fault_of(value)
    if must_be is not None:
        shown = "[hidden]" if key.is_sensitive else repr(text)
        read.faults.append(f"{name}={shown}: must be {must_be}")
    return value


def _text(given: object) -> str:
    """Spark makes text of most values on the way; what is left is a bool, a number or text."""
    return str(given).lower() if isinstance(given, bool) else str(given)


def _unknown(name: str, known: Collection[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = nearest_key(name.lower(), by_lower)
    hint = f"; did you mean {by_lower[near]}?" if near else ""
    return f"{name}: there is no such option{hint}"
