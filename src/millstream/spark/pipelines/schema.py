"""How the keys of a pipeline's definition are declared, and where in a file a fault is.

Every mapping of a definition is a frozen dataclass whose fields come from `setting`; reading,
checking and the reference page follow from these declarations. Nothing here knows Spark.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_METADATA: Final = "millstream.pipelines.setting"
_REQUIRED: Final[Any] = object()
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_INTERVAL: Final = re.compile(
    r"(\d+(\.\d+)?\s*(millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a file of the definition; lines and columns count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file or "the definition"
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE: Final = Place()


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with a definition, and where."""

    place: Place
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Context:
    """What sources and sinks are told of the whole: see their `within`."""

    pipeline: str
    directory: Path
    bootstrap_servers: str | None = None
    client: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kept: str = "state"
    """Where what must outlive a run is kept: the checkpoints' place, else the storage."""

    def path(self, given: str) -> str:
        """A path of the definition, which is relative to its file; an address stays as it is."""
        if _ADDRESS.match(given) or Path(given).is_absolute():
            return given
        return str(self.directory / given)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its name in the file, its sentence in the reference, its check."""

    doc: str
    check: Callable[[Any], str | None] | None = None
    is_hidden: bool = False


def setting(
    doc: str, default: Any = _REQUIRED, *, check: Callable[[Any], str | None] | None = None
) -> Any:
    """Declare a key. Without a default it must be given; `check` says what is wrong with a value.

    The key is the field's name; a trailing underscore (`from_`) is left out.
    """
    return _field(Setting(doc, check), default)


def unset(default: Any) -> Any:
    """Declare a field that the file does not give: the loader fills it in."""
    return _field(Setting("", is_hidden=True), default)


def _field(declared: Setting, default: Any) -> Any:
    metadata = {_METADATA: declared}
    if default is _REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(
        default=default, metadata=metadata, compare=not isinstance(default, Place)
    )


def settings_of(declaring: type) -> dict[str, tuple[dataclasses.Field[Any], Setting]]:
    """The keys of a mapping of the definition, in their order; hidden fields are left out."""
    found = {}
    for field in dataclasses.fields(declaring):
        declared: Setting | None = field.metadata.get(_METADATA)
        if declared is not None and not declared.is_hidden:
            found[key_of(field)] = (field, declared)
    return found


def key_of(field: dataclasses.Field[Any]) -> str:
    """A field's name as the file has it."""
    return field.name.rstrip("_")


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether the key must be given."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Something of a definition that has a name: a source, a view, a sink."""

    name: str = unset("")
    place: Place = unset(NOWHERE)

    def faults(self) -> Iterable[str]:
        """What is wrong with the keys together, each by itself being right."""
        return ()


# Checks that many keys share.


def an_interval(value: Any) -> str | None:
    """The value is a duration as Spark reads it."""
    if _INTERVAL.fullmatch(str(value).strip()):
        return None
    return f"{value!r} is no duration; write it as 10 seconds, 5 minutes or 1 hour"


def not_negative(value: Any) -> str | None:
    """The value is 0 or above, and has an end."""
    return None if 0 <= value < math.inf else f"{value!r} is below 0 or without end"


def positive(value: Any) -> str | None:
    """The value is above 0, and has an end."""
    if value == math.inf:
        return f"{value!r} is not a number with an end"
    return None if value > 0 else f"{value!r} is not above 0"


def one_of(*choices: str) -> Callable[[Any], str | None]:
    """The value is one of some words."""

    def check(value: Any) -> str | None:
        if value in choices:
            return None
        return f"{value!r} is not one of {', '.join(choices)}{nearest(str(value), choices)}"

    check.choices = choices  # type: ignore[attr-defined]  # Read by the reference page.
    return check


def a_topic(value: Any) -> str | None:
    """The value can name a topic."""
    if _TOPIC.fullmatch(str(value)):
        return None
    return f"{value!r} cannot be a topic's name: use letters, digits, '.', '_' and '-'"


def nearest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if there is something close, else nothing."""
    matches = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def raise_for(faults: Sequence[Fault]) -> None:
    """Raise one error for all the faults, in the order of the file; nothing if there is none."""
    if faults:
        # A fault that follows from another is told once.
        ordered = sorted(dict.fromkeys(faults))
        raise InvalidPipeline("\n".join(map(str, ordered)), faults=tuple(ordered))
