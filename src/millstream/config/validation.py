"""Checks a whole settings object and reports every fault at once.

Called from the `__post_init__` of each settings class, so that no invalid one can exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.config.keys import keys_of
from millstream.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

_SHOWN_VALUE_LENGTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a configuration: which key, which value, what it must be."""

    key: str
    value: str
    must_be: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}: must be {self.must_be}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition between several settings; the first named field gets the blame.

    A settings class lists its rules as `RULES`. A rule is asked only when each of its fields is
    valid by itself; it sees the values by field name. `must_be` may name values:
    "at least min.compaction.lag.ms ({min_compaction_lag_ms})".
    """

    fields: tuple[str, ...]
    holds: Callable[..., bool]
    must_be: str


def validate(settings: Any) -> None:
    """Raise one `InvalidConfig` that lists every fault of a settings object."""
    values = {name: getattr(settings, name) for name in keys_of(type(settings))}
    raise_for(find_faults(type(settings), values))


def find_faults(
    settings_class: type, values: Mapping[str, Any], unreadable: AbstractSet[str] = frozenset()
) -> list[Fault]:
    """Faults of single values, then of the rules whose values are all fine.

    Fields in `unreadable` have no real value and are left out.
    """
    keys = keys_of(settings_class)
    faults = []
    faulty = set(unreadable)
    for name, declared in keys.items():
        must_be = None if name in unreadable else declared.fault_of(values[name])
        if must_be is not None:
            faulty.add(name)
            faults.append(Fault(declared.name, shown(declared.format(values[name])), must_be))
    rules: Sequence[Rule] = getattr(settings_class, "RULES", ())
    for rule in rules:
        if faulty.isdisjoint(rule.fields) and not rule.holds(*(values[f] for f in rule.fields)):
            blamed = keys[rule.fields[0]]
            value = shown(blamed.format(values[rule.fields[0]]))
            faults.append(Fault(blamed.name, value, rule.must_be.format_map(values)))
    return faults


def raise_for(faults: Sequence[Fault]) -> None:
    """Raise the one error for all the faults, if there are any."""
    if not faults:
        return
    if len(faults) == 1:
        raise InvalidConfig(f"invalid setting {faults[0]}")
    listed = "".join(f"\n  {fault}" for fault in faults)
    raise InvalidConfig(f"{len(faults)} invalid settings:{listed}")


def shown(value: str) -> str:
    """A value fit for one line of an error message."""
    printable = value if value.isprintable() else repr(value)
    if len(printable) <= _SHOWN_VALUE_LENGTH_MAX:
        return printable
    return f"{printable[:_SHOWN_VALUE_LENGTH_MAX]}... ({len(value)} characters)"
