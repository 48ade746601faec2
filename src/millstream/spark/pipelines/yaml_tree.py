"""A YAML file as values that know their place. `reading` makes typed settings of them.

PyYAML's composer is used and not its constructor, which forgets lines and lets the second of two
equal keys win in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import MillstreamError
from millstream.spark.pipelines.schema import Fault, Place
from millstream.spark.pipelines.variables import substitute

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_TOO_DEEP: Final = "it is nested too deep, or an alias stands for itself"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, a number, true or false, or nothing (None)."""

    place: Place
    value: str | int | float | bool | None
    text: str
    """As the file has it, with its variables replaced."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    place: Place
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping; each key has its own place."""

    place: Place
    entries: Mapping[str, tuple[Place, Tree]]


Tree: TypeAlias = Scalar | Items | Entries


def parse_yaml(
    text: str, file: str, environment: Mapping[str, str]
) -> tuple[Tree | None, list[Fault]]:
    """The tree of a file, and what is wrong with it as YAML; None if it cannot be read at all."""
    try:
        import yaml
    except ImportError as error:
        raise MillstreamError(
            "pipelines are defined in YAML, which needs PyYAML: pip install 'millstream[spark]'"
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return None, [_syntax_fault(error, file)]
    except RecursionError:
        return None, [Fault(Place(file, 1, 1), _TOO_DEEP)]
    if root is None:
        return None, [Fault(Place(file, 1, 1), "the file is empty")]
    reader = _Reader(file, environment)
    try:
        return reader.tree(root), reader.faults
    except RecursionError:
        return None, [Fault(Place(file, 1, 1), _TOO_DEEP)]


def _syntax_fault(error: Any, file: str) -> Fault:
    mark = getattr(error, "problem_mark", None)
    place = Place(file) if mark is None else Place(file, mark.line + 1, mark.column + 1)
    problem = getattr(error, "problem", None) or str(error)
    return Fault(place, f"this is no YAML: {problem}")


class _Reader:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        import yaml

        self.faults: list[Fault] = []
        self._file = file
        self._environment = environment
        self._yaml = yaml
        self._constructor: Any = yaml.SafeLoader("")

    def tree(self, node: Any) -> Tree:
        """A node and everything below it."""
        place = Place(self._file, node.start_mark.line + 1, node.start_mark.column + 1)
        if isinstance(node, self._yaml.MappingNode):
            return self._entries(node, place)
        if isinstance(node, self._yaml.SequenceNode):
            return Items(place, tuple(self.tree(each) for each in node.value))
        return self._scalar(node, place)

    def _entries(self, node: Any, place: Place) -> Entries:
        entries: dict[str, tuple[Place, Tree]] = {}
        for key_node, value_node in node.value:
            key = self.tree(key_node)
            if not isinstance(key, Scalar):
                self.faults.append(Fault(key.place, "a key must be a word"))
                continue
            if key.text in entries:
                first = entries[key.text][0]
                self.faults.append(
                    Fault(key.place, f"{key.text!r} is here twice, first in line {first.line}")
                )
                continue
            entries[key.text] = (key.place, self.tree(value_node))
        return Entries(place, entries)

    def _scalar(self, node: Any, place: Place) -> Scalar:
        text, problems = substitute(node.value, self._environment)
        self.faults += [Fault(place, problem) for problem in problems]
        tag = node.tag
        if text != node.value:
            # A variable may be a number: `rows: ${ROWS:-3}`. Within braces it must be in quotes,
            # as YAML has braces of its own, and may be a number all the same.
            tag = self._constructor.resolve(self._yaml.ScalarNode, text, (True, False))
        return Scalar(place, self._value(tag, text, node), text)

    def _value(self, tag: str, text: str, node: Any) -> str | int | float | bool | None:
        plain = self._yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        try:
            value = self._constructor.construct_object(plain)
        except (self._yaml.YAMLError, ValueError):
            return text
        # A date stays the text that it is in the file: Spark reads it by itself.
        return value if value is None or isinstance(value, str | int | float | bool) else text
