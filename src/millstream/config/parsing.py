"""Settings from and to the strings of properties files, command lines and requests.

`node` parses server.properties with it, the admin handlers parse topic settings. One error
lists everything that is wrong: values that are no numbers, values out of range, unknown keys.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.config.keys import REQUIRED, Key, keys_of
from millstream.config.validation import Fault, find_faults, raise_for, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

S = TypeVar("S")


def parse(
    settings_class: type[S],
    properties: Mapping[str, str],
    *,
    defaults: S | None = None,
    ignore_unknown: bool = False,
) -> S:
    """Make a settings object from strings, or raise one `InvalidConfig` for all the faults.

    What `properties` does not name comes from `defaults`, else from the declarations.
    Synonyms are not consulted: they belong to another level (see `from_synonyms`).
    """
    values, faults = _read(settings_class, properties, _defaults(settings_class, defaults))
    if not ignore_unknown:
        faults += unknown_keys([settings_class], properties)
    raise_for(faults)
    return settings_class(**values)


def parse_faults(
    settings_class: type, properties: Mapping[str, str], *, ignore_unknown: bool = False
) -> list[Fault]:
    """All that is wrong with the strings, as values: what `parse` would raise."""
    _, faults = _read(settings_class, properties, _defaults(settings_class, None))
    return faults if ignore_unknown else faults + unknown_keys([settings_class], properties)


def from_synonyms(settings_class: type[S], properties: Mapping[str, str]) -> S:
    """A settings object whose values come from the synonyms' keys: a topic's broker defaults.

    The first synonym that is present wins, so the finer unit is declared first.
    """
    translated: dict[str, str] = {}
    for declared in keys_of(settings_class).values():
        for synonym in declared.synonyms:
            text = properties.get(synonym.name)
            if text is not None:
                translated[declared.name] = _scaled(text, synonym.scale)
                break
    return parse(settings_class, translated)


def replace(settings: S, changes: Mapping[str, str | None]) -> S:
    """A new validated settings object with some keys changed; None takes the declared default."""
    keys = keys_of(type(settings))
    reset = {
        name: each.default for name, each in keys.items() if changes.get(each.name, "") is None
    }
    defaults = {name: reset.get(name, getattr(settings, name)) for name in keys}
    texts = {name: text for name, text in changes.items() if text is not None}
    values, faults = _read(type(settings), texts, defaults)
    raise_for(faults + unknown_keys([type(settings)], changes))
    return type(settings)(**values)


def to_properties(settings: object) -> dict[str, str]:
    """Kafka's keys and the values as text, in order of declaration; passwords stay hidden."""
    return {
        declared.name: declared.format(getattr(settings, field_name))
        for field_name, declared in keys_of(type(settings)).items()
    }


def unknown_keys(settings_classes: Iterable[type], names: Iterable[str]) -> list[Fault]:
    """A fault for each name that none of the classes declares, with the nearest one that exists."""
    known = {declared.name for each in settings_classes for declared in keys_of(each).values()}
    faults = []
    for name in names:
        if name not in known:
            near = nearest_key(name, known)
            hint = f" (did you mean {near}?)" if near else ""
            faults.append(Fault(shown(name), "...", f"a known setting{hint}"))
    return faults


def nearest_key(name: str, known: Iterable[str]) -> str | None:
    """The known key that was probably meant."""
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    return matches[0] if matches else None


def _read(
    settings_class: type, properties: Mapping[str, str], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Fault]]:
    """Field values, and every fault of them."""
    values: dict[str, Any] = {}
    faults = []
    unreadable = set()
    for field_name, declared in keys_of(settings_class).items():
        text = properties.get(declared.name)
        values[field_name] = defaults[field_name]
        if text is not None:
            try:
                values[field_name] = declared.parse(text)
            except ValueError:
                unreadable.add(field_name)
                shown_text = _shown_text(declared, text)
                faults.append(Fault(declared.name, shown_text, declared.allowed_texts))
        elif values[field_name] is REQUIRED:
            unreadable.add(field_name)
            faults.append(Fault(declared.name, "(missing)", f"given: {declared.allowed}"))
    return values, faults + find_faults(settings_class, values, unreadable)


def _defaults(settings_class: type, defaults: object | None) -> dict[str, Any]:
    keys = keys_of(settings_class)
    if defaults is None:
        return {name: declared.default for name, declared in keys.items()}
    return {name: getattr(defaults, name) for name in keys}


def _scaled(text: str, scale: int) -> str:
    """The text in the finer unit; left alone when it is no number, so that `parse` says so."""
    try:
        number = int(text)
    except ValueError:
        return text
    return text if number < 0 else str(number * scale)


def _shown_text(declared: Key, text: str) -> str:
    return "[hidden]" if declared.is_sensitive else shown(text)
