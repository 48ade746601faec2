"""What sources and sinks have in common, and how definitions find them: by the name of a format.

`sources` and `sinks` each have their `Formats`; a connector registers its class there. Nothing here
knows Spark.
"""

from __future__ import annotations

import importlib
from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, cast

from millstream.spark.pipelines.schema import Named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from millstream.spark.pipelines.schema import Context

_REGISTERING: Final = (
    "millstream.spark.pipelines.topics",
    "millstream.spark.pipelines.files",
    "millstream.spark.pipelines.connectors",
)
"""Modules that register sources and sinks when they are imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector(Named, ABC):
    """A source or a sink: a frozen dataclass whose fields are its keys."""

    format: ClassVar[str]
    """Its name in definitions; registering sets it."""
    subject_keys: ClassVar[tuple[str, ...]] = ()
    """The keys that say what it reads or writes. None of them is a secret."""

    @property
    def subject(self) -> str:
        """What it reads or writes, in a few words: its format, and the topic, path or table."""
        given = (getattr(self, key) for key in self.subject_keys)
        texts = (", ".join(each) if isinstance(each, tuple) else each for each in given if each)
        return " ".join((self.format, *texts))

    def within(self, context: Context) -> Self:
        """This, with what the definition says for all."""
        return self


C = TypeVar("C", bound=Connector)
R = TypeVar("R", bound=type[Connector])


class Formats(Generic[C]):
    """Classes of connectors by their names in definitions."""

    def __init__(self) -> None:
        self._classes: dict[str, type[C]] = {}

    def register(self, name: str) -> Callable[[R], R]:
        """Register a class under a name: `@source("topic")`."""

        def add(cls: R) -> R:
            cls.format = name
            self._classes[name] = cast("type[C]", cls)
            return cls

        return add

    def known(self) -> Mapping[str, type[C]]:
        """Every class, in the order of the names."""
        for module in _REGISTERING:
            importlib.import_module(module)
        return dict(sorted(self._classes.items()))
