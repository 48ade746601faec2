"""Trees of a file into the frozen values of a definition, by the types of their fields.

`loading` calls it. Every fault is noted with its place and reading goes on; a value that cannot
be read leaves its field at the default, or nothing where there is none.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union

from millstream.spark.pipelines.schema import (
    Fault,
    Named,
    Place,
    is_required,
    nearest,
    settings_of,
)
from millstream.spark.pipelines.yaml_tree import Entries, Items, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.spark.pipelines.yaml_tree import Tree

T = TypeVar("T")
_UNREADABLE: Final[Any] = object()
_WORDS: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class Reading:
    """Reads values and gathers their faults."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def fault(self, place: Place, problem: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(place, problem))

    def mapping(
        self,
        cls: type[T],
        tree: Tree,
        what: str,
        *,
        name: str | None = None,
        place: Place | None = None,
        extra: tuple[str, ...] = (),
        readers: Mapping[str, Callable[[Tree], Any]] | None = None,
    ) -> T | None:
        """A dataclass from a mapping; None if a key that must be given could not be read.

        `extra` are keys that the caller reads itself, `readers` read keys in a way of their own.
        """
        only_key: str | None = getattr(cls, "only_key", None)
        if only_key is not None and isinstance(tree, Scalar):
            tree = Entries(tree.place, {only_key: (tree.place, tree)})
        if not isinstance(tree, Entries):
            self.fault(tree.place, f"{what} must be a mapping of keys to values")
            return None
        declared = settings_of(cls)
        self._unknown(tree, [*declared, *extra], what)
        values, is_whole = self._fields(cls, tree, what, readers or {})
        if not is_whole:
            return None
        if issubclass(cls, Named):
            values |= {"name": name or "", "place": place or tree.place}
        made = cls(**values)
        check = getattr(made, "faults", None)
        for problem in () if check is None else check():
            self.fault(place or tree.place, f"{what}: {problem}")
        return made

    def _unknown(self, tree: Entries, known: list[str], what: str) -> None:
        for key, (place, _) in tree.entries.items():
            if key not in known:
                hint = nearest(key, known) or f"; it has {', '.join(sorted(known))}"
                self.fault(place, f"{what} has no key {key!r}{hint}")

    def _fields(
        self, cls: type, tree: Entries, what: str, readers: Mapping[str, Callable[[Tree], Any]]
    ) -> tuple[dict[str, Any], bool]:
        """Values by field, and whether all that must be given are there."""
        hints = type_hints(cls)
        values: dict[str, Any] = {}
        is_whole = True
        for key, (field, declared) in settings_of(cls).items():
            if key not in tree.entries:
                if is_required(field):
                    is_whole = False
                    self.fault(tree.place, f"{what} needs the key {key!r}")
                continue
            value_tree = tree.entries[key][1]
            where = f"`{key}` of {what}"
            if key in readers:
                value = readers[key](value_tree)
            else:
                value = self.value(hints[field.name], value_tree, where)
            if value is not _UNREADABLE and value is not None and declared.check is not None:
                problem = declared.check(value)
                if problem is not None:
                    self.fault(value_tree.place, f"{where}: {problem}")
                    value = _UNREADABLE
            if value is not _UNREADABLE:
                values[field.name] = value
            elif is_required(field):
                is_whole = False
        return values, is_whole

    def value(self, hint: Any, tree: Tree, where: str) -> Any:
        """A value of a type; a marker if it is none."""
        hint, is_optional = without_none(hint)
        if isinstance(tree, Scalar) and tree.value is None and is_optional:
            return None
        origin = typing.get_origin(hint)
        if origin is tuple:
            return self._tuple(typing.get_args(hint)[0], tree, where)
        if origin is Mapping:
            return self._texts(tree, where)
        if dataclasses.is_dataclass(hint):
            found = self.mapping(typing.cast("type[Any]", hint), tree, where)
            return _UNREADABLE if found is None else found
        return self._scalar(hint, tree, where)

    def _tuple(self, hint: Any, tree: Tree, where: str) -> Any:
        # One alone needs no list: `from: orders`.
        items = tree.items if isinstance(tree, Items) else (tree,)
        values = [self.value(hint, each, where) for each in items]
        return _UNREADABLE if _UNREADABLE in values else tuple(values)

    def _texts(self, tree: Tree, where: str) -> Any:
        if not isinstance(tree, Entries):
            self.fault(tree.place, f"{where} must be a mapping of names to values")
            return _UNREADABLE
        values = {}
        for key, (place, each) in tree.entries.items():
            if isinstance(each, Scalar) and each.value is None:
                hint = "; within braces, put a text that has a comma in quotes"
                self.fault(place, f"{key!r} in {where} has no value{hint}")
                values[key] = _UNREADABLE
            else:
                values[key] = self.value(str, each, f"{key!r} in {where}")
        return _UNREADABLE if _UNREADABLE in values.values() else values

    def _scalar(self, hint: Any, tree: Tree, where: str) -> Any:
        if isinstance(tree, Scalar):
            value = tree.value
            if hint is str and value is not None:
                return tree.text
            if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
            if type(value) is hint:
                return value
        given = repr(tree.text) if isinstance(tree, Scalar) and tree.text else "what is here"
        self.fault(tree.place, f"{where} must be {_WORDS[hint]}, not {given}")
        return _UNREADABLE


def without_none(hint: Any) -> tuple[Any, bool]:
    """A type, and whether it may be left empty."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        arguments = [each for each in typing.get_args(hint) if each is not type(None)]
        return arguments[0], True
    return hint, False


def type_hints(cls: type) -> dict[str, Any]:
    """Types of the fields. Their modules import some names for the type checker only."""
    return typing.get_type_hints(cls, localns={"Mapping": Mapping, "Path": Path, "Sink": Any})
