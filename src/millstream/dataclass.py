"""`dataclass` as the standard library's, made in half of the time.

What a node imports has a hundred of these classes, and to make them took a sixth of its start: the
standard decorator compiles every method by itself. Here only `__init__` is compiled; the other
methods are shared functions over the names of the fields. Fields, their rules and slots are the
standard library's own, so `fields`, `replace` and `asdict` work. What a class defines itself wins.
For type checkers it is the standard one. Classes of the public interface use that, as docs do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from dataclasses import Field
    from dataclasses import dataclass as dataclass


class _Factory:
    """Stands for the default of an argument that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()
_ORDER: Final = {"__lt__": lt, "__le__": le, "__gt__": gt, "__ge__": ge}


class _Options(NamedTuple):
    """What the decorator was told; names and defaults are the standard one's."""

    frozen: bool = False
    slots: bool = False
    kw_only: bool = False
    order: bool = False
    eq: bool = True


if not TYPE_CHECKING:

    def dataclass(cls: type[Any] | None = None, /, **options: bool) -> Any:
        """Add methods to a class by its annotations; with or without arguments."""
        wanted = _Options(**options)
        if cls is None:
            return lambda decorated: _make(decorated, wanted)
        return _make(cls, wanted)


def _make(cls: type[Any], wanted: _Options) -> type[Any]:
    doc = cls.__doc__
    made: type[Any] = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=wanted.slots, kw_only=wanted.kw_only
    )(cls)
    methods: dict[str, Any] = {
        "__init__": _init_of(made, is_frozen=wanted.frozen),
        "__repr__": _repr_of(made),
    }
    if wanted.eq:
        methods |= _comparison_of(made, wanted)
    if wanted.frozen:
        methods |= _frozen_of(made)
    # Where there is none, the standard library has put the arguments, of which it knows none.
    made.__doc__ = doc
    for name, method in methods.items():
        # Python itself says that a class with an `__eq__` of its own has no hash.
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(made, name, method)
    return made


def _init_of(cls: type[Any], *, is_frozen: bool) -> Callable[..., None]:
    """The one method that is compiled: nothing else takes arguments by name."""
    every = fields(cls)
    space: dict[str, Any] = {
        "__name__": cls.__module__,
        "_set": object.__setattr__,
        "_factory": _FACTORY,
    }
    space |= {f"_default_{each.name}": _default_of(each) for each in every}
    has_slots = "__slots__" in cls.__dict__
    values = [(each.name, _value(each, has_slots=has_slots)) for each in every]
    text = "_set(self, '{}', {})" if is_frozen else "self.{} = {}"
    body = [text.format(name, value) for name, value in values if value]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({_arguments(every)}):\n {';'.join(body) or 'pass'}", space)
    made: Callable[..., None] = space.pop("__init__")
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in every if each.init}
    made.__annotations__["return"] = None
    return made


def _arguments(every: Iterable[Field[Any]]) -> str:
    taken = [each for each in every if each.init]
    by_place = ["self", *(_argument(each) for each in taken if not each.kw_only)]
    by_name = [_argument(each) for each in taken if each.kw_only]
    return ", ".join([*by_place, "*", *by_name] if by_name else by_place)


def _argument(each: Field[Any]) -> str:
    if each.default is not MISSING:
        return f"{each.name}=_default_{each.name}"
    return each.name if each.default_factory is MISSING else f"{each.name}=_factory"


def _default_of(each: Field[Any]) -> object:
    return each.default if each.default_factory is MISSING else each.default_factory


def _value(each: Field[Any], *, has_slots: bool) -> str:
    """What a field is set to; nothing if the class has its default, or it is set later."""
    default = f"_default_{each.name}"
    if each.default_factory is not MISSING:
        return (
            f"{default}() if {each.name} is _factory else {each.name}"
            if each.init
            else f"{default}()"
        )
    if each.init:
        return each.name
    return default if has_slots and each.default is not MISSING else ""


def _repr_of(cls: type[Any]) -> Callable[[object], str]:
    names = [each.name for each in fields(cls) if each.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _values_of(names: Sequence[str]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _comparison_of(cls: type[Any], wanted: _Options) -> dict[str, Any]:
    every = fields(cls)
    values = _values_of([each.name for each in every if each.compare])

    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    methods: dict[str, Any] = {"__eq__": __eq__, "__hash__": None}
    if wanted.frozen:
        hashed = [e.name for e in every if (e.compare if e.hash is None else e.hash)]
        methods["__hash__"] = _hash_over(_values_of(hashed))
    if wanted.order:
        methods |= {name: _ordered(compare, values) for name, compare in _ORDER.items()}
    return methods


def _hash_over(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:
        return hash(values(self))

    return __hash__


def _ordered(
    compare: Callable[[Any, Any], bool], values: Callable[[object], tuple[Any, ...]]
) -> Callable[[object, object], bool]:
    def compared(self: object, other: object) -> bool:
        return compare(values(self), values(other)) if type(other) is type(self) else NotImplemented

    return compared


def _frozen_of(cls: type[Any]) -> dict[str, Any]:
    """No attribute changes; who is copied or pickled has its values set beneath that."""
    names = [each.name for each in fields(cls)]
    kept = frozenset(names)

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in kept:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in kept:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __getstate__(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    methods: dict[str, Any] = {"__setattr__": __setattr__, "__delattr__": __delattr__}
    if "__slots__" in cls.__dict__:
        methods |= {"__getstate__": __getstate__, "__setstate__": __setstate__}
    return methods
